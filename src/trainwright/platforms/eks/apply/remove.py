"""`down` of EKS in the order that leaves nothing behind: what Kubernetes made outside the stacks (load balancers,
volumes, machines of Karpenter), node groups, control plane, interfaces and groups that EKS forgets, the network."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainwright.aws.cloudformation import Stack
from trainwright.aws.eks import EksApi
from trainwright.aws.node_interfaces import drop_forgotten
from trainwright.aws.session import AwsRefused, aws_errors
from trainwright.errors import UserError
from trainwright.platforms.apply.remove import JobsOnCluster, Removal, kind_of
from trainwright.platforms.apply.stack_steps import StackDown
from trainwright.platforms.apply.steps import BuildFailed, Step
from trainwright.platforms.eks import kubeconfig
from trainwright.platforms.eks.apply.programs import Programs, RealPrograms, answer, require
from trainwright.platforms.eks.karpenter import KINDS as KARPENTER_KINDS
from trainwright.platforms.eks.own_stacks import CONTROL, OWN
from trainwright.schedulers.kubernetes.kinds import KINDS
from trainwright.schedulers.kubernetes.own_config import context_of, own_kubeconfig

EKSCTL = "eksctl"
CONTROL_PLANES = (CONTROL, f"{EKSCTL}-cluster")
ROLES = (f"{EKSCTL}-podidentityrole-", f"{EKSCTL}-addon-")
VOLUMES = "volumes"
MANAGED_BY, US = "app.kubernetes.io/managed-by", "trainwright"
WHY = "`down` removes with it what Kubernetes made outside the stacks, such as load balancers and volumes"
DELETE = ["--wait", "--cascade=foreground", "--timeout=20m", "--ignore-not-found"]


def _is_ours(pod: Mapping[str, Any]) -> bool:
    return bool((pod["metadata"].get("labels") or {}).get(MANAGED_BY) == US)


def _uses_claim(pod: Mapping[str, Any]) -> bool:
    return any("persistentVolumeClaim" in volume for volume in pod["spec"].get("volumes") or ())


@dataclass
class EksRemoval(Removal):
    programs: Programs = field(default_factory=RealPrograms, kw_only=True)
    _without_kubernetes: bool = field(default=False, init=False)

    @property
    def logs(self) -> str:
        return f"CloudWatch, /aws/eks/{self.name}/cluster"

    def own_stacks(self, stacks: Mapping[str, Stack]) -> dict[str, Stack]:
        ours = {name.removeprefix(f"{self.name}-"): stack for name, stack in stacks.items()}
        prefix = f"{EKSCTL}-{self.name}-"
        theirs = {f"{EKSCTL}-{n.removeprefix(prefix)}": s for n, s in stacks.items() if n.startswith(prefix)}
        return {**{key: stack for key, stack in ours.items() if kind_of(key) in OWN}, **theirs}

    # What runs on it

    def _reach(self) -> Path | None:
        """The kubeconfig of a cluster that answers; None where there is none any more."""
        cluster = EksApi(self.account).cluster(self.name)
        if cluster is None or cluster.status not in ("ACTIVE", "UPDATING") or self._without_kubernetes:
            return None
        require(self.programs, ["kubectl"], WHY)
        return kubeconfig.keep(cluster, self.account.region)

    def _items(self, path: Path, *words: str) -> list[dict[str, Any]]:
        """Objects of the cluster; none of a kind that it does not know."""
        asked = ["kubectl", "get", *words, "--all-namespaces", "-o", "json", "--request-timeout=60s"]
        try:
            text = answer(self.programs, asked, path)
        except BuildFailed as error:
            if "the server doesn't have a resource type" in error.what:
                return []
            raise
        return list(json.loads(text or "{}").get("items", []))

    def _busy(self, path: Path) -> list[dict[str, Any]]:
        """The pods that have not ended and are of a job of ours or use a claim, which stays as long as they do."""
        pods = [p for p in self._items(path, "pods") if p.get("status", {}).get("phase") in ("Pending", "Running")]
        return [pod for pod in pods if _is_ours(pod) or _uses_claim(pod)]

    def require_idle(self, existing: Mapping[str, Stack], force: bool) -> None:
        """With `force`, a cluster whose API does not answer is removed too."""
        try:
            path = self._reach()
            live = self._busy(path) if path else []
        except (BuildFailed, UserError):
            if not force:
                raise
            self._without_kubernetes = True
            return
        if live and not force:
            lines = [f"{p['metadata']['namespace']}/{p['metadata']['name']} ({p['status']['phase']})" for p in live]
            raise JobsOnCluster(self.name, lines)

    def data(self, existing: Mapping[str, Stack]) -> dict[str, str]:
        claims = self._claims()
        more = {VOLUMES: f"the volumes of {', '.join(claims)}"} if claims else {}
        return {**super().data(existing), **more}

    def _claims(self) -> list[str]:
        """The claims whose volumes go with them."""
        path = self._reach()
        volumes = self._items(path, "pv") if path else []
        dynamic = [v["spec"] for v in volumes if v["spec"].get("persistentVolumeReclaimPolicy") == "Delete"]
        names = [spec.get("claimRef") or {} for spec in dynamic]
        return sorted(f"{one.get('namespace')}/{one.get('name')}" for one in names if one)

    # The steps

    def steps(self, existing: Mapping[str, Stack], named: Sequence[str]) -> tuple[list[Step], list[str]]:
        claims = self._claims() if VOLUMES not in named else []
        if claims:
            raise UserError(
                f"these claims hold volumes that would be deleted with the cluster: {', '.join(claims)}",
                fix=f"copy what you need, then `--delete-data {VOLUMES}`",
            )
        return super().steps(existing, [key for key in named if key != VOLUMES])

    def own_steps(self, existing: Mapping[str, Stack]) -> list[Step]:
        own = [key for key in existing if kind_of(key) in (*OWN, EKSCTL)]
        if not own:
            return [Forgotten("forgotten", "what EKS forgets", removal=self)]
        first = KubernetesEmpty("kubernetes", "load balancers, volumes, machines of Karpenter", removal=self)
        # Roles of eksctl go after the cluster: as long as that is there, its pods and add-ons name them.
        roles = [key for key in own if key.startswith(ROLES)]
        inner = [key for key in own if key not in (*CONTROL_PLANES, *roles)]
        steps: list[Step] = [first, *(self._down(key, existing[key], (first.key,)) for key in inner)]
        after = tuple(step.key for step in steps)
        steps += [self._down(key, existing[key], after) for key in own if key in CONTROL_PLANES]
        needs = tuple(step.key for step in steps)
        steps += [self._down(key, existing[key], needs) for key in roles]
        return [*steps, Forgotten("forgotten", "what EKS forgets", needs, removal=self)]

    def _down(self, key: str, stack: Stack, needs: tuple[str, ...]) -> StackDown:
        step = StackDown(key, f"stack {stack.name}", needs, api=self.stacks, name=stack.name)
        if key in CONTROL_PLANES:
            step.before = lambda stack: self.drop_interfaces(step)
        return step

    def drop_interfaces(self, step: Step) -> bool:
        """Delete the network interfaces that terminated nodes left; True when there are none."""
        count = drop_forgotten(self.account, self.name)
        if count:
            step.now("removing", f"{count} network interfaces of nodes")
        return not count


@dataclass
class KubernetesEmpty(Step):
    """Delete what Kubernetes made in the account and no stack knows, while there is a Kubernetes to do it."""

    removal: EksRemoval = field(kw_only=True)

    def advance(self) -> bool:
        removal, path = self.removal, self.removal._reach()
        if path is None:
            self.now("gone")
            return True
        for kind, items in self._in_order(path):
            for item in items:
                meta = item["metadata"]
                words = ["kubectl", "delete", kind, meta["name"], *DELETE]
                words += ["--namespace", meta["namespace"]] if "namespace" in meta else []
                answer(removal.programs, words, path)
        self.now("gone")
        return True

    def _in_order(self, path: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """Kinds and their objects, each looked up when those before are gone. Jobs that `--force` ends go before the
        claims that their pods use."""
        removal = self.removal
        if removal._busy(path):
            for kind in KINDS.values():
                name = f"{kind.plural}.{kind.group}"
                yield name, removal._items(path, name, "-l", f"{MANAGED_BY}={US}")
            yield "pod", removal._busy(path)
        yield "service", [s for s in removal._items(path, "services") if s["spec"].get("type") == "LoadBalancer"]
        yield "pvc", removal._items(path, "pvc")
        for name in KARPENTER_KINDS:
            yield name, removal._items(path, name)


@dataclass
class Forgotten(Step):
    """Delete network interfaces and security groups that carry the cluster's name and outlive it."""

    removal: EksRemoval = field(kw_only=True)

    def advance(self) -> bool:
        if not self.removal.drop_interfaces(self):
            return False
        ec2 = self.removal.account.client("ec2")
        only = [{"Name": f"tag:kubernetes.io/cluster/{self.removal.name}", "Values": ["owned"]}]
        with aws_errors("security groups"):
            groups = ec2.describe_security_groups(Filters=only)["SecurityGroups"]
        for group in groups:
            try:
                with aws_errors(f"security group {group['GroupId']}"):
                    ec2.delete_security_group(GroupId=group["GroupId"])
            except AwsRefused as error:
                if error.code not in ("DependencyViolation", "InvalidGroup.NotFound"):
                    raise
                self.now("waiting", f"security group {group['GroupId']} is in use")
                return False
        own_kubeconfig(context_of(self.removal.name)).unlink(missing_ok=True)
        self.now("gone")
        return True
