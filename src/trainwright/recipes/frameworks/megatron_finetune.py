"""Starts a fine-tuning of Megatron-DeepSpeed from converted weights, and a job that comes back from its own checkpoint.
Megatron's --finetune begins at step 0 with the weights of --load, so it is right for the first start only; and where
--load holds nothing, Megatron goes on with random weights after a warning.

    python3 megatron_finetune.py PROGRAM WEIGHTS --save FOLDER --load FOLDER …"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

LATEST = "latest"  # DeepSpeed writes it after a whole checkpoint; the converter's folder has it too


def from_weights(words: list[str], weights: str) -> list[str]:
    """The words of a start: from the weights until the run has a checkpoint of its own."""
    load = words.index("--load") + 1
    if (Path(words[load]) / LATEST).is_file():
        return words
    if not (Path(weights) / LATEST).is_file():
        raise SystemExit(
            f"no weights in {weights}: convert them with tools/hf2megads_weight_converter.py, with this job's "
            "tensor and pipeline parallel sizes"
        )
    return [*words[:load], weights, *words[load + 1 :], "--finetune"]


def main() -> None:
    program, weights, *words = sys.argv[1:]
    sys.path.insert(0, str(Path(program).parent))
    sys.argv = [program, *from_weights(words, weights)]
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
