"""Fixes of shell scripts that a reader follows to the letter: they say all that is to be done about a word, line or
command, and of a script that bash refused, bash and `check` accept the corrected text that stands beside the fix."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.check.causes import merge_causes
from trainwright.check.engine import Selection, check
from trainwright.check.finding import Finding
from trainwright.check.fixes import fix_files

Run = Callable[..., list[Finding]]
START = "torchrun --nproc_per_node=4 t.py"
AROUND = "around the parentheses and what is between them"


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("export A =4", "write A=4 without a blank"),
        ("export A =$((8/2))", "write A=$((8/2)) without a blank"),
        ("export A = 4", "write A=4 without a blank"),
        ("export CUDA_VISIBLE_DEVICES=0, 1", "remove the blanks from the value"),
        ("export PYTHONPATH=$PYTHONPATH: /data/lib", "remove the blanks from the value"),
        ("export LD_LIBRARY_PATH=/usr/lib :$LD_LIBRARY_PATH", "remove the blanks from the value"),
        ("export ARGS=--lr 0.1", "quote the whole value"),
        ("torchrun –nproc_per_node 4 t.py —lr 0.1 –o a", "write --nproc_per_node, --lr, -o"),
        (
            f"{START} \\\n  --lr 1 \\\n  # --a \\\n  # --b \\\n  --c",
            "move the comments of lines 4 to 5 above",
        ),
        (f"{START} \\\n  --lr 1 \\\n  # --a \\\n  --c", "move the comment above the command"),
        (f"{START} \\\n  --a 1 # a\n  --b 2", "end line 3 with a backslash, and move its comment above the command"),
        (f"{START} \\\n  --a 1\n  --b 2\n  --c 3", "end lines 3 and 4 with a backslash"),
        ("pip install a==1.0 \\\n  b==1.0\n  c==2.0 \\\n  d==2.0", "end line 3 with a backslash, or write pip install"),
    ],
)
def test_one_fix_is_for_all_of_a_command(run: Run, line: str, fix: str) -> None:
    (finding,) = run("run.sh", f"#!/bin/bash\n{line}\n{START}\n", "SHL001")
    assert finding.fix.startswith(fix)


@pytest.mark.parametrize(
    ("shell", "test", "fix"),
    [
        ("bash", "$NODES > 1", "write -gt, or `(( … ))`"),
        ("bash", '"$NODES" > "1"', "write -gt, or `(( … ))`"),
        ("sh", "$NODES > 1", "write -gt"),
        ("sh", "$LOSS < 0.5", 'write `[ "$(echo "$LOSS < 0.5" | bc -l)" -eq 1 ]`'),
    ],
)
def test_a_comparison_is_one_of_the_shell_of_the_script(run: Run, shell: str, test: str, fix: str) -> None:
    (finding,) = run("run.sh", f"#!/bin/{shell}\nif [ {test} ]; then\n  {START}\nfi\n", "SHL001")
    assert finding.fix == fix


@pytest.mark.parametrize(
    ("body", "again"),
    [
        ("set -e\nmkdir logs\n", " and write `mkdir -p` in line 5"),
        ("mkdir logs && cd logs\n", " and write `mkdir -p` in line 4"),
        ("mkdir logs || exit 1\n", " and write `mkdir -p` in line 4"),
        ("mkdir logs\n", ""),
        ("set -e\nmkdir -p logs\n", ""),
        ("set -e\n[ -d logs ] || mkdir logs\n", ""),
        ("set -e\nif [ ! -d logs ]; then\n  mkdir logs\nfi\n", ""),
    ],
)
def test_the_jobs_own_mkdir_does_not_end_it(run: Run, body: str, again: str) -> None:
    text = f"#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --output=logs/%j.out\n{body}srun python t.py\n"
    (finding,) = run("job.sbatch", text, "SHL001")
    assert finding.fix.startswith(f"run `mkdir -p logs`, where you call sbatch, before you submit{again}, or")


@pytest.mark.parametrize(
    ("command", "fix"),
    [
        ("pip install a>=1.0", "quote the requirement"),
        ("echo 'a' && pip install a>=1.0", "quote the requirement"),
        ('bash -c "pip install a>=1.0 && b"', "quote the requirement with ', as it stands between \""),
        ("bash -lc 'pip install a>=1.0 && b'", "quote the requirement with \", as it stands between '"),
        (
            "docker run b bash -c '\n  pip install a>=1.0\n  c\n'",
            "quote the requirement with \", as it stands between '",
        ),
    ],
)
def test_quotes_do_not_end_those_around_them(run: Run, command: str, fix: str) -> None:
    (finding,) = run("run.sh", f"#!/bin/bash\n{command}\n{START}\n", "SHL001")
    assert (finding.fix, finding.edit is None) == (fix, "'" in command or '"' in command)


@pytest.mark.parametrize(
    ("string", "fix"),
    [
        ("srun bash -c '\n{}\n'", "quote the requirement with \", as it stands between '"),
        ("srun bash -c $'\n{}\n'", "quote the requirement with \", as it stands between '"),
        ("srun bash -c 'echo '\"'\"'a'\"'\"'\n{}\n'", "quote the requirement with \", as it stands between '"),
        ('srun bash -c "\n{}\n"', "quote the requirement with ', as it stands between \""),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_requirements_between_other_quotes_are_findings_of_their_own(
    tmp_path: Path, string: str, fix: str, order: int
) -> None:
    path = tmp_path / "run.sh"
    path.write_text("#!/bin/bash\n" + "\n".join(["pip install a>=1.0", string.format("pip install b>=2.0")][::order]))
    result = check([str(path)], Selection(select=("SHL001",)))
    merge_causes(result)
    assert [finding.fix for finding in result.findings] == ["quote the requirement", fix][::order]
    fix_files(result.findings)
    assert "pip install 'a>=1.0'" in path.read_text()
    assert ("pip install b>=2.0" in path.read_text()) == (fix[-1] == "'")


def test_a_comparison_of_decimals_is_a_finding_of_its_own(tmp_path: Path) -> None:
    tests = 'if [ "$LOSS" > 0.5 ]; then\n  a\nfi\nif [ $X > "1" ]; then\n  b\nfi\nif [ $Y > 2 ]; then\n  b\nfi\n'
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{tests}{START}\n")
    result = check([str(tmp_path)], Selection(select=("SHL001",)))
    merge_causes(result)
    assert [finding.span.line for finding in result.findings] == [2, 5]
    assert [place.line for place in result.findings[1].also] == [8]


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("ARGS = --lr 0.1 --bs 32", 'write ARGS="…", with quotes around the value and no blanks beside `=`'),
        ("LR = 0.1", "write name=value without blanks"),
        ("WANDB_MODE = offline python t.py", "write name=value without blanks"),
        ("SEEDS = (1 2 3)", "write name=(…) without the blanks beside `=`"),
        ("export A = --lr 0.1", 'write A="--lr …", with quotes around the whole value and no blanks beside `=`'),
        ("export A= 1 B=2", "write A=1 without a blank"),
        ("export A = 1 B =2", "write A=1 without a blank"),
        ('export A = "x y" B', 'write A="x y" without a blank'),
        ("export A = 1 >/dev/null", "write A=1 without a blank"),
        ("export A = $(date) 2>&1", "write A=$(date) without a blank"),
        ("export A = x y; date", 'write A="x …", with quotes around the whole value and no blanks beside `=`'),
        ("export A = --a \\\n  --b", 'write A="--a …", with quotes around the whole value and no blanks beside `=`'),
        ("export A = --lr $LR", 'write A="--lr …", with quotes around the whole value and no blanks beside `=`'),
        ("ARGS = --config a/b.yaml", 'write ARGS="…", with quotes around the value and no blanks beside `=`'),
        ("ARGS = 1 B = 2", "write name=value without blanks"),
        ('ARGS = "x y" z', "write name=value without blanks"),
        ("OMP_NUM_THREADS = 8 mpiexec python train.py", "write name=value without blanks"),
        ("CUDA_VISIBLE_DEVICES = 0,1 ./run.sh", "write name=value without blanks"),
        ("CUDA_VISIBLE_DEVICES = -1 ./run.sh", "write name=value without blanks"),
        ("OMP_NUM_THREADS = 8 numactl -N 0 python t.py", "write name=value without blanks"),
        ("python t.py | tee log\n  --b 2\n  --c 3", "move the options of lines 3 to 4 to line 2, before the `|`"),
        ("python t.py --a 1 /\n  --b 2", "end line 2 with a backslash, where there is a `/`"),
        ("python t.py \\\n  --a 1 \\ # a\n  --b 2", "remove the comment and the blanks before it"),
        ("pip install torch=>2.0", "write `>=` for `=>`, and quote the requirement"),
        (
            "pip install torch=2.0 numpy=1.26 scipy ~= 1.1",
            "write torch==2.0, numpy==1.26, name~=version without blanks",
        ),
    ],
)
def test_a_fix_says_all_that_is_to_be_written(run: Run, line: str, fix: str) -> None:
    (finding,) = run("run.sh", f"#!/bin/bash\n{line}\n{START}\n", "SHL001")
    assert finding.fix == fix


def test_two_variables_of_an_export_keep_their_own_values(run: Run) -> None:
    findings = run("run.sh", f"#!/bin/bash\nexport A = 1 B = 2\n{START}\n", "SHL001")
    assert findings[0].fix == "write A=1 without a blank"


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("lines", "fix", "fixed"),
    [
        ("SEEDS= (1 2 3)", "remove the blanks beside the `=`", "SEEDS=(1 2 3)"),
        ("export SEEDS = (1 2 3)", "remove the blanks beside the `=`", "export SEEDS=(1 2 3)"),
        (f"{START}\n  | tee log", "end line 2 with a backslash", f"{START} \\\n  | tee log"),
        (f"{START} # slow\n  | tee log", "correct what stays open", f"{START} | tee log # slow"),
        ('echo "on $(hostname"', "close `$(` with `)`", 'echo "on $(hostname)"'),
        ('echo "on ${HOST" "a"', "close `${` with `}`", 'echo "on ${HOST}" "a"'),
        ("echo Job started (node 1)", f"put quotes {AROUND}", 'echo Job started "(node 1)"'),
        ("echo Job started on node(1)", f"put quotes {AROUND}", 'echo Job started on node"(1)"'),
        ("for i in range(10); do\n  a\ndone", "correct what stays open", "for i in {0..9}; do\n  a\ndone"),
        (
            "for i in 1 2; do echo $i done",
            "write `;` before the word that closes the block",
            "for i in 1 2; do echo $i; done",
        ),
        (
            "stop() {\n  # nothing yet\n}",
            "write a command, such as `:`, behind the `{` of line 2",
            "stop() { :\n  # nothing yet\n}",
        ),
        (
            "if [ $? -ne 0 ] {\n  echo failed\n}",
            "correct what stays open",
            "if [ $? -ne 0 ]; then\n  echo failed\nfi",
        ),
    ],
)
def test_bash_accepts_what_the_fix_makes_of_a_script(run: Run, lines: str, fix: str, fixed: str) -> None:
    (finding,) = run("run.sh", f"#!/bin/bash\n{lines}\n{START}\n")
    assert (finding.code, finding.fix.startswith(fix)) == ("SHL002", True), finding.fix
    script = f"#!/bin/bash\n{fixed}\n{START}\n"
    assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0
    assert run("run.sh", script, "SHL002") == []
