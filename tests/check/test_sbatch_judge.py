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
    "#SBATCH --nodes=${NODES}", "#SBATCH --gres=$GRES x", "#SBATCH --nodes=2\r", "#SBATCH --job-name=my job",
    "#SBATCH --mail-type=BEGIN, END", "#SBATCH --time=10:00:00 ten hours",
    "#SBATCH -N 1\n#SBATCH nodes=2\n#SBATCH -n 2", "#SBATCH --requeue foo",
    "#SBATCH --exclusive user", '#SBATCH --job-name="abc', "#SBATCH --comment=it's",
    "#SBATCH -N 1 -n 2 x", "#SBATCH --mem=8 GB", "#SBATCH -gres=gpu:1", "#SBATCH -job-name=x", "#SBATCH -mem=8G",
    "#SBATCH --job-name = x", "#SBATCH --account= x", "#SBATCH --time=90min",
]  # fmt: skip
TAKEN = [
    "-N1 -n4 -c8 -t10 -Jx", "--exclusive", "--nodes=1 \\", '--job-name="my job" --comment=\'a b\' # x', "# --nodes=2",
    "--requeue --hold", "hetjob", "packjob # x",
    "--nodes 1 # x y", "--comment=a=b", "--nodes=1# two", "--mem=8GB", "--export ALL",
]  # fmt: skip


@pytest.mark.parametrize("line", REFUSED)
def test_what_is_called_refused_is_refused(line: str, configuration: Path, tmp_path: Path) -> None:
    script = tmp_path / "job.sbatch"
    script.write_bytes(f"#!/bin/bash\n{line}\nsrun hostname\n".encode())
    assert of_sbatch(script, configuration) is None
    assert check([str(script)], Selection(select=("SLU006",))).findings


@pytest.mark.parametrize("directive", TAKEN)
def test_what_sbatch_takes_is_not_reported(directive: str, configuration: Path, tmp_path: Path) -> None:
    script = tmp_path / "job.sbatch"
    script.write_text(f"#!/bin/bash\n#SBATCH {directive}\n#SBATCH --comment=x\nsrun hostname\n")
    assert of_sbatch(script, configuration) is not None
    assert not [f for f in check([str(script)], Selection(select=("SLU006",))).findings if f.level != "info"]


@pytest.mark.parametrize("line", ["  #SBATCH --job-name=lost", "#SBTACH --job-name=lost", "#Sbatch --job-name=lost"])
def test_lines_that_slurm_takes_for_comments(line: str, configuration: Path, tmp_path: Path) -> None:
    script = tmp_path / "job.sbatch"
    script.write_text(f"#!/bin/bash\n{line}\n  # indented\n#SBATCH --comment=kept\nsrun hostname\n")
    taken = of_sbatch(script, configuration)
    assert taken is not None
    assert (taken.get("job-name"), taken.get("comment")) == (None, "kept")
    assert [f.span.line for f in check([str(script)], Selection(select=("SLU006", "SHL001"))).findings] == [2]


OPTIONS_REFUSED = [
    "--gpu=1", "--cpus=4", "--node=2", "--ntask=4", "--mem-per=1G", "--mail=ALL", "--gre=gpu:1", "--par=one",
    "--walltime=10:00:00", "--queue=one", "--name=x", "--email=a@example.com", "--ntasks_per_node=2",
    "--cpu-bind=cores", "--mpi=pmix", "--label", "--kill-on-bad-exit=1", "--unbuffered", "--multi-prog", "--overlap",
    "--exact", "--het-group=0", "--pty", "--task-epilog=x", "--task-prolog=x", "--accel-bind=g", "--preserve-env",
]  # fmt: skip
OPTIONS_TAKEN = ["--out=x", "--job=x", "--tasks=4", "--part=one", "--cluster=x", "--ntasks=4", "--gpus=1", "--mem=1G"]


@pytest.mark.parametrize("option", [*OPTIONS_REFUSED, *OPTIONS_TAKEN])
def test_names_are_refused_as_sbatch_refuses_them(option: str, configuration: Path, tmp_path: Path) -> None:
    """It takes the beginning of a name, where no other option begins so."""
    script = tmp_path / "job.sbatch"
    script.write_text(f"#!/bin/bash\n#SBATCH {option}\nsrun hostname\n")
    reported = check([str(script)], Selection(select=("JOB013",))).findings
    assert bool(reported) == (of_sbatch(script, configuration) is None) == (option in OPTIONS_REFUSED)


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
