"""What the shell reader makes of a script: values, places, who runs what."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from trainwright.check.model import Command, File, ShellScript, Value, known
from trainwright.check.readers.arguments import whole
from trainwright.check.readers.recognise import read_file
from trainwright.check.readers.shell_script import read_script
from trainwright.check.readers.shell_source import whole_text
from trainwright.check.readers.shell_words import scan
from trainwright.spec.source import Span


def script(text: str) -> ShellScript:
    return read_script(whole_text(text))


def command(text: str, program: str) -> Command:
    return next(c for c in script(text).commands if c.program == program)


def read(text: str, name: str = "job.sbatch") -> File:
    file = read_file(name, text)
    assert file is not None
    return file


def option(text: str, name: str) -> tuple[str, int, int, bool]:
    value = command(text, "torchrun").options[name]
    return value.value, value.span.line, value.span.column, value.known


def test_constants_are_filled_in_and_keep_their_place() -> None:
    assert option("G=8\ntorchrun --nproc_per_node=$G", "nproc_per_node") == ("8", 1, 3, True)
    assert option("G=8\ntorchrun --nproc_per_node ${G}", "nproc_per_node") == ("8", 1, 3, True)
    assert option('torchrun --x="a b" y', "x") == ("a b", 1, 15, True)
    assert option("torchrun --x=${G:-4}", "x") == ("4", 1, 19, True)
    assert option(': "${G:=4}"\ntorchrun --x=$G', "x") == ("4", 1, 9, True)


def test_what_only_the_shell_knows_stays_unknown() -> None:
    assert option("torchrun --x=$G", "x") == ("$G", 1, 14, False)
    assert option("torchrun --x=$(hostname)", "x") == ("$(hostname)", 1, 14, False)
    assert option("if true; then G=8; else G=4; fi\ntorchrun --x=$G", "x")[3] is False
    assert option("for G in 1 2; do :; done\ntorchrun --x=$G", "x")[3] is False
    assert option("case $1 in a) G=1;; *) G=2;; esac\ntorchrun --x=$G", "x")[3] is False
    assert option("f() { G=3; }\ntorchrun --x=$G", "x")[3] is False
    assert option("function f { G=3; }\ntorchrun --x=$G", "x")[3] is False
    assert option("function f() {\n  G=3\n}\ntorchrun --x=$G", "x")[3] is False
    assert option("G=8\nread G\ntorchrun --x=$G", "x")[3] is False


def test_the_last_assignment_wins() -> None:
    assert option("G=8\nG=4\ntorchrun --x=$G", "x") == ("4", 2, 3, True)


@pytest.mark.parametrize(
    "text",
    [
        'A=(\n  --x 1 # why\n  --y=2\n)\ntorchrun "${A[@]}"',
        "declare -a A=(--x 1)\nA+=(--y=2)\ntorchrun ${A[*]}",
        'A="--x 1 \\\n   --y=2"\ntorchrun $A',
        "A='--x 1'\nA+=' --y=2'\ntorchrun $A",
        "torchrun \\\n  --x 1 \\\n  --y=2",
        "torchrun --x \\\n 1 --y=2 > log 2>&1 < in || true",
        "B=torchrun\nsrun -l $B --x 1 --y=2",
    ],
)
def test_arguments_are_found_however_they_are_stored(text: str) -> None:
    found = command(text, "torchrun").options
    assert (found["x"].value, found["y"].value) == ("1", "2")


@pytest.mark.parametrize(
    ("text", "number"),
    [("8", 8), ("-1", -1), ("50_000", 50_000), ("'8'", 8), ("--8", None), ("8_", None), ("²", None), ("1e3", None)],
)
def test_whole_numbers(text: str, number: int | None) -> None:
    assert known(whole(Value(text, Span(1, 1, 1, 2)))) == number


def test_arithmetic() -> None:
    assert option("N=2\nG=8\ntorchrun --x=$((N * G + 1))", "x")[0] == "17"
    assert option("torchrun --x=$((N * 8))", "x")[3] is False
    assert option("torchrun --x=$((8 / 0))", "x")[3] is False


def test_slurm_variables_come_from_the_directives() -> None:
    job = read("#!/bin/bash\n#SBATCH -N 4\nsrun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=8 x.py\n").jobs[0]
    assert job.nodes is not None
    assert (job.nodes.value, job.nodes.span.line, job.nodes.span.column) == (4, 2, 12)


def test_directives_long_short_and_several_on_a_line() -> None:
    text = "#!/bin/bash\n#SBATCH --nodes 2 --gres=gpu:h100:8 # eight\n#SBATCH -J 'my job' -c4\nsrun hostname\n"
    job = read(text).jobs[0]
    said = {"nodes": "2", "gres": "gpu:h100:8", "job-name": "my job", "cpus-per-task": "4"}
    assert {name: value.value for name, value in job.directives.items()} == said
    assert job.gpus_per_node[0].value == 8


def test_who_runs_under_srun() -> None:
    inner = command("srun -N2 --label nohup torchrun x.py", "torchrun")
    assert inner.inside_srun
    assert inner.runner is not None
    assert inner.runner.options["N"].value == "2"
    assert not command("torchrun x.py", "torchrun").inside_srun
    assert command("srun bash -c 'cd /x && torchrun y.py'", "torchrun").inside_srun
    assert command("srun bash <<'EOF'\ntorchrun y.py\nEOF", "torchrun").inside_srun


def test_who_expands_a_variable() -> None:
    outer = command("srun torchrun --node_rank $SLURM_NODEID", "torchrun")
    assert "SLURM_NODEID" in outer.batch_variables
    for text in (
        "srun bash -c 'torchrun --node_rank $SLURM_NODEID'",
        'srun bash -c "torchrun --node_rank \\$SLURM_NODEID"',
    ):
        assert "SLURM_NODEID" not in command(text, "torchrun").batch_variables
    mixed = command('srun bash -c "torchrun --node_rank $SLURM_NODEID"', "torchrun")
    assert "SLURM_NODEID" in mixed.batch_variables


def test_environment() -> None:
    found = script("export A=1 B='x y'\nC=2\nexport C\nD=3 run\nE=4\n# export F=5\nmpirun -x G=6 -x PATH ./a.out")
    assert {e.name: e.value.value for e in found.env} == {"A": "1", "B": "x y", "C": "2", "D": "3", "G": "6"}


def test_comments_beside_and_above() -> None:
    found = script("# measured\nexport A=1\nexport B=2 # debug\n\nexport C='#no'\n")
    assert [e.comment for e in found.env] == ["measured", "debug", ""]


def test_heredocs_are_no_commands() -> None:
    found = script("cat <<EOF > file\nexport A=1\ntorchrun x\nEOF\necho done")
    assert [c.program for c in found.commands] == ["cat", "echo"]
    assert found.env == []


def test_dockerfile() -> None:
    text = "ARG V=1.43.2\nFROM nvidia/cuda:12.8.1-base AS b\nENV A=1 \\\n    # note\n    B=2\n"
    text += "ENV C three\nRUN echo \\\n  $V && x\n"
    file = read(text, "Dockerfile")
    assert {e.name: (e.value.value, e.value.span.line) for e in file.scripts[0].env} == {
        "A": ("1", 3), "B": ("2", 5), "C": ("three", 6)
    }  # fmt: skip
    assert [c.program for c in file.scripts[0].commands] == ["FROM", "echo", "x"]
    assert ("cuda", "12.8.1") in [(p.software, p.version.value) for p in file.pins]


def test_doubling_variables_stay_small() -> None:
    text = "A=xxxxxxxxxx\n" + "A=$A$A\n" * 60 + "torchrun --x=$A"
    assert len(command(text, "torchrun").options["x"].value) < 100_000


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    "line",
    [
        "a 'b c' d", 'a "b $X" c', "a b\\ c", "a --x=1 --y='2 3'", 'a "" b', "a $X$X", "a ${X}y", 'a "${L[@]}" z',
        "a $S", 'a "${X:-no}" ${Y:-yes}', "a b#c # comment", "a $((1 + 2 * 3))", "a \"it's\" 'say \"hi\"'", "a x\\\n y",
    ],
)  # fmt: skip
def test_words_are_those_of_bash(line: str) -> None:
    """The real shell is the judge of quoting, splitting and expansion."""
    setup = "X=one\nS='p q'\nL=(r 's t')\n"
    shown = subprocess.run(
        ["bash", "-c", f"a() {{ printf '%s\\0' \"$@\"; }}\n{setup}{line}"], capture_output=True, text=True, check=True
    ).stdout.split("\0")[:-1]
    ours = [word.value for word in command(setup + line, "a").words[1:]]
    assert ours == shown


def test_no_text_breaks_the_reader() -> None:
    """Cut, doubled and scrambled launchers give words, never an exception."""
    chance = random.Random(7)
    texts = [p.read_text() for p in sorted((Path(__file__).parent / "files" / "jobs").iterdir()) if p.suffix != ".yaml"]
    marks = "'\"`$(){}[]\\#;&|<>=\n\t ${ $(( <<EOF ;; \\\n"
    for round_ in range(600):
        text = chance.choice(texts)
        for _ in range(chance.randint(1, 6)):
            at = chance.randrange(len(text))
            cut = chance.randrange(0, 40)
            text = text[:at] + chance.choice(marks) * chance.randint(0, 3) + text[at + cut :]
            text = text or "x"
        name = ("job.sbatch", "run.sh", "Dockerfile")[round_ % 3]
        file = read_file(name, text if round_ % 3 < 2 else "FROM x\n" + text)
        assert file is not None
        for one in file.scripts:
            lines = text.split("\n")
            assert all(1 <= c.span.line <= len(lines) + 2 for c in one.commands)


def test_reading_is_linear() -> None:
    """Openers without an end must not make each other scan the rest again."""
    for piece in ("$(", "${", "'", '"', "`", "((", "<<A\n", "a=(", "$((", "\\\n", "2>", "a;", "$a"):
        started = time.process_time()
        scan(piece * 20_000)
        assert time.process_time() - started < 5, piece
