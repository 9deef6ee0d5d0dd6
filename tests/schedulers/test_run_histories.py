"""Histories by chance of up, submit, cancel, kill, repair, down, up again and resume, on two clusters: no verb touches
a job that is not its own, no run is lost from the list, no answer is wrong, and nothing stays running."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from worlds import ModelPlatform, ModelWorld, RealWorld, World

from trainwright.cli.main import cli
from trainwright.platforms.local import life, state
from trainwright.platforms.local.daemons import missing_programs
from trainwright.runs import code, reach, resume, store
from trainwright.runs.store import Run

CLUSTERS = st.sampled_from(["red", "blue"])
HISTORY = {"phases": (Phase.generate,), "deadline": None, "derandomize": True}
TRUE_ENDS = {"completed", "failed", "cancelled", "lost"}


class Histories(RuleBasedStateMachine):
    """The truth about every run is kept here, apart from what the product keeps."""

    runs = Bundle("runs")
    world: World

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="tw"))
        self.patch = pytest.MonkeyPatch()
        self.patch.setenv("TRAINWRIGHT_HOME", str(self.folder))
        self.patch.setattr(code, "record_git", lambda where, run: None)
        self.patch.setattr(code, "ship_trainer", lambda folder: folder.mkdir(parents=True))
        self.truth: dict[str, str] = {}  # run -> running, or how it ended
        self.enter_world()

    def enter_world(self) -> None:
        self.world = world = ModelWorld()
        self.patch.setattr(reach, "platform_named", lambda name: ModelPlatform(world))
        schedulers = lambda: [world.scheduler(name) for name in world.clusters]  # noqa: E731
        self.patch.setattr("trainwright.platforms.local.platform.local_schedulers", schedulers)

    @rule(cluster=CLUSTERS)
    def up(self, cluster: str) -> None:
        self.world.up(cluster)

    @rule(cluster=CLUSTERS)
    def down(self, cluster: str) -> None:
        if not self.world.is_up(cluster):
            return
        reach.remember_runs(cluster)
        self.world.down(cluster)
        for name in [name for name, now in self.truth.items() if now == "running" and self.of(name).cluster == cluster]:
            self.truth[name] = "lost"

    @rule(cluster=CLUSTERS)
    def kill_controller(self, cluster: str) -> None:
        if self.world.controller_alive(cluster):
            self.world.kill_controller(cluster)

    @rule(target=runs, cluster=CLUSTERS)
    def submit(self, cluster: str) -> str:
        if not self.world.controller_alive(cluster):
            self.world.up(cluster)
        run = self.world.submit(cluster)
        self.truth[run.name] = "running"
        return run.name

    @rule(name=runs, code=st.sampled_from([0, 3]))
    def finish(self, name: str, code: int) -> None:
        run = self.of(name)
        if self.truth[name] == "running" and self.world.controller_alive(run.cluster):
            self.world.finish(run, code)
            self.truth[name] = "completed" if code == 0 else "failed"

    @rule(name=runs)
    def cancel(self, name: str) -> None:
        before = self.world.live_names()
        done = CliRunner().invoke(cli, ["cancel", name])
        if done.exit_code == 0:
            self.world.settle(name)
        after = self.world.live_names()
        if self.truth[name] == "running":
            reached = self.world.controller_alive(self.of(name).cluster)
            assert (done.exit_code == 0) == reached, done.output
            if reached:
                self.truth[name] = "cancelled"
        else:
            assert done.exit_code == 0
            assert f"is over already: {self.truth[name]}" in done.output
        assert before - after <= {name}, "cancel ended another run's job"

    @rule(target=runs, name=runs, cluster=CLUSTERS)
    def resume(self, name: str, cluster: str) -> str:
        if not self.world.controller_alive(cluster):
            return name
        spec = self.folder / f"{cluster}.yaml"
        spec.write_text(f"name: {cluster}\nplatform: local\nqueues: [{{name: train, nodes: 2, cpus: 4}}]\n")
        old = self.of(name)
        answer = reach.run_state(old).state
        request = resume.ResumeRequest(spec=str(spec))
        if answer in {"running", "pending", "completing", "completed", "unknown"}:
            with pytest.raises(resume.NothingToResume, match=r"running|pending|complet|unknown"):
                resume.prepare(old, request)
            return name
        assert self.truth[name] in TRUE_ENDS - {"completed"}
        resumption = resume.prepare(old, request)
        new = self.world.hand_over(resumption.order, resumption.planned)
        assert new.continues == name
        self.truth[new.name] = "running"
        return new.name

    @rule(name=runs)
    def ask_one(self, name: str) -> None:
        self.right(name, reach.run_state(self.of(name)).state)

    @rule()
    def ask_all(self) -> None:
        done = CliRunner().invoke(cli, ["jobs", "--json"])
        states = {job["state"] for job in json.loads(done.stdout)}
        assert done.exit_code == int("unknown" in states)

    @invariant()
    def no_run_is_lost_from_the_list(self) -> None:
        assert {run.name for run in store.all_runs()} == set(self.truth)

    @invariant()
    def jobs_are_listed_as_they_are(self) -> None:
        shown = {job.name: job.state for job in reach.all_jobs()}
        live = {name for name, now in self.truth.items() if now == "running"}
        assert live <= set(shown), "a job that may run is not listed"
        for name in live:
            self.right(name, shown[name])

    def right(self, name: str, told: str) -> None:
        run = self.of(name)
        reachable = self.world.controller_alive(run.cluster)
        now = self.truth[name]
        allowed = {now} if now != "running" else {"running", "pending"} if reachable else {"unknown"}
        # What ended while nobody asked is unknown until the controller is back.
        allowed |= set() if reachable or now == "lost" else {"unknown"}
        # Slurm may still be clearing up after a job that ended a moment ago.
        allowed |= {"completing"} if reachable and now in {"completed", "failed", "cancelled"} else set()
        assert told in allowed, f"{name} is {now}, and the answer is {told}"

    def of(self, name: str) -> Run:
        run = store.read(name)
        assert run is not None
        return run

    def teardown(self) -> None:
        try:
            for cluster in ("red", "blue"):
                self.down(cluster)
            assert self.world.live_names() == set(), "something stays running"
            for name, now in self.truth.items():
                self.right(name, reach.run_state(dataclasses.replace(self.of(name))).state)
                assert now != "running"
        finally:
            for name in state.names():
                life.down(name, force=True)
            self.patch.undo()
            shutil.rmtree(self.folder)


class RealHistories(Histories):
    def enter_world(self) -> None:
        self.world = RealWorld()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
def test_five_hundred_histories_on_the_model() -> None:
    run_state_machine_as_test(
        Histories,
        settings=settings(max_examples=500, stateful_step_count=15, suppress_health_check=list(HealthCheck), **HISTORY),
    )


@pytest.mark.slurm
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_twenty_histories_on_the_real_slurm() -> None:
    if missing_programs():
        pytest.skip("no Slurm on this machine")
    run_state_machine_as_test(
        RealHistories,
        settings=settings(max_examples=20, stateful_step_count=8, suppress_health_check=list(HealthCheck), **HISTORY),
    )


def test_some_histories_on_the_model() -> None:
    run_state_machine_as_test(
        Histories,
        settings=settings(max_examples=15, stateful_step_count=12, suppress_health_check=list(HealthCheck), **HISTORY),
    )
