"""Reads rows of a table of training runs (the columns of published_training.csv, blanks allowed) and predicts each."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from trainwright.predict.constants import Constants
from trainwright.predict.evidence import interval, published_sources
from trainwright.predict.hardware import Cluster
from trainwright.predict.memory import ROW_TIGHT, fits, least_recompute, memory
from trainwright.predict.objective import objective_of
from trainwright.predict.profiles import Profile
from trainwright.predict.published.row_trainer import profile_of
from trainwright.predict.published.rowshape import cluster_of_row, number, shape_of_row, whole
from trainwright.predict.setup import Batch, Setup
from trainwright.predict.step import step_time
from trainwright.train.float8.recipes import DEFAULT, RECIPES
from trainwright.train.flops import TERA, flops_per_token, keys_per_token, matmul_parameters
from trainwright.train.models.shape import ModelShape
from trainwright.train.parallel.plan import ParallelPlan

Row = dict[str, str]
SHORT_DOCUMENT = 256  # tokens
POLICIES = ("none", "selective", "full")


@dataclass(frozen=True, slots=True)
class RowSetup:
    """The job of a row, or the reason why it cannot be predicted."""

    setup: Setup | None
    reason: str = ""


def note(row: Row, key: str) -> str:
    """The value of `key=value` in the row's notes, or an empty text."""
    match = re.search(rf"(?:^|[;\s(]){re.escape(key)}\s*=\s*([^;\s)]+)", row.get("notes", ""))
    return match[1] if match else ""


def precision_of(text: str) -> str:
    low = text.lower()
    if "fp4" in low:
        return "fp4"
    if "8" in low and ("fp8" in low or "float8" in low or "f8" in low):
        return "fp8"
    return "fp32" if low in ("fp32", "float32", "tf32") else "bf16"


def recipe_of(text: str) -> str:
    """The float8 recipe of our trainer that a precision names (`fp8 blockwise`), where it is not the default."""
    return next((name for name in RECIPES if name in text.lower() and name != DEFAULT), "")


def virtual_stages_of(row: Row, trainer: Profile, pp: int) -> int:
    stated = note(row, "vp")
    if stated.isdigit():
        stages = int(stated)
    elif trainer.recompute_layers and pp > 1:
        stages = max(1, whole(row.get("layers")) // pp)  # Megatron's recipes use as many as the layers allow
    else:
        stages = 1
    return 2 if "interleaved 1f1b" in row.get("notes", "").lower() and stages == 1 else stages


def plan_of(row: Row, trainer: Profile, gpus: int) -> tuple[ParallelPlan, int] | None:
    """The parallel plan and the ZeRO stage; None where the axes do not divide the GPUs."""
    tp, pp, cp = (whole(row.get(k), 1) or 1 for k in ("tp", "pp", "cp"))
    if gpus % (tp * pp * cp):
        return None
    data = gpus // (tp * pp * cp)
    virtual = virtual_stages_of(row, trainer, pp)
    base = ParallelPlan(tp=tp, pp=pp, cp=cp, ep=whole(row.get("ep"), 1) or 1, virtual_stages=virtual)
    text = row.get("fsdp_shard", "").strip()
    digits = re.match(r"(\d+)", text)
    shard = int(digits[1]) if digits else 0
    if "zero2" in text:
        return replace(base, shard=data), 2
    if "FSDP" in text.upper():
        shard = min(data, 128)
    if shard > 1:
        shard = shard if data % shard == 0 else data
        return replace(base, replicate=data // shard, shard=shard), 3
    if trainer.data == "zero1":
        wide = note(row, "zero1") or (re.search(r"zero-1 shard=(\d+)", row.get("notes", "").lower()) or ["", ""])[1]
        owners = int(wide) if wide.isdigit() and data % int(wide) == 0 else data
        zero = 0 if trainer.resident >= trainer.state_bytes else 1
        return replace(base, replicate=data // owners, shard=owners), zero
    if cp > 1:
        return replace(base, shard=data), 3  # weights are sharded over the context ranks too
    return replace(base, replicate=data), 0


def batch_of(row: Row, plan: ParallelPlan, trainer: Profile) -> Batch:
    """Microbatch and count. Unstated: four sequences where they fit the batch, one in a pipeline."""
    sequence = whole(row.get("seq_len"), 2048) or 2048
    total = whole(row.get("global_batch_seqs"))
    micro = whole(row.get("micro_batch"))
    share = max(1, total // plan.data) if total else 0
    if not micro:
        micro = 1 if plan.pp > 1 else next((m for m in (4, 2, 1) if not share or share % m == 0), 1)
    if trainer.name == "torchtitan" and plan.pp > 1:
        return Batch(sequence, max(1, micro // plan.pp), plan.pp)  # its default: as many microbatches as stages
    count = int(note(row, "grad_accum") or note(row, "micro_num") or 0) if not share else 0
    return Batch(sequence, micro, count or max(1, round(share / micro)) if share or count else 1)


def setup_of(row: Row, c: Constants) -> RowSetup:
    """The job of a row; recomputation that is not stated is the trainer's default or the least that fits."""
    shape, cluster, trainer = shape_of_row(row), cluster_of_row(row), profile_of(row)
    offloaded = (number(note(row, "offload")) or 0.0) if trainer.own else 0.0
    reason = not_covered(row, shape, cluster, offloaded > 0)
    if reason or shape is None or cluster is None:
        return RowSetup(None, reason)
    plan_and_zero = plan_of(row, trainer, cluster.gpus)
    if plan_and_zero is None:
        return RowSetup(None, "tp x pp x cp does not divide the number of GPUs")
    plan, zero = plan_and_zero
    precision = row.get("precision", "")
    setup = Setup(
        shape, cluster, plan, batch_of(row, plan, trainer), trainer, precision_of(precision), zero,
        rowwise="rowwise" in precision.lower() and not trainer.own, float8=recipe_of(precision) if trainer.own else "",
        frozen="lora" in text_of(row), balanced="balance" in text_of(row),
        adapter_rank=rank_of(row), packed=packed_of(row, trainer), offload_part=offloaded,
        objective=objective_of(shape, row.get("objective", "")),
    )  # fmt: skip
    if plan.data > 1 and zero == 0 and trainer.data == "fsdp" and not fits(setup, c):
        sharded = replace(plan, replicate=1, shard=plan.data)
        setup = replace(setup, plan=sharded, zero=2 if trainer.weights_stay else 3)
    if trainer.data == "zero1" and not (row.get("tp") or row.get("pp") or row.get("cp")):
        setup = least_split(setup, c)
    stated = row.get("act_ckpt", "").strip().lower()
    policy = stated if stated in POLICIES else trainer.default_recompute
    return RowSetup(replace(setup, recompute=policy) if policy else least_recompute(setup, c, ROW_TIGHT))


def least_split(s: Setup, c: Constants) -> Setup:
    """A row that does not state its plan: the least tensor, then pipeline parallelism with which it fits."""
    gpus, sequences = s.cluster.gpus, s.batch.micro * s.batch.count * s.plan.data
    options = [(tp, 1) for tp in (1, 2, 4, 8)] + [(8, pp) for pp in (2, 3, 4, 6, 8, 12, 16, 24, 32)]
    for tp, pp in options:
        data = gpus // (tp * pp)
        if tp > s.cluster.per_node or gpus % (tp * pp) or s.shape.heads % tp or s.shape.layers % pp:
            continue
        plan = replace(s.plan, tp=tp, pp=pp, **{"replicate" if s.zero == 0 else "shard": data})
        micro = s.batch.micro if pp == 1 else 1
        batch = replace(s.batch, micro=micro, count=max(1, sequences // data // micro))
        option = replace(s, plan=plan, batch=batch)
        if fits(least_recompute(option, c, ROW_TIGHT), c):
            return option
    return s


def not_covered(row: Row, shape: ModelShape | None, cluster: Cluster | None, offload_known: bool = False) -> str:
    """Why a row cannot be predicted; empty where it can. `offload_known`: the row states what our trainer offloads."""
    if shape is None:
        return f"the shape of model {row.get('model', '')!r} is neither in the row nor in the catalog"
    if ((whole(row.get("ep"), 1) or 1) > 1 or "moe" in row.get("model", "").lower()) and not shape.experts:
        return f"a mixture of experts, but the experts of {row.get('model', '')!r} are not known"
    if cluster is None:
        return f"accelerator {row.get('gpu', '')!r} or the number of GPUs is not known"
    if re.search(r"power[ -]limited", row.get("gpu", "").lower()):
        return "the power limit is not stated"
    if "hf trainer" in text_of(row) and "lora" in text_of(row):
        return "HF Trainer with adapters: the host limits its speed, which is not modelled"
    if "qlora" in text_of(row) or ("offload" in text_of(row) and not offload_known):
        return "quantised or offloaded training is not modelled"
    return ""


def rank_of(row: Row) -> int:
    """The adapters' rank; 16 where a row with adapters does not state it, 0 without adapters."""
    stated = re.search(r"\br\s*=\s*(\d+)", row.get("notes", ""))
    return (int(stated[1]) if stated else 16) if "lora" in text_of(row) else 0


def packed_of(row: Row, trainer: Profile) -> int:
    """Mean length of the packed documents: NeMo's recipes fine-tune on packed short questions and answers (SQuAD)."""
    tuned = re.search(r"\b(sft|lora)\b", text_of(row))
    return SHORT_DOCUMENT if tuned and trainer.name == "megatron" else 0


def text_of(row: Row) -> str:
    return f"{row.get('model', '')} {row.get('notes', '')}".lower()


def answer(row: Row, c: Constants) -> dict[str, object]:
    """The row's prediction in the columns of the published table. A row that cannot be read is not covered."""
    try:
        job = setup_of(row, c)
    except (ValueError, ArithmeticError) as error:
        job = RowSetup(None, f"the row cannot be read: {error}")
    empty = {"tokens_per_s_per_gpu": None, "step_time_s": None, "mem_gib_per_gpu": None, "low": None, "high": None}
    if job.setup is None:
        return {"id": row.get("id", ""), "covered": False, "reason": job.reason, **empty}
    s = job.setup
    step = step_time(s, c).total
    chip = s.cluster.device.ranks
    rate = s.tokens / step / s.cluster.gpus * chip  # tables count chips; a Neuron chip has several ranks
    low, high = interval(rate, s, step, row.get("source_repo_or_doc", "") not in published_sources())
    stated = whole(row.get("global_batch_seqs"))
    stated_step = stated * s.sample_tokens / (rate * s.cluster.gpus / chip) if stated else step
    return {
        "id": row.get("id", ""), "covered": True, "reason": "", "tokens_per_s_per_gpu": rate,
        "step_time_s": stated_step, "mem_gib_per_gpu": memory(s, c).gib * chip, "low": low, "high": high,
    }  # fmt: skip


def published_flops_per_token(shape: ModelShape, sequence: int) -> float:
    """Model FLOPs as most publications count them (PaLM, Megatron, torchtitan): attention over the full sequence, also
    where it is causal. train/flops.py, our own definition, counts what a causal mask leaves."""
    masked = sequence - keys_per_token(shape, sequence)
    return flops_per_token(shape, sequence) + 12.0 * shape.layers * shape.heads * shape.width_per_head * masked


def measured(row: Row) -> float | None:
    """Tokens/s per GPU that the row reports, from whichever column has it; FLOP/s and MFU are converted by the
    source's own definition."""
    direct = number(row.get("tokens_per_s_per_gpu"))
    if direct:
        return direct
    gpus, total, sequence = (number(row.get(k)) for k in ("num_gpus", "global_batch_seqs", "seq_len"))
    step = number(row.get("step_time_s")) or number(note(row, "derived_step_s"))
    if step and gpus and total and sequence:
        return total * sequence / step / gpus
    flops, share = number(row.get("tflops_per_gpu")), number(row.get("mfu"))
    shape, cluster = shape_of_row(row), cluster_of_row(row)
    if not (flops or share) or not sequence or shape is None or cluster is None:
        return None
    rate = flops * TERA if flops else (share or 0.0) * cluster.device.bf16 * cluster.device.ranks
    return rate / flops_of_source(row, shape, int(sequence))


CAUSAL_SOURCES = ("Megatron-Bridge", "Automodel")  # count the attention that a causal mask leaves


def flops_of_source(row: Row, shape: ModelShape, sequence: int) -> float:
    """FLOPs per token as the row's source counts them (performance notes, section 1). With adapters NVIDIA's tables
    count two thirds of a training of all weights: Automodel of its attention too, the others, whose packed documents
    are short, without attention (a test compares the rows)."""
    source, adapters = row.get("source_repo_or_doc", ""), "lora" in text_of(row)
    if adapters and "Automodel" not in source:
        return 4.0 * matmul_parameters(shape)
    causal = any(name in source for name in CAUSAL_SOURCES)
    flops = flops_per_token(shape, sequence) if causal else published_flops_per_token(shape, sequence)
    return flops * 2 / 3 if adapters else flops
