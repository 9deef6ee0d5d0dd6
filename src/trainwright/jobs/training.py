"""What a job trains: model, parallel plan, batch, schedule, data and checkpoints, out of job, recipe and the trainer's
own arguments."""

from __future__ import annotations

from os.path import isfile  # False for a name that no file system takes, where Path raises
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.catalog.models import model as model_shape
from trainwright.errors import UserError
from trainwright.jobs.accelerator_needs import numbers
from trainwright.jobs.adapters import NO_ADAPTERS, Adapters, framework_adapters
from trainwright.jobs.arguments import TrainerArguments, trainer_arguments
from trainwright.jobs.batch import BatchResolver
from trainwright.jobs.frameworks import framework_misfit, known_framework
from trainwright.jobs.origin import Origin
from trainwright.jobs.parallel_options import context, pipeline_schedule
from trainwright.jobs.resolved import OptimizerSettings, Placement, Trainer, Training
from trainwright.recipes.model import Optimization, Recipe, Spread
from trainwright.spec.job import Checkpoint, Optimizer, Parallel
from trainwright.train.config import TrainConfig
from trainwright.train.models.shape import ModelShape, lookup
from trainwright.train.objectives import name_for
from trainwright.train.parallel.plan import ParallelPlan, complete, parse_axes

if TYPE_CHECKING:
    from trainwright.jobs.resolve import JobResolver

LONGEST_DEFAULT = 8192  # tokens of a sequence, where neither job nor recipe says it
DATA = "builtin:stdlib"
CHECKPOINT_SECONDS = 900.0
# A checkpoint's value -> the trainer's option for it.
CHECKPOINT = {"every": "checkpoint_every", "steps": "checkpoint_every", "to": "checkpoint_to", "keep": "keep_last"}
PLAN = "JOB002"
MODEL = "SPC004"


class TrainingResolver:
    """One job's training. Problems and decisions go to the resolver of the job."""

    def __init__(
        self, outer: JobResolver, recipe: Recipe | None, placement: Placement | None, trainer: Trainer
    ) -> None:
        self.outer = outer
        self.job = outer.job
        self.recipe = recipe
        self.placement = placement
        self.trainer = trainer
        self.ours = trainer == "trainwright"
        self.arguments = self._arguments()

    def training(self) -> Training | None:
        """Everything, or None where a problem was found or a script says nothing of what it trains."""
        model, shape = self._model()
        if self.trainer == "script" and model is None:
            return None
        model_file = self._travelling(model)
        self._refuse_unsupported()
        sequence = self._sequence(shape)
        steps = self.value("steps", self.job.steps, self.recipe.steps if self.recipe else None)
        optimizer, checkpoint = self._optimizer(steps), self._checkpoint()
        objective, adapters = self._objective(shape), self._adapters()
        plan = None
        if self.placement is not None:
            plan = self._plan(shape, sequence, self.placement, objective or "", adapters)
        if plan is None:
            return None
        batch, micro_batch = BatchResolver(self, plan, sequence).batch()
        precision, float8 = numbers(self, MODEL)
        recompute = self._recompute()
        return Training(
            model=model,
            model_file=model_file,
            shape=shape,
            objective=objective,
            options=dict(self.recipe.options) if self.recipe and self.ours else {},
            plan=plan,
            sequence=sequence,
            batch=batch,
            micro_batch=micro_batch,
            precision=precision,
            float8=float8,
            recompute=recompute,
            steps=steps,
            data=self._data(),
            optimizer=optimizer,
            checkpoint=checkpoint,
            adapters=adapters,
            offload_activations=float(self.option("offload_activations") or 0.0),
            pipeline_schedule=pipeline_schedule(self, plan, recompute),
            context=context(self, plan, shape),
        )

    def value(self, name: str, stated: Any, of_recipe: Any, *path: str) -> Any:
        """One value by precedence (trainer argument, job, recipe), with its origin."""
        if name in self.arguments.values:
            self.outer.decide(name, self.arguments.values[name], "args", origin=self.from_arguments(name))
            return self.arguments.values[name]
        if stated is not None:
            self.outer.decide(name, stated, *(path or (name,)))
            return stated
        if of_recipe is not None:
            self.outer.decide(name, of_recipe, *(path or (name,)), otherwise=self.from_recipe())
        return of_recipe

    def from_arguments(self, option: str) -> Origin:
        place = self.outer.written("args") or Origin("spec")
        return Origin(place.source, place.where, f"the trainer's argument --{option.replace('_', '-')} wins")

    def from_recipe(self, why: str = "") -> Origin:
        return Origin("recipe", self.job.recipe or "", why)

    def default(self, name: str, value: object, why: str) -> None:
        self.outer.decide(name, value, name, otherwise=Origin("default", why=why))

    def _arguments(self) -> TrainerArguments:
        """What `args` say to our trainer; another trainer's options are not ours to read."""
        given = trainer_arguments(self.job.args) if self.ours else TrainerArguments()
        if given.problem:
            self.outer.refuse(MODEL, "args", what=given.problem, fix=given.fix)
        return given

    def _model(self) -> tuple[str | None, ModelShape | None]:
        model = self.value("model", self.job.model, self.recipe.model if self.recipe else None)
        if model is None:
            if self.ours:
                what = f"job {self.job.name!r} names neither a recipe, a model nor a script"
                self.outer.refuse(MODEL, what=what, fix="add `recipe:`; `trainwright recipes list` names them")
            return None, None
        file = self._model_file(model)
        try:
            return model, (lookup if self.ours else model_shape)(str(file or model))
        except UserError as error:
            if self.ours or self.job.model:
                place = "args" if "model" in self.arguments.values else "model" if self.job.model else "recipe"
                what = f"model {file}: {error.what}" if file is not None and not isfile(file) else error.what
                self.outer.refuse(MODEL, place, what=what, fix=error.fix)
            return model, None

    def _model_file(self, model: str) -> Path | None:
        """The file that describes the model, where it is not named by its name in the catalog."""
        path = self.outer.base("args" if "model" in self.arguments.values else "model") / model
        file = path / "config.json" if isfile(path / "config.json") else path
        return file if file != path or model.endswith(".json") else None

    def _travelling(self, model: str | None) -> Path | None:
        """The file that our trainer reads the model from; one that cannot be read here has been refused."""
        if not self.ours or model is None:
            return None
        file = self._model_file(model)
        if file is not None and not self.outer.ships_code:
            self.outer.refuse(
                MODEL, "args" if "model" in self.arguments.values else "model" if self.job.model else "recipe",
                what=f"platform {self.outer.spec.platform} runs images: the model's file {model} cannot be sent along",
                fix="name a model of `trainwright catalog list --kind models`, or run the trainer with `command:`",
            )  # fmt: skip
        return file

    def _refuse_unsupported(self) -> None:
        """What our trainer does not have."""
        if not self.ours:
            return
        if self.job.workers is not None:
            self.outer.refuse(
                MODEL, "workers", what="our trainer reads ahead in a thread and has no loader processes",
                fix="leave `workers` out",
            )  # fmt: skip

    def _objective(self, shape: ModelShape | None) -> str | None:
        value = self.value("objective", self.job.objective, self.recipe.objective if self.recipe else None)
        if value is None or shape is None or not self.ours:
            return None if value is None else str(value)
        try:
            return name_for(str(value), shape)
        except UserError as error:
            place = "args" if "objective" in self.arguments.values else "objective" if self.job.objective else "recipe"
            self.outer.refuse(MODEL, place, what=error.what, fix=error.fix)
            return None

    def _sequence(self, shape: ModelShape | None) -> int:
        value = self.value("sequence", self.job.sequence, self.recipe.sequence if self.recipe else None)
        if value:
            return int(value)
        longest = min(shape.longest_sequence, LONGEST_DEFAULT) if shape else LONGEST_DEFAULT
        self.default("sequence", longest, f"the model's context, at most {LONGEST_DEFAULT}")
        return longest

    def _plan(
        self, shape: ModelShape | None, sequence: int, placement: Placement, objective: str, adapters: Adapters
    ) -> ParallelPlan | None:
        ranks = placement.ranks
        try:
            axes, rest = self._axes(placement.queue.instance)
        except UserError as error:
            self.outer.refuse(PLAN, "args", what=error.what, fix=error.fix)
            return None
        plan = complete(axes, ranks, rest)
        if plan is None:
            asked = ParallelPlan(**axes)
            self.outer.refuse(
                PLAN, *self._plan_path(axes),
                what=f"the plan {asked} needs {asked.world} ranks (or a multiple), and the job has {ranks}",
                fix=f"nodes x processes must be a multiple of {asked.tp * asked.pp * asked.cp}; leave shard and "
                "replicate out to fill the rest",
            )  # fmt: skip
            return None
        misfit = ""
        if shape is not None and self.ours:
            misfit = plan.unsupported(shape, objective, adapters.rank > 0) or plan.misfit(shape, sequence)
        elif shape is not None and (known := known_framework(self.recipe)) is not None:
            misfit = framework_misfit(known, plan, shape, sequence)
        if shape is not None and misfit:
            sizes = {axis: getattr(plan, axis) for axis in ("tp", "pp", "cp", "ep", "virtual_stages")}
            used = {axis: size for axis, size in sizes.items() if size > 1}
            path = self._plan_path(used) if used else ("sequence",)
            fix = plan.fix(shape, ranks, sequence, 0) if plan.unsupported(shape) or plan.misfit(shape, sequence) else ""
            fix = fix.replace("--sequence ", "sequence: ")  # as a job spells it
            self.outer.refuse(PLAN, *path, what=f"{shape.name}: {misfit}", fix=fix or f"shard={ranks}")
            return None
        for axis in ("replicate", "shard", "tp", "pp", "cp", "ep", "virtual_stages"):
            self.outer.decide(
                axis, getattr(plan, axis), "parallel", axis, otherwise=self.outer.decisions["parallel"].origin
            )
        return plan

    def _axes(self, instance: str | None) -> tuple[dict[str, int], str]:
        """The axes that are fixed, and the axis that takes the ranks which are left."""
        if "parallel" in self.arguments.values:
            text = self.value("parallel", None, None)
            return parse_axes(text), ""
        asked: Parallel = self.job.parallel or (self.recipe.spread(instance) if self.recipe else Spread())
        rest = asked.rest if isinstance(asked, Spread) else "replicate" if asked.shard else "shard"
        if self.job.parallel is None and self.recipe is None:
            self.default("parallel", asked, "the model is sharded over all ranks")
        else:
            self.value("parallel", self.job.parallel, asked)
        stated = {axis: size for axis, size in asked.model_dump(exclude={"rest"}).items() if size is not None}
        return {axis: size for axis, size in stated.items() if size > 1 or axis in ("shard", "replicate")}, rest

    def _plan_path(self, axes: dict[str, int]) -> tuple[str, ...]:
        """The largest axis that the job states, else what stands for the plan."""
        if "parallel" in self.arguments.values:
            return ("args",)
        stated = [axis for axis in axes if self.outer.written("parallel", axis)]
        if stated:
            return ("parallel", max(stated, key=lambda axis: axes[axis]))
        return ("parallel",) if self.job.parallel else ("recipe",) if self.recipe else ("nodes",)

    def _recompute(self) -> str | None:
        value = self.value("recompute", self.job.recompute, self.recipe.recompute if self.recipe else None)
        if value is None and self.ours:
            self.default("recompute", "none", "activations are kept")
            return "none"
        return str(value) if value is not None else None

    def option(self, name: str) -> Any:
        """An option of our trainer that has no key in a job: from its arguments, or the recipe's options."""
        if not self.ours:
            return None
        return self.value(name, None, self.recipe.options.get(name) if self.recipe else None)

    def _data(self) -> str:
        value = self.value("data", self.job.data, self.recipe.data if self.recipe else None)
        if value is None:
            self.default("data", DATA, "the source of Python's standard library, to try things out")
            return DATA
        return " ".join(value) if isinstance(value, list) else str(value)

    def _optimizer(self, steps: int | None) -> OptimizerSettings:
        stated = self.job.optimizer or Optimizer()
        base = self.recipe.optimizer if self.recipe else None

        def value(name: str, of_recipe: Any) -> Any:
            return self.value(name, getattr(stated, name), of_recipe, "optimizer", name)

        warmup = value("warmup", None)
        if warmup is None and base is not None:
            warmup = self._recipe_warmup(base.warmup, steps)
        lr, schedule = value("lr", base.lr if base else None), value("schedule", base.schedule if base else None)
        fixed = base.model_dump(include={"final", "betas", "weight_decay", "clip"}) if base else {}
        if self.ours:
            self._record_optimizer(base, schedule)
        kind = self.value("optimizer", None, self.recipe.options.get("optimizer") if self.recipe else None) or "adamw"
        rate = {"lr": lr, "warmup": warmup, "schedule": schedule, "decay": value("decay", None)}
        return OptimizerSettings(**rate, **fixed, kind=str(kind))

    def _adapters(self) -> Adapters:
        """The adapters that are trained instead of the model, where job or recipe says so."""
        if not self.ours:
            return framework_adapters(self.recipe, self.job.args)
        rank = self.option("lora_rank")
        return Adapters(int(rank)) if rank else NO_ADAPTERS

    def _record_optimizer(self, base: Optimization | None, schedule: str | None) -> None:
        """What a job does not state about its optimizer: arguments, the recipe, or the trainer's own defaults."""
        recipe = {}
        if base is not None:
            (beta1, beta2), names = base.betas, {"weight_decay", "clip"}
            recipe = {"min_lr": base.final, "beta1": beta1, "beta2": beta2, **base.model_dump(include=names)}
        usual = TrainConfig()
        for name in ("lr", "schedule", "warmup", "min_lr", "weight_decay", "beta1", "beta2", "clip"):
            if name in self.outer.decisions or (name == "min_lr" and schedule == "constant"):
                continue
            if self.value(name, None, recipe.get(name)) is None:
                self.default(name, getattr(usual, name), "the trainer's own")

    def _recipe_warmup(self, warmup: int, steps: int | None) -> int:
        """A recipe's warm-up that does not end within the job's steps is shortened in proportion: its author chose it
        for the recipe's own length."""
        assert self.recipe is not None
        shorter = steps is not None and warmup >= steps
        why = f"the recipe's {warmup} of {self.recipe.steps} steps, shortened with the run" if shorter else ""
        warmup = warmup * (steps or 0) // self.recipe.steps if shorter else warmup
        self.outer.decide("warmup", warmup, "optimizer", "warmup", otherwise=self.from_recipe(why))
        return warmup

    def _checkpoint(self) -> Checkpoint | None:
        """The job's values over the recipe's, one by one; an interval in the job replaces the recipe's."""
        stated, base = self.job.checkpoint, self.recipe.checkpoint if self.recipe else None
        if stated is None and base is None and not self._states_checkpoint():
            return None
        stated = stated or Checkpoint()
        own_interval = stated.every is not None or stated.steps is not None
        merged: dict[str, Any] = {}
        for name, option in CHECKPOINT.items():
            of_recipe = None if own_interval and name in ("every", "steps") else getattr(base, name, None)
            value = getattr(stated, name)
            if value is not None or of_recipe is not None:
                path = ("checkpoint", name)
                origin = None if value is not None else self.from_recipe()
                merged[name] = value if value is not None else of_recipe
                self.outer.decide(f"checkpoint {name}", merged[name], *path, otherwise=origin)
            if option in self.arguments.values:  # in the trainer's own words, which go after these
                given = self.arguments.values[option]
                self.outer.decide(f"checkpoint {name}", given, "args", origin=self.from_arguments(option))
        if "every" not in merged and "steps" not in merged and self.ours:
            merged["every"] = CHECKPOINT_SECONDS
            why = Origin("default", why="at most 15 minutes of work are lost")
            self.outer.decide("checkpoint every", CHECKPOINT_SECONDS, "checkpoint", "every", otherwise=why)
        return Checkpoint(**merged)

    def _states_checkpoint(self) -> bool:
        return any(option in self.arguments.values for option in CHECKPOINT.values())
