"""CFG006 on values that accelerate compares with lists of its own, in releases 0.12 to 1.15."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]


def config(kind: str = "FSDP", top: str = "", **fsdp: str) -> str:
    section = "".join(f"  {key}: {value}\n" for key, value in fsdp.items())
    return f"compute_environment: LOCAL_MACHINE\ndistributed_type: {kind}\n{top}" + (
        f"fsdp_config:\n{section}" if section else ""
    )


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        (config(fsdp_sharding_strategy="FULL_SHRAD"), "write FULL_SHARD"),
        (config(fsdp_state_dict_type="SHARDED"), "write SHARDED_STATE_DICT"),
        (config(fsdp_auto_wrap_policy="TRANSFORMER_BASED"), "write TRANSFORMER_BASED_WRAP"),
        (config(fsdp_backward_prefetch="BACKWARD_PER"), "write BACKWARD_PRE"),
        (config(kind="MULTI_GPUS"), "write MULTI_GPU"),
        (config(kind="multi_gpu"), "write MULTI_GPU"),
        (config(top="dynamo_backend: INDUCTR\n"), "write INDUCTOR"),
        (config(top="dynamo_config: {dynamo_backend: INDUCTR}\n"), "write INDUCTOR"),
    ],
)
def test_a_value_that_no_release_has_is_an_error(run: Run, text: str, fix: str) -> None:
    (finding,) = run("a.yaml", text, "CFG006")
    assert (finding.level, finding.fix) == ("error", fix)
    assert "KeyError" in finding.why


@pytest.mark.parametrize(
    "text",
    [
        config(fsdp_sharding_strategy="FULL_SHARD", fsdp_state_dict_type="FULL_STATE_DICT"),
        config(fsdp_sharding_strategy="1", fsdp_backward_prefetch="NO_PREFETCH"),
        config(fsdp_sharding_strategy="hybrid_shard"),
        config(fsdp_sharding_strategy="_HYBRID_SHARD_ZERO2", fsdp_backward_prefetch="null"),
        config(fsdp_version="2", fsdp_sharding_strategy="whatever"),
        config(fsdp_auto_wrap_policy="${POLICY}"),
        config(kind="MULTI_GPU", fsdp_sharding_strategy="FULL_SHRAD"),  # left aside
        config(kind="'NO'"),
        config(kind="NO"),
        config(kind="TPU"),
        config(kind="MULTI_GPU", top="dynamo_backend: inductor\n"),
        config(kind="MULTI_GPU", top="dynamo_config: {dynamo_backend: AOT_TS_NVFUSER}\n"),
    ],
)
def test_a_value_that_some_release_takes_is_not_reported(run: Run, text: str) -> None:
    assert run("a.yaml", text, "CFG006") == []
