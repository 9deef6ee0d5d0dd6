"""DSP: "auto" for a batch size, where no program fills it in."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.model import File
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.dsp_saving import programs_with
from trainwright.spec.source import Node

_BATCHES = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size")
_STARTS = re.compile(r"^[^#\n]*\bdeepspeed\.initialize\(", re.MULTILINE)
# What fills "auto" in, or reads the file before DeepSpeed does and may.
_FILLS = re.compile(
    r"HfDeepSpeedConfig|HfTrainerDeepSpeedConfig|Accelerat|Trainer\(|DeepSpeedPlugin|DeepSpeedStrategy|json\.load|hjson"
    r"|load_config|read_json|OmegaConf|[\"']auto[\"']|train_batch_size|micro_batch_size|autotuning"
)


def unfilled_batches(file: File, root: Node) -> Iterator[Problem]:
    """The batch sizes of a file that a program beside it gives to deepspeed.initialize as it is."""
    automatic = [key for key in _BATCHES if (value := root.get(key)) is not None and value.text == "auto"]
    program = _starter(file.path) if automatic and root.get("autotuning") is None else ""
    for key in automatic if program else ():
        yield problem(
            root.get(key) or root,
            f'{program} gives this file to deepspeed.initialize, which does not fill in "auto": it stops',
            "remove it: DeepSpeed computes it from the micro-batch and the accumulation"
            if key == "train_batch_size" and root.get(_BATCHES[0]) is not None
            else "write a number",
            why=reasons.AUTO_IS_NO_NUMBER,
        )


def _starter(path: str) -> str:
    """The only program beside the file that uses it, if it starts DeepSpeed itself."""
    programs = [*programs_with(path, os.path.basename(path))]
    own = [name for name, text in programs if _STARTS.search(text) and not _FILLS.search(text)]
    return own[0] if len(programs) == len(own) == 1 else ""
