"""A bad and a good example beside every rule: a test runs them all, `--explain` and the docs show one."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

FOLDER = Path(__file__).parent


def examples(code: str) -> list[Path]:
    """The example files of a rule, bad ones first, and those first that are short and need nothing but themselves."""
    files = (p for p in (FOLDER / code).glob("*") if p.is_file() and p.suffix not in (".expect", ".toml"))
    return sorted(files, key=lambda p: (p.name.split(".")[0], ".aws." in p.name, p.suffix == ".json", p.name))


def companions(example: Path) -> list[Path]:
    """The files beside an example that it depends on: those that it names, itself or through another one."""
    others = [p for p in sorted(example.parent.iterdir()) if _is_companion(p)]
    text, named = example.read_text(encoding="utf-8"), []
    while found := [p for p in others if p not in named and _is_named(p, text)]:
        named += found
        text = "\n".join([text, *(p.read_text(encoding="utf-8") for p in found)])
    return named


def _is_companion(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(("bad", "good", "facts.")) and path.suffix != ".expect"


def _is_named(path: Path, text: str) -> bool:
    """Whether a text names a file, or an image that the file builds."""
    built = re.findall(r"^docker build -t (\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    return re.search(rf"(?<![\w.-]){re.escape(path.name)}(?![\w.-])", text) is not None or any(
        one in text for one in built
    )


def example_of(code: str) -> list[str]:
    """One bad example, and what the good one changes, as text blocks; nothing when the rule has no examples."""
    for bad in (p for p in examples(code) if p.name.startswith("bad")):
        good = bad.with_name(bad.name.replace("bad", "good", 1))
        if good.exists():
            shown = without_header(bad.read_text(encoding="utf-8"))
            return [
                f"Example ({bad.name}):",
                shown,
                *(
                    part
                    for path in companions(bad)
                    for part in (f"Beside it, {path.name}:", path.read_text("utf-8").strip())
                ),
                "Use instead:",
                _changes(shown, without_header(good.read_text("utf-8"))),
            ]
    return []


def without_header(text: str) -> str:
    """An example without the `expect:` lines that only the test reads."""
    return "\n".join(line for line in text.splitlines() if "expect: " not in line).strip("\n")


def _changes(bad: str, good: str) -> str:
    lines = list(difflib.unified_diff(bad.splitlines(), good.splitlines(), lineterm="", n=2))[2:]
    return "\n".join(line for line in lines if not line.startswith("@@")) or good
