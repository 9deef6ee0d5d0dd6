"""A plan that cannot work is refused before the first step, with the two numbers that disagree and one that works."""

import pytest

from trainwright.errors import UserError
from trainwright.train.models.shape import lookup
from trainwright.train.parallel.pipeline_schedule import (
    StageTime,
    bubble,
    schedule,
    schedule_conflict,
    stage_layers,
)
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


def test_no_plan_at_all_is_none():
    assert working_plan(ParallelPlan(shard=7), LLAMA, 7, 8192, 32) is None


def test_falcon_7b_has_no_even_slices():
    with pytest.raises(UserError, match="71 attention heads cannot be split into 2"):
        ParallelPlan(tp=2).check(lookup("falcon-7b"), 2, 2048, 8)


def test_ranks_with_whole_sequences_need_not_divide_them():
    assert ParallelPlan(tp=2).problem(lookup("vit-b-16"), 2, 197, 8) == ""
    assert ParallelPlan(tp=2).problem(lookup("t5-v1.1-large"), 2, 511, 8) == ""
    assert "511 tokens of a sequence" in ParallelPlan(tp=2).problem(lookup("roberta-large"), 2, 511, 8)
    assert "vision models have only" in ParallelPlan(pp=2).problem(lookup("vit-b-16"), 2, 197, 8)


@pytest.mark.parametrize(
    ("model", "plan", "world", "batch", "fix"),
    [
        ("gpt2-124m", "", 1, 8, "--sequence 1024"),
        ("gpt2-124m", "shard=2", 2, 8, "--sequence 1024"),
        ("roberta-large", "", 1, 8, "--sequence 512"),
        ("roberta-large", "tp=3", 3, 8, "--sequence 510, and for example: shard=3 with a batch of 9 samples"),
        ("gpt2-124m", "shard=2", 4, 8, "--sequence 1024, and for example: shard=4"),
    ],
)
def test_longer_than_the_learned_positions(model, plan, world, batch, fix):
    with pytest.raises(UserError) as error:
        ParallelPlan.parse(plan).check(lookup(model), world, 2048, batch)
    assert error.value.fix == fix
    assert "2048 tokens" in error.value.what or world == 4


EQUAL = StageTime(1, 1, 1)


def played(ranks: int, chunks: int, microbatches: int, zero_bubble: bool, stage_time: StageTime = EQUAL) -> float:
    """Play the schedules of all ranks against each other: when the last one ends. Every action's input must come before
    it is needed, and gradients of weights after their backward."""
    lists = [schedule(rank, ranks, chunks, microbatches, zero_bubble) for rank in range(ranks)]
    put_off = stage_time.weights if zero_bubble else 0
    backward = stage_time.total - stage_time.forward - put_off
    units = {"forward": stage_time.forward, "backward": backward, "weights": put_off}
    last, ends, at, clock = ranks * chunks - 1, {}, [0] * ranks, [0] * ranks
    while any(at[r] < len(lists[r]) for r in range(ranks)):
        moved = False
        for rank in range(ranks):
            while at[rank] < len(lists[rank]):
                action = lists[rank][at[rank]]
                stage = action.chunk * ranks + rank
                before, after = ("forward", stage - 1), ("backward", stage + 1) if stage < last else ("forward", stage)
                needs = {"forward": before, "backward": after, "weights": ("backward", stage)}[action.kind]
                if (*needs, action.microbatch) not in ends and not (action.kind == "forward" and stage == 0):
                    break
                clock[rank] = max(clock[rank], ends.get((*needs, action.microbatch), 0)) + units[action.kind]
                ends[action.kind, stage, action.microbatch] = clock[rank]
                at[rank], moved = at[rank] + 1, True
        assert moved, f"stuck at {at}"
    kinds = 3 if zero_bubble else 2
    assert all(len(actions) == len(set(actions)) == kinds * chunks * microbatches for actions in lists)
    return max(clock)


@pytest.mark.parametrize("zero_bubble", [False, True])
@pytest.mark.parametrize(("ranks", "chunks", "microbatches"), [(2, 1, 4), (4, 1, 4), (4, 1, 2), (2, 2, 4), (4, 3, 8)])
def test_schedules_finish_without_waiting_for_each_other(ranks, chunks, microbatches, zero_bubble):
    played(ranks, chunks, microbatches, zero_bubble)


@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 8), (4, 8), (8, 32)])
def test_zero_bubble_leaves_a_third_of_the_bubble(ranks, microbatches):
    work = 3 * microbatches
    assert played(ranks, 1, microbatches, False) - work == 3 * (ranks - 1)
    assert played(ranks, 1, microbatches, True) - work == ranks - 1
    interleaved = [played(ranks, 2, microbatches, zero_bubble) - 2 * work for zero_bubble in (False, True)]
    assert interleaved[1] < interleaved[0], "also where ranks hold several stages"


@pytest.mark.parametrize("times", [(1, 1, 1), (2, 3, 2), (4, 5, 3), (3, 2, 4), (1, 1, 2), (2, 4, 3), (5, 7, 0)])
def test_the_bubble_is_what_the_schedules_leave(times):
    """The formula that `predict` uses, against the schedules themselves."""
    stage = StageTime(*times)
    for ranks, chunks in ((1, 1), (2, 1), (3, 1), (4, 1), (8, 1), (2, 2), (4, 2), (4, 3)):
        rounds = (1, 2, 4) if chunks > 1 else (0.5, 1, 2, 4)
        for microbatches in {max(1, int(ranks * each)) for each in rounds}:
            for zero_bubble in (False, True):
                waited = played(ranks, chunks, microbatches, zero_bubble, stage) - chunks * microbatches * stage.total
                case = ranks, chunks, microbatches, zero_bubble
                assert bubble(*case[:3], stage, zero_bubble) == waited, case


def test_compiled_and_recomputed_blocks_go_with_1f1b_alone():
    four = ParallelPlan(pp=4)
    assert "compiled" in schedule_conflict("zero-bubble", four, True, "none")
    assert "recomputed" in schedule_conflict("zero-bubble", four, False, "full")
    assert not schedule_conflict("zero-bubble", four, False, "none")
    assert not schedule_conflict("zero-bubble", ParallelPlan(shard=4), True, "full")
    assert not schedule_conflict("1f1b", four, True, "full")


@pytest.mark.parametrize("zero_bubble", [False, True])
def test_few_microbatches_are_in_flight(zero_bubble):
    """Under the zero-bubble schedule no rank holds more than the first one does under 1F1B."""
    for rank in range(4):
        flying = peak = 0
        for action in schedule(rank, 4, 1, 16, zero_bubble):
            flying += {"forward": 1, "weights" if zero_bubble else "backward": -1}.get(action.kind, 0)
            peak = max(peak, flying)
        assert peak == (4 if zero_bubble else 4 - rank)


def test_interleaving_needs_whole_rounds():
    with pytest.raises(UserError, match="3 micro-batches cannot be interleaved over 2"):
        schedule(0, 2, 2, 3)


def test_layers_are_dealt_out_once():
    assert [list(stage_layers(s, 3, 8)) for s in range(3)] == [[0, 1, 2], [3, 4, 5], [6, 7]]
