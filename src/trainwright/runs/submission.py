"""Submitting a job: plan it (nothing is touched, `--dry-run` ends here), make its run folder, hand it over."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.catalog.capabilities import platforms
from trainwright.catalog.environment import EnvVar
from trainwright.errors import UserError
from trainwright.jobs.command import with_model
from trainwright.jobs.environment import explain_environment
from trainwright.jobs.explain import record
from trainwright.jobs.resolved import ResolvedJob
from trainwright.jobs.run_folder import FOLDER
from trainwright.runs import code, store
from trainwright.runs.progress import steps_in
from trainwright.runs.required import check_required
from trainwright.runs.store import Run
from trainwright.schedulers.base import Launch, Scheduler, Script
from trainwright.schedulers.launch import Place, launch_of
from trainwright.schedulers.profiling import CARRIED, ProfileOrder, profiled
from trainwright.schedulers.shell import Shell
from trainwright.spec.load import LoadedSpec

if TYPE_CHECKING:
    from trainwright.check.finding import Finding


@dataclass(frozen=True)
class Order:
    """Everything a submission is made from."""

    loaded: LoadedSpec  # with this job alone
    job: ResolvedJob
    scheduler: Scheduler
    venv: str = ""
    findings: tuple[Finding, ...] = ()  # what `check` says about the spec; no errors
    profile: ProfileOrder | None = None

    @property
    def shell(self) -> Shell:
        return self.scheduler.shell

    @property
    def ships_code(self) -> bool:
        """Whether the run folder made here reaches the nodes; where images run, it does not."""
        return self.job.runtime.ships_code


@dataclass(frozen=True)
class Planned:
    """What would be submitted."""

    run: Run
    launch: Launch
    script: Script


def plan(order: Order) -> Planned:
    """The launch and its script, without a trace on disk."""
    job, scheduler = order.job, order.scheduler
    if job.job.script and (order.ships_code or job.runtime.packs_code):
        code.check_script(job.base / job.job.script)
    name = store.new_name(job.name)
    away = order.shell.remote or not order.ships_code
    remote = f"{_remote_root(order)}/{name}" if away or _on_head_node(order) else ""
    folder = Path(remote) if remote else store.runs_folder() / name
    # This machine's interpreter and paths mean nothing on another machine or in an image.
    elsewhere = away or job.runtime.container or order.venv or job.runtime.venv
    python = "python3" if elsewhere else scheduler.python
    path = "" if remote else os.environ.get("PYTHONPATH", "")
    launch = launch_of(job, Place(folder, python, scheduler.interface, order.venv, path))
    if order.profile:
        launch = profiled(launch, order.profile, job.trainer == "trainwright", order.ships_code)
    steps = (steps_in(launch.command) if job.training else None) or job.job.steps
    if order.profile:
        _require_profiled(order.profile, launch, steps)
    run = Run(
        name, job.name, scheduler.name, job.spec.platform, scheduler.cluster, order.shell.host, remote,
        queue=launch.queue, nodes=launch.nodes, ranks=launch.ranks, created=time.time(),
        steps=steps, at=dict(scheduler.at),
    )  # fmt: skip
    return Planned(run, launch, scheduler.render(launch))


def _require_profiled(profile: ProfileOrder, launch: Launch, steps: int | None) -> None:
    """A job that is profiled nowhere would only show so after it ran."""
    for what, numbers, count in (("rank", profile.ranks, launch.ranks), ("node", profile.nodes, launch.nodes)):
        if max(numbers, default=0) >= count:
            raise UserError(f"--profile: no {what} {max(numbers)}: this job has {count}", fix=f"{what}s count from 0")
    if steps and profile.tool != "nsys" and profile.first > steps:
        what = f"--profile steps={profile.steps}: the job ends after step {steps}"
        raise UserError(what, fix=f"--profile steps={max(1, steps - 2)}..{steps}")


def submit(order: Order, planned: Planned) -> Run:
    """Make the run folder, then hand the job over; a refused job leaves no folder behind."""
    if order.ships_code:
        check_required(order.job, planned.launch, order.shell, order.scheduler.name)
    folder = planned.run.folder
    folder.mkdir(parents=True, mode=0o700)
    try:
        fill_folder(order, planned)
        if order.ships_code:
            order.shell.send(folder, planned.run.where)
        with archived(order, planned) as launch:
            job = order.scheduler.submit(launch, planned.script)
    except BaseException:
        shutil.rmtree(folder)
        raise
    run = dataclasses.replace(planned.run, job_id=job.id, start=job.start, submitted=job.submitted)
    store.write(run)
    return run


@contextmanager
def archived(order: Order, planned: Planned) -> Iterator[Launch]:
    """The launch with the archive of its code, in S3 where the spec names a place; a refused job leaves none there."""
    launch, run = planned.launch, planned.run
    if not launch.code:
        yield launch
        return
    archive = code.packed(run.folder / "code", "" if launch.code_store else "Kubernetes")
    if not launch.code_store:
        yield dataclasses.replace(launch, archive=archive)
        return
    from trainwright.aws.code_store import CodeStore

    kept = CodeStore(launch.code_store, order.job.spec.region or "")
    kept.put(run.name, archive)
    try:
        # Kubernetes has a Secret for an address that anybody may use; on Batch the containers have a role.
        by_role = order.scheduler.name == "batch"
        address = kept.uri(run.name) if by_role else kept.address(run.name)
        yield dataclasses.replace(launch, archive=archive, archive_url=address, archive_region=kept.bucket_region)
    except BaseException:
        with suppress(UserError):  # the reason of the refusal is what the user has to see
            kept.remove(run.name)
        raise


def fill_folder(order: Order, planned: Planned) -> None:
    """Spec, resolved job, script, environment with reasons, code and git state: what this run was meant to be."""
    folder, job = planned.run.folder, order.job
    (folder / "logs").mkdir()
    (folder / "spec.yaml").write_text(spec_text(order))
    (folder / "resolved.json").write_text(json.dumps(record(job), indent=1) + "\n")
    script = folder / planned.script.filename
    script.write_text(planned.script.text)
    (folder / "environment").write_text(environment_text(planned.launch) + "\n")
    facts = predicted(order)
    if facts is not None:  # what the report later holds the measurement against
        (folder / "prediction.json").write_text(json.dumps(facts, indent=1) + "\n")
    if job.job.script and (order.ships_code or job.runtime.packs_code):
        source = job.base / job.job.script
        (folder / "code").mkdir()
        code.ship_script(source, folder / "code")
        code.record_git(source.parent, folder)
    elif job.runtime.carried:
        code.ship_tree(job.base, folder / "code", [Path(word) for word in job.runtime.carried])
        code.record_git(job.base, folder)
    else:
        if order.ships_code and not job.job.command:
            code.ship_trainer(folder / "code")
            if job.training is not None and job.training.model_file is not None:
                shutil.copyfile(job.training.model_file, folder / "code" / job.training.model_copy)
        code.record_git(job.base, folder)
    for target, text in planned.launch.files:
        (folder / "code").mkdir(exist_ok=True)
        (folder / "code" / Path(target).name).write_text(text)
    if any(word.endswith(CARRIED) for word in planned.launch.command):
        code.ship_profiler(folder / "code", CARRIED)
    store.write(planned.run)
    for path in folder.iterdir():  # what the user's environment holds is for the user alone
        if path.is_file():
            path.chmod(0o700 if path == script else 0o600)


def environment_text(launch: Launch) -> str:
    """Every variable of a launch with its reason; of a secret, where its value is kept."""
    secrets = [EnvVar(secret.name, "(secret)", f"from {secret.source}") for secret in launch.secret_env]
    secrets += [EnvVar(name, "(secret)", f"from {kept}, which the cluster keeps") for name, kept in launch.secrets]
    return explain_environment((*launch.environment, *secrets))


def predicted(order: Order) -> dict[str, Any] | None:
    """The job's prediction. This machine has to be measured first, which would take longer than to submit:
    `trainwright predict` does it, and for an hour its measurement serves here too."""
    if order.job.training is None:
        return None
    from trainwright.predict.calibrate import calibrated
    from trainwright.predict.job import is_known, predict_job

    if not is_known(order.job):
        return None
    try:
        return predict_job(order.job, calibrated(order.job.spec.name)).to_dict()
    except UserError as error:  # a model or a machine that the predictor does not know may still train
        return {"unavailable": str(error)}


def spec_text(order: Order) -> str:
    """The spec as it was submitted, flags included, with this job alone; `trainwright submit` takes it again."""
    import yaml

    plain = order.loaded.spec.model_dump(mode="json", exclude_defaults=True, by_alias=True)
    training = order.job.training
    if training is not None and training.model_copy:
        plain["jobs"][0] |= {"model": f"code/{training.model_copy}"}
        plain["jobs"][0] |= {"args": list(with_model(order.job.job.args, f"code/{training.model_copy}"))}
    script = order.job.job.script
    if script and (order.ships_code or order.job.runtime.packs_code):
        plain["jobs"][0] |= {"script": f"code/{Path(script).name}"}
    text: str = yaml.safe_dump(plain, sort_keys=False)
    return text


def _on_head_node(order: Order) -> bool:
    """Whether the job goes from a cluster's own head node to nodes that see its shared file system, but not the state
    folder of this user."""
    on_aws = platforms()[order.job.spec.platform].on_aws
    return on_aws and order.scheduler.name != "process" and bool(order.job.run_root)


def _remote_root(order: Order) -> str:
    if order.job.run_root:
        return order.job.run_root
    home = order.shell.output(["pwd"]).strip()
    if not home:
        raise UserError("the head node names no home folder", fix="say where run folders go: --remote-folder /fsx/runs")
    return f"{home}/{FOLDER}"
