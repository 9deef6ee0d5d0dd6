"""The answer: one frozen record of what a job will do, with the setup it was computed from; and `predict()`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from trainwright.predict.constants import Constants, constants
from trainwright.predict.cost import Cost, cost, training_days, training_usd
from trainwright.predict.evidence import interval, outside
from trainwright.predict.goodput import Goodput, failures_per_node_day, goodput
from trainwright.predict.hardware import GIB
from trainwright.predict.layout import lay_out
from trainwright.predict.memory import HOST_USABLE, TIGHT, Memory, host_bytes, host_fits, memory
from trainwright.predict.needs import Needs, data_needs, stall_of
from trainwright.predict.objective import model_flops
from trainwright.predict.request import PredictRequest
from trainwright.predict.setup import Setup
from trainwright.predict.setup_record import to_record
from trainwright.predict.step import step_time
from trainwright.train.flops import mfu

COMMUNICATION = (
    "tensor parallel",
    "context parallel",
    "expert parallel",
    "weight gathers",
    "gradients",
    "pipeline sends",
)


@dataclass(frozen=True)
class Prediction:
    """What `submit` writes to prediction.json. Times in seconds, memory in GiB, money in dollars."""

    model: str
    instance: str
    nodes: int
    gpus: int
    plan: str
    precision: str
    trainer: str
    recompute: str
    sequence: int
    micro_batch: int
    microbatches: int
    tokens_per_step: int
    step_time_s: float
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    low: float  # of the 80 % interval, tokens/s per GPU
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
    host_gib: float = 0.0  # of host memory per GPU, for offloaded activations
    host_limit_gib: float = 0.0  # what a GPU's share of the host has for them; 0: not known
    outside_evidence: list[str] = field(default_factory=list)
    cluster: str = ""  # the spec's name, which a calibration by this run holds for
    setup: Setup | None = None  # None: measured on this machine, not computed

    @property
    def unit(self) -> str:
        """What a rank runs on."""
        return "NeuronCore" if self.setup and self.setup.cluster.device.family == "neuroncore" else "GPU"

    @property
    def fits_host(self) -> bool:
        """Whether offloaded activations have room in host memory."""
        return not self.host_limit_gib or self.host_gib <= self.host_limit_gib

    @property
    def fits_gpu(self) -> str:
        """As `fits`, of the GPU alone."""
        return self.fits if self.fits_host else verdict(self.memory_gib, self.memory_limit_gib)

    @property
    def counts_images(self) -> bool:
        return self.setup is not None and self.setup.shape.kind == "vision"

    @property
    def sample_tokens(self) -> int:
        """Tokens that are trained per sample."""
        return self.setup.sample_tokens if self.setup else self.sequence

    @property
    def stages(self) -> int:
        """Pipeline stages of the plan."""
        return self.setup.plan.pp if self.setup else 1

    def to_dict(self) -> dict[str, Any]:
        """Plain data, the setup included; `setup_record.from_record` reads that back."""
        record = asdict(replace(self, setup=None))
        return {**record, "setup": to_record(self.setup) if self.setup else None}


def predict(request: PredictRequest, c: Constants | None = None) -> Prediction:
    """Predict one job on EC2 instances. What the request leaves open is chosen and named in the answer."""
    c = c or constants()
    return prediction_of(lay_out(request, c), request, c)


def prediction_of(s: Setup, request: PredictRequest, c: Constants) -> Prediction:
    """The full record of a job that is already laid out; the request says how it is paid for and for how long."""
    step, used = step_time(s, c), memory(s, c)
    rate = s.tokens / step.total
    seen = s.cluster.device.family in c.calibrated_by_runs
    low, high = interval(rate / s.cluster.gpus, s, step.total, new_source=not seen)
    failures = failures_per_node_day(request.price_kind)
    good = goodput(s.cluster.nodes, stall_of(s), request.checkpoint_s, failure_rate=failures)
    bill = cost(s.cluster.instance, s.cluster.nodes, rate * good.effective, request.region, request.price_kind)
    days = training_days(request.tokens, rate * good.effective) if request.tokens else None
    storage = request.storage_usd_month
    limit = s.cluster.device.memory
    flops = model_flops(s.shape, s.batch.sequence, s.objective, s.adapter_rank)
    return Prediction(
        model=s.shape.name, instance=s.cluster.instance, nodes=s.cluster.nodes, gpus=s.cluster.gpus, plan=str(s.plan),
        precision=s.precision, trainer=s.profile.name, recompute=recompute_text(s), sequence=s.batch.sequence,
        micro_batch=s.batch.micro, microbatches=s.batch.count, tokens_per_step=s.tokens, step_time_s=step.total,
        tokens_per_s=rate, tokens_per_s_per_gpu=rate / s.cluster.gpus, low=low, high=high,
        mfu=mfu(rate, flops, s.cluster.device.bf16 * s.cluster.gpus),
        memory_gib=used.gib, memory_limit_gib=limit / GIB, fits=verdict(used.total, limit) if host_fits(s) else "no",
        exposed_communication_s=sum(step.parts[name] for name in COMMUNICATION),
        hidden_communication_s=step.hidden, bubble_s=step.parts["bubble"], parts=step.parts,
        memory_parts_gib=memory_parts(used), goodput=good,
        needs=data_needs(s, rate, good.interval_s, request.storage_gb_s), cost=bill,
        train_tokens=request.tokens, train_days=days,
        train_usd=training_usd(bill.usd_hour, days, bill.kind, storage or 0.0) if bill and days else None,
        host_gib=host_bytes(s) / GIB, host_limit_gib=HOST_USABLE * s.cluster.host_memory / GIB,
        storage_usd_month=storage, outside_evidence=outside(s, step.total, new_source=not seen), setup=s,
    )  # fmt: skip


def recompute_text(s: Setup) -> str:
    if s.recompute == "none" or s.recompute_part >= 1.0:
        return s.recompute
    return f"{s.recompute} on {s.recompute_part:.0%} of the layers"


def verdict(used: float, limit: float) -> str:
    """Never a plain yes near the limit: predicted memory differs from published memory by about a tenth."""
    return "yes" if used <= TIGHT * limit else "tight" if used <= limit else "no"


def memory_parts(used: Memory) -> dict[str, float]:
    names = ("state", "gathered", "activations", "logits", "overhead")
    return {name: getattr(used, name) / GIB for name in names}
