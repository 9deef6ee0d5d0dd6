"""The programs that run inside frameworks start from the same weights on every rank and after every restart."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import Any

import pytest
import torch

from trainwright.recipes.framework import FOLDER

PROGRAMS = {  # module: the function that makes a model of random weights, the debug model
    "hf_models": ("new_model", "llama-debug"),
    "hf_mlm": ("new_model", "esm-debug"),
    "hf_vlm": ("debug_pair", "llama-debug"),
}


@pytest.mark.parametrize("module", PROGRAMS)
def test_random_weights_are_the_same_on_every_rank(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (FOLDER, FOLDER.parents[1]):
        monkeypatch.syspath_prepend(str(folder))
    for name in ("entry_common", "run", "hf_training", *PROGRAMS):
        monkeypatch.delitem(sys.modules, name, raising=False)
    function, model = PROGRAMS[module]
    make = getattr(import_module(module), function)
    ranks: list[dict[str, Any]] = []
    for rank in range(2):
        torch.manual_seed(1000 + rank)  # whatever ran before drew other numbers on each rank
        made = make(model) if module == "hf_vlm" else make(argparse.Namespace(model=model, seed=3, recompute="none"))
        ranks.append((made[1] if isinstance(made, tuple) else made).state_dict())
    assert all(torch.equal(ranks[0][name], ranks[1][name]) for name in ranks[0])
