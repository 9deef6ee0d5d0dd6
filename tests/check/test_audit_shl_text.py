"""SHL001 on text that only looks like a mistake, and its statements about real ones. bash judges where it can."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from reported import loud, shown

from trainwright.check.engine import Selection, check
from trainwright.check.finding import Finding
from trainwright.check.fixes import apply_edits

Run = Callable[..., list[Finding]]
HEAD = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gres=gpu:4\n"
TRAIN = "srun python train.py\n"


@pytest.mark.parametrize(
    "text",
    [
        "#!/usr/bin/env python3\n#SBATCH -N 1\nlr = 3\nname= \"a\"\nprint(f'{lr}}')\n",
        "#!/usr/bin/env Rscript\n#SBATCH -N 1\nlr = 3\nn <- 4\n",
        "#!/usr/bin/env julia\n#SBATCH -N 1\nlr = 3\n",
        "#!/bin/csh\n#SBATCH -N 1\nset x = 3\n@ n = 1\nsetenv A 3\nsrun python train.py >& log\n",
        "#!/usr/bin/fish\n#SBATCH -N 1\nset -x A 3\nsrun python train.py\n",
    ],
)
def test_a_script_of_another_language_is_not_read_as_shell(run: Run, text: str) -> None:
    assert run("a.sbatch", text, "SHL001") == []
    late = text.replace("#SBATCH -N 1\n", "") + "#SBATCH -N 1\n"
    assert loud(run("b.sbatch", late.replace("\n", "\n#SBATCH -N 2\n", 1), "SHL001")) == []


@pytest.mark.parametrize("line", [
    "python - <<EOF\nlr= 3\nname= \"x\"\nexport A 3\nlr = 3\nEOF",
    "cat > .env <<'EOF'\nLR= \"3\"\nexport HF_HOME /data\nEOF",
    "python -c '\nlr= 3\nname= \"x\"\n'",
    'json="{"\njson+="\\"a\\": ${A},"\njson+="\\"b\\": ${B}}"\npython train.py --cfg "$json"',
    'echo "{" > ds.json\necho "\\"a\\": ${BS}}" >> ds.json',
    "printf '{\"a\": ' > x\nprintf '%s' \"${BS}}\" >> x",
    'echo "usage: train.sh \\ \n  --lr LR"',
    'CMD="torchrun train.py \\ \n  --lr 3"\neval $CMD',
    'ARGS=(\n  --a 1 \\\n  # --b 2\n  --c 3\n)\npython train.py "${ARGS[@]}"',
    "python train.py --lr 1\n--lr is the learning rate of the model",
    "python server.py &\n--not an option of it",
    "[[ 2>1 ]] && date",
    'NAME=""\nif test "$NAME" = a; then date; fi',
    "export {{ env }}\nexport RUN_ID={{ run_id }}\n{{ name }} = 3",
    "HOST=a\nHOSTS[$SLURM_PROCID]=b\npython train.py $HOST ${HOSTS[0]}",
])  # fmt: skip
def test_text_that_is_no_mistake_of_the_shell(run: Run, line: str) -> None:
    assert run("a.sbatch", f"{HEAD}{line}\n{TRAIN}", "SHL001") == []


LOST = [
    "export A /x", "export A 3", "export A = 3", "export A = b", "export A= 3", "export A= /x/y", "A= 3", "A= 1e-4",
    'A= "x"', "A= /no/such", "export A=--lr 3 --wd 4", "readonly A 3", "declare -x A 3", "export A= 'x y'", "A = 3",
    "A =3", "export A=\\\n  1",
]  # fmt: skip
KEPT = [
    "export A B", "export A", "declare -a B", "declare -A m=([a]=1)", "export A=1 B=2", "A= true", "A= date",
    'export A="1 2"', "export A=1 # c", "declare -i n=3", 'A= "$@"', 'A= "${X[@]}"', "A= $CMD", "export A+=b",
    "IFS= read -r line < /dev/null || true", "export A=a\\ b", "export A=${B:-1 2}", "export A=1 \\\n  B=2",
]  # fmt: skip


@pytest.mark.parametrize("line", [*LOST, *KEPT])
def test_values_that_do_not_reach_their_variable(run: Run, line: str) -> None:
    said = run("a.sbatch", f"{HEAD}{line}\nsrun python train.py $A\n", "SHL001")
    answer = subprocess.run(["bash", "-c", f"CMD=true; X=(true); set -- true; {line}"], capture_output=True, text=True)
    refused = re.search("not a valid identifier|not found|No such file", answer.stderr)
    assert bool(loud(said)) == (refused is not None) == (line in LOST), answer.stderr
    for one in said:
        assert "identifier" not in answer.stderr or "refuses `" in one.message


def test_quotes_with_escapes_end_where_bash_ends_them(run: Run) -> None:
    text = HEAD + "echo $'it\\'s' $\"one\"\nA = 3\n" + TRAIN
    assert shown(run("a.sbatch", text, "SHL001")) == ["warning SHL001 5"]


@pytest.mark.parametrize("line", ["export A=<slurm partition, for -p>", "A=<path 3>", "export A=<name> # yours"])
def test_a_value_that_is_to_be_filled_in_has_no_blank_too_many(run: Run, line: str) -> None:
    assert run("a.sh", f"#!/bin/bash\n{line}\ntorchrun train.py $A\n", "SHL001") == []


def test_what_export_refuses_is_named(run: Run) -> None:
    says = {line: run("a.sh", f"#!/bin/bash\n{line}\ntorchrun train.py $A\n", "SHL001")[0].message for line in LOST}
    assert says["export A = b"] == "blanks around `=`: the line does not set A, and export refuses `=` as a name"
    assert says["export A= 3"] == "a blank after `=`: A is empty, and export refuses `3` as a name"
    assert says["A= 3"] == "a blank after `=`: the line does not set A, and the shell runs 3 as a command"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("torchrun --nnodes 1 \\ \n  train.py\n", ["warning SHL001 4"]),
        ("torchrun train.py \\ # why\n  --lr 3\n", ["warning SHL001 4"]),
        ("cp a b\\ \n  --lr 3\n", ["warning SHL001 4"]),
        ("cp a b\\ \ntorchrun train.py\n", []),
        ("torchrun train.py\n  --lr 3\n", ["warning SHL001 5"]),
        ("srun bash -c 'torchrun train.py \\\n  # --a 1\n  --lr 3'\n", ["warning SHL001 5"]),
    ],
)
def test_commands_that_end_early(run: Run, text: str, expected: list[str]) -> None:
    assert shown(run("a.sbatch", HEAD + text, "SHL001")) == expected


def test_a_comment_at_the_end_stands_before_a_backslash(run: Run) -> None:
    [finding] = run("a.sh", "#!/bin/bash\ntorchrun train.py --a 1  # one\n  --lr 3\n", "SHL001")
    assert finding.fix == "end line 2 with a backslash, and move its comment above the command"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#!/bin/bash\n  # my job\n#SBATCH --nodes=1\n", []),  # sbatch skips indented comments
        (HEAD + "set -e\n#SBATCH --nodes=1\n", []),  # says what the top says
        (HEAD + "set -e\n#SBATCH --nodes=2\n", ["warning SHL001 5"]),
        (HEAD + TRAIN + "#!/bin/bash\n#SBATCH --nodes=2\n", []),  # another script
        (HEAD + "set -e\n# for two nodes, use instead\n#SBATCH --nodes=2\n", ["info SHL001 6"]),
        (HEAD + "set -e\n# resources\n#SBATCH --time=1:00:00\n#SBATCH --nodes=1\n", ["warning SHL001 6"]),
    ],
)
def test_directives_that_come_too_late(run: Run, text: str, expected: list[str]) -> None:
    assert shown(run("a.sbatch", text + TRAIN, "SHL001")) == expected


@pytest.mark.parametrize(
    ("command", "makes", "says"),
    [
        ("pip install torch>=2.4 numpy", ["=2.4"], "makes a file named '=2.4', and pip sees no version"),
        ("pip install torch >=2.4", ["=2.4"], "makes a file named '=2.4'"),
        ("pip install x>=1,<2", ["=1,"], "and wants to read one named '2': where there is none, pip is not run"),
        ("uv pip install x>=1", ["=1"], "and uv sees no version"),
        ("conda install x>=1", ["=1"], "and conda sees no version"),
        ("pip install numpy<2", [], "wants to read a file named '2': where there is none, pip is not run"),
        ("pip install -r requirements.txt>2.log", ["2.log"], ""),
        ("pip install 'torch>=2.4'", [], ""),
        ("pip freeze >3", ["3"], ""),
    ],
)
def test_requirements_as_bash_reads_them(run: Run, tmp_path, command: str, makes: list[str], says: str) -> None:  # type: ignore[no-untyped-def]
    place = tmp_path / "place"
    place.mkdir()
    stubs = "".join(f'{name}() {{ echo ran "$@" >&2; }}\n' for name in ("pip", "uv", "conda"))
    answer = subprocess.run(["bash", "-c", stubs + command], cwd=place, capture_output=True, text=True)
    findings = run("Dockerfile", f"FROM pytorch/pytorch:2.4\nRUN {command}\n", "SHL001")
    assert bool(findings) == bool(says)
    assert all(says in one.message for one in findings)
    if makes:
        assert [one.name for one in place.iterdir()] == makes
    if "is not run" in says:
        assert "ran" not in answer.stderr


def test_the_edit_quotes_all_requirements_or_none(run: Run) -> None:
    text = "FROM a:1\nRUN pip install torch>=2.4 \\\n  numpy>=1,<2 \\\n  scipy\nRUN pip install b>=2\n"
    [finding] = run("Dockerfile", text, "SHL001")
    assert finding.edit is not None
    fixed = apply_edits(text, [finding.edit])
    assert "'torch>=2.4'" in fixed
    assert "'numpy>=1,<2'" in fixed
    assert "'b>=2'" in fixed
    [finding] = run("Dockerfile", "FROM a:1\nRUN pip install torch>=2.4 && pip install b>=2&&date\n", "SHL001")
    assert finding.edit is None


@pytest.mark.parametrize(
    ("line", "message", "fix"),
    [
        ("torch==2.1", "torch==2.1 is a requirement of a package, and sets a variable here", "write pip install"),
        ("pip install a\n  flash-attn==2.5", "flash-attn==2.5 is a requirement", "end line 2 with a backslash, or"),
        ("export CUDA_VER==12.1", "the second `=` belongs to the value: CUDA_VER is `=12.1`", "write CUDA_VER=12.1"),
        ("lr==0.1", "the second `=` belongs to the value: lr is `=0.1`", "write lr=0.1"),
    ],
)
def test_two_equals_signs(run: Run, line: str, message: str, fix: str) -> None:
    [finding] = run("a.sh", f"#!/bin/bash\n{line}\ntorchrun train.py $CUDA_VER $lr\n", "SHL001")
    assert finding.message.startswith(message)
    assert finding.fix.startswith(fix)


@pytest.mark.parametrize(
    "lines",
    [
        "WORK_DIR=$WORKDIR/exp\nsrun python train.py $WORK_DIR",
        ": ${DATA_DIRS:?set it}\nDATA_DIR=x\nsrun python train.py $DATA_DIR $DATA_DIRS",
        'DATA_DIR=x\nif [ -z "$DATA_DIRS" ]; then exit 1; fi\nsrun python train.py $DATA_DIR $DATA_DIRS',
        "DATA_DIR=x\nexport DATA_DIRS\nsrun python train.py $DATA_DIR $DATA_DIRS",
        'DATA_DIR=x\neval "$(python args.py)"\nsrun python train.py $DATA_DIR $DATA_DIRS',
        "# needs DATA_DIRS\nDATA_DIR=x\nsrun python train.py $DATA_DIR $DATA_DIRS",
        "MODEL_A=x\nsrun python train.py $MODEL_A $MODEL_B",
        "COUNTER=1\n(( COUNTERS = 3 ))\nsrun python train.py $COUNTER $COUNTERS",
        "SCRATCH_DIR=/x\nsrun python train.py $SCRATCH_DIR $SCRATCHDIR",
    ],
)
def test_variables_of_the_caller(run: Run, lines: str) -> None:
    assert loud(run("a.sbatch", f"{HEAD}{lines}\n", "SHL001")) == []


def test_a_misspelt_variable_and_what_the_shell_does(run: Run) -> None:
    text = "DATASET=pile\nOUT=$DATASEET/out\nsrun python train.py $OUT\n"
    [finding] = run("a.sbatch", HEAD + text, "SHL001")
    assert (finding.level, finding.span.line, finding.span.column) == ("warning", 5, 5)
    assert finding.message == "nothing in the script sets $DATASEET; it sets $DATASET"
    assert "empty text" in finding.why
    [finding] = run("a.sbatch", f"{HEAD}set -euo pipefail\n{text}", "SHL001")
    assert "stops" in finding.why


@pytest.mark.parametrize(
    ("test", "reported"),
    [
        ("[ $SLURM_NNODES > 1 ]", True),
        ('[ "$SLURM_NNODES" >1 ]', True),
        ("[ ${N} < 4 ]", True),
        ("[[ $SLURM_NNODES > 1 ]]", False),
        ("[ $SLURM_NNODES \\> 1 ]", False),
        ("[ $SLURM_NNODES -gt 1 ]", False),
        ("(( $SLURM_NNODES > 1 ))", False),
        ("[ -f $A ] > 1.log", False),
        ("[ -f $A ] 2>/dev/null", False),
    ],
)
def test_a_comparison_that_redirects(run: Run, tmp_path: Path, test: str, reported: bool) -> None:
    """bash itself: the test is true for 0, or fails for the missing file."""
    said = run("a.sbatch", f"{HEAD}if {test}; then echo several; fi\n{TRAIN}", "SHL001")
    assert [one.level for one in said if "redirection" in one.message] == (["warning"] if reported else [])
    script = f"SLURM_NNODES=0 N=0 A=/none; if {test}; then exit 3; fi"
    status = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True).returncode
    assert not (reported and ">" in test) or status == 3


@pytest.mark.parametrize(
    ("caller", "count"),
    [
        ("for m in a b; do sbatch --export=ALL,MODEL=$m job.sbatch; done", 0),
        ("export MODEL\nsbatch --export=MODEL,SEED job.sbatch", 0),
        ("env = {'MODEL': 'a'}\nsubprocess.run(['sbatch', 'job.sbatch'], env=env)", 0),
        ("MODEL=a bash other.sh", 1),
        ("sbatch job.sbatch", 1),
    ],
)
def test_the_caller_may_set_the_variable(tmp_path: Path, caller: str, count: int) -> None:
    (tmp_path / "submit.sh").write_text(f"#!/bin/bash\n{caller}\n")
    (tmp_path / "job.sbatch").write_text(
        "#!/bin/bash\n#SBATCH -N 1\nMODELS=/models\nsrun python train.py $MODELS/$MODEL\n"
    )
    assert len(check([str(tmp_path / "job.sbatch")], Selection(select=("SHL001",))).findings) == count


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("python train.py \u2013-lr 0.1", "write --lr"),
        ("torchrun \u2014nproc_per_node=8 train.py", "write --nproc_per_node"),
        ("srun -\u2013ntasks=4 python train.py", "write --ntasks"),
        ("srun \u2013n 4 python train.py", "write -n"),
        ("echo 'runs 3 \u2013 5'; python train.py --name 'a \u2013 b' \u2014", ""),
        ("python train.py --title \u2013", ""),
    ],
)
def test_a_dash_that_is_no_hyphen(run: Run, line: str, fix: str) -> None:
    assert [f.fix for f in run("a.sbatch", f"{HEAD}{line}\n", "SHL001")] == ([fix] if fix else [])
