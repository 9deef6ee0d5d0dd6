"""Submitting a job: plan it (nothing is touched, `--dry-run` ends here), make its run folder, hand it over."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.errors import UserError
from trainwright.recipes.arguments import steps_of
from trainwright.runs import code, store
from trainwright.runs.required import check_required
from trainwright.runs.store import Run
from trainwright.schedulers.base import Launch, Scheduler, Script
from trainwright.schedulers.environment import explain
from trainwright.schedulers.launch import Place, launch_job, queue_of
from trainwright.schedulers.shell import Shell
from trainwright.spec.model import Job, Spec


@dataclass(frozen=True)
class Order:
    """Everything a submission is made from."""

    spec: Spec
    job: Job
    scheduler: Scheduler
    base: Path = Path()  # what relative paths of the job start from
    venv: str = ""
    remote_root: str = ""  # where run folders go on a cluster that shares no file system with this machine

    @property
    def shell(self) -> Shell:
        return self.scheduler.shell

    @property
    def ships(self) -> bool:
        """Whether the run folder made here reaches the nodes; where images run, it does not."""
        return self.scheduler.ships


@dataclass(frozen=True)
class Planned:
    """What would be submitted."""

    run: Run
    launch: Launch
    script: Script


def plan(order: Order) -> Planned:
    """The launch and its script, without a trace on disk."""
    _check_script(order)
    name = store.new_name(order.job.name)
    away = order.shell.remote or not order.ships
    remote = f"{_remote_root(order)}/{name}" if away else ""
    folder = Path(remote) if remote else store.runs_folder() / name
    # This machine's interpreter and paths mean nothing on another machine or in an image.
    python = "python3" if away or order.job.container else order.scheduler.python
    path = "" if away else os.environ.get("PYTHONPATH", "")
    place = Place(folder, python, order.scheduler.interface, order.venv, path, order.ships)
    launch = launch_job(order.spec, order.job, place)
    run = Run(
        name, order.job.name, order.scheduler.name, order.spec.platform, order.scheduler.cluster, order.shell.host,
        remote, queue=launch.queue, nodes=launch.nodes, ranks=launch.ranks, created=time.time(),
        steps=steps_of(order.job), at=dict(order.scheduler.at),
    )  # fmt: skip
    return Planned(run, launch, order.scheduler.render(launch))


def submit(order: Order, planned: Planned) -> Run:
    """Make the run folder, then hand the job over; a refused job leaves no folder behind."""
    if order.ships:
        check_required(order.job, planned.launch, order.shell, order.scheduler.name)
    folder = planned.run.folder
    folder.mkdir(parents=True)
    try:
        fill_folder(order, planned)
        order.shell.send(folder, planned.run.where)
        job = order.scheduler.submit(planned.launch, planned.script)
    except BaseException:
        shutil.rmtree(folder)
        raise
    run = dataclasses.replace(planned.run, job_id=job.id, start=job.start, submitted=job.submitted)
    store.write(run)
    return run


def fill_folder(order: Order, planned: Planned) -> None:
    """Spec, script, environment with reasons, code and git state: all that says what this run was meant to be."""
    folder = planned.run.folder
    (folder / "logs").mkdir()
    (folder / "spec.yaml").write_text(spec_text(order.spec, order.job))
    script = folder / planned.script.filename
    script.write_text(planned.script.text)
    script.chmod(0o755)
    (folder / "environment").write_text(explain(planned.launch.environment) + "\n")
    record_prediction(order, folder)
    if not order.ships:
        code.record_git(order.base if order.base != Path() else Path.cwd(), folder)
    elif order.job.script:
        source = order.base / order.job.script
        (folder / "code").mkdir()
        code.ship_script(source, folder / "code")
        code.record_git(source.parent, folder)
    else:
        code.ship_trainer(folder / "code")
        code.record_git(order.base if order.base != Path() else Path.cwd(), folder)
    store.write(planned.run)


def record_prediction(order: Order, folder: Path) -> None:
    """`prediction.json`: what the report later holds the measurement against."""
    facts = predicted(order)
    if facts is not None:
        (folder / "prediction.json").write_text(json.dumps(facts, indent=1) + "\n")


def predicted(order: Order) -> dict[str, Any] | None:
    """The job's prediction, for instance types. On this machine it has to be measured first, which would take longer
    than to submit; `trainwright predict` does it."""
    if order.job.script or not queue_of(order.spec, order.job).instance:
        return None
    from trainwright.predict.job import predict_job

    spec = order.spec.model_copy(update={"jobs": (order.job,)})
    try:
        return predict_job(spec, order.job.name).to_dict()
    except UserError as error:  # a model or a machine the predictor does not know still may train
        return {"unavailable": str(error)}


def spec_text(spec: Spec, job: Job) -> str:
    """The spec as it was submitted, overrides included, with this job alone; `trainwright submit` takes it again."""
    import yaml

    plain = spec.model_copy(update={"jobs": (job,)}).model_dump(mode="json", exclude_defaults=True, by_alias=True)
    text: str = yaml.safe_dump(plain, sort_keys=False)
    return text


def _check_script(order: Order) -> None:
    script = order.job.script
    if script and order.ships:
        code.check_script(order.base / script)
    elif script and not script.startswith("/"):
        raise UserError(
            f"platform {order.spec.platform} runs images: the script {script} cannot be sent along",
            where=f"job {order.job.name}: script",
            fix="put it into the image or on shared storage, and name it by its full path there",
        )


def _remote_root(order: Order) -> str:
    if order.remote_root:
        return order.remote_root.rstrip("/")
    shared = [item.mount for item in order.spec.storage if item.kind in {"lustre", "efs", "openzfs"}]
    if shared:
        return f"{shared[0]}/trainwright/runs"
    if not order.ships:
        raise UserError(
            f"spec {order.spec.name!r} has no shared storage for the run folder: checkpoints would die with the pods",
            fix="add `storage: [{mount: /fsx, lustre: {}}]`, or say where it goes: --remote-folder FOLDER",
        )
    here = order.shell.output(["pwd"]).strip()
    if not here:
        raise UserError("the head node names no home folder", fix="say where run folders go: --remote-folder /fsx/runs")
    return f"{here}/trainwright/runs"
