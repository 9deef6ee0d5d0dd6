"""SLU006 near its trigger: scripts that a program fills in, counts that a step gives, statuses that count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reported import loud, shown

from trainwright.check.engine import Selection, check
from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
LITERAL = "use a literal path of a directory that exists; %x, %j and %u are the job and the user"
HEAD = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gres=gpu:4\n"
TRAIN = "srun python train.py\n"


@pytest.mark.parametrize(
    ("files", "comment", "expected"),
    [
        ({}, "", ["warning SLU006 5"]),
        ({}, "# envsubst < a.sbatch | sbatch", []),
        ({"submit.py": "Template(open('a.sbatch').read()).substitute(a=1)\nrun(['sbatch'])\n"}, "", []),
        ({"run.sh": "sed 's/$ACCOUNT/x/' a.sbatch | sbatch\n"}, "", []),
        ({"run.sh": "sbatch a.sbatch\n"}, "", ["warning SLU006 5"]),
    ],
)
def test_a_program_may_fill_the_variables_in(
    tmp_path: Path, files: dict[str, str], comment: str, expected: list[str]
) -> None:
    for name, text in {**files, "a.sbatch": f"{HEAD}{comment}\n#SBATCH --account=$ACCOUNT\n{TRAIN}"}.items():
        (tmp_path / name).write_text(text)
    assert shown(check([str(tmp_path / "a.sbatch")], Selection(select=("SLU006",))).findings) == expected


def test_many_variables_that_nobody_sets_are_of_a_template(run: Run) -> None:
    lines = "".join(f"#SBATCH --{name}=${name.upper()}\n" for name in ("account", "partition", "qos", "time"))
    assert shown(run("a.sbatch", HEAD + lines + TRAIN, "SLU006")) == ["info SLU006 4"]


@pytest.mark.parametrize(
    ("directive", "message", "fix"),
    [
        (
            "--output=logs/$SLURM_JOB_NAME-${SLURM_JOB_ID}.out",
            "$SLURM_JOB_NAME",
            "write logs/%x-%j.out, where that directory exists",
        ),
        ("--output=$HOME/%j.out", "$HOME", LITERAL),
        (
            "--output=$SLURM_SUBMIT_DIR/logs/%j.out",
            "$SLURM_SUBMIT_DIR",
            "write logs/%j.out, where that directory exists",
        ),
        ("--output=~/logs/%j.out", "~", LITERAL),
        ("--chdir=~/project", "~", "write a literal path, or remove it, and pass it: sbatch --chdir=$HOME/project …"),
        ("--output=`pwd`/%j.out", "`…`", "write %j.out"),
        ("--output=log-$(date +%F).out", "$(…)", LITERAL),
        ("--mail-user=$USER@x.edu", "$USER", "remove it, and pass it: sbatch --mail-user=$USER@x.edu …"),
        ("--time=$LIMIT", "$LIMIT", "remove it, and pass it: sbatch --time=$LIMIT …"),  # refused, given anew or not
        ("--job-name=$1", "$1", "remove it, and give it on the command line: sbatch --job-name=… …"),
        ("--array=1-$(wc -l < list)", "$(…)", "remove it, and give it on the command line: sbatch --array=… …"),
        ("--chdir=$SLURM_SUBMIT_DIR", "$SLURM_SUBMIT_DIR", "remove it: a job starts where sbatch is called"),
        (
            "--job-name=a_$SLURM_ARRAY_TASK_ID",
            "$SLURM_ARRAY_TASK_ID",
            "write a literal value: Slurm sets the variable in the job only",
        ),
    ],
)
def test_what_to_write_for_a_variable(run: Run, directive: str, message: str, fix: str) -> None:
    [finding] = run("a.sbatch", f"{HEAD}#SBATCH {directive}\n{TRAIN}", "SLU006")
    assert (finding.message, finding.fix) == (f"Slurm does not expand {message} in an #SBATCH line", fix)
    assert run("a.sbatch", f"{HEAD}#SBATCH --comment='costs $5'\n{TRAIN}", "SLU006") == []


@pytest.mark.parametrize(
    "lines",
    [
        "srun torchrun --nproc_per_node=${SLURM_GPUS_PER_NODE-4} train.py\n",
        "srun --gpus-per-node=4 bash -c 'torchrun --nproc_per_node=$SLURM_GPUS_PER_NODE train.py'\n",
        "# sbatch --gpus-per-node=4 a.sbatch\nsrun torchrun --nproc_per_node=$SLURM_GPUS_PER_NODE train.py\n",
        'if [ "$SLURM_GPUS" ]; then N=$SLURM_GPUS; else N=4; fi\nsrun torchrun --nproc_per_node=$N train.py\n',
        'N=$SLURM_GPUS_PER_NODE\n[ -z "$N" ] && N=4\nsrun torchrun --nproc_per_node=$N train.py\n',
        "N=$SLURM_GPUS\nsrun torchrun --nproc_per_node=${N:-4} train.py\n",
    ],
)
def test_counts_that_have_another_source(run: Run, lines: str) -> None:
    assert run("a.sbatch", HEAD + lines, "SLU006") == []
    used = HEAD + "N=$SLURM_GPUS\nsrun torchrun --nproc_per_node=$N train.py\n"
    assert shown(run("b.sbatch", used, "SLU006")) == ["warning SLU006 5"]


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        (HEAD + "srun python train.py | tee log\n", "add `set -o pipefail` before it, or"),
        (HEAD.replace("bash", "sh") + "srun python train.py | tee log\n", "begin with #!/bin/bash and add `set -o"),
        (HEAD + "srun nvidia-smi | tee log\n", ""),
        ("#!/bin/bash -e -o pipefail\n#SBATCH -N 1\nsrun python train.py | tee log\n", ""),
    ],
)
def test_the_status_of_a_pipe(run: Run, text: str, fix: str) -> None:
    findings = run("a.sbatch", text, "SLU006")
    assert [one.fix[: len(fix)] for one in findings] == ([fix] if fix else [])


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("sbatch_header.sh", "#SBATCH --nodes=1\nmodule load cuda\n", ["info SLU006 1"]),
        ("a.sh", "#SBATCH --nodes=1\n", ["info SLU006 1"]),
        ("a.sh", "#SBATCH --nodes=1\nsrun python train.py\n", ["warning SLU006 1"]),
        ("a.sh", "# (c) me\n#!/bin/bash\n#SBATCH --nodes=1\nsrun python train.py\n", ["warning SLU006 1"]),
    ],
)
def test_a_part_of_a_script_needs_no_interpreter(run: Run, name: str, text: str, expected: list[str]) -> None:
    assert shown(run(name, text, "SLU006")) == expected


def test_placeholders_are_no_extra_words(run: Run) -> None:
    lines = "#SBATCH -A <your account here>\n#SBATCH --time={time} {extra}\n#SBATCH -p ... or ...\n"
    assert loud(run("a.sbatch", HEAD + lines + TRAIN, "SLU006")) == []


def test_the_fix_of_dos_line_breaks_names_the_kind_of_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_bytes(HEAD.replace("\n", "\r\n").encode())
    [finding] = check([str(tmp_path / "a.sh")], Selection(select=("SLU006",))).findings
    assert "`*.sh text eol=lf`" in finding.fix


def test_a_part_of_slurm_conf_is_not_asked_for_the_rest(run: Run) -> None:
    """slurmctld stops without a ClusterName: another file includes this one, or it is an excerpt."""
    node = "NodeName=node1 CPUs=8 Gres=gpu:1\n"
    assert run("slurm.conf", node, "SLU004") == []
    assert [f.code for f in run("slurm.conf", f"ClusterName=a\nPartitionName=p\n{node}", "SLU004")] == ["SLU004"]


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ({}, ["error SLU004 2"]),
        ({"setup.yml": "- lineinfile: {path: slurm.conf, line: partitionname=a Nodes=ALL}\n"}, []),
        ({"start.sh": "echo PartitionName=gpu Nodes=ALL >> slurm.conf\n"}, []),
    ],
)
def test_nodes_without_a_partition(run: Run, tmp_path: Path, others: dict[str, str], expected: list[str]) -> None:
    for name, text in others.items():
        (tmp_path / name).write_text(text)
    assert shown(run("slurm.conf", "ClusterName=a\nNodeName=node1 CPUs=8\n", "SLU004")) == expected


@pytest.mark.parametrize(
    ("cpus", "memory", "count"), [(2, 16309460, 1), (8, 32000000, 1), (448, 24000000, 0), (2, 15900, 0)]
)
def test_memory_in_kilobytes(run: Run, cpus: int, memory: int, count: int) -> None:
    text = f"ClusterName=a\nNodeName=node1 CPUs={cpus} RealMemory={memory}\nPartitionName=p Nodes=ALL\n"
    findings = run("slurm.conf", text, "SLU005")
    assert ["looks like kB" in finding.message for finding in findings] == [True] * count
