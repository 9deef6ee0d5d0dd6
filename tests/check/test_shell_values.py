"""What a variable holds where a launcher reads it: whatever may have changed it since leaves it open. Each way to set a
variable was tried in bash."""

from __future__ import annotations

import pytest
from reported import loud, shown

HEAD = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4
HEAD=$(scontrol show hostnames | head -n1)
"""
START = "srun torchrun --nnodes=$N --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py\n"


def rendezvous(run, lines: str, start: str = START) -> list[str]:  # type: ignore[no-untyped-def]
    return loud(run("a.sbatch", f"{HEAD}{lines}\n{start}", "JOB"))


@pytest.mark.parametrize(
    "lines",
    [
        "N=1\nlet N=N+1", 'N=1\nlet "N += 1"', "N=1\n((N=2))", "N=1\n(( N++ ))", "N=1\n(( ++N ))", "N=1\n((N += 1))",
        "N=1\n(( N++ ))\n(( M++ ))", "N=1\nif (( N < 2 )); then (( N++ )); fi", "N=1\nif ((1)); then\n  ((N=2))\nfi",
        "N=1\nwhile (( N < 2 )); do (( N++ )); done", "N=1\nfor ((N=2; N<2; N++)); do :; done", "N=1\nprintf -v N 2",
        "N=1\neval N=2", 'N=1\neval "N=2"', 'N=1\nfor a in "$@"; do eval "$a"; done', "N=1\nsource sizes.sh",
        "N=1\n. ./sizes.sh", 'N=1\nput() { eval "$1=2"; }\nput N', "N=1\nput() { local -n r=$1; r=2; }\nput N",
        "one() { N=1; }\nN=2\n[ -n \"$DEBUG\" ] && one", "one() { N=2; }\nN=1\none",
        "N=2\ntrue || N=1", 'N=2\n[ -n "$DEBUG" ] && N=1', 'N=2\n[[ $DEBUG ]] && N=1', 'N=2\n[ -n "$A" ] && export N=1',
        'N=2\n(( $# )) && N=1', "N=2\ngrep -q a f && N=1", "N=2\nnvidia-smi -L | grep -q H100 && N=1",
        "N=2\ncommand -v nvcc && N=1", "declare -i N=1+1", "N=$(( ${NODES:-1} * 1 ))", "M=${1:-1}\nN=$((M * 1))",
    ],
)  # fmt: skip
def test_what_may_have_changed_is_not_known(run, lines: str) -> None:  # type: ignore[no-untyped-def]
    assert rendezvous(run, lines) == []


@pytest.mark.parametrize(
    "lines",
    [
        "N=1", "N=2\nN=1", "N=1\n(( M++ ))", "N=1\nlet M=2", "N=1\n(( N == 1 ))", "N=1\nprintf 'N=2'",
        "N=1\nsource venv/bin/activate", "N=1\nsource /opt/conda/etc/profile.d/conda.sh", "N=1\n. ~/.bashrc",
        "N=1\nshow() { echo $1; }\necho N", "N=1\nexport N", "N=1\n[ -f a ] && M=2",
    ],
)  # fmt: skip
def test_what_nothing_changes_is_known(run, lines: str) -> None:  # type: ignore[no-untyped-def]
    assert [one.split()[:2] for one in rendezvous(run, lines)] == [["error", "JOB009"]]


@pytest.mark.parametrize("lines", ["N=${1:-1}", ': "${N:=1}"', "M=${1:-1}\nN=$M", "N=$(( ${1:-1} ))", "N=1\nunset N"])
def test_a_default_stays_one_inside_another_shell(run, lines: str) -> None:  # type: ignore[no-untyped-def]
    options = "--nnodes=$N --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500"
    assert rendezvous(run, lines, f'srun bash -c "torchrun {options} train.py"\n') == []
    assert rendezvous(run, "N=1", f'srun bash -c "torchrun {options} train.py"\n') != []


@pytest.mark.parametrize("inside", ["${ARGS[*]}", "${ARGS[@]}"])
@pytest.mark.parametrize("array", ["ARGS=(--nnodes 2)", "ARGS=()\nARGS+=(--nnodes 2)", "ARGS=(\n  --nnodes 2 # two\n)"])
def test_elements_of_an_array_in_a_text_are_words(run, array: str, inside: str) -> None:  # type: ignore[no-untyped-def]
    command = f"torchrun {inside} --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py"
    for start in (f'CMD="{command}"\nsrun $CMD\n', f'srun bash -c "{command}"\n', f"srun {command}\n"):
        assert rendezvous(run, array, start) == []
    wrong = f'CMD="{command}"\nsrun $CMD\n'
    problems = rendezvous(run, array.replace("2", "3", 1), wrong)
    assert [one.split()[:2] for one in problems] == [["error", "JOB009"]]


def test_the_tasks_of_a_node_are_no_request_for_gpus(run) -> None:  # type: ignore[no-untyped-def]
    text = "#!/bin/bash\n#SBATCH --ntasks-per-node={} --gpus-per-node=4\n"
    text += "torchrun --nproc_per_node=$SLURM_NTASKS_PER_NODE a.py\n"
    assert "requested here" not in str([f.message for f in run("a.sbatch", text.format(2), "JOB001")])
    assert shown(run("b.sbatch", text.format(8), "JOB001")) == ["error JOB001 2"]


MEET = "--nnodes $SLURM_NNODES --rdzv_backend c10d --rdzv_endpoint $HEAD:29500"


@pytest.mark.parametrize(
    "lines",
    [
        f"ARGS=(--nproc_per_node 4)\nif [ $SLURM_NNODES -gt 1 ]; then ARGS+=({MEET}); fi",
        f'ARGS="--nproc_per_node 4"\nif [ $SLURM_NNODES -gt 1 ]; then ARGS+=" {MEET}"; fi',
        f"ARGS=(--nproc_per_node 4)\n[ $SLURM_NNODES -gt 1 ] && ARGS+=({MEET})",
    ],
)
def test_options_that_a_branch_adds_are_not_missing(run, lines: str) -> None:  # type: ignore[no-untyped-def]
    start = 'srun torchrun "${ARGS[@]}" train.py\n' if "(-" in lines else "srun torchrun $ARGS train.py\n"
    assert rendezvous(run, lines, start) == []
    other = lines.replace(MEET, "--tee 3")
    assert [one.split()[:2] for one in rendezvous(run, other, start)] in ([["warning", "JOB009"]], [])
    plain = "ARGS=(--nproc_per_node 4)\n" if "(-" in lines else 'ARGS="--nproc_per_node 4"\n'
    assert [one.split()[:2] for one in rendezvous(run, plain, start)] == [["warning", "JOB009"]]


def test_what_follows_a_switch_is_not_its_value(run) -> None:  # type: ignore[no-untyped-def]
    """`--no-python` takes no value: the variable behind it may hold more options."""
    start = (
        "srun torchrun --nproc_per_node 4 --rdzv_endpoint $HEAD:29500 --rdzv_backend c10d --no-python {} ./train.py\n"
    )
    assert rendezvous(run, "date", start.format("$MORE")) == []
    assert [one.split()[:2] for one in rendezvous(run, "date", start.format(""))] == [["error", "JOB009"]]
