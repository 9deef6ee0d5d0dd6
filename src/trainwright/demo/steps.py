"""The steps of the demo; what was started is stopped in any case."""

from __future__ import annotations

from collections.abc import Callable

from trainwright.demo import design, proof, training
from trainwright.demo.story import Context, Outcome, Step, run_steps
from trainwright.demo.training import clean
from trainwright.platforms.local import life, state

STEPS = (
    Step("Find the three mistakes planted in a spec", design.find_and_fix),
    Step("Probe this machine and predict a tiny Llama's step", design.predict_here),
    Step("Start a real Slurm with four nodes on this machine", training.start_cluster),
    Step("Check the health of every node", proof.check_health),
    Step("Measure the collectives", proof.measure_collectives),
    Step("Measure the data loader", proof.measure_loader),
    Step("Train a tiny Llama over four ranks", training.train_undisturbed),
    Step("Train it again, and kill a node on the way", training.train_through_a_fault),
    Step("Plan and price the fixed spec for four p5.48xlarge", design.plan_on_aws),
    Step("Write the report: predicted beside measured", proof.write_report),
    Step("Stop everything that was started", training.stop_cluster),
)


def run(context: Context, announce: Callable[[int, Step], None]) -> list[Outcome]:
    """Run the steps; a cluster never outlives them."""
    try:
        return run_steps(STEPS, context, announce)
    finally:
        if training.CLUSTER in state.names():
            life.down(training.CLUSTER, force=True)


__all__ = ["STEPS", "clean", "run"]
