"""PYT: training steps that train on other gradients than they seem to."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.model import File
from trainwright.check.programs.eval_modes import left_in_eval
from trainwright.check.programs.schedules import wrong_lengths
from trainwright.check.programs.step_order import misplaced
from trainwright.check.programs.training_script import script_of, span_of
from trainwright.check.programs.wrapped_models import bypassed
from trainwright.check.registry import Problem, problem, rule

_MADE_UP = re.compile(r"\btorch\.(randn|rand|randint)\(")
_DATA = re.compile(r"load(?!_state)|data_?set|batches|corpus|\bopen\(|read_\w+\(", re.IGNORECASE)


@rule("PYT006", "warning")
def steps_train_on_their_gradients(file: File) -> Iterator[Problem]:
    """A training step must train with the gradients that it computed.

    In the loop of a script that starts a process group: gradients that are clipped before `scaler.unscale_`, after the
    step, or by each rank's shard alone (`torch.nn.utils.clip_grad_norm_` of a model in FullyShardedDataParallel);
    `zero_grad` in each micro-step of an accumulation, between backward and step (an error), or nowhere; a GradScaler
    whose `step` or `update` is missing (an error); a pass that goes around DistributedDataParallel (`model.module(x)`,
    or the model that was wrapped), where passes without gradients alone go through it; a model that stays in `eval()`
    after the first validation; a schedule whose length is counted in epochs and that advances with each batch or step
    of the optimizer, or the other way round. In a script whose only data are random numbers, as in a measurement, what
    no program refuses is a note.

    Why: no program refuses such a step, and the loss still falls: 8 micro-batches of which one counts, or 8 ranks
    that train 8 models, are seen only when the result is compared.

    Fix: `zero_grad`, then for each micro-batch `backward`, then `unscale_`, clip, `step`, `update`, and the schedule.

    Source: PyTorch, automatic mixed precision examples (gradient clipping, gradient accumulation),
    FullyShardedDataParallel.clip_grad_norm_, torch.optim.lr_scheduler; tried with torch 2.13.

    When to ignore: a function of another file, which is given the model, does the missing part.
    """
    script = script_of(file)
    if script is None:
        return
    parents = script.parents
    measures = _MADE_UP.search(file.text) is not None and _DATA.search(file.text) is None
    for one in (
        *misplaced(parents, file.text),
        *wrong_lengths(parents),
        *bypassed(parents, file.text),
        *left_in_eval(parents),
    ):
        level = "info" if measures and one.level == "warning" else one.level
        yield problem(span_of(one.node), one.what, one.fix, level=level, why=one.why)
