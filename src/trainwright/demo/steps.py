"""The demo, step by step, and its end: what was started is stopped whatever happened."""

from __future__ import annotations

from collections.abc import Callable

from trainwright.demo import design, training
from trainwright.demo.story import Outcome, Stage, Step, tell
from trainwright.demo.training import clean
from trainwright.platforms.local import life, state

STEPS = (
    Step("Find the three mistakes planted in a spec", design.find_and_mend),
    Step("Predict a tiny Llama's step on this machine", design.predict_here),
    Step("Start a real Slurm with four nodes on this machine", training.start_cluster),
    Step("Train a tiny Llama over four ranks", training.train_undisturbed),
    Step("Train it again, and kill a node on the way", training.train_through_a_fault),
    Step("Stop everything that was started", training.stop_cluster),
    Step("Plan the mended spec for four p5.48xlarge", design.plan_on_aws),
)


def run(stage: Stage, announce: Callable[[int, Step], None]) -> list[Outcome]:
    """Tell the story; a cluster never outlives it."""
    try:
        return tell(STEPS, stage, announce)
    finally:
        if training.CLUSTER in state.names():
            life.down(training.CLUSTER, force=True)


__all__ = ["STEPS", "clean", "run"]
