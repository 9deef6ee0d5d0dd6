"""CFG006: keys of torchtitan's TOML files that no release has, one letter from one that is there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reported import shown

from trainwright.check.finding import Finding
from trainwright.check.rules.cfg_torchtitan import sections

Run = Callable[..., list[Finding]]
FILE = """[job]
description = "llama"
[model]
name = "llama3"
[optimizer]
lr = 3e-4
[lr_scheduler]
warmup_steps = 200
[training]
local_batch_size = 1
steps = 1000
{more}
"""


def config(more: str) -> str:
    return FILE.format(more=more)


WRONG = [
    ("seq_lne = 8192", "seq_len", 12),
    ("global_batch_sise = 16", "global_batch_size", 12),
    ("max-norm = 1.0", "max_norm", 12),
    ("[parallelism]\ntensor_parallel_degre = 2", "tensor_parallel_degree", 13),
    ("[parallelism]\ndata_parallel_shard_degrees = 2", "data_parallel_shard_degree", 13),
    ("[paralelism]\ntensor_parallel_degree = 2", "parallelism", 12),
    ("[activation_checkpoint]\nmdoe = 'full'", "mode", 13),
    ("[quantize.linear.float8]\nfilter_fqn = []", "filter_fqns", 13),
]


@pytest.mark.parametrize(("more", "meant", "line"), WRONG)
def test_a_key_that_is_one_letter_from_a_known_one(more: str, meant: str, line: int, run: Run) -> None:
    findings = run("llama.toml", config(more), "CFG006")
    assert [f.fix for f in findings] == [f"did you mean {meant}?"]
    assert shown(findings) == [f"error CFG006 {line}"]


RIGHT = [
    "seq_len = 8192\ncompile = true",  # 0.1
    "[parallelism]\ndata_parallel_shard_degree = -1\n[compile]\nenable = true",  # 0.2
    "[parallelism]\npipeline_parallel_degree = 2\nenable_async_tensor_parallel = true",
    "data_parallel_degree = 8\nbatch_size = 8",  # before 0.1, which no table has
    "[checkpoint]\nenabled = true",
    "[my_section]\nstep = 1",
    "sequence_len = 1",  # of a fork, perhaps
    "[checkpoint]\nenable_checkpoint = true\ninterval = 500",
    "sed = 1\nseed = 2",  # a key of a fork beside the one that it resembles
]


@pytest.mark.parametrize("more", RIGHT)
def test_keys_of_any_release_and_of_forks(more: str, run: Run) -> None:
    assert run("llama.toml", config(more), "CFG006") == []


def test_classes_of_the_user_add_keys(run: Run) -> None:
    own = config("global_batch_sise = 16").replace("[job]\n", '[job]\ncustom_config_module = "my.config"\n')
    assert run("llama.toml", own, "CFG006") == []


def test_the_table_has_the_keys_of_several_releases() -> None:
    assert {"enable_checkpoint", "enable"} <= sections()["checkpoint"]
    assert {"training", "parallelism", "float8", "quantize"} <= sections()[""]
