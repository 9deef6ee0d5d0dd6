"""Everything that can be known before the first resource is made, so that it can be shown, priced and refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainwright.aws.cloudformation import Stack
from trainwright.aws.facts import AwsFacts
from trainwright.aws.session import Account
from trainwright.check.facts import KeyPair
from trainwright.check.gate import require_clean
from trainwright.platforms.parallelcluster.apply.build import Build, refuse_impossible
from trainwright.platforms.parallelcluster.apply.cluster_steps import Tool
from trainwright.platforms.parallelcluster.apply.pcluster import Pcluster
from trainwright.platforms.parallelcluster.apply.preflight import Answer, preflight
from trainwright.platforms.parallelcluster.apply.steps import BuildFailed, Step
from trainwright.platforms.plan.difference import Difference
from trainwright.platforms.plan.tree import ClusterPlan, make_plan
from trainwright.spec.load import LoadedSpec


class FactsOfUp(AwsFacts):
    """AWS as it will be: a key pair that is missing is made by `up`. It asks through the clients that are there."""

    def __init__(self, account: Account) -> None:
        self._ec2, self._fsx = account.client("ec2"), account.client("fsx")
        self._answers = {}

    def key_pair(self, name: str) -> KeyPair | None:
        return super().key_pair(name) or KeyPair(name, "ed25519")


@dataclass(frozen=True)
class Prepared:
    """A build that may begin."""

    build: Build
    answers: list[Answer]
    existing: dict[str, Stack]
    changes: Difference
    steps: list[Step]

    @property
    def plan(self) -> ClusterPlan:
        return self.build.plan

    def fate(self, step: Step) -> str:
        """What the step will do: make, finish, change, or nothing."""
        stack = self.existing.get(step.key)
        if step.key not in {order.key for order in self.build.orders()} | {"cluster"}:
            return "make if missing"
        if stack is None:
            return "make"
        if not stack.usable:
            return f"finish ({stack.status})"
        files = ("cluster.yaml",) if step.key == "cluster" else (f"stacks/{step.key}.",)
        changed = any(change.file.startswith(files) for change in self.changes.changes)
        return "change" if changed else "unchanged"

    @property
    def unchanged(self) -> bool:
        return all(self.fate(step) in ("unchanged", "make if missing") for step in self.steps)


def prepare(
    loaded: LoadedSpec,
    force: bool = False,
    say: Callable[[str], None] = lambda words: None,
    tool: Tool | None = None,
) -> Prepared:
    """Check the spec against AWS, compare it with what is there, and list the steps. Makes nothing."""
    plan = make_plan(loaded)
    region = plan.spec.region or ""
    account = Account(region)
    answers = preflight(account, plan.spec)
    failures = [answer.words for answer in answers if answer.verdict == "fail"]
    if failures:
        raise BuildFailed("AWS cannot make this cluster: " + "; ".join(failures), where=loaded.path)
    require_clean(loaded, facts={"aws": FactsOfUp(account)})
    build = Build(plan, account, tool or Pcluster(region, say), force)
    existing = build.existing()
    changes = build.changes(existing)
    stop = refuse_impossible(changes, force)
    return Prepared(build, answers, existing, changes, build.steps(stop))
