"""Trainer profiles: what a training framework fuses, overlaps and keeps in memory. The facts are in profiles.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trainwright.errors import UserError, did_you_mean

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Profile:
    """One training framework; profiles.toml explains each field. Defaults are plain PyTorch FSDP2."""

    name: str
    fusion: str = "eager"
    attention: str = "flash2"
    optimizer: str = "fused"
    grad_bytes: float = 4.0
    data: str = "fsdp"
    data_overlap: bool = True
    tp_overlap: str = "none"
    sequence: bool = True
    head_split: bool = True
    selective: str = "products"
    state_bytes: float = 16.0
    alone_bytes: float = 0.0
    around: float = 8.0
    around_layernorm: float = 0.0
    fp8_bytes: float = 0.0
    resident: float = 6.0
    accumulate_whole: bool = False
    broadcast: bool = False
    ahead: bool = False
    graphs: bool = False
    released: float = 0.0
    flat: bool = False
    weights_stay: bool = False
    loss: str = ""
    default_recompute: str = ""
    recompute_layers: bool = False
    balanced_context: bool = False
    early_stop: bool = True
    bf16_experts: bool = False
    fused_experts: bool = False
    fused_sinks: bool = True
    batch_first: bool = True
    copies_kv_heads: bool = False
    timed_products: bool = False
    quantised_base: bool = False

    @property
    def loss_fusion(self) -> str:
        """The fusion level whose traffic the loss has: fused and chunked ones are one kernel, as a compiled one."""
        return "compiled" if self.loss in ("chunked", "pieces", "fused") else self.loss or self.fusion

    @property
    def own(self) -> bool:
        """Whether it is this project's trainer, or a variant of it."""
        return self.name.startswith("trainwright")

    def expert_precision(self, precision: str) -> str:
        """The precision of routed experts and their router in a run of that precision."""
        return "bf16" if self.bf16_experts and precision in ("fp8", "fp4") else precision


@cache
def profiles() -> dict[str, Profile]:
    rows = tomllib.loads((HERE / "profiles.toml").read_text(encoding="utf-8"))
    return {name: Profile(name=name, **row) for name, row in rows.items()}


def profile(name: str) -> Profile:
    known = profiles().get(name)
    if known is None:
        raise UserError(
            f"no trainer profile {name!r}", fix=did_you_mean(name, profiles()) or f"one of {', '.join(profiles())}"
        )
    return known
