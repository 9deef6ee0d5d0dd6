"""Reads a table of training runs (the columns of published_training.csv, blanks allowed) and predicts each row."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainwright.predict.constants import Constants
from trainwright.predict.evidence import interval
from trainwright.predict.memory import fits, least_recompute, memory
from trainwright.predict.plan import Batch, Plan
from trainwright.predict.profiles import Profile, profile, profile_for
from trainwright.predict.rowshape import cluster_of_row, number, shape_of_row, whole
from trainwright.predict.setup import Setup
from trainwright.predict.step import step_time

Row = dict[str, str]


@dataclass(frozen=True, slots=True)
class RowSetup:
    """A row made ready, or the reason why it cannot be."""

    setup: Setup | None
    reason: str = ""
    stated_recompute: bool = False


def note(row: Row, key: str) -> str:
    found = re.search(rf"(?:^|[;\s(]){re.escape(key)}\s*=\s*([^;\s)]+)", row.get("notes", ""))
    return found[1] if found else ""


def precision_of(text: str) -> str:
    low = text.lower()
    if "fp4" in low:
        return "fp4"
    if "8" in low and ("fp8" in low or "float8" in low or "f8" in low):
        return "fp8"
    return "fp32" if low in ("fp32", "float32", "tf32") else "bf16"


def profile_of(row: Row) -> Profile:
    """The stack a row names, adjusted by what it states about compilation and overlap."""
    where = f"{row.get('source_repo_or_doc', '')} {row.get('path_or_url', '')}"
    model, notes = row.get("model", ""), row.get("notes", "").lower()
    found = profile_for(model) or profile_for(row.get("path_or_url", "")) or profile_for(where) or profile("torch")
    if "hf trainer" in notes or "hf model" in notes:
        found = profile("torch")
    if found.name == "megatron" and row.get("precision", "").lower() == "fp16":
        found = profile("megatron-classic")  # Megatron's fp16 tables precede fused attention
    compiled = row.get("compile", "").lower()
    if compiled == "yes" and found.fusion in ("eager", "native"):
        found = found.but(fusion="compiled")
    if compiled == "no" and found.fusion == "compiled":
        found = found.but(fusion="eager")
    if "asynctp" in notes or "async tp" in notes:
        found = found.but(tp_overlap="async")
    if "no seq-parallel" in notes:
        found = found.but(sequence=False)
    elif "seq-parallel" in notes or "sequence parallel" in notes:
        found = found.but(sequence=True)
    return found


def plan_of(row: Row, stack: Profile, gpus: int) -> Plan | None:
    tp, pp, cp = (whole(row.get(k), 1) or 1 for k in ("tp", "pp", "cp"))
    if gpus % (tp * pp * cp):
        return None
    dp = gpus // (tp * pp * cp)
    text = row.get("fsdp_shard", "").strip()
    stated = note(row, "vp")
    interleave = int(stated) if stated.isdigit() else 1
    if not stated.isdigit() and stack.recompute_layers and pp > 1:
        interleave = max(1, whole(row.get("layers")) // pp)  # Megatron's recipes interleave as far as the layers go
    if "interleaved 1f1b" in row.get("notes", "").lower() and interleave == 1:
        interleave = 2
    shape = {"tp": tp, "pp": pp, "cp": cp, "ep": whole(row.get("ep"), 1) or 1, "interleave": interleave}
    digits = re.match(r"(\d+)", text)
    shard = int(digits[1]) if digits else 0
    if "zero2" in text:
        return Plan(shard=dp, zero=2, **shape)
    if "FSDP" in text.upper():
        shard = min(dp, 128)
    if shard > 1:
        shard = shard if dp % shard == 0 else dp
        return Plan(replicate=dp // shard, shard=shard, zero=3, **shape)
    if stack.data == "zero1":
        wide = note(row, "zero1") or (re.search(r"zero-1 shard=(\d+)", row.get("notes", "").lower()) or ["", ""])[1]
        owners = int(wide) if wide.isdigit() and dp % int(wide) == 0 else dp
        return Plan(replicate=dp // owners, shard=owners, zero=0 if stack.resident >= stack.state_bytes else 1, **shape)
    if cp > 1:
        return Plan(shard=dp, zero=3, **shape)  # weights are sharded over the context ranks too
    return Plan(replicate=dp, zero=0, **shape)


def batch_of(row: Row, plan: Plan, stack: Profile) -> Batch:
    """Microbatch and count. Unstated: four sequences where they fit the batch, one in a pipeline."""
    seq = whole(row.get("seq_len"), 2048) or 2048
    total = whole(row.get("global_batch_seqs"))
    micro = whole(row.get("micro_batch"))
    share = max(1, total // plan.dp) if total else 0
    if not micro:
        micro = 1 if plan.pp > 1 else next((m for m in (4, 2, 1) if not share or share % m == 0), 1)
    if stack.name == "torchtitan" and plan.pp > 1:
        return Batch(seq, max(1, micro // plan.pp), plan.pp)  # its default: as many microbatches as stages
    count = int(note(row, "grad_accum") or note(row, "micro_num") or 0) if not share else 0
    return Batch(seq, micro, count or max(1, round(share / micro)) if share or count else 1)


def setup_of(row: Row, c: Constants) -> RowSetup:
    shape = shape_of_row(row)
    if shape is None:
        return RowSetup(None, f"the shape of model {row.get('model', '')!r} is neither in the row nor in the catalog")
    low = f"{row.get('model', '')} {row.get('notes', '')}".lower()
    if (whole(row.get("ep"), 1) or 1) > 1 or "moe" in row.get("model", "").lower() or shape.experts:
        return RowSetup(None, "mixture of experts: the published rows are too scattered to answer for")
    cluster = cluster_of_row(row)
    if cluster is None:
        return RowSetup(None, f"accelerator {row.get('gpu', '')!r} or the number of GPUs is not known")
    if cluster.device.arch.startswith("neuron"):
        return RowSetup(None, "Neuron kernels are outside the evidence")
    if "power limited" in row.get("gpu", "").lower() or "power-limited" in row.get("gpu", "").lower():
        return RowSetup(None, "the power limit is not stated")
    if "hf trainer" in low and "lora" in low:
        return RowSetup(None, "HF Trainer with adapters: its time is on the host, outside the model")
    if "qlora" in low or "offload" in low:
        return RowSetup(None, "quantised or offloaded training is outside the model")
    stack = profile_of(row)
    if stack.name == "torchtitan" and cluster.device.family == "sm_100":
        stack = stack.but(loss="chunked")  # its releases since Blackwell's
    plan = plan_of(row, stack, cluster.gpus)
    if plan is None:
        return RowSetup(None, "tp x pp x cp does not divide the number of GPUs")
    batch = batch_of(row, plan, stack)
    made = Setup(
        shape, cluster, plan, batch, stack, precision_of(row.get("precision", "")),
        rowwise="rowwise" in row.get("precision", "").lower(), frozen="lora" in low,
    )  # fmt: skip
    if plan.dp > 1 and plan.zero == 0 and stack.data == "fsdp" and not fits(made, c):
        made = made.but(plan=plan.but(replicate=1, shard=plan.dp, zero=2 if stack.weights_stay else 3))
    policy = row.get("act_ckpt", "").strip().lower()
    if policy in ("none", "selective", "full"):
        return RowSetup(made.but(recompute=policy), "", True)
    if stack.default_recompute:
        return RowSetup(made.but(recompute=stack.default_recompute))
    return RowSetup(least_recompute(made, c))


def answer(row: Row, c: Constants) -> dict[str, object]:
    """The row's prediction in the published form. A row that cannot be read is not covered, and stops no other."""
    try:
        ready = setup_of(row, c)
    except (ValueError, ArithmeticError) as error:
        ready = RowSetup(None, f"the row cannot be read: {error}")
    empty = {"tokens_per_s_per_gpu": None, "step_time_s": None, "mem_gib_per_gpu": None, "low": None, "high": None}
    if ready.setup is None:
        return {"id": row.get("id", ""), "covered": False, "reason": ready.reason, **empty}
    s = ready.setup
    took = step_time(s, c).total
    rate = s.tokens / took / s.cluster.gpus
    low, high = interval(rate, s, took)
    stated = whole(row.get("global_batch_seqs"))
    step = stated * s.batch.seq / (rate * s.cluster.gpus) if stated else took
    return {
        "id": row.get("id", ""), "covered": True, "reason": "", "tokens_per_s_per_gpu": rate, "step_time_s": step,
        "mem_gib_per_gpu": memory(s, c).gib, "low": low, "high": high,
    }  # fmt: skip


def measured(row: Row) -> float | None:
    """Tokens a second and GPU that the row reports, by whichever column holds it."""
    direct = number(row.get("tokens_per_s_per_gpu"))
    if direct:
        return direct
    gpus, total, seq = (number(row.get(k)) for k in ("num_gpus", "global_batch_seqs", "seq_len"))
    step = number(row.get("step_time_s")) or number(note(row, "derived_step_s"))
    if step and gpus and total and seq:
        return total * seq / step / gpus
    return None
