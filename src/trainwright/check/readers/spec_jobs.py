"""The jobs of a spec -> model. What a job leaves to its recipe is reported at the recipe's name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainwright.check.model import Cluster, Command, EnvVar, Job, ModelDims, Queue, Value
from trainwright.check.tables import machine
from trainwright.errors import UserError
from trainwright.spec.load import LoadedSpec
from trainwright.spec.source import Span

if TYPE_CHECKING:
    from trainwright.recipes.model import Recipe
    from trainwright.spec import model as spec_model

# Axis of a plan -> the field of the check's model that holds it.
_AXES = ("tp", "pp", "cp", "ep", "virtual_stages", "shard", "replicate")


def jobs_of(loaded: LoadedSpec, cluster: Cluster) -> list[Job]:
    """The jobs of one spec; `cluster` is what the reader made of the rest, for the queues they run on."""
    return [_Reader(loaded, cluster, index).job() for index in range(len(loaded.spec.jobs))]


class _Reader:
    """Reads one job, each value with the position where it is written or that represents it."""

    def __init__(self, loaded: LoadedSpec, cluster: Cluster, index: int) -> None:
        self.loaded = loaded
        self.cluster = cluster
        self.here: tuple[str | int, ...] = ("jobs", index)
        self.spec: spec_model.Job = loaded.spec.jobs[index]
        self.queue = self._queue()
        self.recipe = _recipe(self.spec.recipe)

    def job(self) -> Job:
        spec, type_ = self.spec, machine(self.queue.instances[0]) if self.queue and self.queue.instances else None
        job = Job(
            span=self.span(),
            scheduler="spec",
            platform=self.cluster.platform,
            name=self.at(spec.name, "name"),
            instance=self.queue.instances[0] if type_ is not None and self.queue is not None else None,
            nodes=self._nodes(),
            processes_per_node=self.at(spec.processes, "processes"),
            workers=self.at(spec.workers, "workers"),
            sequence=self.at(spec.sequence, "sequence") or self.from_recipe("sequence"),
            steps=self.at(spec.steps, "steps") or self.from_recipe("steps"),
            image=self.at(spec.container, "container"),
            mounts=[Value(m, self.span("mounts", i)) for i, m in enumerate(spec.mounts)],
            env=self._env(),
            queue=self.queue,
            model=self._model(),
        )
        if job.processes_per_node is None and type_ is not None and type_.gpus:
            job.processes_per_node = Value(type_.gpus, self.span("nodes"))
        self._parallel(job)
        self._batch(job)
        self._schedule(job)
        self._checkpoint(job)
        if spec.script is None and (self.recipe is None or self.recipe.trainer == "trainwright"):
            job.extra["own_trainer"] = Value(True, self.span())
        if spec.args:
            words = [Value(a, self.span("args", i), a) for i, a in enumerate(spec.args)]
            job.commands = [Command(words, self.span("args"))]
        return job

    def span(self, *path: str | int) -> Span:
        return self.loaded.span(*self.here, *path)

    def at(self, value: Any, *path: str) -> Value[Any] | None:
        """A value the job states; None when it does not."""
        if value is None:
            return None
        holder = self.loaded.node.get(*self.here, *path[:-1])
        key = holder.keys.get(path[-1]) if holder is not None else None
        return Value(value, self.span(*path), str(value), key)

    def from_recipe(self, name: str) -> Value[Any] | None:
        """A value the recipe states."""
        return Value(getattr(self.recipe, name), self.span("recipe")) if self.recipe is not None else None

    def _queue(self) -> Queue | None:
        queues = self.cluster.queues
        if self.spec.queue is None:
            return queues[0] if queues else None
        named = (q for q in queues if q.name is not None and q.name.value == self.spec.queue)
        return next(named, None)

    def _nodes(self) -> Value[int] | None:
        stated: Value[int] | None = self.at(self.spec.nodes, "nodes")
        if stated is not None or self.queue is None or self.queue.max_count is None:
            return stated
        return self.queue.max_count.meaning(max(1, self.queue.max_count.value))

    def _parallel(self, job: Job) -> None:
        stated = self.spec.parallel
        plan = self.recipe.spread(job.instance.value if job.instance else None) if self.recipe is not None else None
        for axis in _AXES:
            if stated is not None:
                value = getattr(stated, axis)
                written = self.loaded.node.get(*self.here, "parallel") is not None
                setattr(job, axis, self.at(value, "parallel", axis) if value and written else None)
            elif plan is not None and getattr(plan, axis) not in (None, 1):
                setattr(job, axis, Value(getattr(plan, axis), self.span("recipe")))

    def _batch(self, job: Job) -> None:
        batch = self.spec.batch
        if batch is not None:
            job.global_batch = self.at(batch.sequences, "batch", "sequences")
            job.micro_batch = self.at(batch.micro_batch, "batch", "micro_batch")
        elif self.recipe is not None and self.recipe.batch.sequences is not None:
            job.global_batch = Value(self.recipe.batch.sequences, self.span("recipe"))
            micro = self.recipe.batch.micro_batch
            job.micro_batch = Value(micro, self.span("recipe")) if micro is not None else None

    def _schedule(self, job: Job) -> None:
        optimizer = self.spec.optimizer
        if optimizer is not None:
            job.warmup = self.at(optimizer.warmup, "optimizer", "warmup")
            job.decay = self.at(optimizer.decay, "optimizer", "decay")
        if job.warmup is None and self.recipe is not None and self.recipe.optimizer.warmup:
            # A run that was shortened is the place to fix, not the recipe.
            place = self.span("steps") if self.spec.steps is not None else self.span("recipe")
            job.warmup = Value(self.recipe.optimizer.warmup, place)

    def _checkpoint(self, job: Job) -> None:
        checkpoint = self.spec.checkpoint
        if checkpoint is not None:
            job.checkpoint_dir = self.at(checkpoint.to, "checkpoint", "to")
            job.checkpoint_steps = self.at(checkpoint.steps, "checkpoint", "steps")
            job.checkpoint_keep = self.at(checkpoint.keep, "checkpoint", "keep")
            every = self.at(checkpoint.every, "checkpoint", "every")
            if every is not None:
                job.extra["checkpoint_seconds"] = every

    def _env(self) -> list[EnvVar]:
        node = self.loaded.node.get(*self.here, "env")
        return [
            EnvVar(name, Value(value, self.span("env", name), value), node.key_span(name) if node else self.span("env"))
            for name, value in self.spec.env.items()
        ]

    def _model(self) -> ModelDims | None:
        """The published shape that the job names, or its recipe's."""
        name = self.spec.model or (self.recipe.model if self.recipe is not None else None)
        if name is None:
            return None
        from trainwright.train.models.shape import lookup

        place = self.span("model") if self.spec.model else self.span("recipe")
        try:
            shape = lookup(name)
        except UserError:  # a shape file of the user's own: its dimensions are unknown
            return ModelDims(place, name=Value(name, place))
        dims = {"hidden": shape.hidden, "layers": shape.layers, "heads": shape.heads, "kv_heads": shape.kv_heads}
        dims |= {"ffn": shape.ffn, "vocab": shape.vocab, "max_position": shape.context}
        dims |= {"experts": shape.experts} if shape.experts else {}
        lifted: dict[str, Any] = {key: Value(value, place) for key, value in dims.items()}
        return ModelDims(place, name=Value(name, place), **lifted)


def _recipe(name: str | None) -> Recipe | None:
    if name is None:
        return None
    from trainwright.recipes.load import recipe

    try:
        return recipe(name)
    except UserError:  # `plan` and `submit` refuse it; the rules have nothing to check
        return None
