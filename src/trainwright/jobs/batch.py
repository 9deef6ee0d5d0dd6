"""How much one optimizer step sees: sequences over all ranks, and the micro-batch that a GPU works on at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwright.jobs.adapters import given_options
from trainwright.jobs.frameworks import known_framework
from trainwright.recipes.model import Foreign
from trainwright.spec.job import Batch
from trainwright.train.parallel.plan import ParallelPlan

if TYPE_CHECKING:
    from trainwright.jobs.training import TrainingResolver

BATCH = "JOB003"


class BatchResolver:
    """The batch of one job under one plan."""

    def __init__(self, training: TrainingResolver, plan: ParallelPlan, sequence: int) -> None:
        self.training = training
        self.job, self.recipe = training.job, training.recipe
        self.plan = plan
        self.sequence = sequence
        # Another trainer's recipe that states no batch leaves it to that trainer.
        stated = self.recipe is not None and (training.ours or "batch" in self.recipe.model_fields_set)
        # Frameworks that we know share a batch out by the same arithmetic as our trainer.
        self.strict = training.ours or known_framework(self.recipe) is not None
        own, base = self.job.batch or Batch(), self.recipe.batch if self.recipe and stated else Batch()
        self.sized = own.sequences is not None or own.tokens is not None  # the job itself says how large a step is
        size = own if self.sized else base
        self.asked = Batch(sequences=size.sequences, tokens=size.tokens)
        self.argument = training.arguments.values.get("micro_batch")
        self.stated_micro = self.argument or own.micro_batch
        self.wanted = self.stated_micro or base.micro_batch

    def batch(self) -> tuple[int, int | None]:
        """Sequences per step, and the micro-batch (None: the trainer's own choice)."""
        batch = self._sequences()
        if self.strict and batch % self.plan.data:
            near = max(1, round(batch / self.plan.data)) * self.plan.data
            self._refuse(
                f"{batch} sequences per step cannot be shared by {self.plan.data} data ranks",
                f"take {near}, or another number of nodes",
            )
            return batch, self.wanted
        micro = self._micro_batch(batch)
        self._check_interleaving(batch, micro or 1)
        self._check_mini_batch(batch, micro or 1)
        return batch, micro

    def _refuse(self, what: str, fix: str, *path: str) -> None:
        size = ("batch", "tokens" if self.job.batch and self.job.batch.tokens else "sequences")
        if "batch" in self.training.arguments.values:
            path = path or ("args",)
        place = path or (size if self.sized else ("recipe",) if self.recipe else ("args",))
        self.training.outer.refuse(BATCH, *place, what=what, fix=fix)

    def _sequences(self) -> int:
        """A batch in tokens is a target: the nearest number of sequences that the data ranks can share."""
        given = self.training.arguments.values.get("batch")
        share = self.plan.data * (self.wanted or 1)
        if given:
            return int(self.training.value("batch", None, None))
        if self.asked.sequences is not None:
            return self._decided(self.asked.sequences)
        if self.asked.tokens is not None:
            return self._decided(max(1, round(self.asked.tokens / self.sequence / share)) * share)
        every_stage = share * self.plan.pp
        self.training.default("batch", every_stage, "one micro-batch per data rank and pipeline stage")
        return every_stage

    def _decided(self, sequences: int) -> int:
        path = ("batch", "sequences") if self.asked.sequences is not None else ("batch", "tokens")
        written = sequences if self.sized else None
        self.training.value("batch", written, sequences, *path)
        return sequences

    def _micro_batch(self, batch: int) -> int | None:
        """What the job asks for, or as much of the recipe's value as a GPU's share allows: on more GPUs than the
        recipe was written for, the share is smaller."""
        own = batch // self.plan.data
        stated = self.stated_micro is not None
        micro = self.wanted
        if micro is not None and own % micro and not stated:
            size = max(size for size in range(1, micro + 1) if own % size == 0)
            why = f"the largest part of the recipe's {micro} that divides the {own} sequences of a data rank"
            origin = self.training.from_recipe(why)
            self.training.outer.decide("micro_batch", size, "batch", "micro_batch", otherwise=origin)
            return size
        if micro is not None:
            of_recipe = None if stated else micro
            self.training.value("micro_batch", micro if stated else None, of_recipe, "batch", "micro_batch")
        if micro is not None and self.strict and own % micro:
            share = self.plan.data * micro
            less, more = batch // share * share or share, (batch // share + 1) * share
            path = ("args",) if self.argument else ("batch", "micro_batch")
            what = f"{batch} sequences per step are not whole micro-batches of {micro} on {self.plan.data} data ranks"
            self._refuse(what, f"take {less} or {more} sequences, or another micro_batch", *path)
        return micro

    def _check_interleaving(self, batch: int, micro: int) -> None:
        plan = self.plan
        count = batch // (plan.data * micro)
        if self.strict and plan.virtual_stages > 1 and count % plan.pp:
            enough = -(-count // plan.pp) * plan.pp * plan.data * micro
            self._refuse(
                f"{count} micro-batches cannot be interleaved over {plan.pp} pipeline ranks",
                f"a batch of {enough} sequences, or virtual_stages: 1",
            )

    def _check_mini_batch(self, batch: int, micro: int) -> None:
        """Reinforcement learning updates the model several times per step, with all answers to some of the prompts."""
        known, trainer = known_framework(self.recipe), self.recipe.trainer if self.recipe else None
        if known is None or known.mini_batch is None or not isinstance(trainer, Foreign):
            return
        own, names = given_options(self.job.args), known.mini_batch
        written = {**known.options, **trainer.options, **own}
        prompts, answers = str(written.get(names.prompts)), str(written.get(names.answers))
        if not prompts.isdigit() or not answers.isdigit():
            return  # the framework's own, or as large as the step
        share, left = divmod(int(prompts) * int(answers), self.plan.data)
        if left or not share:
            what = f"{prompts} prompts with {answers} answers cannot be shared by {self.plan.data} data ranks"
        elif share % micro:
            what = f"{share} answers of a data rank are not whole micro-batches of {micro}"
        elif batch % int(prompts):
            what = f"{batch} prompts per step are not whole updates of {prompts}"
        else:
            return
        fix = f"pass another `{names.prompts}=` in `args`"
        self._refuse(what, fix, *(("args",) if own.keys() & {names.prompts, names.answers} else ()))
