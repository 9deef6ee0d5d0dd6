"""One recipe on every scheduler: where they must agree they do, and where they differ there is a reason. The page of
the documentation is written from the same data."""

from __future__ import annotations

import itertools
import sys
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from schedulers_page import WAYS, Way, lines, place, planned, schedulers_page

from trainwright.jobs.environment import RENDEZVOUS
from trainwright.platforms.local import state
from trainwright.runs.submission import Planned

TITLES = {way.title: way for way in WAYS}
FOLDERS = {"PYTHONPATH", "TRAINWRIGHT_RUN"}
CARDS = {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}
ON_AWS = [way.title for way in WAYS if way.spec == "spec.yaml"]


@cache
def made(title: str) -> Planned:
    return planned(TITLES[title])


def trainer_words(plan: Planned) -> tuple[str, ...]:
    return plan.launch.command[plan.launch.command.index("trainwright.train") + 1 :]


def without_size(words: tuple[str, ...]) -> list[str]:
    """Without the numbers that follow from how many ranks there are."""
    return [word for word in words if not word.startswith("shard=") and not word.isdigit()]


def test_the_trainer_is_told_the_same_on_as_many_ranks() -> None:
    *clusters, machine = TITLES
    first = made(clusters[0])
    for title in clusters:
        assert trainer_words(made(title)) == trainer_words(first), title
        assert (made(title).launch.nodes, made(title).launch.ranks) == (4, 32), title
    assert machine == "plain processes"
    assert without_size(trainer_words(made(machine))) == without_size(trainer_words(first))


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(ON_AWS, 2)))
def test_the_same_machine_has_the_same_environment(one: str, other: str) -> None:
    """Everything that the instance type decides is equal; a card's name depends on whose network the ranks are in."""
    mine, theirs = lines(made(one)), lines(made(other))
    decided = {name for name in {*mine, *theirs} if name.startswith(("OMP_", "FI_", "NCCL_", "EFA_"))} - CARDS
    assert {name: mine[name] for name in decided} == {name: theirs[name] for name in decided}
    assert decided >= {"OMP_NUM_THREADS", "FI_EFA_USE_HUGE_PAGE"}


def test_two_values_of_a_variable_have_two_reasons() -> None:
    for one, other in itertools.combinations(TITLES, 2):
        mine, theirs = lines(made(one)), lines(made(other))
        for name in (mine.keys() & theirs.keys()) - FOLDERS:
            same_value, same_reason = mine[name].value == theirs[name].value, mine[name].why == theirs[name].why
            assert same_value == same_reason, (name, one, other)
    assert all(line.why for title in TITLES for line in lines(made(title)).values())


def test_the_card_follows_the_network_of_the_ranks() -> None:
    names = {title: lines(made(title))["NCCL_SOCKET_IFNAME"].value for title in ON_AWS}
    own = {title for title in ON_AWS if "Slurm" not in title}
    assert {names[title] for title in own} == {"eth"}
    assert {names[title] for title in set(ON_AWS) - own} == {"en"}


@pytest.mark.parametrize("title", list(TITLES))
def test_no_rank_learns_its_place_from_the_recipe(title: str) -> None:
    """The scheduler numbers the ranks when they start; a number that is written down breaks the second node."""
    plan = made(title)
    assert not {line.name for line in plan.launch.environment} & RENDEZVOUS
    number = place(plan.script.text)["number of the node"]
    assert number.startswith("$") or plan.launch.nodes == 1


def test_every_kind_on_kubernetes_computes_the_same() -> None:
    kinds = ("pytorchjob", "jobset", "trainjob", "mpijob", "rayjob")
    plans = [planned(Way(kind, "spec.yaml", ("platform=eks", f"kubernetes.kind={kind}"))) for kind in kinds]
    assert all(lines(one) == lines(plans[0]) and trainer_words(one) == trainer_words(plans[0]) for one in plans)


def test_the_page_does_not_depend_on_what_this_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new machine has no tini yet, and `make lint` compares the page there too."""
    monkeypatch.setattr(state, "PATH", "")
    page = Path(__file__).parents[2] / "docs/run/schedulers.md"
    assert schedulers_page() == page.read_text(encoding="utf-8")
