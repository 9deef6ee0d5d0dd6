"""The runtime that a plan ships, made for real in a folder that stands for the shared file system: by the rendered boot
script and its service, with the real uv. Stand-ins only for what cannot be fetched here: the bucket, a Python build and
the packages, which come from a folder; torch is that of the tests."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from trainwright.catalog.runtime import runtime_pins
from trainwright.jobs import runtime as jobs_runtime
from trainwright.platforms.local import life
from trainwright.platforms.local.cluster import LocalCluster, LocalQueue
from trainwright.platforms.local.daemons import missing_programs
from trainwright.platforms.parallelcluster import runtime as plan_runtime
from trainwright.platforms.parallelcluster.boot import render
from trainwright.platforms.parallelcluster.runtime import Shipment, shipment
from trainwright.platforms.plan.tree import make_plan
from trainwright.platforms.setting import Setting
from trainwright.spec.load import load, load_text

ROOT = Path(__file__).parents[3]
PACKAGES = Path(sys.prefix) / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
# Makes a `pip` that installs our uv: the real one, with a folder for an index and the tests' Python for a download.
PYTHON = r"""#!/bin/bash
if [ "$1 $2" != "-m venv" ]; then exec {python} "$@"; fi
mkdir -p "$3/bin"
printf '#!/bin/bash\ncp {bin}/fake-uv "${{0%%/*}}/uv"\n' > "$3/bin/pip"
chmod 0755 "$3/bin/pip"
"""
UV = r"""#!/bin/bash
echo "$1 $2" >> {calls}
build=$UV_PYTHON_INSTALL_DIR/cpython-{version}-linux-x86_64-gnu/bin
case "$1 $2" in
  "python install") mkdir -p "$build"; ln -sfn {python} "$build/python3" ;;
  "venv --managed-python") exec {uv} venv --quiet --python "$build/python3" "$5" ;;
  "pip sync")
    {uv} "$@" --quiet --offline --no-index --find-links {wheels} || exit
    if [ -e {hold} ]; then echo held > {hold}; cat {hold}; fi ;;
esac
"""
AWS = '#!/bin/bash\necho "$*" >> {calls}\ncp "{bucket}/${{6#s3://the-bucket/}}" "$7"\n'


def wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> str:
    """A wheel of a few files; returns its line of a requirements file."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    files = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in files) + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in (files | {f"{info}/RECORD": record}).items():
            archive.writestr(file, text)
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


@dataclass
class Head:
    """A head node in a folder."""

    folder: Path
    ship: Shipment

    def render(self, wait: int = 2700) -> Path:
        """The boot script with the system's folders moved below ours."""
        text = render("runtime.sh.j2", **self.ship.values() | {"wait": wait})
        for system in ("/etc/", "/usr/local/", "/opt/", "/var/"):
            for before in ' ="':
                text = text.replace(f"{before}{system}", f"{before}{self.folder}{system}")
        path = self.folder / "runtime.sh"
        path.write_text(text)
        return path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "PYTHONPATH": ""}

    def boot(self, wait: int = 2700) -> subprocess.CompletedProcess[str]:
        return self.run("bash", str(self.render(wait)), f"s3://the-bucket/{self.ship.bucket_folder}")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=120)

    def maker(self) -> subprocess.Popen[bytes]:
        """The service's program."""
        program = self.folder / "usr/local/sbin/trainwright-runtime"
        return subprocess.Popen([program], env=self.environment, start_new_session=True)

    def make(self) -> None:
        assert self.maker().wait(timeout=120) == 0, self.log

    def activated(self, command: str) -> subprocess.CompletedProcess[str]:
        """What a job's script does: in a shell that stops at unset variables, before and after."""
        activate = f"set -uo pipefail; set +u; source {self.ship.runtime}/bin/activate; set -u; {command}"
        return self.run("bash", "-c", activate)

    @property
    def log(self) -> str:
        return (Path(self.ship.runtime) / "log").read_text()

    def calls(self, of: str) -> list[str]:
        path = self.folder / f"{of}-calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def head(tmp_path: Path) -> Head:
    wheels = tmp_path / "wheels"
    for folder in ("bin", "etc/parallelcluster", "etc/systemd/system", "etc/ld.so.conf.d", "usr/local/sbin", "wheels"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/parallelcluster/cfnconfig").write_text("cfn_region=us-east-2\ncfn_node_type=HeadNode\n")
    requirements = wheel(wheels, "torch", "2.13.0", {"linked.pth": f"{PACKAGES}\n"})
    requirements += wheel(wheels, "small", "1.0", {"small.py": "there = True\n"})
    pins = replace(runtime_pins(), python=platform.python_version(), requirements=requirements)
    planned = shipment(Setting(make_plan(load(ROOT / "examples" / "p5-reservation.yaml")).spec))
    shared = tmp_path / "fsx" / "trainwright"
    ship = replace(
        planned, pins=pins, root=str(shared), runtime=f"{shared}/runtime/{pins.digest}", code=f"{shared}/code/1",
        run_folders=(f"{shared}/runs/pretrain",),
        texts={**planned.texts, "runtime/requirements.txt": requirements},
    )  # fmt: skip
    for name, key in ship.keys.items():
        (tmp_path / "bucket" / key).parent.mkdir(parents=True)
        (tmp_path / "bucket" / key).write_bytes(ship.contents[name])
    values = {
        "python": sys.executable, "bin": tmp_path / "bin", "version": pins.python, "wheels": wheels,
        "uv": Path(sys.executable).with_name("uv"), "hold": tmp_path / "hold", "bucket": tmp_path / "bucket",
    }  # fmt: skip
    programs = {"python3": PYTHON, "fake-uv": UV, "aws": AWS, "systemctl": '#!/bin/bash\necho "$*" >> {calls}\n'}
    for name, text in programs.items():
        (tmp_path / "bin" / name).write_text(text.format(**values, calls=tmp_path / f"{name}-calls"))
        (tmp_path / "bin" / name).chmod(0o755)
    return Head(tmp_path, ship)


def contents(folder: Path) -> dict[str, tuple[float, bytes | str]]:
    """Everything below a folder but the log and the lock, with when it was written."""
    paths = [path for path in folder.rglob("*") if path.name not in ("log", "lock")]
    return {
        str(path): (path.lstat().st_mtime, os.readlink(path) if path.is_symlink() else path.read_bytes())
        for path in paths
        if path.is_symlink() or path.is_file()
    }


def test_a_job_trains_with_what_the_head_node_made_once(head: Head) -> None:
    booted = head.boot()
    assert booted.returncode == 0, booted.stderr
    assert "restart --no-block trainwright-runtime" in head.calls("systemctl"), "the cluster does not wait for packages"
    head.make()
    plugin = head.folder / "opt/amazon/ofi-nccl/lib/x86_64-linux-gnu"
    plugin.mkdir(parents=True)
    (plugin / "libnccl-net.so").touch()
    (head.folder / "etc/ld.so.conf.d/100_ofinccl.conf").write_text(f"{plugin}\n")
    program = "import sys, torch, small, trainwright.train.config as c; print(sys.prefix, c.__file__)"
    done = head.activated(f'echo "$LD_LIBRARY_PATH"; python3 -c "{program}"')
    assert done.returncode == 0, done.stderr
    libraries, line = done.stdout.splitlines()
    assert libraries.split(":")[0] == str(plugin), "NCCL finds the EFA plugin"
    assert line.split()[0] == f"{head.ship.runtime}/venv"
    assert line.split()[1].startswith(f"{head.ship.root}/code/current/trainwright/train")
    assert os.path.realpath(f"{head.ship.runtime}/venv/bin/python3") == os.path.realpath(sys.executable)
    assert Path(f"{head.ship.root}/runs/pretrain").stat().st_mode & 0o1777 == 0o1777, "any user's job may log there"

    before, fetched, made = contents(Path(head.ship.root)), head.calls("aws"), len(head.calls("fake-uv"))
    assert head.boot().returncode == 0
    head.make()
    unchanged = {f"{head.ship.runtime}/bin/activate", f"{head.ship.root}/code/current"}
    after = contents(Path(head.ship.root))
    assert {name: each for name, each in after.items() if name not in unchanged} == {
        name: each for name, each in before.items() if name not in unchanged
    }
    assert [after[name][1] for name in unchanged] == [before[name][1] for name in unchanged]
    assert (head.calls("aws"), len(head.calls("fake-uv"))) == (fetched, made), "nothing was fetched or installed again"


def test_killed_in_the_middle_it_is_made_by_the_next_try_and_two_at_once_make_one(head: Head) -> None:
    head.boot()
    hold = head.folder / "hold"
    os.mkfifo(hold)
    maker = head.maker()
    with hold.open() as reached:
        assert reached.readline() == "held\n"
    complete = Path(head.ship.runtime) / "complete"
    assert not complete.exists()
    os.killpg(maker.pid, signal.SIGKILL)
    maker.wait(timeout=30)
    hold.unlink()
    (Path(head.ship.runtime) / "venv" / "bin" / "python3").unlink()  # what a try that was cut short leaves behind
    both = [head.maker(), head.maker()]
    assert [each.wait(timeout=120) for each in both] == [0, 0], head.log
    assert complete.exists()
    assert head.calls("fake-uv").count("pip sync") == 2, "the killed one and one of the two"
    assert head.activated("python3 -c 'import torch, small'").returncode == 0


def test_a_file_that_is_not_the_planned_one_is_not_used(head: Head) -> None:
    for path in (head.folder / "bucket").rglob("trainwright.zip"):
        path.write_bytes(b"something else")
    done = head.boot()
    assert done.returncode != 0
    assert "WARNING: 1 computed checksum did NOT match" in done.stderr
    assert not Path(head.ship.code).exists()


def test_a_job_says_why_it_has_no_runtime(head: Head) -> None:
    head.boot(wait=0)
    (Path(head.ship.runtime) / "log").write_text("error: no route to the package index\n")
    done = head.activated("echo went on")
    assert (done.returncode, done.stdout) == (1, "")
    assert "the head node has not finished" in done.stderr
    assert "no route to the package index" in done.stderr


PLANNED = """\
name: planned
platform: parallelcluster
region: us-east-2
queues: [{{name: train, instance: c5.large, count: 1}}]
storage: [{{mount: {mount}, efs: {{}}}}]
jobs:
  - {{name: small, recipe: cpu-ddp, nodes: 1, processes: 1, data: "builtin:stdlib", steps: 3, requeue: false}}
"""


@pytest.mark.slow
@pytest.mark.slurm
def test_the_job_of_a_plan_trains_on_slurm_with_nothing_done_by_hand(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan's own files: its boot script makes the runtime, its job script goes to a real Slurm as it stands."""
    if missing_programs() or os.geteuid() != 0:
        pytest.skip("needs Slurm and root")
    for module in (jobs_runtime, plan_runtime):
        monkeypatch.setattr(module, "runtime_pins", lambda: head.ship.pins)
    plan = make_plan(load_text(PLANNED.format(mount=head.folder / "fsx"), "spec"))
    head.ship = shipment(Setting(plan.spec))
    for name, key in head.ship.keys.items():
        (head.folder / "bucket" / key).parent.mkdir(parents=True, exist_ok=True)
        (head.folder / "bucket" / key).write_bytes(plan.content(name))
    booted = head.boot()
    assert booted.returncode == 0, booted.stderr
    head.make()
    script = head.folder / "small.sbatch"
    script.write_text(plan.files["jobs/small.sbatch"])
    assert f"source {head.ship.runtime}/bin/activate" in script.read_text()
    monkeypatch.setenv("TRAINWRIGHT_HOME", tempfile.mkdtemp(prefix="twr"))
    record = life.up(LocalCluster("planned", (LocalQueue("train", 1, cpus=1),)), own_network=False)
    try:
        done = subprocess.run(
            ["sbatch", "--wait", str(script)], env={**head.environment, "SLURM_CONF": str(record.conf)},
            capture_output=True, text=True, timeout=250,
        )  # fmt: skip
        run = Path(head.ship.root) / "runs" / "small"
        logs = "\n".join(path.read_text() for path in [run / "job.log", *run.glob("logs/*")])
        assert done.returncode == 0, done.stderr + logs
        assert json.loads((run / "result.json").read_text())["step"] == 3
    finally:
        life.down("planned")
        shutil.rmtree(os.environ["TRAINWRIGHT_HOME"])
