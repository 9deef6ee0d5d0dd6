"""The code a run is made of: copied into the run folder, with the state of its git repository beside it, so that a job
that waits in the queue runs what was submitted and not what was edited since."""

from __future__ import annotations

import ast
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import trainwright
from trainwright.errors import UserError
from trainwright.node_side import node_files

LARGEST = 50 * 2**20
MOST_FILES = 5_000  # of a folder that git knows nothing about
LARGEST_PACKED = 720 * 2**10  # a ConfigMap holds 1 MiB, and base64 takes a third more


def check_script(path: Path) -> None:
    """A script that is missing or does not parse is refused now, not after the queue."""
    if not path.is_file():
        raise UserError(f"there is no script {path}", fix="name a file that exists, relative to where you are")
    if path.suffix != ".py":
        if path.suffix in (".sbatch", ".slurm") or "\n#SBATCH" in path.read_text(errors="replace"):
            raise UserError(
                f"{path.name} is a batch script: it asks Slurm for its nodes itself",
                fix=f"`trainwright adopt {path} -o spec.yaml` makes a job of it",
            )
        return
    try:
        ast.parse(path.read_text(), str(path))
    except SyntaxError as error:
        raise UserError(
            f"the script is not Python: {error.msg}",
            where=f"{path}:{error.lineno}:{error.offset}",
            fix="fix that line",
        ) from None


def ship_trainer(code: Path) -> None:
    """Our node side: only Python files and their data, so it runs in any image that has torch."""
    for name, content in node_files().items():
        target = code / "trainwright" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def ship_script(script: Path, code: Path) -> None:
    """A user's script and the files beside and below it."""
    check_script(script)
    ship_tree(script.parent.resolve(), code, (Path(script.name),))


def ship_tree(root: Path, code: Path, named: Sequence[Path]) -> None:
    """The files of a folder: those that git does not ignore, or all of a small folder; `named` ones in any case."""
    copied = (root.parent / "run.json").is_file()  # of an earlier run: what was chosen then travels again
    files = [path.relative_to(root) for path in root.rglob("*")] if copied else _git_files(root)
    if files and (size := _size(root, files)) > LARGEST:
        raise UserError(
            f"{root} holds {size >> 20} MB that git does not ignore, more than the {LARGEST >> 20} MB a run carries",
            fix="put data elsewhere or into .gitignore",
        )
    for name in {*(files or _plain_files(root)), *named}:
        if (root / name).is_file():
            (code / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, code / name)
    if any("trainwright" in path.read_text(errors="replace") for path in code.glob("*.py")):
        ship_helper(code)


def _plain_files(root: Path) -> list[Path]:
    """Where git does not say what belongs to a project: everything below its folder that is not hidden, compiled or a
    virtual environment; only the Python files of a folder that is too large for that, such as a home folder."""
    files: list[Path] = []
    size = 0
    for folder, inner, names in os.walk(root):
        inner[:] = [name for name in inner if not _foreign(Path(folder, name))]
        here = [Path(folder, name).relative_to(root) for name in names if not name.startswith(".")]
        files += here
        size += _size(root, here)
        if size > LARGEST or len(files) > MOST_FILES:
            print(f"{root} is large and no git repository: only the Python files in it travel", file=sys.stderr)
            return [path.relative_to(root) for path in root.glob("*.py")]
    return files


def _foreign(folder: Path) -> bool:
    return folder.name.startswith(".") or folder.name == "__pycache__" or (folder / "pyvenv.cfg").exists()


def _size(root: Path, files: Iterable[Path]) -> int:
    return sum((root / name).stat().st_size for name in files if (root / name).is_file())


def ship_helper(code: Path) -> None:
    """`from trainwright import run`, for nodes without Trainwright; where it is installed, the rest of it is found."""
    source, target = Path(trainwright.__file__).parent, code / "trainwright"
    if target.exists():  # the user's own tree has it
        return
    target.mkdir()
    shutil.copy2(source / "run.py", target)
    own = (source / "__init__.py").read_text()
    (target / "__init__.py").write_text(f'{own}\n__path__ = __import__("pkgutil").extend_path(__path__, __name__)\n')


def packed(code: Path, keeper: str = "") -> bytes:
    """The code as one archive; refused where it is too large for the cluster that keeps it beside the job."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as packing:
        packing.add(code, arcname=".")
    if keeper and len(archive.getvalue()) > LARGEST_PACKED:
        raise UserError(
            f"the code is {len(archive.getvalue()) >> 10} KB when packed; {keeper} keeps at most "
            f"{LARGEST_PACKED >> 10} KB beside a job",
            fix="send it through S3 (`kubernetes: {code: s3://bucket/prefix}`), or put it into the image and name the "
            "script by its full path there",
        )
    return archive.getvalue()


def ship_profiler(code: Path, name: str) -> None:
    """What starts another's script under torch's profiler: one file that needs nothing else of ours."""
    code.mkdir(exist_ok=True)
    shutil.copy2(Path(trainwright.__file__).parent / "train" / "profile.py", code / name)


def record_git(where: Path, run: Path) -> None:
    """`git.json` and `git.diff`: the commit, and how the files differed from it."""
    head = _git(where, "rev-parse", "HEAD")
    if head is None:
        return
    state = {
        "commit": head.strip(),
        "branch": (_git(where, "rev-parse", "--abbrev-ref", "HEAD") or "").strip(),
        "changed": (_git(where, "status", "--porcelain", "--", ".") or "").splitlines(),
    }
    (run / "git.json").write_text(json.dumps(state, indent=1) + "\n")
    (run / "git.diff").write_text(_git(where, "diff", "HEAD", "--", ".") or "")


def _git_files(root: Path) -> list[Path]:
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return [Path(name) for name in listed.split("\0") if name] if listed else []


def _git(where: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(where), *words], capture_output=True, text=True, errors="replace")
    except FileNotFoundError:  # no git on this machine: nothing to record
        return None
    return done.stdout if done.returncode == 0 else None
