"""What `bench device` measured, beside the data sheet and beside what `predict` assumes."""

from __future__ import annotations

from typing import Any

from trainwright.catalog.accelerators import Accelerator, accelerator_named
from trainwright.predict.constants import constants
from trainwright.predict.hardware import device


def add_limits(result: dict[str, Any]) -> None:
    """Put `sheet` (the vendor's figure) and `assumed` (the rate that predictions count on) into each row."""
    chip = accelerator_named(result["machine"].get("gpu", ""))
    for row in result["rows"]:
        row["sheet"], row["assumed"] = limits(row["kind"], chip) if chip else (None, None)


def limits(kind: str, chip: Accelerator) -> tuple[float | None, float | None]:
    """(data sheet, assumed by predict), None where there is no figure."""
    known: dict[str, tuple[float, float | None]] = {
        "matmul bf16": (chip.bf16_tflops, _sustained(chip, "bf16")),
        "matmul fp8": (chip.fp8_tflops, _sustained(chip, "fp8") if chip.fp8_tflops else None),
        "memory": (chip.memory_gb_s, None),
        "peer": (chip.nvlink_gb_s, None),
    }
    sheet, assumed = known.get(kind, (0.0, None))
    return sheet or None, assumed


def _sustained(chip: Accelerator, precision: str) -> float:
    """TFLOP/s that a prediction counts on for large products: the best ever measured times what a long run sustains."""
    return device(chip.name).matmul_rate(precision, constants()) / 1e12


def device_text(result: dict[str, Any]) -> str:
    """One line per measurement."""
    lines = [f"{'device':<8} {'measurement':<38} {'achieved':>10} {'data sheet':>16} {'predict assumes':>16}  unit"]
    for row in result["rows"]:
        cells = [f"{row[k]:,.0f} ({row['value'] / row[k]:.0%})" if row[k] else "-" for k in ("sheet", "assumed")]
        lines.append(
            f"{row['device']:<8} {row['name']:<38} {row['value']:>10,.2f} {cells[0]:>16} {cells[1]:>16}  {row['unit']}"
        )
    return "\n".join(lines)
