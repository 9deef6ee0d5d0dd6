"""`down`: the steps of `up` backwards. What holds data is kept unless the user names it; then the data goes first, and
its stack after it: CloudFormation cannot delete a security group that a file system still uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.aws.cloudformation import Stack, StackApi
from trainwright.aws.fsx import FsxApi
from trainwright.aws.s3 import BucketApi
from trainwright.aws.session import Account, aws_errors
from trainwright.errors import UserError, did_you_mean
from trainwright.platforms.parallelcluster.apply.cluster_steps import ArtifactsDown, ClusterDown, Tool
from trainwright.platforms.parallelcluster.apply.small_steps import KeyPairsDown
from trainwright.platforms.parallelcluster.apply.stack_steps import StackDown
from trainwright.platforms.parallelcluster.apply.steps import BuildFailed, Step

HOLDS_DATA = {
    "bucket": "the bucket with every object in it",
    "lustre": "the Lustre file system with every file on it",
    "openzfs": "the OpenZFS file system with every file on it",
    "accounting": "the database of job records; a last snapshot is kept",
}
LOOKS = 60  # at network interfaces that should go: about twenty minutes
IN_THE_NETWORK = ("lustre", "openzfs", "accounting")


def kind_of(key: str) -> str:
    """network, bucket, lustre, openzfs, accounting, capacity: the template of a stack, from its key."""
    return key.split("-")[0]


@dataclass
class Removal:
    """One cluster on its way out, known by its name and region alone."""

    name: str
    account: Account
    tool: Tool

    def __post_init__(self) -> None:
        self.stacks = StackApi(self.account)
        self.buckets = BucketApi(self.account)
        self.fsx = FsxApi(self.account)

    def existing(self) -> dict[str, Stack]:
        """The stacks of this cluster by their key; the cluster itself under `cluster`."""
        prefix = f"{self.name}-"
        stacks = {stack.name: stack for stack in self.stacks.of_cluster(self.name)}
        keyed = {n.removeprefix(prefix): s for n, s in stacks.items() if n.startswith(prefix)}
        known = {key: stack for key, stack in keyed.items() if kind_of(key) in (*HOLDS_DATA, "network", "capacity")}
        return {**({"cluster": stacks[self.name]} if self.name in stacks else {}), **known}

    def holding_data(self, existing: dict[str, Stack]) -> list[str]:
        return [key for key in existing if kind_of(key) in HOLDS_DATA]

    def steps(self, existing: dict[str, Stack], named: Sequence[str]) -> tuple[list[Step], list[str]]:
        """The steps, and the keys of the stacks that are kept. `named`: stacks whose data the user gives up."""
        data = self.holding_data(existing)
        for key in named:
            # One that is gone already is no mistake: the same command may be run again.
            if kind_of(key) not in HOLDS_DATA:
                known = did_you_mean(key, data) or (f"it has {', '.join(data)}" if data else "leave --delete-data out")
                raise UserError(f"cluster {self.name} has no stack {key!r} that holds data", fix=known)
        kept = [key for key in data if key not in named]
        if any(kind_of(key) in IN_THE_NETWORK for key in kept) and "network" in existing:
            kept.append("network")
        steps: list[Step] = []
        if "cluster" in existing:
            title = f"cluster {self.name}"
            steps.append(ClusterDown("cluster", title, api=self.stacks, tool=self.tool, name=self.name))
        after = tuple(step.key for step in steps)
        steps.append(
            ArtifactsDown(
                "files", "files of pcluster", after, account=self.account, buckets=self.buckets, name=self.name
            )
        )
        steps.append(KeyPairsDown("key", "key pair", after, account=self.account, cluster=self.name))
        gone = [key for key in existing if key not in (*kept, "cluster")]
        inner = [key for key in gone if key != "network"]
        steps += [self._stack(key, existing[key], after) for key in inner]
        if "network" in gone:
            steps.append(self._stack("network", existing["network"], (*after, *inner)))
        return steps, kept

    def _stack(self, key: str, stack: Stack, needs: tuple[str, ...]) -> StackDown:
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


def _is_nat(row: dict[str, object]) -> bool:
    return "nat gateway" in str(row.get("Description", "")).lower()
