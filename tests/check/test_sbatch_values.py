"""Values of #SBATCH options: sbatch, or its controller where only that reads a value, decides which are reported."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_sbatch_judge import CONFIGURATION, of_sbatch
from test_slurmctld_judge import slurmctld

from trainwright.check.engine import Selection, check

pytestmark = pytest.mark.skipif(
    not all(shutil.which(name, path="/usr/sbin:/usr/bin") for name in ("slurmctld", "sbatch")), reason="needs slurmctld"
)
Judge = Callable[[Path], bool]
NODES = "NodeName=a CPUs=8\nPartitionName=p Nodes=a Default=YES\n"
REFUSED_VALUE = ("Invalid job array", "Trackable RESource", "generic resource", "dependency problem")
# Values as people write them (sbatch takes them), and mistakes of the same kind.
COUNTS = ["1", "2", "4", "8", "16", "96", "04", "+4"]
NO_COUNTS = ["0", "-1", "two", "4x", "1.5", "1,000", "4k", "all", "4;", "0x4"]
MEMORY = ["0", "64", "64G", "64g", "64GB", "64gb", "500000M", "1T", "1TB", "4000K", "+8G"]
NO_MEMORY = ["64XB", "64GiB", "1.5G", "-1", "max", "all", "64,000", "64B", "64GG", "64G;", "64gigs", "64_000"]
VALUES: dict[str, tuple[list[str], list[str]]] = {
    "nodes": (["1", "2", "16", "2-4", "1-1", "1k", "02"], ["two", "4-2", "2x", "2.5", "2-4x", "10-9", "max"]),
    **dict.fromkeys(
        ("ntasks", "ntasks-per-node", "cpus-per-task", "cpus-per-gpu", "ntasks-per-gpu", "ntasks-per-socket",
         "ntasks-per-core", "mincpus", "tasks-per-node", "cores-per-socket", "sockets-per-node", "threads-per-core"),
        (COUNTS, NO_COUNTS),
    ),
    **dict.fromkeys(("mem", "mem-per-cpu", "mem-per-gpu", "tmp"), (MEMORY, NO_MEMORY)),
    "time": (
        ["30", "0", "10:00", "1:00:00", "72:00:00", "1-00:00:00", "7-0", "1-12:00", "1-", "UNLIMITED", "infinite"],
        ["1:00:00:00", "1-0:0:0:0", "1.5", "1::00", "30:", "12:00:00PM", "01:00:00.5", "1_00:00:00", "unlimted"],
    ),
    "begin": (
        ["now", "today", "tomorrow", "midnight", "noon", "fika", "teatime", "now+1hour", "now+2days", "now+60",
         "now+30minutes", "16:00", "16:00:30", "2030-01-20T12:34:00", "2030-01-20", "01/20/30", "0120", "now-1hour"],
        ["tomorow", "midnigth", "tomorrrow", "now+1h", "now+2mins", "now+3hrs", "now+1month", "todays"],
    ),
    "signal": (
        ["USR1", "B:USR1@300", "SIGUSR1@90", "10@90", "B:10", "R:USR1@10", "usr1@10", "TERM@60", "B:TERM@", "XCPU",
         "B:SIGTERM@65535", "INT", "HUP@120", "BR:USR1", "b:usr2@5"],
        ["B:USR9@300", "SIGUSR@60", "B:TREM@60", "TERMINATE@60", "USR1@120s", "B:USR1@5:00", "B:USR1@70000", "FOO"],
    ),
    "exclusive": (["user", "mcs", "USER", "exclusive"], ["usr", "yes", "true", "no", "1", "users", "false", "node"]),
    "distribution": (
        ["block", "cyclic", "block:cyclic", "cyclic:block:fcyclic", "block:block,Pack", "*:block", "plane=4",
         "arbitrary", "BLOCK", "block:fcyclic,NoPack", "block:*", "block,pack", "Pack"],
        ["blok", "cyclc", "block:blok", "plane", "plane=x", "plane=0", "block;cyclic", "fcyclic", "blocks",
         "block,packed", "block:block:block:block", "random"],
    ),
    "hint": (
        ["nomultithread", "multithread", "compute_bound", "memory_bound", "compute_bound,nomultithread"],
        ["nomultithreading", "nomultithreads", "compute-bound", "computebound", "multi", "no_multithread"],
    ),
    "mail-type": (
        ["ALL", "END", "BEGIN,END,FAIL", "END,FIAL", "none", "begin", "TIME_LIMIT_90", "ARRAY_TASKS", "REQUEUE", "END,",
         "INVALID_DEPEND", "STAGE_OUT", "TIME_LIMIT"],
        ["FIAL", "ALWAYS", "abe", "END|FAIL", "END;FAIL", "ERROR", "FAILED", "START", "END:FAIL"],
    ),
    "open-mode": (["append", "truncate", "add", "a", "t"], ["overwrite", "w", "write"]),
    "kill-on-invalid-dep": (["yes", "no", "YES"], ["true", "1", "on"]),
    **{
        name: ([], ["1", "yes", "true"])
        for name in (
            "requeue", "no-requeue", "hold", "wait", "parsable", "contiguous", "overcommit", "spread-job",
            "use-min-nodes", "reboot", "ignore-pbs", "test-only", "oversubscribe",
        )
    },
}  # fmt: skip
VALUES["time-min"], VALUES["deadline"] = VALUES["time"], VALUES["begin"]
OF_CONTROLLER: dict[str, tuple[list[str], list[str]]] = {
    "array": (
        ["5", "1-3", "0-15:4", "1,3,5", "1-3,7-9%2", "0-10%", "0-10%2", "[1-3]", "[1-3]%2", "1,,3", "3-3", "01-03"],
        ["3-1", "1-3,6-5", "0-7:0", "1:4", "1-", "1..3", "1-3-5", "1--3", "1-3;5", "1.5"],
    ),
    "gpus": (["8", "0", "16"], ["1.5", "0.5"]),
    "gres": (["gpu:8", "gpu", "gpu:2k"], ["gpu:1.5", "gpu:0.5"]),
    "dependency": (
        ["singleton", "afterok:12", "afterany:12:13", "12", "after:12", "AFTEROK:12", "afterok:1,afterany:2"],
        ["singelton", "afterokk:12", "after_ok:12", "afterany_:12", "aftrany:12"],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Judge:
    """Whether sbatch refuses a script before it asks a controller."""
    path = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    path.write_text(CONFIGURATION)
    return lambda script: of_sbatch(script, path) is None


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Whether a controller refuses the value; its nodes do not run, so that it places no job."""
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "gres.conf").write_text("Name=gpu Count=8\n")
    text = "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nGresTypes=gpu\n" + NODES.replace(
        "CPUs=8", "CPUs=8 Gres=gpu:8"
    )
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}

    def refuses(script: Path) -> bool:
        command = ["/usr/bin/sbatch", "--test-only", str(script)]
        said = subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stderr
        return any(words in said for words in REFUSED_VALUE)

    with slurmctld(folder, text) as (log, runs):
        assert runs, log
        yield refuses


def scripts_with(folder: Path, option: str, values: list[str]) -> dict[Path, str]:
    scripts = {folder / f"{number}.sbatch": value for number, value in enumerate(values)}
    for path, value in scripts.items():
        path.write_text(f"#!/bin/bash\n#SBATCH --{option}={value}\nsrun hostname\n")
    return scripts


def reported(folder: Path) -> set[Path]:
    """The scripts with an error of SLU006."""
    findings = check([str(folder)], Selection(select=("SLU006",))).findings
    return {Path(one.file) for one in findings if one.level == "error"}


def changed(rng: random.Random, value: str) -> str:
    """A value with one letter more, less or another: most are refused, and some are not."""
    at, letter = rng.randrange(len(value)), rng.choice("0179:-,x@=.kGbs")
    return rng.choice(
        [value[:at] + letter + value[at:], value[:at] + value[at + 1 :], value[:at] + letter + value[at + 1 :]]
    )


def compare(folder: Path, option: str, values: tuple[list[str], list[str]], refuses: Judge) -> None:
    taken, refused = values
    rng = random.Random(option)
    others = [changed(rng, rng.choice(taken + refused)) for _ in range(200)]
    scripts = scripts_with(folder, option, [*taken, *refused, *others])
    verdicts = {path: refuses(path) for path in scripts}
    reports = reported(folder)
    assert [scripts[path] for path in reports if not verdicts[path]] == []
    known = dict(list(scripts.items())[: len(taken) + len(refused)])
    assert [value for path, value in known.items() if verdicts[path]] == refused
    assert [value for path, value in known.items() if path in reports] == refused


@pytest.mark.parametrize("option", VALUES)
def test_values_are_refused_as_sbatch_refuses_them(option: str, client: Judge, tmp_path: Path) -> None:
    compare(tmp_path, option, VALUES[option], client)


@pytest.mark.parametrize("option", OF_CONTROLLER)
def test_values_are_refused_as_the_controller_refuses_them(option: str, controller: Judge, tmp_path: Path) -> None:
    compare(tmp_path, option, OF_CONTROLLER[option], controller)


TOGETHER = [
    ("--mem=8G", "--mem-per-cpu=2G"), ("--mem-per-gpu=8G", "--mem=0"), ("--mem-per-cpu=1G", "--mem-per-gpu=8G"),
    ("--ntasks-per-gpu=1", "--gpus-per-task=1"), ("--ntasks-per-gpu=1", "--ntasks-per-node=8"),
    ("--core-spec=2", "--thread-spec=2"), ("--exclusive", "--oversubscribe"), ("--mem=8G", "--gpus=8"),
    ("--cpus-per-task=2", "--cpus-per-gpu=2"), ("--gpus=8", "--gpus-per-node=8"), ("--mem=8G", "--mem=16G"),
]  # fmt: skip


@pytest.mark.parametrize("options", TOGETHER)
def test_options_that_exclude_each_other(options: tuple[str, str], client: Judge, tmp_path: Path) -> None:
    script = tmp_path / "job.sbatch"
    script.write_text("#!/bin/bash\n" + "".join(f"#SBATCH {one}\n" for one in options) + "srun hostname\n")
    assert client(script) == (script in reported(tmp_path))


def test_parts_of_a_heterogeneous_job_have_their_own_options(tmp_path: Path) -> None:
    script = tmp_path / "job.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH --mem=8G\n#SBATCH hetjob\n#SBATCH --mem-per-cpu=2G\nsrun hostname\n")
    assert not reported(tmp_path)


@pytest.mark.parametrize(
    "option",
    ["--nodes=N", "--nodes=NUM_NODES", "--time=HH:MM:SS", "--time=xx:xx:xx", "--mem=<memory>", "--nodes={nodes}",
     "--ntasks=%d", "--array=0-N", "--nodes=1,2-8:2", "--exclusive=topo", "--begin=elevenses", "--nodes=__NODES__"],
)  # fmt: skip
def test_placeholders_and_values_of_newer_versions_are_quiet(option: str, tmp_path: Path) -> None:
    script = tmp_path / "job.sbatch"
    script.write_text(f"#!/bin/bash\n#SBATCH {option}\nsrun hostname\n")
    assert not reported(tmp_path)


FIRST_LINES = ["\n", "My training job\n", "# Copyright\n", "bash", "\n\n", " ", "```bash\n", "# It's mine\n"]


@pytest.mark.parametrize(("name", "level"), [("job.sbatch", "error"), ("job.sh", "warning")])
@pytest.mark.parametrize("before", FIRST_LINES)
def test_what_stands_before_the_interpreter(before: str, name: str, level: str, client: Judge, tmp_path: Path) -> None:
    script = tmp_path / name
    script.write_text(f"{before}#!/bin/bash\n# a comment\n\n#SBATCH --nodes=2\nsrun hostname\n")
    assert client(script)
    findings = check([str(script)], Selection(select=("SLU006", "SHL001"))).findings
    assert [(one.code, one.level, one.span.line) for one in findings] == [("SLU006", level, 1)]


@pytest.mark.parametrize(
    "text",
    [
        "cat > x.sbatch <<EOF\n#!/bin/bash\n#SBATCH -N1\nsrun hostname\nEOF\nsbatch x.sbatch\n",
        "SCRIPT='\n#!/bin/bash\n#SBATCH -N1\nsrun hostname\n'\necho \"$SCRIPT\" | sbatch\n",
        "#!/bin/bash\n#!/bin/sh\n#SBATCH -N1\nsrun hostname\n", "#! /bin/bash -l\n#SBATCH -N1\nsrun hostname\n",
        "#!/usr/bin/env python3\n#SBATCH -N1\nprint(1)\n", "sbatch <<EOT\n#!/bin/bash\n#SBATCH -N1\nsrun a\nEOT\n",
    ],
)  # fmt: skip
def test_scripts_that_begin_as_they_must_or_write_others(text: str, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(text)
    assert not reported(tmp_path)


@pytest.mark.parametrize("word", ["sBATCH", "Sbatch", "SBTACH", "SBATH", "SBAATCH", "SBARCH", "SVATCH", "BSATCH"])
def test_misspelt_directives_are_comments(word: str, client: Judge, tmp_path: Path) -> None:
    script = tmp_path / "job.sbatch"
    script.write_text(f"#!/bin/bash\n#{word} --nodes=two\n#SBATCH --comment=x\nsrun hostname\n")
    assert not client(script)
    assert [one.span.line for one in check([str(script)], Selection(select=("SLU006",))).findings] == [2]


@pytest.mark.parametrize(
    "line", ["##SBATCH --mem=8G", "#XSBATCH --mem=8G", "# SBATCH --mem=8G", "#SXATCH --mem=8G", "#NOSBATCH --mem=8G",
             "#SBARCH is short", "#SSBATCH --mem=8G", "#SEARCH --mem"],
)  # fmt: skip
def test_lines_that_are_put_aside(line: str, tmp_path: Path) -> None:
    (tmp_path / "job.sbatch").write_text(f"#!/bin/bash\n#SBATCH -N1\n{line}\nsrun hostname\n")
    assert not check([str(tmp_path)], Selection(select=("SLU006",))).findings
