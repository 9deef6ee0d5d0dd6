"""Write the pins of what container images install (src/trainwright/images/pins): run it after a change of a framework's
packages in catalog/data/families.toml, or of a set's torch. Needs uv. One file per framework and torch, every package
with its version; what the managed runtime pins keeps that version. Names of frameworks: only those."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from trainwright.catalog.families import families
from trainwright.catalog.runtime import runtime_pins
from trainwright.images.locks import FOLDER, PYTHON, lock_name, locked, requirements


def compile_pins(wanted: tuple[str, ...]) -> str:
    """Every package that these need, resolved for Linux on x86_64."""
    with tempfile.TemporaryDirectory() as work:
        source, kept = Path(work) / "in.txt", Path(work) / "constraints.txt"
        source.write_text("\n".join(wanted) + "\n")
        named = {re.split(r"[\[=<>]", one)[0] for one in wanted}
        pins = re.findall(r"(?m)^([A-Za-z0-9_.-]+)==(\S+)", runtime_pins().requirements)
        # numpy and the like may be held back by an old framework: only packages it does not name are kept as they are
        kept.write_text("".join(f"{n}=={v}\n" for n, v in pins if n not in named and n in ("numpy", "tokenizers")))
        base = [
            "uv", "pip", "compile", "--quiet", "--no-annotate", "--no-header", "--python-version", PYTHON,
            "--python-platform", "x86_64-manylinux_2_28", str(source),
        ]  # fmt: skip
        done = subprocess.run([*base, "--constraint", str(kept)], capture_output=True, text=True, check=False)
        if done.returncode:
            done = subprocess.run(base, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(wanted)}: {done.stderr.strip()}")
        return done.stdout


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    written = set()
    for framework, torch in locked(families()):
        name = lock_name(framework, torch)
        if sys.argv[1:] and framework.name not in sys.argv[1:]:
            written.add(name)
            continue
        print(name, file=sys.stderr)
        text = compile_pins(requirements(framework, torch))
        (FOLDER / name).write_text(f"# Made by tools/pin_images.py from families.toml.\n{text}")
        written.add(name)
    for path in FOLDER.glob("*.txt"):
        if path.name not in written:
            path.unlink()


if __name__ == "__main__":
    main()
