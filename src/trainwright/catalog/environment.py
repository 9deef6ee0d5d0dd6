"""Which environment variables are right for which versions and instance types. One table serves both sides: `check`
finds variables that are wrong, the schedulers compute the block a job needs, each line with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainwright.catalog.instances import InstanceType
from trainwright.catalog.tables import cached, shipped_toml
from trainwright.catalog.version_numbers import Condition, Version, parse_conditions


@dataclass(frozen=True, slots=True)
class EnvRule:
    """What is known about one variable. See data/environment.toml for the verdicts."""

    variable: str
    value: str  # empty: any value
    verdict: str
    when: tuple[Condition, ...]
    efa: bool  # the rule is about nodes with EFA
    accelerators: tuple[str, ...]
    families: tuple[str, ...]
    level: str  # error | warning | "" (no finding)
    why: str  # why it is right while `when` holds; for the other verdicts, why it is wrong
    why_not: str  # why it is wrong once `when` no longer holds; empty: it never is
    fix: str

    def matches(self, variable: str, value: str) -> bool:
        """Whether a variable and its value are what this rule is about; values are compared without case."""
        stem = self.variable.removesuffix("*")
        named = variable.startswith(stem) if self.variable.endswith("*") else variable == stem
        return named and self.value.lower() in ("", value.strip().strip("'\"").lower())

    def concerns(self, type_: InstanceType | None) -> bool:
        """Whether the rule is about this instance type; every rule applies to an unknown one (None)."""
        if type_ is None:
            return True
        return (
            (not self.efa or type_.efa_cards > 0)
            and (not self.accelerators or type_.accelerator in self.accelerators)
            and (not self.families or type_.family in self.families)
        )

    def holds(self, versions: Mapping[str, Version]) -> bool | None:
        """Whether every condition holds; None when a version that decides it is not known."""
        unknown = False
        for condition in self.when:
            actual = versions.get(condition.software)
            if actual is None:
                unknown = True
            elif not condition.holds(actual):
                return False
        return None if unknown else True

    @property
    def complaint(self) -> str:
        """The message for a variable that is set where it does not belong."""
        return self.why_not or self.why

    def is_right(self, versions: Mapping[str, Version]) -> bool | None:
        """Whether the variable may be set: True, False, or None when that depends on a version that is not known."""
        holds = self.holds(versions)
        if self.verdict in ("set", "allow"):
            return holds
        return None if holds is None else not holds


@dataclass(frozen=True, slots=True)
class EnvVar:
    """One line of a computed environment, with its reason."""

    name: str
    value: str
    why: str


@cached
def env_rules() -> tuple[EnvRule, ...]:
    return tuple(
        EnvRule(
            variable=row["variable"],
            value=row.get("value", ""),
            verdict=row["verdict"],
            when=parse_conditions(row.get("when", "")),
            efa=row.get("efa", False),
            accelerators=tuple(row.get("accelerators", ())),
            families=tuple(row.get("families", ())),
            level=row.get("level", ""),
            why=row["why"],
            why_not=row.get("why_not", ""),
            fix=row["fix"],
        )
        for row in shipped_toml("environment.toml")["rule"]
    )


def rules_for(variable: str, value: str) -> tuple[EnvRule, ...]:
    """The rules about one assignment, those that name its value first."""
    rules = [rule for rule in env_rules() if rule.matches(variable, value)]
    return tuple(sorted(rules, key=lambda rule: not rule.value))


def environment(type_: InstanceType, versions: Mapping[str, Version]) -> tuple[EnvVar, ...]:
    """The variables a job on this type needs with these versions. Nothing is set on a guess: a rule whose version is
    not known is left out."""
    return tuple(
        EnvVar(rule.variable, rule.value, rule.why)
        for rule in env_rules()
        if rule.verdict == "set" and rule.concerns(type_) and rule.holds(versions) and type_.accelerator_count
    )
