"""Mistakes of `check` itself that a first user found: time that grows with the square of a line, ignore comments above
commands of several lines, reasons that belong to another mistake."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.check.engine import check
from trainwright.check.finding import Finding
from trainwright.check.ignores import ignored_lines
from trainwright.check.registry import all_rules

Run = Callable[..., list[Finding]]


def script(value: str) -> str:
    return f"#!/bin/bash\n#SBATCH --nodes=2\nexport A={value}\nsrun torchrun --nproc_per_node=8 train.py\n"


def cpu_seconds(path: Path, text: str) -> float:
    """The least of three, without collections of what other tests left in the process."""
    path.write_text(text)
    gc.disable()
    try:
        return min(_cpu_seconds(path) for _ in range(3))
    finally:
        gc.enable()


def _cpu_seconds(path: Path) -> float:
    start = time.thread_time()
    check([str(path)])
    return time.thread_time() - start


@pytest.mark.parametrize(
    "unit",
    ["\\", "${A}}", ">", "1\nA=1\nset -a\n", "{ ", "'\"$(\\\"\\'", "1\ncat <<E <<-'F' $(\n\\\"`"],
    ids=["backslashes", "braces", "redirections", "set -a", "blocks", "quotes", "here-documents"],
)
def test_the_time_grows_with_the_length_of_a_shell_file(tmp_path: Path, unit: str) -> None:
    path = tmp_path / "job.sbatch"
    cpu_seconds(path, script("1"))  # reads the catalog
    size = 16_000 if len(unit) == 1 else 8_000
    small, large = (cpu_seconds(path, script(unit * (length // len(unit)))) for length in (size, 4 * size))
    assert large < max(8 * small, 0.2)


def test_backslashes_before_many_substitutions_end(tmp_path: Path) -> None:
    assert cpu_seconds(tmp_path / "job.sbatch", script("\\" * 50_000 + "$(" * 5_000)) < 5


CONTINUED = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
# trainwright: ignore[ENV]{more}
export A=1 \\
  B=2 \\
  NCCL_SOCKET_IFNAME=lo
export NCCL_SOCKET_IFNAME=lo
srun torchrun --nproc_per_node=8 train.py
"""


@pytest.mark.parametrize("more", ["", "\n# trainwright: ignore[SLU]"])
def test_a_comment_above_a_command_of_several_lines_holds_for_all_of_them(run: Run, more: str) -> None:
    last = 8 + more.count("\n")
    assert {f.span.line for f in run("job.sbatch", CONTINUED.replace("ignore[ENV]{more}", "x"), "ENV003")} == {7, 8}
    assert [f.span.line for f in run("job.sbatch", CONTINUED.format(more=more), "ENV003")] == [last]


def test_a_comment_inside_an_instruction_of_a_dockerfile_does_not_end_it() -> None:
    text = "# trainwright: ignore[IMG]\nRUN a && \\\n# why\n  b \\\\\nRUN c\n"
    assert ignored_lines(text, dockerfile=True).keys() == {2, 3, 4}
    assert ignored_lines(text).keys() == {2, 3}


@pytest.mark.parametrize(
    "comment", ["trainwright: ingore[JOB009]", "trainwright: ignored[JOB009]", "trainwright ignore[JOB009]",
                "trainwright: Ignore[JOB009]", "trainwright: ignor JOB009", "trainwright: disable[JOB009]"],
)  # fmt: skip
def test_a_near_miss_of_an_ignore_comment_is_reported(run: Run, comment: str) -> None:
    (finding,) = run("job.sbatch", f"#!/bin/bash\n#SBATCH --nodes=1\n# {comment}\nsrun hostname\n", "TW004")
    assert "ignores nothing" in finding.message
    assert "trainwright: ignore[" in finding.fix


@pytest.mark.parametrize(
    "comment", ["trainwright: see [the docs]", "trainwright ignored this file", "trainwright: run"]
)
def test_a_sentence_about_trainwright_is_no_ignore_comment(run: Run, comment: str) -> None:
    assert not run("job.sbatch", f"#!/bin/bash\n#SBATCH --nodes=1\n# {comment}\nsrun hostname\n", "TW004")


HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n"
OWN_REASONS = [
    ("ENV002", "a.sbatch", f"{HEAD}export CUDA_LAUNCH_BLOCKING=1\nsrun torchrun --nproc_per_node=8 t.py\n"),
    ("ENV003", "a.sbatch", f"{HEAD}export NCCL_SOCKET_IFNAME=lo\nsrun torchrun --nproc_per_node=8 t.py\n"),
    ("SLU006", "a.sbatch", f"{HEAD}#SBATCH --time=12:00\nset -e\nsrun torchrun t.py\n"),
    ("SLU006", "a.sbatch", f"{HEAD}srun torchrun t.py | tee log\n"),
    ("SLU006", "a.sbatch", f"{HEAD}srun torchrun t.py\necho done\n"),
    ("SLU006", "a.sbatch", f'{HEAD}set -e\ncd "$(dirname "$0")"\nsrun torchrun t.py\n'),
    ("SHL001", "a.sbatch", f"{HEAD}cd /tmp\n#SBATCH --time=12:00:00\nsrun torchrun t.py\n"),
    ("SHL001", "a.sbatch", f"{HEAD}srun torchrun \\ \n  --nproc_per_node=8 t.py\n"),
    ("SHL001", "a.sbatch", f"{HEAD}DATADIR=/fsx/data\nsrun torchrun t.py --data $DATADRI\n"),
    ("JOB001", "a.sbatch", f"{HEAD}#SBATCH --gres=gpu:8\nsrun torchrun --nproc_per_node=4 t.py\n"),
    ("JOB001", "a.sbatch", f"{HEAD}#SBATCH --gpus-per-node=8\n#SBATCH --gres=gpu:4\nsrun torchrun t.py\n"),
    ("PYT002", "a.py", "import torch\nimport torch.distributed as dist\n"
     "from torch.nn.parallel import DistributedDataParallel\ndist.init_process_group()\n"
     "model = DistributedDataParallel(torch.nn.Linear(2, 2))\nloss = model(1)\nloss.backward()\n"
     "if dist.get_rank() == 0:\n    dist.barrier()\n"),
]  # fmt: skip


def test_a_mistake_has_a_reason_of_its_own_with_a_number(run: Run) -> None:
    rules = {rule.code: rule for rule in all_rules() if rule.needs == "offline"}
    whys = []
    for code, name, text in OWN_REASONS:
        findings = [f for f in run(name, text, code) if f.why != rules[code].reason]
        assert len(findings) == 1, (code, text, run(name, text, code))
        assert re.search(r"\d", findings[0].why)
        whys += [findings[0].why, rules[code].reason]
    assert len(set(whys)) == len(OWN_REASONS) + len({code for code, _, _ in OWN_REASONS})


def test_the_name_of_a_program_is_shown_once(run: Run) -> None:
    (finding,) = run("a.sbatch", f"{HEAD}srun torchrun --nproc_per_nod3=8 t.py\n", "JOB")
    assert finding.message.startswith("torchrun of torch 2.")
