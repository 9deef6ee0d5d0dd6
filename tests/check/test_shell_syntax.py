"""SHL002: scripts that bash refuses. Whatever `bash -n` says of a script that somebody broke, `check` says, and nothing
else; scripts that are never read to the broken line, or not by bash, are left alone."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from reported import shown

from trainwright.check.finding import Finding
from trainwright.check.readers.shell_syntax import may_be_refused
from trainwright.check.rules import shl_syntax

GOLDEN = sorted(
    path for path in (Path(__file__).parents[1] / "golden/jobs").rglob("*") if path.suffix in (".sh", ".sbatch")
)
Run = Callable[..., list[Finding]]
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")

REFUSED = {
    "a quote that is not closed": ("srun python train.py --name 'a\necho end\n", 2),
    "an if without fi": ("if [ $A ]; then\n  srun python train.py\n", 3),
    "an if without then": ("if [ $A ]\n  srun python train.py\nfi\n", 4),
    "a loop without done": ("for i in 1 2; do\n  srun python train.py\n", 3),
    "a loop without do": ("for i in 1 2\n  srun python train.py\ndone\n", 3),
    "a case without esac": ("case $A in\n  a) srun python train.py ;;\n", 3),
    "a bracket too many": ("srun python train.py)\n", 2),
    "a brace too many": ("run() {\n  srun python train.py\n}\n}\n", 5),
    "an extra fi": ("if [ $A ]; then\n  srun python train.py\nfi\nfi\n", 5),
    "an else without an if": ("srun python train.py\nelse\n  echo a\nfi\n", 3),
    "a test without an end": ("if [[ -n $A ; then\n  srun python train.py\nfi\n", 2),
    "a branch without a command": ("if [ $A ]; then\n  # srun python train.py\nfi\n", 4),
    "a pipe to nothing": ("srun python train.py | \n", 2),
    "two semicolons": ("srun python train.py ;;\n", 2),
    "a substitution": ("A=$(nvidia-smi -L | wc -l\nsrun python train.py\n", 3),
    "a broken loop in a substitution": ("A=$(for i in 1 2; do echo $i)\nsrun python train.py\n", 2),
    "a shell in a pipe": ("srun python train.py | | tee a.log\n", 2),
    "after a condition with exit": ("[ -f train.py ] || exit 1\nif true; then\n srun python train.py\n", 4),
    "after a text about the call": ('echo "usage: $0 <nodes>"\nif true; then\n srun python train.py\n', 4),
    "after a redirection of all output": ("exec > >(tee a.log) 2>&1\nif true; then\n srun python train.py\n", 4),
}  # fmt: skip


@pytest.mark.parametrize("mistake", REFUSED)
@pytest.mark.parametrize("name", ["job.sbatch", "launch.sh"])
def test_what_bash_refuses_is_an_error_at_its_line(mistake: str, name: str, run: Run) -> None:
    text, line = REFUSED[mistake]
    assert shown(run(name, f"#!/bin/bash\n{text}", "SHL002")) == [f"error SHL002 {line}"]


ACCEPTED = {
    "a here-document without an end": "#!/bin/bash\ncat <<EOF\nsrun python train.py\n",
    "a word for fi": "#!/bin/bash\necho if then done fi\nsrun python train.py '(' \")\" \\{\n",
    "an archive behind exit": "#!/bin/bash\nsrun python train.py\nexit 0\n__ARCHIVE__\n)(if '\n",
    "python behind exec": "#!/bin/sh\n'''exec' \"/opt/bin/python\" \"$0\" \"$@\"\n' '''\nimport torch\nmain(1, (2))\n",
    "a program instead of the shell": '#!/bin/bash\nexec python -x "$0" "$@"\nimport torch\nprint("a" (1))\n',
    "patterns of bash": "#!/bin/bash\nshopt -s extglob\nrm -f !(a|b)*.pt\nsrun python train.py\n",
    "a name to fill in": "#!/bin/bash\ncd <your directory>\nsrun python train.py\n",
    "a value of Python": "#!/bin/bash\nsrun --nodes=%(nodes)d python train.py\n",
    "Jinja": "#!/bin/bash\n{% if gpus %}\nsrun python train.py\n{% endif %}\n",
    "zsh": "#!/bin/zsh\nfor i (1 2 3) srun python train.py $i\n",
    "csh": "#!/bin/csh\nif ( $A == 1 ) then\n  srun python train.py\nendif\n",
    "csh without a first line": "setenv A 1\nif ( $A == 1 ) then\n  srun python train.py\nendif\n",
    "Python": "#!/usr/bin/env python\n#SBATCH --nodes=1\nprint('a', (1))\n",
    "line ends of Windows": "#!/bin/bash\r\nif true; then\r\n  srun python train.py\r\nfi\r\n",
    "a case in a substitution": "#!/bin/bash\nA=$(case $B in a) echo 1 ;; esac)\nsrun python train.py\n",
    "quotes in quotes": '#!/bin/bash\nA="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"\nsrun python "$A"/train.py\n',
    "a blank before an array, which SHL001 reports": "#!/bin/bash\nA =(1 2)\nsrun python train.py\n",
    "user data in several parts": (
        'Content-Type: multipart/mixed; boundary="=="\nMIME-Version: 1.0\n\n--==\nContent-Type: text/cloud-config\n\n'
        "runcmd:\n - if true; then echo a; fi\n"
    ),
    "user data in YAML": "#cloud-config\nruncmd:\n - if true; then python train.py; fi\n - echo (a)\n",
    "a merge conflict, which TW001 reports": "#!/bin/bash\n<<<<<<< HEAD\nif a\n=======\nb\n>>>>>>> c\npython a.py\n",
}  # fmt: skip


@pytest.mark.parametrize("shape", ACCEPTED)
def test_what_bash_never_refuses_is_not_reported(shape: str, run: Run) -> None:
    assert run("launch.sh", ACCEPTED[shape], "SHL002") == []


def test_a_template_by_its_name_is_left_alone(run: Run) -> None:
    assert run("job.sbatch.tmpl", "#!/bin/bash\n#SBATCH -N 1\nif true; then\n", "SHL002") == []


def test_without_bash_nothing_is_reported(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shl_syntax, "_bash", lambda: "")
    assert run("job.sbatch", "#!/bin/bash\nif true; then\n", "SHL002") == []


def test_the_fix_names_the_open_block(run: Run) -> None:
    text = "#!/bin/bash\nf() {\n  if true; then\n    srun python train.py\n}\n"
    assert [(f.span.line, f.fix) for f in run("job.sbatch", text, "SHL002")] == [
        (5, "close the `if` of line 3, or remove what is too many")
    ]


@pytest.mark.parametrize(
    ("block", "fix"),
    [
        ("if [ $A -eq 3 ]\n  srun python t.py\nfi\n", "write `; then` at the end of line 2"),
        ("if [ $A -eq 3 ];\n  srun python t.py\nfi\n", "write `then` at the end of line 2"),
        ("if [ $A -eq 3 ] # three\n  srun python t.py\nfi\n", "write `; then` before the comment of line 2"),
        ("if [ $A -eq 3 ] &&\n  [ $B ]\n  a\nfi\n", "write `; then` behind the condition of the `if` of line 2"),
        ("if [ $A -eq 3 ] then\n  srun python t.py\nfi\n", "write `;` before the `then` of line 2"),
        ("if a; then\n  b\nelif c\n  d\nfi\n", "write `; then` at the end of line 4"),
        ("for i in 1 2 do\n  srun python t.py\ndone\n", "write `;` before the `do` of line 2"),
        ("while true\n  srun python t.py\ndone\n", "write `; do` at the end of line 2"),
    ],
)
def test_the_fix_names_the_word_that_is_missing(run: Run, block: str, fix: str) -> None:
    assert [f.fix for f in run("job.sbatch", f"#!/bin/bash\n{block}", "SHL002")] == [fix]


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("if [ -d a ]; then\n  srun a\nelse\n  # cd a\n  # git pull\nfi\n", "behind the `else` of line 4"),
        ("for i in 1 2; do\n  # srun $i\ndone\nsrun b\n", "behind the `do` of line 2"),
        ("if true; then # later\n  # srun a\nfi\n", "behind the `then` of line 2"),
        ("if true; then\n  srun a\nfi\nfi\nsrun b\n", "remove it: what it closes is closed above"),
        ("for i in 1; do;\n  a\ndone\n", "remove the `;`: none follows `do`, `then` or `else`"),
        ("srun a &;\nwait\n", "remove the `;` behind the `&`"),
        ("if[ $A = 1 ]; then\n  a\nfi\n", "write a blank before the bracket"),
        ("if [[ $A = 1 ]; then\n  a\nfi\n", "close `[[` with ` ]]`"),
        ("f() { srun a }\nf\n", "write `;` before the `}` of line 2"),
        ("if true; then\n  # srun a\nfi\nA=(1 2\n", "until `bash -n` accepts the script"),
    ],
)
def test_bash_accepts_what_the_fix_says(run: Run, text: str, fix: str) -> None:
    (finding,) = run("job.sbatch", f"#!/bin/bash\n{text}", "SHL002")
    assert finding.fix.endswith(fix)


def test_nothing_of_a_script_is_run(run: Run, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    run("job.sbatch", f"#!/bin/bash\ntouch {mark}\nA=$(touch {mark})\nset +n\ntouch {mark}\nif true; then\n", "SHL002")
    assert not mark.exists()


_TOKEN = re.compile(r"\b(if|then|fi|do|done|case|esac|in|for|while|else|elif)\b|[(){}'\"`;|&]|\[\[|\]\]|\$\(|<<")


def broken(text: str, rng: random.Random) -> str:
    """The text without a line, a quote, a bracket or a keyword, or with one twice."""
    if rng.random() < 0.4:
        lines = text.split("\n")
        lines.pop(rng.randrange(1, len(lines)))
        return "\n".join(lines)
    token = rng.choice(list(_TOKEN.finditer(text, text.index("\n"))))
    return text[: token.start()] + rng.choice(["", token[0] * 2]) + text[token.end() :]


def waits_for_a_quote(text: str, lines: int) -> bool:
    above = "\n".join(text.split("\n")[:lines])
    answer = subprocess.run(["bash", "-n"], input=above, capture_output=True, text=True, env={"LC_ALL": "C"})
    return re.search("looking for matching [`'][\"'`]'", answer.stderr) is not None


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_our_scripts_are_reported_when_bash_refuses_them_and_only_then(path: Path, run: Run) -> None:
    rng = random.Random(path.parent.name + path.name)
    assert not may_be_refused(path.read_text())  # bash need not be asked
    refused = 0
    for _ in range(40):
        text = broken(path.read_text(), rng)
        answer = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, env={"LC_ALL": "C"})
        lines = re.findall(r"line (\d+): (?!warning)", answer.stderr)
        reported = run(path.name, text, "SHL002")
        assert bool(reported) == bool(lines), f"{answer.stderr}\n{text}"
        if lines:
            refused += 1
            line = reported[0].span.line
            if reported[0].fix.startswith(("pair the quotes", "close `$")):
                assert [waits_for_a_quote(text, count) for count in (line - 1, line)] == [False, True]
            else:
                assert line == min(int(lines[0]), text.rstrip().count("\n") + 1)
    assert refused > 5


@pytest.mark.parametrize(
    "line",
    [
        """LOSS=$(grep -oP 'train/loss['"]?: \\K[0-9.]+' "train.log" | tail -1)""",
        'echo "starting',
        "echo 'starting",
        "echo it's running",
        'MODEL="llama',
    ],
)
def test_the_line_from_which_on_quotes_do_not_pair_is_named(run: Run, line: str) -> None:
    above = ["#!/bin/bash", "#SBATCH --nodes=1", 'text="two', 'lines"', "cat << EOF", '{"a": "b"}', "EOF"]
    below = [f'echo "{number}"' for number in range(40)] + ['if [ "$?" -eq 0 ]; then', '  echo "done"', "fi"]
    (finding,) = run("a.sbatch", "\n".join([*above, line, *below]) + "\n", "SHL002")
    assert finding.span.line == 8
    assert finding.fix.startswith("pair the quotes of the line")
