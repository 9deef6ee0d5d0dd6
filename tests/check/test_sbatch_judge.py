"""Directives as the real sbatch reads them: quotes, backslashes, and a `#` that ends the line without a blank."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from trainwright.check.engine import Selection, check
from trainwright.check.model import File
from trainwright.check.readers.recognise import read_file

OPTIONS = {"partition": "-p", "job-name": "-J", "comment": "", "account": "-A", "qos": "-q", "constraint": "-C"}
CONFIGURATION = """ClusterName=judge
SlurmctldHost=localhost
NodeName=localhost CPUs=2
PartitionName=one Nodes=localhost Default=YES
"""


@pytest.fixture(scope="module")
def configuration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("sbatch") is None:
        pytest.skip("needs Debian's slurm-client")
    path = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    path.write_text(CONFIGURATION)
    return path


def of_sbatch(script: Path, configuration: Path) -> dict[str, str] | None:
    """The options that sbatch takes from a script; None where it refuses the script. It says them before it looks for a
    controller, and is ended there."""
    with subprocess.Popen(
        ["sbatch", "-vv", "--test-only", str(script)],
        env={"SLURM_CONF": str(configuration), "PATH": "/usr/bin:/bin"},
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        options = {}
        for line in process.stderr:
            name, colon, value = line.removeprefix("sbatch: ").partition(" : ")
            if "end of defined options" in line:
                process.kill()
                return options
            if colon and name.strip() in OPTIONS:
                options[name.strip()] = value.removesuffix("\n")
    return None


REFUSED = [
    "#SBATCH --nodes = 2", "#SBATCH --nodes= 2", "#SBATCH -ntasks-per-node=1", "#SBATCH --time=12h",
    "#SBATCH --time=2days", "#SBATCH --mem=$MEMORY",
    "#SBATCH --nodes=${NODES}", "#SBATCH --gres=$GRES x", "#SBATCH --nodes=2\r",
]  # fmt: skip


@pytest.mark.parametrize("line", REFUSED)
def test_what_is_called_refused_is_refused(line: str, configuration: Path, tmp_path: Path) -> None:
    script = tmp_path / "job.sbatch"
    script.write_bytes(f"#!/bin/bash\n{line}\nsrun hostname\n".encode())
    assert of_sbatch(script, configuration) is None
    assert check([str(script)], Selection(select=("SLU006",))).findings


def of_check(script: Path) -> dict[str, str]:
    file = read_file(str(script), script.read_text())
    assert isinstance(file, File)
    return {name: value.value for name, value in file.scripts[0].directives if name in OPTIONS and value.value}


def some_value(rng: random.Random) -> str:
    pieces = ["a100", "b", "x:y", "%j", "{1}", '"c d"', "'e#f'", '"[g#h]"', "\\#", "#i", "=", "-k"]
    return rng.choice(["a", "b", "7", '"l m"']) + "".join(rng.choices(pieces, k=rng.randrange(3)))


def some_directives(rng: random.Random) -> str:
    lines = []
    for option in rng.sample(sorted(OPTIONS), k=rng.randrange(1, 4)):
        short = OPTIONS[option]
        written = rng.choice([f"--{option}=", f"--{option} ", *([f"{short} ", short] if short else [])])
        lines.append(f"#SBATCH {written}{some_value(rng)}{rng.choice(['', ' # why', ' #why', '   '])}")
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(40))
def test_directives_are_read_as_sbatch_reads_them(seed: int, configuration: Path, tmp_path: Path) -> None:
    script = tmp_path / "job.sbatch"
    script.write_text(f"#!/bin/bash\n{some_directives(random.Random(seed))}\nsrun hostname\n")
    taken = of_sbatch(script, configuration)
    assert taken is not None, script.read_text()
    assert of_check(script) == taken, script.read_text()
