"""Staging, preloading and releasing: every byte arrives, also after a kill at any point."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ranks import run_ranks

from trainwright.errors import UserError
from trainwright.train.data import hsm
from trainwright.train.data.cli import main as data_main
from trainwright.train.data.staging import CHUNK, JOURNAL, Cluster, FolderSource, Item, OneNode, Stage

# What a Lustre client's `lfs` does, on plain files: a released file is a hole of the same size, its content is kept in
# an archive folder beside, and its flags in an index. Only this stand-in has seen preload and release here.
LFS = """#!{python}
import fcntl, json, os, shutil, sys
from pathlib import Path
root, archive, index = Path({root!r}), Path({archive!r}), Path({index!r})
verb, paths = sys.argv[1], [p for p in sys.argv[2:] if not p.startswith("-")]
if verb == "getname":
    sys.exit(0 if Path(paths[0]).resolve().is_relative_to(root) else 1)
for path in map(Path, paths):
    with open(index, "a+") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        handle.seek(0)
        released = set(json.loads(handle.read() or "[]"))
        key = str(path.relative_to(root))
        if verb == "hsm_state":
            flags = "released exists archived" if key in released else "exists archived"
            if key.startswith("new"):
                flags = "exists"
            print(f"{{path}}: (0x0000000d) {{flags}}, archive_id:1")
            continue
        if verb == "hsm_restore":
            shutil.copyfile(archive / key, path)
            released.discard(key)
        elif verb == "hsm_release":
            size = path.stat().st_size
            os.truncate(path, 0)
            os.truncate(path, size)
            released.add(key)
        handle.seek(0)
        handle.truncate()
        handle.write(json.dumps(sorted(released)))
"""


def make_tree(folder: Path, files: int, size: int) -> dict[str, str]:
    """Files of several sizes (one empty, one in a subfolder); name -> digest."""
    dice, digests = random.Random(1), {}
    for number in range(files):
        name = f"sub/{number}" if number % 3 else f"{number}"
        content = dice.randbytes(0 if number == 0 else dice.randrange(1, size))
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        digests[name] = hashlib.sha256(content).hexdigest()
    return digests


def tree(folder: Path) -> dict[str, str]:
    files = [p for p in folder.rglob("*") if p.is_file() and JOURNAL not in p.parts]
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def start(*words: str, **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "trainwright.train", "data", *words]
    devnull = subprocess.DEVNULL
    return subprocess.Popen(command, env={**os.environ, **environment}, stdout=devnull, stderr=devnull)


def kill_when(process: subprocess.Popen[bytes], reached) -> bool:
    """SIGKILL as soon as the condition holds; False where the process was faster."""
    while process.poll() is None:
        if reached():
            process.kill()
            process.wait()
            return True
        time.sleep(0.001)
    return False


def written(folder: Path) -> int:
    """Bytes below a folder that a process writes to: files are renamed while they are counted."""
    total = 0
    for path in folder.rglob("*") if folder.exists() else ():
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total


@pytest.mark.slow
def test_staging_killed_at_twenty_points_finishes_with_every_byte(tmp_path: Path) -> None:
    digests = make_tree(tmp_path / "source", 12, 3 << 20)
    (tmp_path / "source/large").write_bytes(random.Random(2).randbytes(3 * CHUNK + 5))
    digests["large"] = hashlib.sha256((tmp_path / "source/large").read_bytes()).hexdigest()
    total, target, kills, seed = written(tmp_path / "source"), tmp_path / "target", 0, 0
    words = ("stage", str(tmp_path / "source"), "-o", str(target), "--workers", "2")
    while kills < 20:
        seed += 1
        assert seed < 60, f"only {kills} of {seed} runs could be killed"
        here = written(target)
        if seed % 4 == 0 or here > 0.9 * total:
            subprocess.run(["rm", "-rf", str(target)], check=True)
            here = 0
        point = random.Random(seed).randrange(here, total)
        kills += kill_when(start(*words), lambda point=point: written(target) > point)
        for name, digest in tree(target).items():  # what has its name is whole, whenever the kill came
            assert digest == digests[name], (seed, name)
    assert start(*words).wait() == 0
    assert tree(target) == digests


def test_a_damaged_copy_is_found_and_copied_anew(tmp_path: Path) -> None:
    digests = make_tree(tmp_path / "source", 4, 1 << 16)
    stage = Stage(FolderSource(tmp_path / "source"), tmp_path / "target", OneNode())
    stage.run(quiet=True)
    damaged = tmp_path / "target/3"
    damaged.write_bytes(b"x" * damaged.stat().st_size)
    with pytest.raises(UserError, match="differ"):
        stage.run(quiet=True)
    assert stage.run(quiet=True).copied == (tmp_path / "source/3").stat().st_size
    assert tree(tmp_path / "target") == digests


def test_a_file_that_changed_in_the_source_is_copied_again(tmp_path: Path) -> None:
    make_tree(tmp_path / "source", 4, 1 << 16)
    stage = Stage(FolderSource(tmp_path / "source"), tmp_path / "target", OneNode())
    stage.run(quiet=True)
    (tmp_path / "source/3").write_bytes(b"new")
    assert stage.run(quiet=True).copied == 3
    assert (tmp_path / "target/3").read_bytes() == b"new"


def stage_here(source: Path, target: Path) -> tuple[int, int]:
    nodes = Cluster()
    staged = Stage(FolderSource(source), target / str(nodes.rank), nodes).run(quiet=True)
    return staged.bytes, staged.read


def test_a_cluster_reads_the_source_once(tmp_path: Path) -> None:
    digests = make_tree(tmp_path / "source", 5, 2 << 20)
    (tmp_path / "source/large").write_bytes(random.Random(2).randbytes(4 * CHUNK + 7))
    digests["large"] = hashlib.sha256((tmp_path / "source/large").read_bytes()).hexdigest()
    # One node has a file already, another a part of one: the others still get all of both.
    Stage(FolderSource(tmp_path / "source"), tmp_path / "target/1", OneNode()).run(quiet=True)
    (tmp_path / "target/1/large").unlink()
    answers = run_ranks(stage_here, 3, tmp_path / "source", tmp_path / "target")
    assert sum(read for _, read in answers) == answers[0][0]  # once per cluster, not once per node
    assert max(read for _, read in answers) < answers[0][0]
    for rank in range(3):
        assert tree(tmp_path / "target" / str(rank)) == digests


@pytest.fixture
def lustre(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root, archive = tmp_path / "fsx", tmp_path / "archive"
    make_tree(archive, 40, 1 << 18)
    subprocess.run(["cp", "-r", str(archive), str(root)], check=True)
    tool = tmp_path / "bin/lfs"
    tool.parent.mkdir()
    index = tmp_path / "index"
    tool.write_text(LFS.format(python=sys.executable, root=str(root), archive=str(archive), index=str(index)))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(hsm, "AT_ONCE", 4)
    return root


def test_release_and_preload_bring_back_every_byte(lustre: Path, tmp_path: Path) -> None:
    digests = tree(lustre)
    released = hsm.release(lustre, 2, quiet=True)
    assert (released.files, released.problems) == (40, {})
    assert tree(lustre) != digests
    assert all(state.released for state in hsm.states(hsm.list_files(lustre)).values())
    loaded = hsm.preload(lustre, 2, digests, quiet=True)
    assert (loaded.files, loaded.already, loaded.problems) == (40, 0, {})
    assert tree(lustre) == digests
    assert hsm.preload(lustre, 2, digests, quiet=True).already == 40


def test_preload_names_a_file_whose_content_is_not_what_was_exported(lustre: Path, tmp_path: Path) -> None:
    digests = tree(lustre)
    hsm.release(lustre, 2, quiet=True)
    (tmp_path / "archive/3").write_bytes(b"other")
    problems = hsm.preload(lustre, 2, digests, quiet=True).problems
    assert problems == {str(lustre / "3"): "the content differs from its checksum"}


def test_release_keeps_what_the_bucket_does_not_have(lustre: Path) -> None:
    (lustre / "new.bin").write_bytes(b"fresh")
    moved = hsm.release(lustre, 2, quiet=True)
    assert moved.problems == {str(lustre / "new.bin"): "not in the bucket yet: export it first"}
    assert (lustre / "new.bin").read_bytes() == b"fresh"


@pytest.mark.slow
def test_preload_and_release_killed_at_twenty_points_finish(lustre: Path, tmp_path: Path) -> None:
    digests = tree(lustre)
    sums = tmp_path / "sums"
    sums.write_text("".join(f"{digest}  {name}\n" for name, digest in digests.items()))
    index = tmp_path / "index"

    def released() -> int:
        try:
            return len(json.loads(index.read_text() or "[]"))
        except (OSError, ValueError):
            return -1

    kills = seed = 0
    while kills < 20:
        seed += 1
        assert seed < 60, f"only {kills} of {seed} runs could be killed"
        before = max(released(), 0)
        verb = "release" if before < 20 else "preload"  # the one with more left to do
        point = random.Random(seed).randrange(1, 20)
        kills += kill_when(start(verb, str(lustre)), lambda b=before, p=point: abs(max(released(), 0) - b) >= p)
    subprocess.run(["lfs", "hsm_state", str(lustre / "3")], check=True)
    assert start("release", str(lustre)).wait() == 0
    assert start("preload", str(lustre), "--checksums", str(sums)).wait() == 0
    assert tree(lustre) == digests


class FullDisk(FolderSource):
    """A source of many files whose first read fails, as a copy to a full disk does, or is interrupted."""

    def __init__(self, error: BaseException) -> None:
        self.error, self.reads = error, 0

    def items(self) -> list[Item]:
        return [Item(str(number), 10, "") for number in range(500)]

    def read(self, name: str, start: int, end: int) -> bytes:
        self.reads += 1
        raise self.error


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_the_first_failure_ends_the_copying_of_all_that_is_queued(tmp_path: Path, error: BaseException) -> None:
    source = FullDisk(error)
    with pytest.raises(type(error)):
        Stage(source, tmp_path / "target", OneNode(), workers=2).run(quiet=True)
    assert source.reads < 250


def test_names_that_are_no_text_and_folders_behind_links_are_staged(tmp_path: Path) -> None:
    source, elsewhere = tmp_path / "source", tmp_path / "elsewhere"
    source.mkdir(), elsewhere.mkdir()
    (Path(os.fsdecode(os.fsencode(source) + b"/caf\xe9"))).write_text("x")
    (source / ".staged-notes").write_text("not the journal")
    (elsewhere / "far").write_text("y")
    (source / "link").symlink_to(elsewhere)
    assert move("stage", str(source), "-o", str(tmp_path / "target")) == 0
    assert tree(tmp_path / "target") == {**tree(source), "link/far": hashlib.sha256(b"y").hexdigest()}
    (elsewhere / "again").symlink_to(source)
    with pytest.raises(UserError, match="leads back"):
        move("stage", str(source), "-o", str(tmp_path / "other"))
    (elsewhere / "again").unlink()
    (source / "gone").symlink_to("nowhere")
    with pytest.raises(UserError, match="leads nowhere"):
        move("stage", str(source), "-o", str(tmp_path / "other"))


def test_an_empty_source_a_target_inside_it_and_a_folder_in_the_way_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    with pytest.raises(UserError, match="nothing to stage"):
        move("stage", str(source), "-o", str(tmp_path / "target"))
    (source / "a").write_text("x")
    for inside in (source, source / "copy"):
        with pytest.raises(UserError, match="lies in the source"):
            move("stage", str(source), "-o", str(inside))
    (tmp_path / "target/a").mkdir(parents=True)
    with pytest.raises(UserError, match="directory") as caught:
        move("stage", str(source), "-o", str(tmp_path / "target"))
    assert caught.value.where == str(tmp_path / "target/a")
    with pytest.raises(UserError, match="No such file"):
        move("preload", str(source), "--checksums", str(tmp_path / "none"))


def test_a_file_of_checksums_is_read_whole_or_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line that is no checksum, and a file that is not there, passed without a word."""
    folder, sums = tmp_path / "data", tmp_path / "sums"
    folder.mkdir()
    (folder / "a").write_text("x")
    good = hashlib.sha256(b"x").hexdigest()
    for line in (f"{good}  ./a", f"{good.upper()} *a"):
        sums.write_text(f"# of the data\n\n{line}\n")
        assert move("preload", str(folder), "--checksums", str(sums)) == 0
    sums.write_text(f"{good}  a\n{good}  b\n")
    assert move("preload", str(folder), "--checksums", str(sums)) == 1
    assert "b: named by the checksums, and not there" in capsys.readouterr().out
    for line in (good, f"{good[:40]}  a", f"MD5 (a) = {good[:32]}"):
        sums.write_text(f"{good}  a\n{line}\n")
        with pytest.raises(UserError, match="is no checksum of sha256sum") as caught:
            move("preload", str(folder), "--checksums", str(sums))
        assert caught.value.where == f"{sums}:2"


def move(*words: str) -> int:
    return data_main(list(words))
