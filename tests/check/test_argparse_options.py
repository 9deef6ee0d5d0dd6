"""The options of a script's own parser are found whatever else the script does: recursion, long chains of names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from timing import cpu_seconds

from trainwright.check.finding import Finding
from trainwright.check.programs.argparse_options import argparse_options

PARSER = """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
args = parser.parse_args()
"""
UNWRAP = """def unwrap(m):
    if hasattr(m, "module"):
        return unwrap(m.module)
    else:
        return m
model = unwrap(args)
"""
EACH_OTHER = "def even(n):\n    return odd(n - 1)\ndef odd(n):\n    return even(n - 1)\nx = even(4)\n"
BUILT = """import argparse
def inner():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr")
    return parser
def outer(deep):
    if deep:
        return outer(False)
    return inner()
"""


@pytest.mark.parametrize("recursive", [UNWRAP, EACH_OTHER])
def test_recursion_of_the_script_does_not_hide_its_options(
    tmp_path: Path, run: Callable[..., list[Finding]], recursive: str
) -> None:
    (tmp_path / "train.py").write_text(PARSER + recursive)
    findings = run("job.sbatch", "#!/bin/bash\n#SBATCH -N 1\ntorchrun --nproc-per-node=2 train.py --lrr 1\n", "JOB013")
    assert [(f.code, f.level) for f in findings] == [("JOB013", "error")]
    assert "--lrr" in findings[0].message


def test_a_parser_is_followed_through_functions_that_return_it() -> None:
    assert argparse_options(BUILT + "args = inner().parse_args()\n") is not None
    assert argparse_options(BUILT + "made = inner()\nnamed = made\nargs = named.parse_args()\n") is not None
    # Of a function that calls itself nothing is said.
    assert argparse_options(BUILT + "args = outer(True).parse_args()\n") is None


def test_a_long_chain_of_names_takes_time_in_proportion_to_its_length() -> None:
    def seconds(length: int) -> float:
        names = "".join(f"p{n} = p{n - 1}\n" for n in range(length, 0, -1))
        script = f"import argparse\n{names}p0 = argparse.ArgumentParser()\np{length}.add_argument('--lr')\n"
        script += f"p{length}.parse_args()\n"
        read = argparse_options(script)
        assert read is not None
        assert "--lr" in read[0]
        return cpu_seconds(lambda: argparse_options(script), tries=2)

    assert seconds(3000) < 40 * max(seconds(300), 0.002)  # ten times the length; a pass for every link took 100 times


def test_an_expression_nested_too_deep_leaves_the_options_unknown_or_known_but_does_not_fail() -> None:
    deep = "x" + ".y()" * 900
    assert argparse_options(PARSER + f"z = {deep}\n") is not None
    assert argparse_options(PARSER.replace("parse_args()", f"parse_args({deep})")) is None


FIT = """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--learning-rate", type=float)
parser.add_argument("--epochs", type=int)
arguments = parser.parse_args()
"""


@pytest.mark.parametrize(
    ("move", "options", "levels"),
    [
        ("cd /lustre/fit", "--learning-rat 1 --epochs 2", []),  # argparse takes the beginning
        ("cd /lustre/fit", "--learningrate 1 --epochs 2", ["info"]),
        ("cd ~/fit", "--learningrate 1", ["info"]),
        ("cd /lustre/fit", "--learningrate 1 --hidden 8", []),  # another program of that name
        ("cd $RUN", "--learningrate 1", []),
        ("git clone https://example.com/fit /opt/fit\ncd /opt/fit", "--learningrate 1", []),
        ("true", "--learningrate 1", ["error"]),
    ],
)
def test_a_program_whose_copy_may_be_elsewhere(
    tmp_path: Path, run: Callable[..., list[Finding]], move: str, options: str, levels: list[str]
) -> None:
    (tmp_path / "fit.py").write_text(FIT)
    text = f"#!/bin/bash\n#SBATCH -N 1\n{move}\ntorchrun --nproc_per_node=2 fit.py {options}\n"
    assert [f.level for f in run("job.sbatch", text, "JOB013")] == levels
