"""SLU006 on what a batch script means and Slurm or bash does otherwise: signals and traps, times, pipes into tee, and
the ids of jobs that others wait for."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.check.reported import loud, shown

from trainwright.check.engine import Selection, check
from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]


def script(*lines: str, time: str = "#SBATCH --time=01:00:00") -> str:
    return "\n".join(["#!/bin/bash", "#SBATCH --nodes=1", time, *lines, ""])


TRAP = "trap requeue USR1"
BACKGROUND = "srun python train.py &\nwait"
WARNED = "#SBATCH --signal=B:USR1@300"
STATUS = ("srun python train.py &", "wait $!", "code=$?")


@pytest.mark.parametrize(
    "lines",
    [
        ("#SBATCH --signal=USR1@300", TRAP, BACKGROUND),
        ("#SBATCH --signal=SIGUSR1@300", "trap 'scontrol requeue $SLURM_JOB_ID' SIGUSR1 TERM", BACKGROUND),
        ("#SBATCH --signal=10@300", TRAP, BACKGROUND),
        ("#SBATCH --signal=R:USR2", "trap 'touch stop' USR2", BACKGROUND),
        ("#SBATCH --signal=B:USR1@300", "srun python train.py"),
        ("#SBATCH --signal=B:USR1@300", "trap requeue USR2", BACKGROUND),
        ("#SBATCH --signal=B:USR1@300", TRAP, "srun python train.py"),
        ("#SBATCH --signal=B:USR1@300", TRAP, "torchrun train.py > log"),
        ("#SBATCH --signal=B:USR1@300", "trap 'touch stop' USR1", BACKGROUND),
        ("#SBATCH --signal=B:USR1@300", "stop() {", "  touch stop", "}", "trap stop USR1", BACKGROUND, "echo end"),
        (
            WARNED,
            "stop() {",
            '  echo "$(date) ${USER}"',
            '  touch "$OUT/stop"',
            "}",
            "trap stop USR1",
            *STATUS,
            'if [ "$code" -eq 77 ]; then',
            '  scontrol requeue "$SLURM_JOB_ID"',
            "fi",
            'exit "$code"',
        ),
        (WARNED, 'trap "touch $OUT/stop" USR1', *STATUS, "[[ $code == 77 ]] && sbatch next.sbatch", "exit $code"),
        (
            WARNED,
            "trap 'touch stop' USR1",
            "srun python train.py & job=$!",
            "wait $job",
            "if [ $? -eq 0 ]; then sbatch eval.sbatch; fi",
        ),
    ],
)
def test_a_signal_that_no_trap_answers_in_time(run: Run, lines: tuple[str, ...]) -> None:
    (finding,) = run("job.sbatch", script(*lines), "SLU006")
    assert finding.level == "warning"
    assert finding.why


@pytest.mark.parametrize(
    "lines",
    [
        ("#SBATCH --signal=B:USR1@300", TRAP, BACKGROUND),
        ("#SBATCH --signal=B:SIGUSR1@300", "trap requeue SIGUSR1", BACKGROUND),
        ("#SBATCH --signal=B:USR1@300", "trap 'touch stop' USR1", BACKGROUND, "wait"),
        ("#SBATCH --signal=B:USR1@300", "trap 'touch stop; wait' USR1", BACKGROUND),
        ("#SBATCH --signal=B:USR1@300", "stop() {", "  touch stop", "  wait", "}", "trap stop USR1", BACKGROUND),
        ("#SBATCH --signal=B:USR1@300", "trap 'touch stop' USR1", BACKGROUND, "python save.py"),
        (WARNED, "trap 'touch stop' USR1", *STATUS, "if [ $code -gt 128 ]; then sleep 200; fi"),
        (WARNED, "trap 'touch stop' USR1", *STATUS, "if [ $code -eq 138 ]; then sleep 200; fi"),
        (WARNED, "trap 'touch stop' USR1", *STATUS, "if [ $code -eq 0 ]; then echo ok; else sleep 200; fi"),
        (WARNED, "trap 'touch stop' USR1", *STATUS, "while [ $code -eq 138 ]; do sleep 5; done"),
        (WARNED, "trap 'warned=1' USR1", *STATUS, "if [ $warned -eq 1 ]; then sleep 200; fi"),
        (WARNED, "trap 'touch stop' USR1", *STATUS, "if [ -f stop ]; then sleep 200; fi"),
        (WARNED, "stop() {", "  $SAVE", "}", "trap stop USR1", BACKGROUND),
        (WARNED, "stop() {", '  echo "${A}"', "  wait", "}", "trap stop USR1", *STATUS, "exit $code"),
        ("#SBATCH --signal=USR1@300", "srun python train.py"),  # the program handles it
        ("#SBATCH --signal=USR1@300", "trap '' USR1", "srun python train.py"),
        ("#SBATCH --signal=USR1@300", "trap requeue TERM", BACKGROUND),  # sent at the end too
        ("#SBATCH --signal=TERM@300", "trap requeue TERM", BACKGROUND),
        ("#SBATCH --signal=USR1@300", "srun bash -c 'trap save USR1; python train.py & wait'"),
        ("#SBATCH --signal=USR1@300", "# stop it by hand: scancel --batch --signal=USR1 JOB", TRAP, BACKGROUND),
        ("#SBATCH --signal=B:USR1@300", "source traps.sh", "srun python train.py"),
        ("#SBATCH --signal=B:USR1@300", "exec python train.py"),
        ("#SBATCH --signal=B:TERM@300", "srun python train.py"),
        ("#SBATCH --signal=B:USR1@300", TRAP, "for i in 1 2; do srun python train.py; done"),
        ("#SBATCH --signal=B:USR1@300", "for s in USR1 TERM; do trap requeue $s; done", BACKGROUND),
    ],
)
def test_a_signal_that_is_answered(run: Run, lines: tuple[str, ...]) -> None:
    assert loud(run("job.sbatch", script(*lines), "SLU006")) == []


def test_bash_runs_a_trap_after_the_command_in_the_foreground() -> None:
    text = "trap 'echo trap' USR1; (sleep 0.3; kill -USR1 $$) & sleep 1; echo end"
    assert subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True).stdout == "trap\nend\n"
    began = "date +%s%N; trap 'date +%s%N' USR1; (sleep 0.3; kill -USR1 $$) & sleep 1"
    first, second = subprocess.run(["bash", "-c", began], capture_output=True, text=True, check=True).stdout.split()
    assert int(second) - int(first) > 9e8


@pytest.mark.parametrize(
    ("time", "fix"),
    [
        ("# 48 h\n#SBATCH --time=48:00", "write 48:00:00"),
        ("#SBATCH --time=12:00  # 12 hours", "write 12:00:00"),
        ("#SBATCH --time=24   # 24h", "write 24:00:00"),
        ("# at most 3 days\n#SBATCH -t 3:00:00", "write 3-00:00:00"),
        ("#SBATCH --time=30:00:00 # 30 minutes", "write 30:00"),
        ("# etwa 20 Stunden\n#SBATCH --time=20:00", "write 20:00:00"),
    ],
)
def test_a_time_that_its_comment_contradicts(run: Run, time: str, fix: str) -> None:
    (finding,) = run("job.sbatch", script("srun python train.py", time=time), "SLU006")
    assert (finding.level, finding.fix) == ("info", fix)


@pytest.mark.parametrize(
    "time",
    [
        "# 48 h\n#SBATCH --time=48:00:00",
        "# 2 days\n#SBATCH --time=48:00:00",
        "#SBATCH --time=2-00:00:00  # 48 hours",
        "#SBATCH --time=120  # 2 hours",
        "#SBATCH --time=10:00  # 10 minutes, 10 h for the large model",
        "#SBATCH --time=08:00:00  # 8h",
        "#SBATCH --time=4:00:00  # 4 nodes for 4 hours",
        "# 90 minutes\n#SBATCH --time=1:30:00",
        "# the queue allows 24 h\n#SBATCH --time=2:00:00",
        "#SBATCH --time=48:00",
    ],
)
def test_a_time_that_agrees_with_its_comment(run: Run, time: str) -> None:
    assert loud(run("job.sbatch", script("srun python train.py", time=time), "SLU006")) == []


@pytest.mark.parametrize(
    "lines",
    [
        ("set -e", "srun python train.py 2>&1 | tee log", "rm -rf /scratch/run"),
        ("set -euo nounset", "srun python train.py \\\n  --x | tee -a log", "python eval.py"),
        ("set -o errexit", "python train.py |& tee log", "cp model.pt /fsx"),
        ("set -e", "python train.py | tee log", "echo finished"),
        ("for m in a b; do", "  python train.py $m | tee $m.log || echo $m >> failed", "done"),
        ("srun python train.py | tee log", "status=$?", "exit $status"),
        ("srun python train.py | tee log; rc=$?", "exit $rc"),
        ("if srun python train.py 2>&1 | tee log; then", "  sbatch eval.sbatch", "fi"),
        ("if ! python train.py | tee log", "then", "  exit 1", "fi", "python eval.py"),
        ("until srun python train.py | tee -a log; do", "  sleep 60", "done"),
        ("srun python train.py | tee log || exit 1", "python eval.py"),
        ("python train.py | tee log && python eval.py",),
        ("srun python train.py | tee log", "", "# failed?", "if [ $? -ne 0 ]; then", "  scontrol requeue 1", "fi"),
    ],
)
def test_a_failure_that_tee_hides(run: Run, lines: tuple[str, ...]) -> None:
    (finding,) = run("job.sbatch", script(*lines), "SLU006")
    assert finding.level == "warning"
    assert "tee" in finding.message


@pytest.mark.parametrize(
    "lines",
    [
        ("set -eo pipefail", "srun python train.py | tee log", "rm -rf /scratch/run"),
        ("set -e", "srun python train.py | tee log", "[ ${PIPESTATUS[0]} -eq 0 ] || exit 1", "rm -rf /scratch/run"),
        ("set -e", "nvidia-smi | tee gpus", "srun python train.py"),
        ("set -e", "srun python train.py > log", "rm -rf /scratch/run"),
        ("srun python train.py | tee log", "python eval.py"),  # nothing is said about failures
        ("srun python train.py | tee log", "python eval.py", "exit $?"),
        ("hostname | tee hosts", "set -e", "srun python train.py"),
        ("if python check.py | tee log | grep -q OK; then", "  srun python train.py", "fi"),
        ("if python check.py | tee log && grep -q OK log; then", "  srun python train.py", "fi"),
        ("set -e", "if python check.py | tee log && grep -q OK log; then", "  srun python train.py", "fi"),
        ("set -e", "python train.py | tee log || true", "python eval.py"),
    ],
)
def test_a_pipe_that_hides_nothing(run: Run, lines: tuple[str, ...]) -> None:
    assert loud(run("job.sbatch", script(*lines), "SLU006")) == []


@pytest.mark.parametrize("name", ["submit.sh", "job.sbatch"])
@pytest.mark.parametrize(
    "lines",
    [
        ("id=$(sbatch a.sbatch)", "sbatch --dependency=afterok:$id b.sbatch"),
        ('id="$(sbatch a.sbatch)"', 'next=$(sbatch --parsable --dependency="afterok:${id}" b.sbatch)'),
        ("id=`sbatch a.sbatch`", "sbatch -d afterany:$id b.sbatch"),
        ("a=$(sbatch --parsable a.sbatch)", "b=$(sbatch b.sbatch)", "sbatch --dependency=afterok:$a:$b c.sbatch"),
        ("id=$(sbatch --parsable a)", "for i in 1 2; do", "  id=$(sbatch -d afterany:$id a)", "done"),
        ("for i in 1 2; do", "  id=$(sbatch a.sbatch $i)", "  all=$all:$id", "done", "sbatch -d afterok$all b.sbatch"),
    ],
)
def test_what_sbatch_prints_is_no_id(run: Run, name: str, lines: tuple[str, ...]) -> None:
    assert [line.split()[:2] for line in shown(run(name, script(*lines), "SLU006"))] == [["error", "SLU006"]]


@pytest.mark.parametrize(
    "lines",
    [
        ("id=$(sbatch --parsable a.sbatch)", "sbatch --dependency=afterok:$id b.sbatch"),
        ("id=$(sbatch a.sbatch | awk '{print $4}')", "sbatch --dependency=afterok:$id b.sbatch"),
        ("id=$(sbatch a.sbatch)", "sbatch --dependency=afterok:${id##* } b.sbatch"),
        ("id=($(sbatch a.sbatch))", "sbatch --dependency=afterok:${id[3]} b.sbatch"),
        ("out=$(sbatch a.sbatch)", "id=${out##* }", "sbatch --dependency=afterok:$id b.sbatch"),
        ("id=$(sbatch a.sbatch)", "id=${id//[!0-9]/}", "sbatch --dependency=afterok:$id b.sbatch"),
        ("id=$(sbatch a.sbatch)", 'echo "afterwards: $id"'),
        ("id=$(sbatch --parsable a)", "for i in 1 2; do", "  id=$(sbatch --parsable -d afterany:$id a)", "done"),
        ("id=$(sbatch --parsable a)", "for i in 1 2; do", "  id=$(sbatch -d afterany:${id##* } a)", "done"),
        ("id=$(sbatch --parsable a)", "id=$(sbatch -d afterany:$id b)", "echo $id"),
        ('sbatch() { command sbatch --parsable "$@"; }', "id=$(sbatch a)", "sbatch -d afterok:$id b"),
        ('read -r _ _ _ id <<< "$(sbatch a.sbatch)"', "sbatch --dependency=afterok:$id b.sbatch"),
    ],
)
def test_an_id_that_is_taken_out(run: Run, lines: tuple[str, ...]) -> None:
    assert loud(run("submit.sh", script(*lines), "SLU006")) == []


@pytest.mark.parametrize("source", [". common.sh", "source ./common.sh", 'source "$SLURM_SUBMIT_DIR/common.sh"'])
@pytest.mark.parametrize(("common", "count"), [("set -eo pipefail", 0), ("module load cuda", 1)])
def test_a_file_that_is_sourced_may_set_pipefail(tmp_path: Path, source: str, common: str, count: int) -> None:
    (tmp_path / "common.sh").write_text(f"{common}\n")
    (tmp_path / "job.sbatch").write_text(script(source, "srun python train.py | tee log"))
    findings = check([str(tmp_path / "job.sbatch")], Selection(select=("SLU006",))).findings
    assert len([f for f in findings if "tee" in f.message]) == count


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("#SBATCH --signal=USR1@300", "accelerate launch train.py"), ["info SLU006 2"]),
        (("#SBATCH --signal=SIGUSR1@90", "python train.py --resume"), ["info SLU006 2"]),
        (("#SBATCH --signal=USR1@300", "srun python train.py"), []),
        (("#SBATCH --signal=USR1@300", "mpirun python train.py"), []),  # starts its daemons by srun
        (("#SBATCH --signal=USR1@300", "./train.sh"), []),  # which may start steps
    ],
)
def test_a_signal_that_no_step_gets(run: Run, lines: tuple[str, ...], expected: list[str]) -> None:
    assert shown(run("job.sbatch", "\n".join(("#!/bin/bash", *lines, "")), "SLU006")) == expected
