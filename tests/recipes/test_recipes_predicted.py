"""Every recipe holds up against our own predictor on the hardware it names: it fits, it is not wasteful, and the speed
on top of its file is the one predicted. `pytest --update-golden` updates that line."""

from __future__ import annotations

import re

import pytest

from resolving import loaded
from trainwright.jobs.resolve import resolve_job
from trainwright.predict.job import predict_job
from trainwright.recipes.load import FOLDER, header, names, recipe
from trainwright.train.models.shape import lookup

# Recipes that say what was measured, or what the paper says.
UNPREDICTED = ("cpu-ddp", "dino-vit-s-16", "dino-vit-b-16", "llama3-8b-lora")
NAMED = [name for name in names() if name not in UNPREDICTED]
SPEED = re.compile(r"about ([\d,]+) tokens/s per GPU on (\d+) x (\S+), predicted")


def machine(hardware: str) -> tuple[int, str]:
    """How many of which instance `16 nodes of 8 A100-80 or better` are."""
    gpus = {"H100": "p5.48xlarge", "A100-80": "p4de.24xlarge", "A100": "p4d.24xlarge", "GPUs": "p4d.24xlarge"}
    words = hardware.replace(";", "").split()
    return int(words[0]), next(instance for gpu, instance in gpus.items() if gpu in words)


def predicted(name: str) -> dict[str, float]:
    nodes, instance = machine(recipe(name).hardware)
    queue = {"name": "q", "instance": instance, "count": nodes}
    spec = {"name": "x", "platform": "parallelcluster", "queues": [queue], "jobs": [{"name": "j", "recipe": name}]}
    return predict_job(resolve_job(loaded(spec)).require()).to_dict()


@pytest.mark.parametrize("name", NAMED)
def test_it_fits_and_is_not_wasteful(name: str) -> None:
    prediction = predicted(name)
    assert prediction["memory_gib"] < 0.85 * prediction["memory_limit_gib"]
    assert prediction["recompute"] == recipe(name).recompute, "it fits as it is written"
    # Of a mixture of experts, a layer has more weights to gather per FLOP.
    assert prediction["mfu"] > (0.25 if lookup(str(recipe(name).model)).experts else 0.35)


@pytest.mark.parametrize("name", NAMED)
def test_the_speed_on_top_is_the_predicted_one(name: str, request: pytest.FixtureRequest) -> None:
    speed = predicted(name)["tokens_per_s_per_gpu"]
    nodes, instance = machine(recipe(name).hardware)
    if request.config.getoption("--update-golden"):
        whole = 10 ** max(0, len(str(int(speed))) - 2)
        line = f"about {round(speed / whole) * whole:,.0f} tokens/s per GPU on {nodes} x {instance}, predicted"
        path = FOLDER / f"{name}.yaml"
        path.write_text(SPEED.sub(line, path.read_text()))
    match = SPEED.search(header(name))
    assert match is not None
    assert (int(match[2]), match[3]) == (nodes, instance)
    assert float(match[1].replace(",", "")) == pytest.approx(speed, rel=0.25)
