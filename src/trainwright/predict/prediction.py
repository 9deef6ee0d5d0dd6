"""The answer: one frozen record of what a job will do, and all it was computed from. `predict()` is the way in."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from trainwright.errors import UserError, did_you_mean
from trainwright.predict import own_model
from trainwright.predict.constants import Constants, constants
from trainwright.predict.evidence import interval, outside
from trainwright.predict.goodput import Goodput, goodput
from trainwright.predict.hardware import GIB, cluster
from trainwright.predict.memory import Memory, least_recompute, memory
from trainwright.predict.money import Cost, cost
from trainwright.predict.needs import Needs, data_needs, stall_of
from trainwright.predict.plan import Batch, Plan, check_fit, parse_plan
from trainwright.predict.profiles import Profile, profile
from trainwright.predict.rowshape import all_shapes
from trainwright.predict.setup import Setup
from trainwright.predict.step import step_time
from trainwright.train.models.shape import ModelShape, active_parameter_count, lookup

TIGHT = 0.90  # above this part of the memory, fragmentation decides
MICRO_BATCHES = (16, 8, 4, 2, 1)
MONTH_DAYS = 30.4


@dataclass(frozen=True)
class Prediction:
    """What submit writes to prediction.json. Times in seconds, memory in GiB, money in dollars."""

    model: str
    instance: str
    nodes: int
    gpus: int
    plan: str
    precision: str
    trainer: str
    recompute: str
    seq: int
    micro_batch: int
    microbatches: int
    tokens_per_step: int
    step_time_s: float
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    low: float
    high: float
    mfu: float
    memory_gib: float
    memory_limit_gib: float
    fits: str  # yes | tight | no
    exposed_communication_s: float
    hidden_communication_s: float
    bubble_s: float
    parts: dict[str, float]
    memory_parts_gib: dict[str, float]
    goodput: Goodput
    needs: Needs
    cost: Cost | None
    train_tokens: float | None
    train_days: float | None
    train_usd: float | None
    storage_usd_month: float | None = None
    outside_evidence: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


COMMUNICATION = (
    "tensor parallel",
    "context parallel",
    "expert parallel",
    "weight gathers",
    "gradients",
    "pipeline sends",
)


def find_model(name: str) -> ModelShape:
    """A model of the catalog, or one's own by its config.json."""
    if own_model.is_file(name):
        return own_model.from_config(name)
    found = all_shapes().get(name.lower())
    if found is None and name.lower().endswith("-debug"):
        return lookup(name.lower())
    if found is None:
        raise UserError(
            f"no model {name!r}",
            fix=did_you_mean(name, all_shapes())
            or "`trainwright catalog list --kind models` names them; a config.json of Hugging Face is taken too",
        )
    return found


def model_flops_per_token(shape: ModelShape, seq: int) -> float:
    """The usual definition (PaLM, torchtitan): 6 per parameter of a product, and full attention."""
    return 6.0 * (active_parameter_count(shape) - shape.vocab * shape.hidden * (0 if shape.tied else 1)) + (
        12.0 * shape.layers * shape.heads * shape.width_per_head * seq
    )


def describe(s: Setup) -> str:
    if s.recompute == "none" or s.recompute_part >= 1.0:
        return s.recompute
    return f"{s.recompute} on {s.recompute_part:.0%} of the layers"


def choose_batch(s: Setup, sequences: int, micro: int | None, recompute: str | None, c: Constants) -> Setup:
    """Fill in what the user left open: the microbatch and recomputation that give the fastest step that fits."""
    share, left = divmod(sequences, s.plan.dp)
    if left or share < 1:
        near = max(1, round(sequences / s.plan.dp)) * s.plan.dp
        raise UserError(
            f"a batch of {sequences} sequences does not divide over {s.plan.dp} data ranks",
            where="--batch",
            fix=f"--batch {near * s.batch.seq} (tokens), that is {near} sequences",
        )
    options = []
    for size in (micro,) if micro else MICRO_BATCHES:
        if share % size:
            continue
        made = s.but(batch=Batch(s.batch.seq, size, share // size))
        made = made.but(recompute=recompute) if recompute else least_recompute(made, c)
        options.append(made)
    if not options:
        raise UserError(
            f"{share} sequences a data rank are not a multiple of the microbatch {micro}", where="--micro-batch",
            fix=f"a divisor of {share}",
        )  # fmt: skip
    room = s.cluster.device.memory
    fitting = [o for o in options if memory(o, c).total <= TIGHT * room] or [
        min(options, key=lambda o: memory(o, c).total)
    ]
    return min(fitting, key=lambda o: step_time(o, c).total)


def predict(
    model: str | ModelShape,
    instance: str,
    nodes: int,
    parallel: str | Plan = "",
    *,
    seq: int | None = None,
    batch_tokens: int | None = None,
    micro_batch: int | None = None,
    precision: str = "bf16",
    trainer: str = "trainwright",
    recompute: str | None = None,
    tokens: float | None = None,
    region: str = "us-east-1",
    price_kind: str = "on-demand",
    storage_gb_s: float | None = None,
    storage_usd_month: float | None = None,
    checkpoint_s: float | None = None,
    c: Constants | None = None,
) -> Prediction:
    """Predict one job on EC2 instances. What is left open is chosen and named in the result."""
    c = c or constants()
    shape = model if isinstance(model, ModelShape) else find_model(model)
    machines = cluster(instance, nodes)
    if machines.device.arch.startswith("neuron"):
        raise UserError(
            f"{instance}: Neuron kernels are outside the evidence, so there is no honest answer",
            fix="name an instance type with GPUs",
        )
    stack = profile(trainer)
    plan = parallel if isinstance(parallel, Plan) else plan_for(parallel, machines.gpus, stack)
    length = seq or shape.context
    refuse(plan, shape, length)
    sequences = shared_sequences(batch_tokens or plan.dp * length, length, plan.dp)
    start = Setup(shape, machines, plan, Batch(length, 1, 1), stack, precision)
    made = choose_batch(start, sequences, micro_batch, recompute, c)
    return prediction_of(made, instance, c, tokens, region, price_kind, storage_gb_s, storage_usd_month, checkpoint_s)


def plan_for(text: str, gpus: int, stack: Profile) -> Plan:
    """The plan a text means under a stack: one that shards only moments does so over the same ranks."""
    plan = parse_plan("" if text == "single" else text, gpus)
    return plan.but(zero=1) if stack.data == "zero1" and plan.zero == 3 else plan


def shared_sequences(tokens: int, seq: int, dp: int) -> int:
    """A batch in tokens is a target: the nearest number of sequences that the data ranks can share in microbatches."""
    share = tokens / seq / dp
    unit = 1 if share < 3 else 2 if share < 8 else 4
    return max(1, round(share / unit) * unit) * dp


def refuse(plan: Plan, shape: ModelShape, seq: int) -> None:
    wrong = check_fit(plan, shape, seq)
    if wrong:
        raise UserError("; ".join(wrong), where=f"plan {plan.text()}", fix=nearest(plan, shape))


def nearest(plan: Plan, shape: ModelShape) -> str:
    """The closest degrees that divide."""
    tp = max(d for d in range(1, plan.tp + 1) if shape.heads % d == 0 and plan.gpus % d == 0)
    pp = max(d for d in range(1, plan.pp + 1) if shape.layers >= d * plan.interleave and plan.gpus % (tp * d) == 0)
    return f"tp={tp},pp={pp} and the rest of the {plan.gpus} GPUs as shard={plan.gpus // (tp * pp)}"


def prediction_of(
    s: Setup,
    instance: str,
    c: Constants,
    tokens: float | None = None,
    region: str = "us-east-1",
    price_kind: str = "on-demand",
    storage_gb_s: float | None = None,
    storage_usd_month: float | None = None,
    checkpoint_s: float | None = None,
) -> Prediction:
    """The full record of a job that is already laid out."""
    took, held = step_time(s, c), memory(s, c)
    rate = s.tokens / took.total
    low, high = interval(rate / s.cluster.gpus, s, took.total)
    good = goodput(s.cluster.nodes, stall_of(s), checkpoint_s)
    money = cost(instance, s.cluster.nodes, rate, good.effective, region, price_kind) if instance else None
    days = tokens / (rate * good.effective) / 86_400 if tokens else None
    limit = s.cluster.device.memory
    return Prediction(
        model=s.shape.name, instance=instance, nodes=s.cluster.nodes, gpus=s.cluster.gpus, plan=s.plan.text(),
        precision=s.precision, trainer=s.profile.name, recompute=describe(s), seq=s.batch.seq,
        micro_batch=s.batch.micro, microbatches=s.batch.count, tokens_per_step=s.tokens, step_time_s=took.total,
        tokens_per_s=rate, tokens_per_s_per_gpu=rate / s.cluster.gpus, low=low, high=high,
        mfu=rate / s.cluster.gpus * model_flops_per_token(s.shape, s.batch.seq) / s.cluster.device.bf16,
        memory_gib=held.gib, memory_limit_gib=limit / GIB, fits=verdict(held.total, limit),
        exposed_communication_s=sum(took.parts[name] for name in COMMUNICATION),
        hidden_communication_s=took.hidden, bubble_s=took.parts["bubble"], parts=took.parts,
        memory_parts_gib=memory_parts(held), goodput=good,
        needs=data_needs(s, rate, good.interval_s, storage_gb_s), cost=money, train_tokens=tokens, train_days=days,
        train_usd=(money.usd_hour * 24 + (storage_usd_month or 0.0) / MONTH_DAYS) * days if money and days else None,
        storage_usd_month=storage_usd_month,
        outside_evidence=outside(s, took.total),
    )  # fmt: skip


def verdict(used: float, limit: float) -> str:
    """Never a plain yes near the edge: the published memory rows scatter by a tenth."""
    return "yes" if used <= TIGHT * limit else "tight" if used <= limit else "no"


def memory_parts(held: Memory) -> dict[str, float]:
    names = ("state", "gathered", "activations", "logits", "overhead")
    return {name: getattr(held, name) / GIB for name in names}
