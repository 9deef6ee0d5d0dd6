"""The shuffle is a permutation of any size, differs by key, and mixes well."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainwright.train.data.mixture import Mixture, whole_shares
from trainwright.train.data.shuffle import Permutation


@given(n=st.integers(1, 3000), seed=st.integers(0, 2**63), epoch=st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_every_index_appears_once(n, seed, epoch):
    order = Permutation(n, seed, epoch)
    assert sorted(order(i) for i in range(n)) == list(range(n))


def test_a_trillion_samples_need_no_list():
    order = Permutation(10**12, 7)
    seen = {order(i) for i in range(10_000)}
    assert len(seen) == 10_000
    assert max(seen) > 9 * 10**11
    assert min(seen) < 10**11


def test_epochs_differ_and_neighbours_part():
    n = 10_000
    first, second = Permutation(n, 0, 0), Permutation(n, 0, 1)
    same = sum(first(i) == second(i) for i in range(n))
    assert same < 20  # one is expected by chance
    near = sum(abs(first(i) - first(i + 1)) < 10 for i in range(n - 1))
    assert near < 60  # about 20 are expected by chance


def test_the_order_of_a_seed_never_changes():
    """A changed order would make every running job resume with other data."""
    assert [Permutation(100, 1, 2)(i) for i in range(8)] == [11, 90, 70, 7, 50, 32, 97, 15]


def test_out_of_range_is_refused():
    with pytest.raises(IndexError):
        Permutation(10, 0)(10)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=5))
@settings(max_examples=50, deadline=None)
def test_a_mixture_numbers_each_source_without_gaps(weights):
    mixture = Mixture(weights)
    following = [0] * len(weights)
    for n in range(2500):
        source, index = mixture.locate(n)
        assert index == following[source]
        following[source] += 1
    total = sum(weights)
    for got, weight in zip(following, weights, strict=True):
        assert abs(got / 2500 - weight / total) < 0.005


def test_simple_weights_are_exact():
    assert whole_shares([0.75, 0.25]) == [3, 1]
    assert whole_shares([1, 1]) == [1, 1]
    assert Mixture([3, 1]).pattern == [0, 0, 1, 0]
