"""Everything that can be known before the first resource is made, so that it can be shown, priced and refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainwright.aws.cloudformation import Stack, StackApi
from trainwright.aws.facts import AwsFacts
from trainwright.aws.session import Account
from trainwright.check.facts import KeyPair
from trainwright.check.gate import require_clean
from trainwright.platforms.apply.answers import Answer
from trainwright.platforms.apply.build import Build, refuse_impossible
from trainwright.platforms.apply.preflight import preflight
from trainwright.platforms.apply.steps import BuildFailed, Step
from trainwright.platforms.apply.zones import with_deployed_zones
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
        files = self.build.files_of(step.key)
        if not files:
            return "make if missing"
        stack = self.existing.get(step.key)
        if stack is None:
            return "make"
        if not stack.usable:
            return f"finish ({stack.status})"
        changed = any(change.file.startswith(files) for change in self.changes.changes)
        return "change" if changed else "unchanged"

    @property
    def unchanged(self) -> bool:
        return all(self.fate(step) in ("unchanged", "make if missing") for step in self.steps)


def prepare(loaded: LoadedSpec, begin: Callable[[ClusterPlan, Account], Build], force: bool = False) -> Prepared:
    """Check the spec against AWS, compare it with what is there, and list the steps. Makes nothing. `begin`: the
    platform's own build of a plan."""
    plan = make_plan(loaded)
    account = Account(plan.spec.region or "")
    plan = with_deployed_zones(plan, StackApi(account))
    build = begin(plan, account)
    answers = preflight(account, plan, build.questions())
    failures = [answer.words for answer in answers if answer.verdict == "fail"]
    if failures:
        raise BuildFailed("AWS cannot make this cluster: " + "; ".join(failures), where=loaded.path)
    require_clean(loaded, facts={"aws": FactsOfUp(account)})
    existing = build.existing()
    changes = build.changes(existing)
    stop = refuse_impossible(changes, force)
    return Prepared(build, answers, existing, changes, build.steps(stop))
