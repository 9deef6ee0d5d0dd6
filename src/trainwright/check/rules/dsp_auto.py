"""DSP: "auto" for a batch size, where no program fills it in."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.model import File
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.dsp_saving import programs_with
from trainwright.errors import listed
from trainwright.spec.source import Node

_BATCHES = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size")
_TOTAL = _BATCHES[-1]
_SHOWN = 16  # keys of a message
_STARTS = re.compile(r"^[^#\n]*\bdeepspeed\.initialize\(", re.MULTILINE)
# What fills "auto" in, or reads the file before DeepSpeed does and may.
_FILLS = re.compile(
    r"HfDeepSpeedConfig|HfTrainerDeepSpeedConfig|Accelerat|Trainer\(|DeepSpeedPlugin|DeepSpeedStrategy|json\.load|hjson"
    r"|load_config|read_json|OmegaConf|[\"']auto[\"']|train_batch_size|micro_batch_size|autotuning"
)


# What only asks the engine, which has the numbers already.
_ASKS = re.compile(r"\.(train_micro_batch_size_per_gpu|train_batch_size|gradient_accumulation_steps)\(\)")


def unfilled_batches(file: File, root: Node) -> Iterator[Problem]:
    """The batch sizes of a file that a program beside it gives to deepspeed.initialize as it is."""
    automatic = [key for key in _BATCHES if (value := root.get(key)) is not None and value.text == "auto"]
    program = _starter(file.path) if automatic and root.get("autotuning") is None else ""
    if program:
        first = min((root.get(key) or root for key in automatic), key=lambda node: node.span.line)
        yield problem(
            first,
            f'{program} gives this file to deepspeed.initialize, which does not fill in "auto": it stops',
            _instead(root, automatic),
            why=reasons.AUTO_IS_NO_NUMBER,
        )


def _instead(root: Node, automatic: list[str]) -> str:
    """What to do about each "auto" that DeepSpeed takes for a value; those of its sections it drops itself."""
    total = automatic[-1] == _TOTAL
    numbers = [key for key in automatic if key != _TOTAL or root.get(_BATCHES[0]) is None]
    top = [key for key, value in root.items() if value.text == "auto" and key not in _BATCHES]
    numbers += [
        *top,
        *(f"{name}.params.{key}" for name in ("optimizer", "scheduler") for key in _automatic(root, name)),
    ]
    removed = f"remove {_TOTAL}, which DeepSpeed computes" if total and _TOTAL not in numbers else ""
    written = f"write {'a number' if len(numbers) == 1 else 'numbers'} for {listed(numbers, _SHOWN)}" if numbers else ""
    return ", and ".join(filter(None, (written, removed)))


def _automatic(root: Node, name: str) -> list[str]:
    params = root.get(name, "params")
    return (
        [key for key, value in params.items() if value.text == "auto"] if params is not None and params.is_map else []
    )


def _starter(path: str) -> str:
    """The only program beside the file that uses it, if it starts DeepSpeed itself."""
    programs = [*programs_with(path, os.path.basename(path))]
    own = [name for name, text in programs if _STARTS.search(text) and not _FILLS.search(_ASKS.sub("", text))]
    return own[0] if len(programs) == len(own) == 1 else ""
