"""The search for slow nodes and links: on simulated networks of any size, and on a real Slurm with slowed wires."""

from __future__ import annotations

import math
import os
import random
import shutil

import pytest
from slow_cluster import search, slow_link, slow_node, slurm

from trainwright.bench.slow_links import Pair, Search, Steps, find_slow
from trainwright.platforms.local.daemons import missing_programs


def network(seed: int, node: int | None, link: Pair | None):
    """Rates of a network where one node or link has a tenth of the others' rate, which differ by up to 30 %."""
    dice = random.Random(seed)

    def measure(steps: Steps) -> dict[Pair, float]:
        rates = {}
        for pairs in steps:
            used = [n for pair in pairs for n in pair]
            assert len(used) == len(set(used)), "a node cannot talk to two others in one step"
            for pair in pairs:
                slow = pair == link or node in pair
                rates[pair] = dice.uniform(7, 10) * (0.1 if slow else 1)
        return rates

    return measure


@pytest.mark.parametrize("nodes", [3, 4, 5, 7, 8, 16, 33, 64, 128])
def test_the_slow_one_is_found_in_a_logarithmic_number_of_rounds(nodes: int) -> None:
    for seed in range(12):
        dice = random.Random(seed)
        a, b = sorted(dice.sample(range(nodes), 2))
        node, link = ((a, None), (None, (a, b)), (None, None))[seed % 3]
        state = Search(nodes, network(seed, node, link))
        slow = find_slow(state)
        assert slow.nodes == ((node,) if node is not None else ())
        assert slow.links == ((link,) if link else ())
        assert state.rounds <= 3 * math.ceil(math.log2(nodes)) + 8


def test_one_busy_moment_is_not_a_slow_link() -> None:
    calm, once = network(1, None, None), {(0, 4)}

    def measure(steps: Steps) -> dict[Pair, float]:
        rates = calm(steps)
        for pair in list(once & rates.keys()):
            rates[pair] /= 20
            once.discard(pair)
        return rates

    assert find_slow(Search(8, measure)).links == ()


@pytest.mark.slow
@pytest.mark.slurm
@pytest.mark.skipif(
    bool(missing_programs()) or os.geteuid() != 0 or not shutil.which("tc"), reason="needs Slurm and root"
)
def test_the_slowed_node_and_link_of_a_real_slurm_are_named() -> None:
    with slurm(4) as record:
        with slow_node(record, "train-3"):
            answer = search(record, 4)
        assert (answer["slow_nodes"], answer["slow_links"]) == (["train-3"], [])
        with slow_link(record, "train-2", "train-4"):
            answer = search(record, 4)
        assert (answer["slow_nodes"], answer["slow_links"]) == ([], ["train-2 - train-4"])
