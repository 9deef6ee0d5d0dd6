"""`down`: the steps of `up` backwards, a platform's own first. What holds data is kept unless the user names it; then
the data goes first, and its stack after it: CloudFormation cannot delete a security group that a file system uses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainwright.aws.cloudformation import Stack, StackApi
from trainwright.aws.fsx import FsxApi
from trainwright.aws.s3 import BucketApi
from trainwright.aws.session import Account, aws_errors
from trainwright.errors import UserError, did_you_mean
from trainwright.platforms.apply.base import Say
from trainwright.platforms.apply.stack_steps import StackDown
from trainwright.platforms.apply.steps import BuildFailed, Step

HOLDS_DATA = {
    "bucket": "the bucket with every object in it",
    "lustre": "the Lustre file system with every file on it",
    "openzfs": "the OpenZFS file system with every file on it",
    "accounting": "the database of job records; a last snapshot is kept",
}
NETWORK = "network"
SHOWN_JOBS = 10
SHARED = (*HOLDS_DATA, NETWORK, "capacity", "directory", "karpenter")
LOOKS = 60  # at network interfaces that should go: about twenty minutes
IN_THE_NETWORK = ("lustre", "openzfs", "accounting")


def kind_of(key: str) -> str:
    """network, bucket, lustre, openzfs, accounting, capacity, karpenter: the template of a stack, from its key."""
    return key.split("-")[0]


class JobsOnCluster(UserError):
    """Jobs wait or run on a cluster that is to be removed."""

    status = 1

    def __init__(self, cluster: str, jobs: Sequence[str]) -> None:
        more = f" and {len(jobs) - SHOWN_JOBS} more" if len(jobs) > SHOWN_JOBS else ""
        super().__init__(
            f"jobs wait or run on cluster {cluster} ({len(jobs)}): {'; '.join(jobs[:SHOWN_JOBS])}{more}",
            fix="wait until they are over, `trainwright cancel` them, or `down --force`",
        )


@dataclass
class Removal:
    """One cluster on its way out, known by its name and region alone. This class removes the stacks that all platforms
    share; a platform's own class names its other stacks and says what goes before the shared ones."""

    name: str
    account: Account

    def __post_init__(self) -> None:
        self.stacks = StackApi(self.account)
        self.buckets = BucketApi(self.account)
        self.fsx = FsxApi(self.account)

    @property
    def logs(self) -> str:
        """Where the cluster's logs stay, in words."""
        return "CloudWatch"

    def own_stacks(self, stacks: Mapping[str, Stack]) -> dict[str, Stack]:
        """Key -> stack of what only this platform makes, out of all stacks of the cluster by their name."""
        return {}

    def own_steps(self, existing: Mapping[str, Stack]) -> list[Step]:
        """What is removed before the shared stacks."""
        return []

    def require_idle(self, existing: Mapping[str, Stack], force: bool) -> None:
        """Refuse where jobs wait or run, unless `force`; a platform that can list them does."""

    def existing(self) -> dict[str, Stack]:
        """The stacks of this cluster by their key, the platform's own first."""
        prefix = f"{self.name}-"
        stacks = {stack.name: stack for stack in self.stacks.of_cluster(self.name)}
        keyed = {n.removeprefix(prefix): s for n, s in stacks.items() if n.startswith(prefix)}
        return {**self.own_stacks(stacks), **{key: s for key, s in keyed.items() if kind_of(key) in SHARED}}

    def data(self, existing: Mapping[str, Stack]) -> dict[str, str]:
        """Key -> what would be lost, of everything that holds data."""
        return {key: HOLDS_DATA[kind_of(key)] for key in existing if kind_of(key) in HOLDS_DATA}

    def holding_data(self, existing: Mapping[str, Stack]) -> list[str]:
        return [key for key in existing if kind_of(key) in HOLDS_DATA]

    def steps(self, existing: Mapping[str, Stack], named: Sequence[str]) -> tuple[list[Step], list[str]]:
        """The steps, and the keys of the stacks that are kept. `named`: stacks whose data the user gives up."""
        kept = self._kept(existing, named)
        steps = self.own_steps(existing)
        after = tuple(step.key for step in steps)
        inner = [key for key in existing if kind_of(key) in SHARED and key not in (*kept, NETWORK)]
        steps += [self.stack_step(key, existing[key], after) for key in inner]
        if NETWORK in existing and NETWORK not in kept:
            steps.append(self.stack_step(NETWORK, existing[NETWORK], (*after, *inner)))
        return steps, kept

    def _kept(self, existing: Mapping[str, Stack], named: Sequence[str]) -> list[str]:
        data = self.holding_data(existing)
        for key in named:
            # One that is gone already is no mistake: the same command may be run again.
            if kind_of(key) not in HOLDS_DATA:
                known = did_you_mean(key, data) or (f"it has {', '.join(data)}" if data else "leave --delete-data out")
                raise UserError(f"cluster {self.name} has no stack {key!r} that holds data", fix=known)
        kept = [key for key in data if key not in named]
        in_network = any(kind_of(key) in IN_THE_NETWORK for key in kept)
        return [*kept, NETWORK] if in_network and NETWORK in existing else kept

    def stack_step(self, key: str, stack: Stack, needs: tuple[str, ...]) -> StackDown:
        step = StackDown(key, f"stack {stack.name}", needs, api=self.stacks, name=stack.name)
        removers = {
            "lustre": self._file_system_gone,
            "openzfs": self._file_system_gone,
            "bucket": self._bucket_gone,
            "accounting": self._unprotected,
            "network": self._interfaces_gone,
        }
        remove = removers.get(kind_of(key))
        if remove is not None:
            step.before = lambda stack: remove(stack, step)
        return step

    def _file_system_gone(self, stack: Stack, step: StackDown) -> bool:
        row = self.fsx.find(stack.outputs["FileSystemId"]) if "FileSystemId" in stack.outputs else None
        if row is None:
            return True
        if row.state != "DELETING":
            self.fsx.delete(row)
        step.now("removing", f"file system {row.id}")
        return False

    def _bucket_gone(self, stack: Stack, step: StackDown) -> bool:
        if "BucketName" in stack.outputs:
            self.buckets.remove(stack.outputs["BucketName"])
        return True

    def _unprotected(self, stack: Stack, step: StackDown) -> bool:
        """The database refuses its deletion until the stack says otherwise."""
        if stack.parameters.get("Protect", "false") == "false":
            return True
        title = "trainwright-unprotect"
        parameters = {**stack.parameters, "Protect": "false"}
        seen = self.stacks.changes(stack.name, title)
        if seen is None:
            self.stacks.change(stack.name, title, self.stacks.template(stack.name), parameters, stack.tags)
        elif seen[0] == "CREATE_COMPLETE":
            self.stacks.execute(stack.name, title)
        step.now("removing", "taking the deletion protection off")
        return False

    def _interfaces_gone(self, stack: Stack, step: StackDown) -> bool:
        """Wait for the network interfaces of what was removed; AWS takes them away a while later."""
        if "Vpc" not in stack.outputs:
            return True
        only = [{"Name": "vpc-id", "Values": [stack.outputs["Vpc"]]}]
        with aws_errors("network interfaces"):
            rows = self.account.client("ec2").describe_network_interfaces(Filters=only)["NetworkInterfaces"]
        left = [row for row in rows if row.get("InterfaceType") != "nat_gateway" and not _is_nat(row)]
        if left:
            step.blocked += 1
            words = ", ".join(f"{row['NetworkInterfaceId']} ({row.get('Description') or 'in use'})" for row in left[:3])
            step.now("waiting", f"for network interfaces to go: {words}")
            if step.blocked > LOOKS:
                raise BuildFailed(
                    f"the network of {self.name} is still used by {words}",
                    fix="remove what uses them (instances, endpoints, other file systems), then run `down` again",
                )
        return not left


@dataclass
class SlurmRemoval(Removal, ABC):
    """One whose jobs a machine of the cluster lists. A machine that cannot be asked must not keep a cluster alive: it
    is said, and the question that follows is the user's."""

    say: Say = lambda words: None

    @abstractmethod
    def open_jobs(self, existing: Mapping[str, Stack]) -> list[str] | None:
        """The jobs that wait or run; None where there is no cluster."""

    def require_idle(self, existing: Mapping[str, Stack], force: bool) -> None:
        if force:
            return
        try:
            jobs = self.open_jobs(existing)
        except UserError as error:
            self.say(f"jobs on {self.name}: unknown ({error.what}); those that run are ended with it")
            return
        if jobs:
            raise JobsOnCluster(self.name, jobs)
        if jobs is not None:
            self.say(f"jobs on {self.name}: none")


def _is_nat(row: dict[str, object]) -> bool:
    return "nat gateway" in str(row.get("Description", "")).lower()
