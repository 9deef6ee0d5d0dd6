"""Hostile strings in every text of a launch: refused, or taken literally. The rendered script is run for real, with an
srun that only writes down what it was given."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from trainwright.catalog.environment import EnvVar
from trainwright.errors import UserError
from trainwright.runs import store
from trainwright.schedulers.base import Launch
from trainwright.schedulers.kubernetes.pod import PodSettings
from trainwright.schedulers.kubernetes.scheduler import KubernetesScheduler
from trainwright.schedulers.process import ProcessScheduler
from trainwright.schedulers.slurm import SlurmScheduler

PIECES = (
    "\n", "\r\n", ";", "&&", "|", "$(touch PWNED)", "`touch PWNED`", "${IFS}touch${IFS}PWNED", "'", '"', "\\", "#", " ",
    "../", "/etc", "--", "-x", "touch PWNED", ">PWNED", "\n#SBATCH --nodes=99\n", "\ntouch PWNED\n", "*", "~", "!", "%",
    "\0", "\u2028", "\x1b[2J", "\U0001f600", "{{ 7*7 }}", "{% raw %}", "a", "1", "$HOME", "EOF", "\n- evil: true\n",
)  # fmt: skip
HOSTILE = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join)
TEXTS = ("name", "queue", "account", "qos", "constraint", "reservation", "after", "container", "venv")
FIELDS = st.sampled_from([*TEXTS, "command", "value", "variable", "folder"])
SRUN = '#!/bin/sh\nfor word; do printf "%s\\0" "$word"; done > "$GIVEN"; env -0 > "$GIVEN.env"\n'


def with_text(field: str, text: str) -> Launch:
    plain = Launch("train", ("python3", "train.py"), Path("run"), requeue=False)
    changed: dict[str, dict[str, object]] = {
        "command": {"command": ("python3", "train.py", text)},
        "value": {"environment": (EnvVar("COLOUR", text, "written in the job"),)},
        "variable": {"environment": (EnvVar(text, "blue", "written in the job"),)},
        "folder": {"folder": Path("run" + text.replace("/", ""))},
    }
    return dataclasses.replace(plain, **changed.get(field, {field: text}))


@pytest.mark.slow
@settings(max_examples=1000, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(field=FIELDS, text=HOSTILE)
@example("variable", "A;touch PWNED;B")
@example("name", "x\ntouch PWNED")
@example("account", "team\n#SBATCH --nodes=9")
def test_a_hostile_string_is_refused_or_literal(field: str, text: str) -> None:
    launch = with_text(field, text)
    try:
        script = SlurmScheduler(python="python3").render(launch).text
        ProcessScheduler().render(dataclasses.replace(launch, **dict.fromkeys(TEXTS[1:], "")))
    except UserError:
        return
    directives = [line for line in script.splitlines() if line.startswith("#SBATCH")]
    assert len(directives) == len(set(directives))
    assert sum(line.startswith("#SBATCH --nodes=") for line in directives) == 1
    with tempfile.TemporaryDirectory() as folder:
        run_script(Path(folder), script.replace("source ", ": source "))
        assert not list(Path(folder).rglob("PWNED*")), "a string was executed"
        given_words = (Path(folder) / "given").read_bytes().decode(errors="surrogateescape").split("\0")
        if field == "command":
            assert given_words[-2] == text
        if field == "value" and "\0" not in text:
            assert f"COLOUR={text}" in (Path(folder) / "given.env").read_bytes().decode().split("\0")


def run_script(folder: Path, script: str) -> None:
    tools = folder / "tools"
    tools.mkdir()
    for name, text in {"srun": SRUN, "scontrol": "#!/bin/sh\necho localhost\n"}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    environment = {
        "PATH": f"{tools}:{os.environ['PATH']}", "GIVEN": str(folder / "given"), "SLURM_JOB_ID": "1",
        "SLURM_JOB_NODELIST": "localhost", "SLURM_CPUS_PER_TASK": "1",
    }  # fmt: skip
    subprocess.run(["bash", "-c", script], cwd=folder, env=environment, capture_output=True, timeout=20)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(text=HOSTILE.filter(lambda text: "\0" not in text))
def test_a_manifest_holds_the_value_and_nothing_else(text: str) -> None:
    launch = dataclasses.replace(with_text("value", text), container="image:1")
    scheduler = KubernetesScheduler(PodSettings())
    manifest = yaml.safe_load(scheduler.render(launch).text)
    assert set(manifest) == {"apiVersion", "kind", "metadata", "spec"}
    container = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    assert {"name": "COLOUR", "value": text} in container["env"]


@given(text=HOSTILE)
def test_a_run_folder_stays_in_the_runs_folder(text: str) -> None:
    folder = store.runs_folder() / store.new_name(text)
    assert folder.resolve().parent == store.runs_folder().resolve()
