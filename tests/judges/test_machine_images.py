"""Machine images under their judges: `packer validate`, ansible-lint's production profile, ParallelCluster's own
validation of the build-image configuration; and the roles applied for real, twice."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from judges.pcluster import validate_text
from trainwright.catalog.tables import shipped_toml
from trainwright.catalog.versions import version_set, version_sets
from trainwright.check.engine import check
from trainwright.images.machine import Machine, machine_files

pytestmark = pytest.mark.judge
ROOT = Path(__file__).parents[2]
BASES = {name: row for name, row in shipped_toml("machine_bases.toml").items() if isinstance(row, dict)}
PARENT = "ami-0123456789abcdef0"  # one that the stand-in of AWS has


def every_machine() -> Iterator[Machine]:
    for base, row in BASES.items():
        for system in row["os"]:
            yield Machine(base, system, version_set())
    for name in version_sets():
        yield Machine("parallelcluster", "ubuntu2204", version_set(name), "us-east-1", PARENT, "s3://my-bucket/images")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folders = []
    for image in every_machine():
        folder = tmp_path_factory.mktemp("machine")
        for name, text in machine_files(image).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        folders.append(folder)
    return folders


def test_shellcheck_and_check_find_nothing(written: list[Path]) -> None:
    scripts = [str(path) for folder in written for path in folder.glob("*.sh")]
    program = Path(sys.executable).parent / "shellcheck"
    done = subprocess.run([program, *scripts], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert [str(finding) for finding in check([str(folder) for folder in written]).findings] == []


def test_packer_accepts_every_template(written: list[Path], ansible_bin: Path) -> None:
    if shutil.which("packer") is None:
        say = pytest.fail if os.environ.get("CI") else pytest.skip
        say("packer is not installed (Debian: packer)")
    env = {**os.environ, "PATH": f"{ansible_bin}:{os.environ['PATH']}", "CHECKPOINT_DISABLE": "1"}
    for folder in [written[0], written[-1], *(written[at] for at in (3, 6, 7))]:  # one per base; the rest is words
        command = ["packer", "validate", "image.pkr.hcl"]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    broken = written[0] / "broken.pkr.hcl"
    broken.write_text((written[0] / "image.pkr.hcl").read_text().replace("ami_name ", "ami_nmae "))
    done = subprocess.run(
        ["packer", "validate", broken.name], cwd=written[0], env=env, capture_output=True, check=False
    )
    assert done.returncode != 0  # the judge can object


def test_parallelcluster_accepts_the_build_image_configuration(written: list[Path], pcluster_bin: Path) -> None:
    config = (written[-3] / "build-image.yaml").read_text()  # of the default set, on the stand-in's image
    assert PARENT in config
    messages = validate_text(config, "training-image")
    assert [m for m in messages if m.level in ("ERROR", "WARNING") and "S3" not in m.validator_type] == []
    [wrong, *_] = validate_text(config.replace("LustreClient", "LusterClient"), "training-image")
    assert "LusterClient" in wrong.text
    small = validate_text(config.replace("Size: 100", "Size: 1"), "training-image")
    assert any(message.level == "ERROR" for message in small)


@pytest.mark.slow
def test_ansible_lint_finds_nothing_in_its_strictest_profile(written: list[Path], ansible_bin: Path) -> None:
    command = [str(ansible_bin / "ansible-lint"), "--offline", "--nocolor", "--profile", "production", "."]
    env = {**os.environ, "PATH": f"{ansible_bin}:{os.environ['PATH']}", "ANSIBLE_HOME": str(written[0] / ".ansible")}
    done = subprocess.run(command, cwd=written[0] / "ansible", env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Passed: 0 failure\(s\), 0 warning\(s\) in \d\d files", done.stdout + done.stderr)


@pytest.mark.slow
def test_roles_change_a_system_once(written: list[Path], ansible_bin: Path) -> None:
    """On a copy of this machine's system, in a mount namespace of its own."""
    if os.geteuid() != 0 or shutil.which("unshare") is None or not Path("/etc/debian_version").is_file():
        pytest.skip("needs root on Debian or Ubuntu")
    before = Path("/etc/machine-id").read_bytes() if Path("/etc/machine-id").exists() else None
    command = [str(ROOT / "tools" / "apply_roles.sh"), str(ansible_bin), str(written[0])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "wrong fs type" in done.stderr or "mount failed" in done.stderr:
        pytest.skip(f"no overlay of this machine's system: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    first, second = re.findall(r"ok=(\d+)\s+changed=(\d+)\s+unreachable=0\s+failed=0", done.stdout)
    assert int(first[1]) >= 5
    assert second == (first[0], "0")
    placed = done.stdout.partition("== what is there")[2]
    assert placed.count("\n") == 5, placed  # limits, kernel parameters, version set, enroot
    assert not Path("/etc/trainwright-version-set.json").exists()
    assert (Path("/etc/machine-id").read_bytes() if before is not None else None) == before
