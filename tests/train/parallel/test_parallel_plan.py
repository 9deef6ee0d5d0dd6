"""A plan that cannot work is refused before the first step, with the two numbers that disagree and one that works."""

import pytest

from trainwright.errors import UserError
from trainwright.train.models.shape import lookup
from trainwright.train.parallel.pipeline import schedule, stage_layers
from trainwright.train.parallel.plan import ParallelPlan, working_plan

LLAMA = lookup("llama3-8b")


def test_parse_and_print():
    assert ParallelPlan.parse("shard=2,tp=2") == ParallelPlan(shard=2, tp=2)
    assert ParallelPlan.parse("") == ParallelPlan.parse("single") == ParallelPlan()
    assert str(ParallelPlan.parse("cp=2, dp=3")) == "replicate=3,cp=2"
    assert ParallelPlan.parse(str(ParallelPlan(pp=4, virtual_stages=2))) == ParallelPlan(pp=4, virtual_stages=2)
    assert ParallelPlan(replicate=2, shard=3, tp=5, pp=7, cp=11).world == 2310


@pytest.mark.parametrize("text", ["shards=2", "tp=0", "tp=two", "tp=2,tensor=2", "tp"])
def test_words_that_are_no_plan(text):
    with pytest.raises(UserError):
        ParallelPlan.parse(text)


@pytest.mark.parametrize(
    ("plan", "world", "seq", "batch", "numbers"),
    [
        ("shard=8", 4, 8192, 32, ("8", "4")),
        ("tp=16", 16, 8192, 32, ("8", "16")),
        ("pp=64", 64, 8192, 64, ("64", "32")),
        ("cp=4", 4, 8190, 32, ("8190", "8")),
        ("shard=6", 6, 8192, 32, ("32", "6")),
        ("tp=4", 4, 8190, 32, ("8190", "4")),
    ],
)
def test_the_numbers_that_disagree_are_named_and_a_working_plan_offered(plan, world, seq, batch, numbers):
    with pytest.raises(UserError) as error:
        ParallelPlan.parse(plan).check(LLAMA, world, seq, batch)
    assert all(number in error.value.what for number in numbers)
    offered, _, other_batch = error.value.fix.removeprefix("for example: ").partition(" with a batch of ")
    assert bool(other_batch) == (world == 6), "the batch stays where a plan fits it"
    assert not ParallelPlan.parse(offered).problem(LLAMA, world, seq, int(other_batch.partition(" ")[0] or batch))


def test_no_plan_at_all_is_said():
    assert working_plan(ParallelPlan(shard=7), LLAMA, 7, 8192, 32) is None
    with pytest.raises(UserError) as error:
        ParallelPlan(shard=2).check(lookup("gpt2-124m"), 2, 2048, 8)
    assert error.value.fix == "no plan fits this model and world"


def test_falcon_7b_has_no_even_slices():
    with pytest.raises(UserError, match="71 attention heads cannot be split into 2"):
        ParallelPlan(tp=2).check(lookup("falcon-7b"), 2, 2048, 8)


def test_longer_than_the_learned_positions():
    with pytest.raises(UserError, match="2048 tokens, but gpt2-124m has 1024"):
        ParallelPlan().check(lookup("gpt2-124m"), 1, 2048, 8)


@pytest.mark.parametrize(("ranks", "chunks", "microbatches"), [(2, 1, 4), (4, 1, 4), (4, 1, 2), (2, 2, 4), (4, 3, 8)])
def test_schedules_finish_without_waiting_for_each_other(ranks, chunks, microbatches):
    """Play the schedules of all ranks against each other: every action's input must come before it is needed."""
    lists = [schedule(rank, ranks, chunks, microbatches) for rank in range(ranks)]
    last, done, at = ranks * chunks - 1, set(), [0] * ranks
    while any(at[r] < len(lists[r]) for r in range(ranks)):
        moved = False
        for rank in range(ranks):
            while at[rank] < len(lists[rank]):
                action = lists[rank][at[rank]]
                stage = action.chunk * ranks + rank
                needs = (True, stage - 1) if action.forward else (False, stage + 1) if stage < last else (True, stage)
                if (*needs, action.microbatch) not in done and not (action.forward and stage == 0):
                    break
                done.add((action.forward, stage, action.microbatch))
                at[rank], moved = at[rank] + 1, True
        assert moved, f"stuck at {at}"
    assert len(done) == 2 * ranks * chunks * microbatches


def test_1f1b_keeps_few_microbatches_in_flight():
    for rank in range(4):
        flying = peak = 0
        for action in schedule(rank, 4, 1, 16):
            flying += 1 if action.forward else -1
            peak = max(peak, flying)
        assert peak == 4 - rank


def test_interleaving_needs_whole_rounds():
    with pytest.raises(UserError, match="3 micro-batches cannot be interleaved over 2"):
        schedule(0, 2, 2, 3)


def test_layers_are_dealt_out_once():
    assert [list(stage_layers(s, 3, 8)) for s in range(3)] == [[0, 1, 2], [3, 4, 5], [6, 7]]
