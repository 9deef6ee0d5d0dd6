"""Spec + recipe + catalog -> one concrete job. The only place that decides what a job means: no verb reads
`job.x or recipe.x` by itself. What cannot work is collected, each problem with its path in the spec."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from trainwright.catalog.capabilities import platforms, scheduler_of, schedulers
from trainwright.catalog.instances import InstanceType, find_instance
from trainwright.errors import UserError, did_you_mean
from trainwright.jobs.command import own_words
from trainwright.jobs.demands import check_demands
from trainwright.jobs.environment import RENDEZVOUS, job_environment
from trainwright.jobs.foreign import unplaced
from trainwright.jobs.frameworks import dropped, known_framework, launcher_of, sends_files, unsaid
from trainwright.jobs.origin import Decision, JobProblem, Origin
from trainwright.jobs.resolved import Placement, Resolution, ResolvedJob, Runtime, Trainer
from trainwright.jobs.run_folder import run_root
from trainwright.jobs.runtime import job_runtime
from trainwright.jobs.select import base_of, job_index, recipe_path
from trainwright.jobs.training import TrainingResolver
from trainwright.recipes.load import place_in
from trainwright.recipes.load import recipe as find_recipe
from trainwright.recipes.model import Foreign, Recipe
from trainwright.spec.defaults import resolve as fill_defaults
from trainwright.spec.load import LoadedSpec
from trainwright.spec.mistakes import SpecError
from trainwright.spec.model import Queue


def resolve_job(loaded: LoadedSpec, name: str | None = None, scheduler: str = "") -> Resolution:
    """The job of that name; with one job in the spec it need not be named. `scheduler`: another than the platform's,
    such as `process` for this machine."""
    return JobResolver(loaded, job_index(loaded, name), scheduler).resolution()


def resolve_jobs(loaded: LoadedSpec, scheduler: str = "") -> list[Resolution]:
    """Every job of a spec."""
    return [JobResolver(loaded, index, scheduler).resolution() for index in range(len(loaded.spec.jobs))]


class JobResolver:
    """Resolves one job; `problems` and `decisions` fill up on the way."""

    def __init__(self, loaded: LoadedSpec, index: int, scheduler: str = "") -> None:
        self.loaded = loaded
        self.index = index
        self.scheduler = scheduler
        self.spec, defaults = fill_defaults(loaded.spec)
        self.job = self.spec.jobs[index]
        self.defaults = {default.path: default for default in defaults}
        self.problems: list[JobProblem] = []
        self.decisions: dict[str, Decision] = {}
        self.runs_on = schedulers()[scheduler] if scheduler else scheduler_of(self.spec.platform)
        self.ships_code = self.runs_on.ships_code

    def resolution(self) -> Resolution:
        recipe = self._recipe()
        placement = self._placement(recipe)
        trainer = self._trainer(recipe)
        self._environment_names()
        self._script()
        check_demands(self, recipe)
        training = None
        if not (self.job.recipe and recipe is None):
            training = TrainingResolver(self, recipe, placement, trainer).training()
        if recipe is not None and trainer == "foreign":
            known = known_framework(recipe)
            lost = unsaid(self.job, recipe, training) if known else unplaced(self.job, recipe)
            self.problems += [self._lost(*each) for each in lost]
        if self.problems or placement is None:
            return Resolution(self.loaded, None, self._causes(), self.decisions)
        cpus, own_network, efa = placement.cpus, not self.ships_code, placement.queue.efa is not False
        resolved = ResolvedJob(
            name=self.job.name,
            spec=self.spec,
            job=self.job,
            trainer=trainer,
            recipe=recipe,
            placement=placement,
            training=training,
            runtime=self._runtime(recipe, trainer, placement),
            environment=job_environment(placement.instance, self.job.texts, cpus, own_network=own_network, efa=efa),
            run_root=run_root(self.spec),
            base=self._command_base() if self.job.command else self.base("script"),
            decisions=self.decisions,
        )
        if trainer == "foreign" and known_framework(recipe) is not None:
            self.problems += [self._lost(*each) for each in dropped(resolved)]
        if self.problems:
            return Resolution(self.loaded, None, self._causes(), self.decisions)
        return Resolution(self.loaded, resolved, (), self.decisions)

    def _lost(self, path: tuple[str | int, ...], what: str, fix: str) -> JobProblem:
        """A value that does not reach the trainer; one of a user's recipe stands at its line there."""
        if path[0] != "recipe" or len(path) == 1:
            return self.problem("SPC004", path, what, fix)
        file = recipe_path(self.loaded, self.index)
        problem = self.problem("SPC004", path[:1], what, fix)
        return replace(problem, span=place_in(Path(file), path[1:])) if file else problem

    def _causes(self) -> tuple[JobProblem, ...]:
        """The problems without those that follow from another: on a wrong number of nodes no plan divides."""
        misplaced = any(problem.code in ("SPC002", "SPC003") for problem in self.problems)
        sized = ("JOB002", "JOB003")
        return tuple(p for p in self.problems if not (misplaced and p.code in sized and p.path[-1] != "ep"))

    # What the parts below share.

    def problem(self, code: str, path: tuple[str | int, ...], what: str, fix: str = "") -> JobProblem:
        return JobProblem(code, ("jobs", self.index, *path), what, fix)

    def refuse(self, code: str, *path: str | int, what: str, fix: str = "") -> None:
        self.problems.append(self.problem(code, path, what, fix))

    def written(self, *path: str | int) -> Origin | None:
        """The origin of a value that the job itself states; None where it does not."""
        node = self.loaded.node.get("jobs", self.index, *path)
        if node is None:
            return None
        return Origin("flag" if node.span.source else "spec", self.loaded.where("jobs", self.index, *path))

    def decide(
        self, name: str, value: object, *path: str | int, otherwise: Origin | None = None, origin: Origin | None = None
    ) -> None:
        """Record a value and where it comes from: `origin`, the job itself, `otherwise`, or the spec's defaults."""
        default = self.defaults.get(f"jobs.{self.job.name}.{'.'.join(map(str, path))}")
        source = origin or self.written(*path) or otherwise or Origin("default", why=default.why if default else "")
        place = ("recipe",) if source.source == "recipe" else path
        self.decisions[name] = Decision(value, ("jobs", self.index, *place), source)

    def base(self, *path: str | int) -> Path:
        """What a relative path of the job starts from: this folder for a flag, else the folder of its file."""
        return base_of(self.loaded, self.index, *path)

    # The parts of a job.

    def _recipe(self) -> Recipe | None:
        name = self.job.recipe
        if name is None:
            return None
        self.decide("recipe", name, "recipe")
        name = recipe_path(self.loaded, self.index) or name
        try:
            return find_recipe(name)
        except SpecError as error:  # every mistake, at its line of the recipe's file
            for mistake in error.mistakes:
                span = replace(mistake.span, file=mistake.file)
                self.problems.append(replace(self.problem("SPC004", ("recipe",), mistake.what, mistake.fix), span=span))
        except UserError as error:
            self.refuse("SPC004", "recipe", what=error.what, fix=error.fix)
        return None

    def _trainer(self, recipe: Recipe | None) -> Trainer:
        if self.job.script or self.job.command:
            return "script"
        return "foreign" if recipe is not None and isinstance(recipe.trainer, Foreign) else "trainwright"

    def _placement(self, recipe: Recipe | None) -> Placement | None:
        queue = self.spec.queue(self.job.queue or "")
        if queue is None:
            names = [queue.name for queue in self.spec.queues]
            self.refuse(
                "SPC002", "queue", what=f"job {self.job.name!r} asks for queue {self.job.queue!r}: there is none",
                fix=did_you_mean(self.job.queue or "", names) or f"one of {', '.join(names)}",
            )  # fmt: skip
            return None
        instance = find_instance(queue.instance or "")
        gpus = queue.gpus if queue.gpus is not None else instance.gpus if instance else 0
        cores = queue.cpus or (instance.cores if instance else 0)  # 0: whole nodes that nobody has counted
        processes = self.job.processes or gpus or _device_ranks(recipe, instance) or 1
        nodes = 1 if self.scheduler == "process" and not self.written("nodes") else self.job.nodes or 1
        self._decide_placement(queue, nodes, processes, gpus)
        self._check_nodes(queue, nodes)
        if self.scheduler == "process" and nodes > 1:
            self.refuse(
                "SPC003", "nodes", what=f"plain processes run on this machine alone; the job asks for {nodes} nodes",
                fix="nodes: 1 with more processes, or platform local for a real Slurm with many nodes",
            )  # fmt: skip
        self._check_processes(queue, processes, gpus, cores, instance is not None)
        cpus = max(1, cores // processes) if cores else 0
        return Placement(queue=queue, instance=instance, nodes=nodes, processes=processes, gpus=gpus, cpus=cpus)

    def _decide_placement(self, queue: Queue, nodes: int, processes: int, gpus: int) -> None:
        self.decide("queue", queue.name, "queue")
        self.decide("nodes", nodes, "nodes")
        kind = queue.instance or f"queue {queue.name}"
        one_each = Origin("catalog", kind, f"one process per GPU, {gpus} per node")
        none = Origin("default", why="one process per node where there are no GPUs")
        self.decide("processes", processes, "processes", otherwise=one_each if gpus else none)

    def _check_nodes(self, queue: Queue, nodes: int) -> None:
        counted = queue.count.max if queue.count else 1
        most = counted if platforms()[self.spec.platform].on_aws else queue.nodes or counted
        if nodes > most:
            plural = "node" if nodes == 1 else "nodes"
            self.refuse(
                "SPC003", "nodes",
                what=f"job {self.job.name!r} asks for {nodes} {plural}, and queue {queue.name!r} has at most {most}",
                fix="ask for fewer nodes, or let the queue grow",
            )  # fmt: skip

    def _check_processes(self, queue: Queue, processes: int, gpus: int, cores: int, on_instance: bool) -> None:
        if gpus and processes > gpus:
            self.refuse(
                "SPC003", "processes", what=f"{processes} processes share {gpus} GPUs: NCCL takes one rank per GPU",
                fix=f"processes: {gpus}, or leave it out",
            )  # fmt: skip
        elif not on_instance and 0 < cores < processes:
            self.refuse(
                "SPC003", "processes",
                what=f"job {self.job.name!r} starts {processes} processes on nodes with {cores} CPUs",
                fix=f"set `cpus: {processes}` in queue {queue.name} (a local node may claim more than the machine has)",
            )  # fmt: skip

    def _environment_names(self) -> None:
        for name in self.job.env:
            if name in RENDEZVOUS:
                self.refuse(
                    "SPC004", "env", name, what=f"env sets {name}, which each rank gets from the scheduler",
                    fix=f"remove {name}",
                )  # fmt: skip

    def _script(self) -> None:
        script = self.job.script
        if script and not self.ships_code and not script.startswith("/") and not self._packs_code():
            self.refuse(
                "SPC004", "script",
                what=f"platform {self.spec.platform} runs images: the script {script} cannot be sent along",
                fix="send it through S3 (`batch: {code: s3://bucket/prefix}`), or put it into the image and name it by "
                "its full path there",
            )  # fmt: skip

    def _runtime(self, recipe: Recipe | None, trainer: Trainer, placement: Placement) -> Runtime:
        foreign = recipe.trainer if recipe is not None and isinstance(recipe.trainer, Foreign) else None
        # Where nothing runs images, a recipe's is left out; a job that asks for one is refused (SPC001).
        bare = any(path[-1] == "container" for path in self.runs_on.cannot)
        container = self.job.container or (foreign.image if foreign and not bare else None) or ""
        if container:
            self.decide("container", container, "container", otherwise=Origin("recipe", self.job.recipe or ""))
        named = {mount.partition(":")[0] for mount in self.job.mounts}
        shared = [item.mount for item in self.spec.storage if item.mount not in named] if container else []
        mounts = (*self.job.mounts, *shared)
        if mounts:
            why = Origin("default", why="a container mounts the cluster's file systems")
            self.decide("mounts", ", ".join(mounts), "mounts", otherwise=why)
        if self.job.time is not None:
            self.decide("time", self.job.time, "time")
        self._decide_launcher(recipe, trainer)
        by_nodes = not container and self.ships_code and self.scheduler != "process"
        venv = job_runtime(self.spec, placement.queue) if by_nodes else ""
        packs = self._packs_code() or self._packs_config(recipe)
        carried = () if container or not self.ships_code else own_words(self.job.command or (), self._command_base())
        return Runtime(
            container=container, mounts=mounts, ships_code=self.ships_code, packs_code=packs,
            code_store=self._code_store() if packs else "", carried=carried, venv=venv,
        )  # fmt: skip

    def _command_base(self) -> Path:
        """The folder that a command's files are named from; the spec of an earlier run has its code beside it."""
        base = self.base("command")
        return base / "code" if (base / "run.json").is_file() else base

    def _packs_code(self) -> bool:
        """A script by a relative path is one of this machine; by its full path it is in the image or on storage."""
        return self._can_pack() and self.job.script is not None and not self.job.script.startswith("/")

    def _packs_config(self, recipe: Recipe | None) -> bool:
        """A framework's configuration file goes to pods as code does; on Batch without a place in S3 the command of
        a node writes it."""
        return sends_files(recipe) and self._can_pack()

    def _can_pack(self) -> bool:
        on_pods = not self.scheduler and scheduler_of(self.spec.platform).name == "kubernetes"
        return on_pods or (not self.scheduler and self.spec.platform == "batch" and bool(self._code_store()))

    def _code_store(self) -> str:
        """The place in S3 that code goes through; pods need none for a little of it."""
        return (self.spec.batch if self.spec.platform == "batch" else self.spec.kubernetes).code or ""

    def _decide_launcher(self, recipe: Recipe | None, trainer: Trainer) -> None:
        scheduler = self.scheduler or scheduler_of(self.spec.platform).name
        launcher: str = self.job.launcher or "torchrun"
        why, origin = "torchrun starts the ranks of a node", None
        if scheduler == "slurm" and (trainer == "trainwright" or launcher_of(recipe) == "srun"):
            launcher, why = "srun", "one Slurm task per rank"
        elif launcher_of(recipe) == "plain":
            launcher, why = "plain", "a launcher of its own, once per node"
        elif scheduler == "process":
            launcher, origin = "none", Origin("default", why="each rank is started as a process of this machine")
        self.decide("launcher", launcher, "launcher", otherwise=Origin("default", why=why), origin=origin)


def _device_ranks(recipe: Recipe | None, instance: InstanceType | None) -> int:
    """Ranks per node of a framework that starts several on one accelerator; 0 where it does not."""
    known = known_framework(recipe)
    if known is None or instance is None:
        return 0
    return known.ranks_per_device.get(instance.accelerator or "", 0) * instance.accelerator_count
