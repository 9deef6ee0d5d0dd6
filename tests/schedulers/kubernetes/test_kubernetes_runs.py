"""A run on Kubernetes from `submit` to `cancel`, through the command line, the real client and the stub API."""

from __future__ import annotations

import base64
import json
import random
import ssl
import string
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from stub_api import Api

from trainwright.cli.main import cli
from trainwright.errors import UserError
from trainwright.runs import store

SPEC = {
    "name": "llama", "platform": "eks", "region": "us-east-2",
    "queues": [{"name": "train", "instance": "p5.48xlarge", "count": 4}],
    "storage": [{"mount": "/fsx", "lustre": {}}, {"mount": "/models", "efs": {}}],
    "kubernetes": {"namespace": "training", "claims": {"/models": "shared-models"}, "context": "here"},
    "jobs": [{
        "name": "pretrain", "recipe": "llama3.1-8b-debug", "container": "example.com/t:1", "nodes": 2,
        "secrets": {"HF_TOKEN": "hugging-face/token"},
    }],
}  # fmt: skip
JOBS = "/apis/kubeflow.org/v1/namespaces/training/pytorchjobs"


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(SPEC))
    return path


def tell(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False)


def condition(kind: str, minute: int, **more: str) -> dict[str, str]:
    return {"type": kind, "status": "True", "lastTransitionTime": f"2026-11-15T00:{minute:02d}:00Z", **more}


def test_a_run_lives_on_kubernetes(spec: Path, api: Api) -> None:
    name = tell("submit", spec).stdout.strip()
    run = store.find(name)
    assert (run.scheduler, run.where, run.steps) == ("kubernetes", f"/fsx/trainwright/runs/{name}", 30)
    assert (run.folder / "job.yaml").exists()
    assert not (run.folder / "code").exists(), "the image holds the software"
    made = api.objects[f"{JOBS}/{name}"]
    text = json.dumps(made)
    assert '"claimName": "fsx"' in text
    assert '"claimName": "shared-models"' in text
    assert '"secretKeyRef": {"name": "hugging-face", "key": "token"}' in text
    assert str(run.folder) not in text
    assert "PYTHONPATH" not in text

    made["status"] = {"conditions": [condition("Created", 0), condition("Running", 1)]}
    [row] = json.loads(tell("jobs", "--json").stdout)
    assert (row["id"], row["name"], row["state"], row["nodes"]) == (name, "pretrain", "running", 2)
    assert (row["cluster"], row["queue"]) == ("llama", "train")
    [fact] = json.loads(tell("runs", "--json").stdout)
    assert (fact["run"], fact["state"]) == (name, "running")

    api.pods = [{"metadata": {"name": f"{name}-master-0"}, "status": {"phase": "Running"}, "spec": {"containers": []}}]
    at = "2026-11-15T00:00:01.000000000Z"
    api.logs[f"{name}-master-0"] = f"{at} [rank0]:step 1 loss 5.5\n{at} [rank7]:hello\n{at} plain words\n"
    assert tell("logs", name).stdout.splitlines() == [
        "[rank-0] step 1 loss 5.5", "[rank-7] hello", f"[{name}-master-0] plain words",
    ]  # fmt: skip
    assert tell("logs", name, "--rank", "7").stdout.splitlines() == ["[rank-7] hello"]

    assert tell("cancel", name).exit_code == 0
    assert api.objects == {}
    assert json.loads(tell("jobs", "--json").stdout) == []


def test_following_shows_the_end(spec: Path, api: Api) -> None:
    name = tell("submit", spec, "--set", "kubernetes.kind=jobset").stdout.strip()
    [item] = api.objects.values()
    assert item["kind"] == "JobSet"
    item["status"] = {"conditions": [condition("Failed", 1, message="pod 1 died")]}
    done = tell("logs", "-f", name)
    assert done.exit_code == 1
    assert "failed" in done.stderr
    assert "pod 1 died" in done.stderr
    assert json.loads(tell("jobs", "--json").stdout) == [], "a job that ended neither waits nor runs"


def test_a_cluster_that_is_gone_does_not_hide_the_others(spec: Path, api: Api) -> None:
    tell("submit", spec)
    api.shutdown()
    api.server_close()
    [row] = json.loads(tell("jobs", "--json").stdout)
    assert row["state"] == "unknown"
    assert "does not answer" in row["reason"]


def test_two_submissions_have_two_names(spec: Path, api: Api) -> None:
    assert tell("submit", spec).stdout != tell("submit", spec).stdout
    assert len(api.objects) == 2


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--set", "storage=[]", "--set", "kubernetes.claims={}"], "no shared storage"),
        (["--set", "jobs.pretrain.account=team"], "cannot honour `account`"),
        (["--set", "kubernetes.claims={/other: x}"], "kubernetes.claims names /other"),
        (["--set", "platform=batch"], "execution role"),
        (["--set", "platform=parallelcluster", "--host", "head"], "cannot honour `secrets`"),
        (["--set", "jobs.pretrain.kind=jobset", "--set", "jobs.pretrain.secrets={}", "--scheduler", "process"], "kind"),
        (["--script", "no-such.py", "--container", "i"], "there is no script"),
        (["--set", "platform=batch", "--script", "train.py", "--container", "i"], "cannot be sent along"),
    ],
)
def test_what_cannot_be_honoured_is_named(
    spec: Path, words: list[str], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(spec.parent)
    (spec.parent / "train.py").touch()
    with pytest.raises(UserError, match=what):
        tell("submit", spec, *words, "--dry-run")
    assert not store.runs_folder().exists()


def test_a_secret_of_the_user_is_an_object_that_ends_with_the_job(
    spec: Path, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "the value")
    env = {"WANDB_API_KEY": {"secret": {"env": "MY_TOKEN"}}}
    spec.write_text(yaml.safe_dump({**SPEC, "jobs": [{**SPEC["jobs"][0], "env": env}]}))  # type: ignore[index]
    name = tell("submit", spec).stdout.strip()
    secret = api.objects[f"/api/v1/namespaces/training/secrets/{name}"]
    assert secret["stringData"] == {"WANDB_API_KEY": "the value"}
    assert secret["metadata"]["ownerReferences"][0]["name"] == name
    job = json.dumps(api.objects[f"{JOBS}/{name}"])
    assert f'"secretKeyRef": {{"name": "{name}", "key": "WANDB_API_KEY"}}' in job
    folder = store.find(name).folder
    assert not [path for path in folder.rglob("*") if path.is_file() and b"the value" in path.read_bytes()]
    again = CliRunner().invoke(cli, ["submit", str(spec), "--set", "kubernetes.kind=jobs"])
    assert isinstance(again.exception, UserError)


def test_a_refused_job_leaves_no_secret(spec: Path, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "the value")
    monkeypatch.setattr(store, "new_name", lambda job: f"{job}-20261115-000000-abcd")
    env = {"WANDB_API_KEY": {"secret": {"env": "MY_TOKEN"}}}
    spec.write_text(yaml.safe_dump({**SPEC, "jobs": [{**SPEC["jobs"][0], "env": env}]}))  # type: ignore[index]
    api.objects[f"{JOBS}/pretrain-20261115-000000-abcd"] = {"metadata": {"name": "other"}}
    result = CliRunner().invoke(cli, ["submit", str(spec)])
    assert isinstance(result.exception, UserError)
    assert not [path for path in api.objects if "/secrets/" in path]


def test_jobs_of_a_cluster_that_a_spec_names(spec: Path, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    name = tell("submit", spec).stdout.strip()
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(spec.parent / "another"))
    assert json.loads(tell("jobs", "--json").stdout) == [], "this user submitted none"
    [row] = json.loads(tell("jobs", spec, "--json").stdout)
    assert (row["id"], row["state"]) == (name, "pending")
    with pytest.raises(UserError, match="no cluster 'elsewhere' is known"):
        tell("jobs", "elsewhere")


def test_a_cluster_that_is_not_verified_is_said_once(
    spec: Path, api: Api, tmp_path: Path, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=here", "-days", "1"]
    subprocess.run([*words, "-keyout", "key", "-out", "certificate"], cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate", tmp_path / "key")
    api.socket = context.wrap_socket(api.socket, server_side=True)
    config = yaml.safe_load((tmp_path / "kubeconfig").read_text())
    config["clusters"][0]["cluster"] = {
        "server": f"https://127.0.0.1:{api.server_port}", "insecure-skip-tls-verify": True,
    }  # fmt: skip
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    told = [tell(*words).stderr for words in (("submit", spec), ("jobs", spec), ("jobs", spec))]
    assert "".join(told).count("asks not to verify who answers") == 1
    assert not [warning for warning in recwarn if "InsecureRequest" in str(warning.category)]


def test_an_own_script_reaches_the_pods_and_a_resumed_run(
    spec: Path, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/train.py").write_text("import helper, sys; print(helper.WORDS, *sys.argv[1:])\n")
    (tmp_path / "mine/helper.py").write_text("WORDS = 'from the helper'\n")
    monkeypatch.chdir(tmp_path)
    words = ["submit", spec, "--script", "mine/train.py", "--container", "image:1", "--nodes", "2"]
    name = tell(*words, "--", "--lr", "1").stdout.strip()
    for _ in range(2):
        folder = tmp_path / f"pod-{name}"
        folder.mkdir()
        kept = api.objects[f"/api/v1/namespaces/training/configmaps/{name}"]
        assert kept["metadata"]["ownerReferences"][0]["kind"] == "PyTorchJob"
        (folder / "code.tar.gz").write_bytes(base64.b64decode(kept["binaryData"]["code.tar.gz"]))
        pod = api.objects[f"{JOBS}/{name}"]["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
        before, [container] = pod["initContainers"][-1], pod["containers"]
        mounts = {mount["name"] for mount in before["volumeMounts"]}
        assert mounts <= {volume["name"] for volume in pod["volumes"]}
        assert {"name": "code", "mountPath": "/trainwright/code"} in container["volumeMounts"]
        assert {"name": "PYTHONPATH", "value": "/trainwright/code"} in container["env"]

        def here(text: str, folder: Path = folder) -> str:
            return text.replace("/trainwright/archive", str(folder)).replace("/trainwright/code", str(folder))

        subprocess.run([here(word) for word in before["command"]], check=True)
        command = [here(word) for word in container["command"]]
        rank = command[command.index("python3") :] if "python3" in command else command[-3:]
        done = subprocess.run(["python3", *rank[-3:]], capture_output=True, text=True)
        assert done.stdout.strip() == "from the helper --lr 1", (command, done.stderr)
        tell("cancel", name)
        (tmp_path / "mine/train.py").unlink(missing_ok=True)  # a resumed run takes the copy of the first
        name = tell("resume", name).stdout.strip()


def test_code_that_is_too_large_for_the_cluster_is_refused(
    spec: Path, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/train.py").write_text("# " + "".join(random.Random(1).choices(string.ascii_letters, k=2_000_000)))
    with pytest.raises(UserError, match="Kubernetes keeps at most 720 KB"):
        tell("submit", spec, "--script", "mine/train.py", "--container", "image:1")
    assert api.objects == {}
