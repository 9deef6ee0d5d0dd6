"""From a prediction back to the job it was made for, so that it can be explained, drawn, refitted or improved on."""

from __future__ import annotations

from pathlib import Path

from trainwright.predict.calibrate import Run, setup_of_run
from trainwright.predict.plan import parse_plan
from trainwright.predict.prediction import Prediction
from trainwright.predict.setup import Setup


def rebuild(p: Prediction) -> Setup:
    return setup_of_run(Run(Path(), p.to_dict(), p.tokens_per_s))


def stages(p: Prediction) -> int:
    """Pipeline stages of the plan."""
    return 1 if p.plan == "single" or not p.instance else parse_plan(p.plan, p.gpus).pp
