"""The jobs of a spec of ours -> model, from what the resolver decided. What a job leaves to its recipe is reported at
the recipe's name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainwright.check.model import CheckedSpec, Cluster, Command, EnvVar, Job, ModelDims, Queue, Refusal, Value
from trainwright.check.tables import machine
from trainwright.spec.source import Span

if TYPE_CHECKING:
    from trainwright.jobs.origin import Decision

# A field of the model -> the decision that it holds.
_LIFTED = {
    "nodes": "nodes", "processes_per_node": "processes", "sequence": "sequence", "steps": "steps", "warmup": "warmup",
    "decay": "decay", "global_batch": "batch", "micro_batch": "micro_batch", "tp": "tp", "pp": "pp",
    "cp": "cp", "ep": "ep", "virtual_stages": "virtual_stages",
}  # fmt: skip


def jobs_of(spec: CheckedSpec, cluster: Cluster) -> list[Job]:
    """The jobs of one spec; `cluster` is what the reader made of the rest, for the queues they run on."""
    return [_Reader(spec, cluster, index).job() for index in range(len(spec.full.jobs))]


class _Reader:
    """Lifts one job, each value at the place it is written or at the place that stands for it."""

    def __init__(self, spec: CheckedSpec, cluster: Cluster, index: int) -> None:
        self.loaded = spec.loaded
        self.resolution = spec.jobs[index]
        self.written = spec.loaded.spec.jobs[index]
        self.cluster = cluster
        self.here: tuple[str | int, ...] = ("jobs", index)
        self.queue = self._queue(spec.full.jobs[index].queue)

    def job(self) -> Job:
        written, instance = self.written, self.queue.instances[0] if self.queue and self.queue.instances else None
        job = Job(
            span=self.span(),
            scheduler="spec",
            platform=self.cluster.platform,
            name=self.at(written.name, "name"),
            instance=instance if instance is not None and machine(instance) is not None else None,
            workers=self.at(written.workers, "workers"),
            image=self.at(written.container, "container"),
            mounts=[Value(m, self.span("mounts", i)) for i, m in enumerate(written.mounts)],
            env=self._env(),
            queue=self.queue,
            model=self._model(),
        )
        for field, name in _LIFTED.items():
            setattr(job, field, self.decided(name))
        for axis in ("shard", "replicate"):  # an axis that takes what is left is nobody's mistake
            setattr(job, axis, self.decided(axis) if self._states("parallel", axis) else None)
        job.refusals = [
            Refusal(p.code, p.span or self.loaded.span(*p.path), p.what, p.fix) for p in self.resolution.problems
        ]
        self._checkpoint(job)
        training = self.resolution.job.training if self.resolution.job else None
        if job.model is not None and training is not None and training.shape and training.shape.head_dim:
            job.extra["head_width"] = Value(training.shape.head_dim, job.model.span)
        for field in ("command", "args"):
            words = [Value(a, self.span(field, i), a) for i, a in enumerate(getattr(written, field) or ())]
            if words:
                job.commands.append(Command(words, self.span(field)))
        return job

    def span(self, *path: str | int) -> Span:
        return self.loaded.span(*self.here, *path)

    def at(self, value: Any, *path: str) -> Value[Any] | None:
        """A value the job states; None when it does not."""
        if value is None:
            return None
        return Value(value, self.span(*path), str(value), self._key(*path))

    def decided(self, name: str) -> Value[Any] | None:
        """A value as the resolver decided it, at the place that stands for it."""
        decision: Decision | None = self.resolution.decisions.get(name)
        if decision is None or decision.value is None:
            return None
        path = decision.path[2:]
        return Value(decision.value, self.span(*path), str(decision.value), self._key(*path))

    def _key(self, *path: str | int) -> Span | None:
        holder = self.loaded.node.get(*self.here, *path[:-1])
        return holder.keys.get(str(path[-1])) if holder is not None and path else None

    def _states(self, *path: str) -> bool:
        return self.loaded.node.get(*self.here, *path) is not None

    def _queue(self, name: str | None) -> Queue | None:
        return next((q for q in self.cluster.queues if q.name is not None and q.name.value == name), None)

    def _checkpoint(self, job: Job) -> None:
        checkpoint = self.written.checkpoint
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
            for name, value in self.written.texts.items()
        ]

    def _model(self) -> ModelDims | None:
        """The shape of the model that the job or its recipe names."""
        name = self.decided("model")
        if name is None:
            return None
        place, training = name.span, self.resolution.job.training if self.resolution.job else None
        shape = training.shape if training is not None else None
        if shape is None:
            return ModelDims(place, name=name)
        dims = {"hidden": shape.hidden, "layers": shape.layers, "heads": shape.heads, "kv_heads": shape.kv_heads}
        dims |= {"ffn": shape.ffn, "vocab": shape.vocab, "max_position": shape.context}
        dims |= {"experts": shape.experts} if shape.experts else {}
        lifted: dict[str, Any] = {key: Value(value, place) for key, value in dims.items()}
        return ModelDims(place, name=name, **lifted)
