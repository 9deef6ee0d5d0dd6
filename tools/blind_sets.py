"""Measure `check` on public files that nobody chose: draw rows, check what was collected, record the judgements.
tests/check/corpus/README.md says how a set is collected and judged.

    python tools/blind_sets.py draw DIR PATHS --seed 20261119 --collectors 7
    python tools/blind_sets.py strings DIR FORMS --seed 20261120 --collectors 2
    python tools/blind_sets.py store DIR 3 < LINES       # what collector 3 read
    python tools/blind_sets.py check DIR SET            # DIR/SET/OWNER__NAME/… -> DIR/SET-findings.csv
    python tools/blind_sets.py record DIR SET           # both readers' verdicts -> the tables beside the corpus test
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import os
import random
import re
import string
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from trainwright.check.causes import merge_causes
from trainwright.check.engine import Result, check

CORPUS = Path(__file__).parents[1] / "tests/check/corpus"
ROWS = 100  # that a listing of repositories has at most
VERDICTS = ("useful", "noise", "false")  # the later one is the worse
FINDINGS = ("id", "repository", "file", "line", "code", "level", "message", "why", "fix", "also")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("draw", "strings", "store", "check", "record"))
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "name", help="the set; for draw a file of exact paths, for strings one of forms, for store a collector"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--collectors", type=int, default=7)
    given = parser.parse_args()
    if given.action == "draw":
        draw(given.folder, Path(given.name).read_text().split(), given.seed, given.collectors)
    elif given.action == "strings":
        draw_strings(given.folder, Path(given.name).read_text().splitlines(), given.seed, given.collectors)
    elif given.action == "store":
        store(given.folder, given.name, sys.stdin)
    elif given.action == "check":
        write_table(given.folder, given.name)
    else:
        record(given.folder, given.name)


def draw(folder: Path, paths: list[str], seed: int, collectors: int) -> None:
    """A list per collector: exact paths, each with row numbers in the order in which they are tried; and the
    repositories that were judged before."""
    chance = random.Random(seed)
    paths = sorted(set(paths))
    chance.shuffle(paths)
    lines = [f"{path}: {' '.join(map(str, chance.sample(range(1, ROWS + 1), ROWS)[:40]))}\n" for path in paths]
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(collectors):
        (folder / f"draw-{number + 1}.txt").write_text("".join(lines[number::collectors]))
    judged = {row["repository"] for row in _rows(CORPUS / "first_sight.csv")}
    known = sorted(name for name in judged if "/" in name and " " not in name)
    (folder / "excluded.txt").write_text("".join(f"{name}\n" for name in known))


def draw_strings(folder: Path, forms: list[str], seed: int, collectors: int, rounds: int = 6) -> None:
    """A list per collector of strings to search for: each form several times, with values that the seed decides."""
    chance, drawn = random.Random(seed), dict[str, None]()
    for _ in range(rounds):
        for form in chance.sample(forms, len(forms)):
            drawn[_BLANK.sub(lambda match: _fill(match[1], chance), form)] = None
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(collectors):
        lines = [f"{text}\n" for text in list(drawn)[number::collectors]]
        (folder / f"strings-{number + 1}.txt").write_text("".join(lines))


_BLANK = re.compile(r"\{([^{}]+)\}")


def _fill(blank: str, chance: random.Random) -> str:
    """`8-250` is a whole number, `@@` are two letters, `v100|a100` is one of them."""
    if blank.strip("@") == "":
        return "".join(chance.choice(string.ascii_lowercase) for _ in blank)
    if re.fullmatch(r"\d+-\d+", blank):
        least, most = blank.split("-")
        return str(chance.randint(int(least), int(most))).zfill(len(least))
    return chance.choice(blank.split("|"))


def store(folder: Path, collector: str, lines: Iterable[str]) -> None:
    """Writes and logs files that were read; a copy of another length than the answer gave is refused, and said.

    Each file is a line `@@@ owner/name COMMIT ROW CHARACTERS PATH`, or without a repository
    `@@@ ID - ROW CHARACTERS NAME`, and below it the text as it is. Up to four line ends at its end, which a collector
    cannot see, are supplied from the length: a copy whose last characters, no more than these, are cut off passes. A
    file with a line of its own that starts with `@@@` cannot be stored: the line is refused as a header, and the file
    for its length."""
    with (folder / f"log-{collector}.csv").open("a", newline="", encoding="utf-8") as file:
        log = csv.writer(file)
        for header, text in _blocks(lines):
            origin, commit, row, size, path = header
            repository = origin if "/" in origin else f"unnamed/{origin}"
            missing = int(size) - len(text)
            place = folder / "raw" / repository.replace("/", "__", 1) / path
            if not 0 <= missing <= _LINE_ENDS or place.exists():
                why = "stored before" if place.exists() else f"{len(text)} characters of {size}, without line ends"
                print(f"not stored: {repository} {path}: {why}")
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes((text + "\n" * missing).encode())
            log.writerow([path, repository, commit.strip("-"), row])
            print(f"stored: {repository} {path}")


_LINE_ENDS = 4  # at the end of a file


def _blocks(lines: Iterable[str]) -> Iterator[tuple[list[str], str]]:
    """The five words of each header, and the text below it without the line ends at its end. What is below a line that
    is no header is skipped, and said."""
    header: list[str] | None = None
    text: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.startswith("@@@"):
            text.append(line)
            continue
        if header is not None:
            yield header, "".join(text).rstrip("\n")
        header, text = _words(line), []
        if header is None:
            print(f"not stored: line {number} is no header: {line.strip()}")
    if header is not None:
        yield header, "".join(text).rstrip("\n")


def _words(header: str) -> list[str] | None:
    """The five words of a header; None where there are fewer, or the fourth is no length."""
    words = header[3:].strip().split(" ", 4)
    return words if len(words) == 5 and re.fullmatch("[0-9]+", words[3]) else None


def collected(folder: Path) -> set[tuple[str, str]]:
    """Repository and path of every file that was drawn, from the collectors' logs: path,repository,commit,row."""
    logs = [csv.reader(log.read_text().splitlines()) for log in sorted(folder.glob("log-*.csv"))]
    return {(row[1], row[0]) for log in logs for row in log}


def findings_of(repository: Path) -> Result:
    """The errors and warnings of a repository by itself, as a user would see them in its root."""
    (repository / ".git").mkdir(exist_ok=True)  # its root, where rules stop looking around
    before = Path.cwd()
    os.chdir(repository)
    try:
        result = check(["."])
    finally:
        os.chdir(before)
    merge_causes(result)
    return result


def write_table(folder: Path, name: str) -> None:
    """What the readers judge: errors and warnings that have a place in a drawn file."""
    drawn, rows = collected(folder), []
    for place in sorted(path for path in (folder / name).iterdir() if path.is_dir()):
        repository = place.name.replace("__", "/", 1)
        for one in findings_of(place).findings:
            places = [(one.file, one.span.line), *((other.file, other.line) for other in one.also)]
            paths = [os.path.normpath(file) for file, _ in places]
            if one.level != "info" and any((repository, path) in drawn for path in paths):
                also = "; ".join(f"{path}:{line}" for path, (_, line) in list(zip(paths, places, strict=True))[1:])
                text = (one.message, one.why, one.fix, also)
                rows.append((repository, paths[0], one.span.line, one.code, one.level, *text))
    with (folder / f"{name}-findings.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(FINDINGS)
        writer.writerows((f"{name}{number:02}", *row) for number, row in enumerate(rows, start=1))
    print(f"{len(rows)} findings")


def digest(text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.splitlines()).rstrip("\n")
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def record(folder: Path, name: str) -> None:
    """The worse of the two verdicts as first sight, and what the same files give today."""
    readers = [{row["id"]: row for row in _rows(folder / f"{name}-judge-{number}.csv")} for number in (1, 2)]
    first: list[list[Any]] = []
    today: list[list[Any]] = []
    for row in _rows(folder / f"{name}-findings.csv"):
        place = folder / name / row["repository"].replace("/", "__", 1)
        worst = max((reader[row["id"]] for reader in readers), key=lambda one: VERDICTS.index(one["verdict"]))
        mark = digest((place / row["file"]).read_text(encoding="utf-8", errors="replace"))
        at = [row["line"], row["code"]]
        first.append([name, row["repository"], row["file"], mark, *at, row["level"], worst["verdict"], worst["why"]])
        for one in findings_of(place).findings:
            if [str(one.span.line), one.code] == at and os.path.normpath(one.file) == row["file"]:
                today.append(["tuned", row["repository"], row["file"], "", mark, *at, one.level, worst["verdict"]])
    for table, rows in (("first_sight.csv", first), ("judgements.csv", today)):
        with (CORPUS / table).open("a", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    main()
