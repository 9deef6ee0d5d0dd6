"""The JOB rules against files as public repositories have them. `files/audit_job/*.txt` holds the cases: `=== title |
expected codes` (or `quiet`: nothing above a note), then `--- path` and the text of each file of a repository."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.check.engine import Selection, check
from trainwright.check.finding import Finding
from trainwright.check.readers.shell_script import read_script
from trainwright.check.readers.shell_source import whole_text

CASES = sorted((Path(__file__).parent / "files" / "audit_job").glob("*.txt"))
Case = tuple[str, list[str], dict[str, str]]


def cases_in(path: Path) -> list[Case]:
    """Title, expected codes and files of each case."""
    cases = []
    for block in re.split(r"^=== ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        head, _, body = block.partition("\n")
        title, _, expected = head.rpartition("|")
        parts = re.split(r"^--- (.*)\n", body, flags=re.MULTILINE)
        files = dict(zip(parts[1::2], parts[2::2], strict=True))
        cases.append((title.strip(), [] if expected.strip() == "quiet" else sorted(expected.split()), files))
    return cases


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_files_of_repositories(path: Path, tmp_path: Path) -> None:
    wrong = []
    for number, (title, expected, files) in enumerate(cases_in(path)):
        repository = tmp_path / f"{number}" / "x"
        for name, text in files.items():
            (repository / name).parent.mkdir(parents=True, exist_ok=True)
            (repository / name).write_text(text)
        findings = check([str(repository)], Selection(select=("JOB",))).findings
        loud = [f for f in findings if f.level != "info"]
        if sorted(f.code for f in loud) != expected:
            wrong.append((title, expected, [f"{f.code} {f.message}" for f in loud]))
    assert not wrong


def test_line_ends_of_windows_change_nothing(tmp_path: Path) -> None:
    """What a rule of its own says about the line ends aside."""
    for title, expected, files in cases_in(next(path for path in CASES if path.stem == "mistakes")):
        shell = {name: text for name, text in files.items() if name.endswith((".sh", ".sbatch", ".slurm"))}
        if len(shell) < len(files):
            continue
        (tmp_path / "a.sbatch").write_bytes("".join(shell.values()).replace("\n", "\r\n").encode())
        findings = check([str(tmp_path / "a.sbatch")], Selection(select=("JOB",))).findings
        assert sorted({f.code for f in findings if f.level != "info"}) == expected, title


PARSERS = {
    "plain": "p = argparse.ArgumentParser()\np.add_argument('--depth', '-d')\np.parse_args()",
    "group": "p = argparse.ArgumentParser()\ng = p.add_argument_group('g')\ng.add_argument('--depth')\np.parse_args()",
    "flag": "p = argparse.ArgumentParser()\np.add_argument('--depth', action='store_true')\np.parse_args()",
    "two flags": """p = argparse.ArgumentParser()
p.add_argument('--depth', action=argparse.BooleanOptionalAction)
p.parse_args()""",
    "whole names": "p = argparse.ArgumentParser(allow_abbrev=False)\np.add_argument('--depth')\np.parse_args()",
    "function": """def get():
    p = argparse.ArgumentParser(add_help=False)
    p.add_argument('--depth')
    return p
argparse.ArgumentParser(parents=[get()]).parse_args()""",
    "own function": """def more(q):
    q.add_argument('--depth')
p = argparse.ArgumentParser()
more(p)
p.parse_args()""",
    "class": """class A:
    def __init__(self):
        self.p = argparse.ArgumentParser()
        self.p.add_argument('--depth')
    def go(self):
        return self.p.parse_args()
A().go()""",
    "given": """def main(argv=None):
    p = argparse.ArgumentParser()
    p.add_argument('--depth')
    p.parse_args(argv)
main()""",
    "star": "p = argparse.ArgumentParser()\np.add_argument(*('--depth', '-d'))\np.parse_args()",
}
OPEN = {  # nobody sees their options in the file: nothing is reported, whatever they refuse
    "known": "p = argparse.ArgumentParser()\np.parse_known_args()",
    "rest": "p = argparse.ArgumentParser()\np.add_argument('x', nargs='...')\np.parse_args(['a'] + sys.argv[1:])",
    "loop": "p = argparse.ArgumentParser()\n[p.add_argument('--' + n) for n in ('depth', 'width')]\np.parse_args()",
    "alias": "p = argparse.ArgumentParser()\nadd = p.add_argument\nadd('--depth')\nadd('--width')\np.parse_args()",
    "nothing": "p = argparse.ArgumentParser()\np.parse_args([])",
    "elsewhere": """import types
other = types.SimpleNamespace(add=lambda p: p.add_argument('--depth'))
p = argparse.ArgumentParser()
other.add(p)
p.parse_args()""",
    "argv": "del sys.argv[1:]\np = argparse.ArgumentParser()\np.parse_args()",
    "other class": """class P(argparse.ArgumentParser):
    def parse_args(self):
        self.parse_known_args()
P().parse_args()""",
}


@pytest.mark.parametrize("name", [*PARSERS, *OPEN])
def test_options_are_refused_as_argparse_refuses_them(name: str, tmp_path: Path) -> None:
    """Python itself judges: a script is called with an option, and JOB013 says the same."""
    script = tmp_path / "train.py"
    script.write_text("import argparse\nimport sys\n" + (PARSERS | OPEN)[name] + "\n")
    for option in ("--depth=3", "--depth", "--dept=3", "--no-depth", "--width=1"):
        ended = subprocess.run([sys.executable, str(script), option], capture_output=True, text=True, timeout=60)
        refused = "unrecognized arguments" in ended.stderr
        (tmp_path / "a.sh").write_text(f"python train.py {option}\n")
        findings = check([str(tmp_path / "a.sh")], Selection(select=("JOB013",))).findings
        assert bool(findings) == (refused and name in PARSERS), (option, ended.stderr)


def test_branches_are_known_from_what_always_runs() -> None:
    text = (
        "if [ a ]; then\n  echo 1\nfi\necho 2\n[ -f x ] && echo 1\n[ -f x ] || exit 1\necho 2\ncd x && echo 2\n"
        "[[ $A == 0 ]] && echo 1 && echo 1; echo 2\ncase $A in\n a) echo 1;;\nesac\nrun() { echo 2; }\n"
        "for i in 1 2; do echo 2; done\nbash -c '[ a ] && echo 1'\n[ -f x ] && { echo 1; echo 1; }\necho 2\n"
    )
    commands = [c for c in read_script(whole_text(text)).commands if c.program == "echo"]
    assert [(c.words[1].value, c.branch) for c in commands] == [
        (c.words[1].value, c.words[1].value == "1") for c in commands
    ]


RENDEZVOUS = [
    ("--rdzv_endpoint=localhost", "port is missing in endpoint"),
    ("--rdzv_backend=c10d --rdzv_endpoint=localhost", ""),
    ("--rdzv_backend=c10d --master_port=80000", ""),
    ("--master_port=80000", "must be an integer between"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("options", "error"), RENDEZVOUS)
def test_torchrun_stops_where_the_rule_says_so(
    options: str, error: str, tmp_path: Path, run: Callable[..., list[Finding]]
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "x.py").write_text("")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=1", *options.split(), "x.py"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (ended.returncode == 0) == (error == ""), ended.stderr
    assert error in ended.stderr
    findings = run("a.sh", f"torchrun --nproc_per_node=1 {options} x.py\n", "JOB009")
    assert bool([f for f in findings if f.level != "info"]) == (error != "")
