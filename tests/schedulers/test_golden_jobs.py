"""One job on every platform, as `submit --dry-run` prints it, byte for byte against tests/golden/jobs; `pytest
--update-golden` writes it anew. What is kept there passes shellcheck, the Kubernetes schemas and our own rules."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner

from trainwright.check.engine import check
from trainwright.cli.main import cli
from trainwright.platforms.local.platform import LocalPlatform
from trainwright.runs import reach, store
from trainwright.schedulers.kubernetes.kinds import KINDS
from trainwright.schedulers.process import ProcessScheduler
from trainwright.schedulers.slurm import SlurmScheduler
from trainwright.spec.model import Spec
from trainwright.train.config import parse_arguments

GOLDEN = Path(__file__).parents[1] / "golden" / "jobs"
JOBS = ("pretrain", "debug")
HEAD = ["--host", "head"]
HYPERPOD = ["--set", "queues.train.capacity=on-demand"]  # it takes no reservation of EC2
# file -> what `trainwright submit` is told beside the job
RENDERED: dict[str, list[str]] = {
    "parallelcluster/{job}.sbatch": ["spec.yaml", *HEAD],
    "hyperpod/{job}.sbatch": ["spec.yaml", *HEAD, *HYPERPOD, "--set", "platform=hyperpod"],
    "local/{job}.sbatch": ["local.yaml"],
    "batch/{job}.json": ["spec.yaml", "--set", "platform=batch"],
    "hyperpod-eks/{job}.yaml": ["spec.yaml", *HYPERPOD, "--set", "platform=hyperpod-eks",
                                "--set", "kubernetes.namespace=kubeflow"],
    **{f"eks/{{job}}.{kind}.yaml": ["spec.yaml", "--set", "platform=eks", "--set", f"kubernetes.kind={kind}"]
       for kind in KINDS},
}  # fmt: skip
CASES = [(name.format(job=job), job, words) for name, words in RENDERED.items() for job in JOBS]
# On one machine there is one node: only the debug size fits it.
CASES.append(("process/debug.sh", "debug", [
    "local.yaml", "--scheduler", "process", "--set", "jobs.debug.nodes=1", "--set", "jobs.debug.processes=2"])
)  # fmt: skip
NAMES = [name for name, _, _ in CASES]


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """What differs between two machines and two moments, held still. Nothing is written or started by a dry run."""
    monkeypatch.setenv("TRAINWRIGHT_HOME", "/shared/trainwright")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(store, "new_name", lambda job: f"{job}-20261115-120000-0001")
    monkeypatch.setattr(reach, "ProcessScheduler", partial(ProcessScheduler, python="python3"))

    def local(self: LocalPlatform, name: str, spec: Spec | None) -> SlurmScheduler:
        return SlurmScheduler(cluster=name, interface="eth0", python="python3")

    monkeypatch.setattr(LocalPlatform, "preview", lambda self, spec, job, host="": local(self, spec.name, spec))


def rendered(job: str, words: list[str]) -> str:
    spec, *more = words
    done = CliRunner().invoke(cli, ["submit", str(GOLDEN / spec), job, *more, "--dry-run"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize(("name", "job", "words"), CASES, ids=NAMES)
def test_the_job_is_the_golden_one(name: str, job: str, words: list[str], request: pytest.FixtureRequest) -> None:
    path, text = GOLDEN / name, rendered(job, words)
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def test_the_folder_holds_nothing_else() -> None:
    kept = {str(path.relative_to(GOLDEN)) for path in GOLDEN.rglob("*") if path.is_file()}
    assert kept == {*NAMES, "spec.yaml", "local.yaml"}


def train_words(name: str) -> list[str]:
    """The trainer's own words in a rendered job, whatever is around them."""
    text = (GOLDEN / name).read_text()
    if name.endswith(".json"):
        found = json.loads(text)["nodeProperties"]["nodeRangeProperties"][0]["container"]["command"][-1].split()
    elif name.endswith(".yaml"):
        found = next(words for words in _commands(yaml.safe_load(text)) if "trainwright.train" in words)
    else:
        found = text.partition("\ncode=$?")[0].partition("  code=$?")[0].replace("\\\n", " ").split()
    return found[found.index("trainwright.train") + 1 :]


def _commands(document: Any) -> list[list[str]]:
    """The commands of a manifest; a RayJob's is in a variable of its head."""
    if document["kind"] != "RayJob":
        return _lists(document)
    [head] = document["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
    return [json.loads(line["value"])["command"] for line in head["env"] if line["name"] == "TRAINWRIGHT_RAY_JOB"]


def _lists(document: Any) -> list[list[str]]:
    if isinstance(document, list) and document and all(isinstance(word, str) for word in document):
        return [document]
    inside = document if isinstance(document, list) else document.values() if isinstance(document, dict) else ()
    return [words for value in inside for words in _lists(value)]


@pytest.mark.parametrize("job", JOBS)
def test_every_scheduler_trains_the_same(job: str) -> None:
    """One recipe: the trainer is told the same everywhere, and it understands it."""
    told = {name: parse_arguments(train_words(name)) for name, its, _ in CASES if its == job and "process" not in name}
    assert len(told) == 10
    assert len(set(told.values())) == 1, told


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith((".sbatch", ".sh"))])
def test_scripts_pass_shellcheck(name: str) -> None:
    done = subprocess.run(["shellcheck", str(GOLDEN / name)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".yaml") and "trainjob" not in name])
def test_pods_pass_the_kubernetes_schemas(name: str) -> None:
    """A TrainJob holds no whole pod; the models of its own API judge it in test_kubernetes_kinds."""
    found = list(_pods(yaml.safe_load((GOLDEN / name).read_text())))
    assert found
    for spec in found:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}
        kubernetes_validate.validate(pod, "1.32", strict=True)


def _pods(document: Any) -> list[dict[str, Any]]:
    if isinstance(document, list):
        return [pod for value in document for pod in _pods(value)]
    if not isinstance(document, dict):
        return []
    own = [document] if "containers" in document else []
    return own + [pod for value in document.values() for pod in _pods(value)]


CHECKED = [name for name in NAMES if not name.endswith(".json")]


@pytest.mark.parametrize("name", ["spec.yaml", *CHECKED])
def test_our_own_rules_are_silent(name: str) -> None:
    result = check([str(GOLDEN / name)])
    # The one spec of all platforms has a section for Kubernetes, which the others note and pass over.
    loud = [finding.message for finding in result.findings if finding.level != "info"]
    assert (result.files, loud) == (1, [])


@pytest.mark.parametrize(
    ("name", "old", "new", "code"),
    [
        ("hyperpod/pretrain.sbatch", "#SBATCH --exclusive", "#SBATCH --exclusive\n#SBATCH --gres=gpu:8", "HYP002"),
        ("parallelcluster/pretrain.sbatch", "export MASTER_ADDR MASTER_PORT", "export MASTER_PORT=$RANDOM", "JOB"),
        ("eks/pretrain.pytorchjob.yaml", "vpc.amazonaws.com/efa: '32'", "cpu: '8'", "K8S001"),
    ],
)
def test_silence_means_that_the_rules_saw_the_job(name: str, old: str, new: str, code: str, tmp_path: Path) -> None:
    text = (GOLDEN / name).read_text()
    assert old in text
    broken = tmp_path / Path(name).name
    broken.write_text(text.replace(old, new))
    assert any(finding.code.startswith(code) for finding in check([str(broken)]).findings)
