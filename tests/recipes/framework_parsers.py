"""Run by the Python of the frameworks' environment: reads {recipe: {parser, text, ranks}} from standard input and gives
what each framework's own reader makes of the file, {recipe: {value | error}}."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
import tempfile
import types
from typing import Any


def torchtitan(text: str, ranks: int) -> dict[str, Any]:
    """torchtitan's configuration manager. Its package imports GPU kernels first; the manager needs none of them."""
    if "torchtitan" not in sys.modules:
        package = types.ModuleType("torchtitan")
        found = importlib.util.find_spec("torchtitan")
        assert found is not None
        package.__path__ = list(found.submodule_search_locations or ())
        sys.modules["torchtitan"] = package
    from torchtitan.config import ConfigManager  # type: ignore[import-not-found]

    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(text)
        file.flush()
        config = ConfigManager().parse_args(["--job.config_file", file.name])
    return {"steps": config.training.steps, "micro_batch": config.training.local_batch_size}


def deepspeed(text: str, ranks: int) -> dict[str, Any]:
    """DeepSpeed's configuration, with its check that the batch is micro batch x accumulation x data ranks."""
    from deepspeed.runtime import config  # type: ignore[import-not-found]

    config.dist = types.SimpleNamespace(get_rank=lambda: 0, get_world_size=lambda: ranks)
    read = config.DeepSpeedConfig(json.loads(text))
    return {
        "batch": read.train_batch_size, "micro_batch": read.train_micro_batch_size_per_gpu,
        "stage": int(read.zero_optimization_stage), "clip": read.gradient_clipping,
    }  # fmt: skip


def read(parser: str, text: str, ranks: int) -> dict[str, Any]:
    try:
        return {"value": {"torchtitan": torchtitan, "deepspeed": deepspeed}[parser](text, ranks)}
    except (Exception, SystemExit) as error:
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):  # frameworks print while they read
        answers = {name: read(**one) for name, one in asked.items()}
    json.dump(answers, sys.stdout)
