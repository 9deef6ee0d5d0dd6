"""What decides a setting of a script: the words of its comments and queues, the branches it stands in, the folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.check.engine import Selection, check
from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n#SBATCH --exclusive\n"
TIME = "#SBATCH --time=2-00:00:00\n"
BLOCKING = "export CUDA_LAUNCH_BLOCKING=1\n"
SRUN = "srun python train.py\n"
WITH_EFA = "export FI_EFA_USE_DEVICE_RDMA=1\n"


def loud(findings: list[Finding]) -> list[str]:
    """The codes of those that are no notes."""
    return [one.code for one in findings if one.level != "info"]


@pytest.mark.parametrize(
    "comment",
    [
        "# change these for your cluster",
        "# exchange the paths",
        "# changes: see the wiki",
        "# tracebook of the team, retraced",
        "# asynchronous copies",
    ],
)
def test_a_word_that_contains_a_reason_is_none(run: Run, comment: str) -> None:
    assert loud(run("a.sh", f"{HEAD}{TIME}\n{comment}\n{BLOCKING}{SRUN}", "ENV002")) == ["ENV002"]


@pytest.mark.parametrize(
    "comment",
    [
        "# NCCL hangs here",
        "# it hung",
        "# hanging at step 3",
        "# for the stacktrace",
        "# full tracebacks",
        "# tracing",
        "# device-side asserts",
        "# crashes",
        "# Laufzeitfehler",
        "# see TORCH_DEBUG",
        "# synchronous launches",
    ],
)
def test_a_reason_in_any_of_its_forms_counts(run: Run, comment: str) -> None:
    assert loud(run("a.sh", f"{HEAD}{TIME}\n{comment}\n{BLOCKING}{SRUN}", "ENV002")) == []


@pytest.mark.parametrize("comment", ["change", "a prefix", "a suffix", "reinforcement", "enforced", "tissue"])
def test_a_word_that_contains_a_purpose_is_none(run: Run, comment: str) -> None:
    lines = f"{WITH_EFA}# {comment}\nexport FI_PROVIDER=tcp\n"
    assert loud(run("a.sh", f"{HEAD}{TIME}\n{lines}{SRUN}", "ENV001")) == ["ENV001"]


@pytest.mark.parametrize("comment", ["bugfix", "forces sockets", "needed", "fixed in 1", "P2P", "see #12", "hangs"])
def test_a_purpose_makes_a_note(run: Run, comment: str) -> None:
    lines = f"{WITH_EFA}# {comment}\nexport FI_PROVIDER=tcp\n"
    assert loud(run("a.sh", f"{HEAD}{TIME}\n{lines}{SRUN}", "ENV001")) == []


@pytest.mark.parametrize(("comment", "codes"), [("change it", ["ENV002"]), ("it hangs without", []), ("see issue", [])])
def test_a_forced_choice_needs_a_reason(run: Run, comment: str, codes: list[str]) -> None:
    findings = run("a.sh", f"{HEAD}{TIME}\nexport NCCL_ALGO=Ring  # {comment}\n{SRUN}", "ENV002")
    assert [one.code for one in findings] == codes


@pytest.mark.parametrize(
    ("limit", "codes"),
    [
        ("0", ["ENV002"]),
        ("0:00:00", ["ENV002"]),
        ("0-0", ["ENV002"]),
        ("15", ["ENV002"]),
        ("00:15:00", ["ENV002"]),
        ("0-00:15:00", ["ENV002"]),
        ("14", []),
        ("14:59", []),
        ("00:14:59", []),
        ("0-00:14", []),
        ("0:30", []),
        ("0-00:00:30", []),
    ],
)
def test_a_job_of_less_than_15_minutes_is_a_trial_and_one_without_limit_is_not(
    run: Run, limit: str, codes: list[str]
) -> None:
    assert loud(run("a.sh", f"{HEAD}#SBATCH --time={limit}\n{BLOCKING}{SRUN}", "ENV002")) == codes


@pytest.mark.parametrize(
    ("directive", "codes"),
    [
        ("#SBATCH --partition=fastest", ["ENV002"]),
        ("#SBATCH --comment=latest", ["ENV002"]),
        ("#SBATCH --reservation=contest", ["ENV002"]),
        ("#PBS -N fastest", ["ENV002"]),
        ("#SBATCH --partition=test", []),
        ("#SBATCH --partition=gputest", []),
        ("#SBATCH --partition=gpu_test", []),
        ("#SBATCH --partition=a100-testing", []),
        ("#SBATCH --qos=pdebug", []),
        ("#PBS -q test", []),
    ],
)
def test_a_queue_for_tests_has_the_word_in_its_name(run: Run, directive: str, codes: list[str]) -> None:
    assert loud(run("a.sh", f"{HEAD}{TIME}{directive}\n{BLOCKING}{SRUN}", "ENV002")) == codes


PYTHON = "python - <<EOF\nimport torch\nif not torch.cuda.is_available():\n    raise SystemExit('x')\nEOF\n"


@pytest.mark.parametrize(
    "before",
    [
        PYTHON,
        "cat > note.txt <<'EOF'\nif you change this, tell us\nEOF\n",
        "cat <<EOF\nslow() {\nEOF\n",
        "echo '\nif you read this\n'\n",
        "if true; then echo a; fi; echo b\n",
        "case $A in\n  a) echo 1;;\nesac\n",
        "run_all() {\n  echo 1\n}\nrun_all\n",
        "cd /tmp && ",
        "[ -d x ] && echo y\n",
        "[ -d x ] && (echo y)\n",
        "[ -d x ] && { echo y; }\n",
        "(( N > 1 )) && echo y\n",
    ],
)
def test_what_opens_no_branch_around_a_setting_leaves_a_warning(run: Run, before: str) -> None:
    assert loud(run("a.sh", f"{HEAD}{TIME}\n{before}{BLOCKING}{SRUN}", "ENV002")) == ["ENV002"]


@pytest.mark.parametrize(
    "lines",
    [
        f"{PYTHON}if [ $SLOW ]; then\n  {BLOCKING}fi\n",
        f"if [ $SLOW ]; then\n  echo a\nelif true; then\n  {BLOCKING}fi\n",
        f"case $1 in\n  slow)\n  {BLOCKING}  ;;\nesac\n",
        f"(( SLOW )) && {BLOCKING}",
        f"! grep -q fast a.txt && {BLOCKING}",
        f"grep -q fast a.txt || {BLOCKING}",
        f"[ $SLOW ] && echo slow && {BLOCKING}",
        "[ $SLOW ] && (export A=1; export CUDA_LAUNCH_BLOCKING=1; srun python train.py)\n",
        f"[ $SLOW ] && {{ echo slow; }} && {BLOCKING}",
        f"if [ $A ]; then [ $SLOW ] && {BLOCKING}fi\n",
        f"function slow {{\n  {BLOCKING}}}\n",
        f"function slow() {{\n  {BLOCKING}}}\n",
        f"slow()\n{{\n  {BLOCKING}}}\n",
        "{% if slow %}\n" + BLOCKING + "{% endif %}\n",
    ],
)
def test_a_branch_around_a_setting_makes_a_note(run: Run, lines: str) -> None:
    assert loud(run("a.sh", f"{HEAD}{TIME}\n{lines}{SRUN}", "ENV002")) == []


TRAIN = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr')\np.parse_args()\n"


@pytest.mark.parametrize(
    ("lines", "codes"),
    [
        ("(cd tools && make)", ["JOB013"]),
        ("(\n  cd tools\n  make\n)", ["JOB013"]),
        ("HERE=$(cd tools; pwd)", ["JOB013"]),
        ("echo $(cd tools && pwd)", ["JOB013"]),
        ("cd tools | cat", ["JOB013"]),
        ("true | cd tools", ["JOB013"]),
        ("cd tools &", ["JOB013"]),
        ("bash -c 'cd tools; make'", ["JOB013"]),
        ("cd tools; make", []),
        ("{ cd tools; }", []),
        ("(cd tools; true); cd tools", []),
    ],
)
def test_a_subshell_does_not_move_the_script(tmp_path: Path, lines: str, codes: list[str]) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "train.py").write_text(TRAIN)
    script = tmp_path / "job.sh"
    script.write_text(f"{HEAD}{TIME}\n{lines}\ntorchrun --standalone --nproc_per_node=8 train.py --lrr 1\n")
    assert loud(check([str(script)], Selection(select=("JOB013",))).findings) == codes


def test_a_command_inside_a_subshell_runs_where_its_cd_leads(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "train.py").write_text(TRAIN)
    script = tmp_path / "job.sh"
    script.write_text(f"{HEAD}{TIME}\n(cd tools; torchrun --standalone --nproc_per_node=8 train.py --lrr 1)\n")
    assert loud(check([str(script)], Selection(select=("JOB013",))).findings) == ["JOB013"]


@pytest.mark.parametrize(
    ("line", "codes"),
    [
        ("export -f f1 my-func", []),
        ("declare -F f1 my-func", []),
        ("declare -fx f1 my-func", []),
        ("typeset -f f1 my-func", []),
        ("declare -p A my-func", []),
        ("export NAME /path", ["SHL001"]),
        ("declare -x NAME /path", ["SHL001"]),
    ],
)
def test_functions_are_no_variables(run: Run, line: str, codes: list[str]) -> None:
    assert loud(run("a.sh", f"#!/bin/bash\n{line}\n{SRUN}", "SHL001")) == codes
