"""Print the keys that accelerate and LLaMA-Factory take in a configuration file, as the table that `check` reads, those
of all given versions together. Nothing is imported: the classes are read from wheels.

    pip download --no-deps accelerate==1.15.0 llamafactory==0.9.5 transformers==5.22.2 …    (a wheel for each version)
    python tools/trainer_keys.py *.whl > src/trainwright/check/data/trainer_keys.csv"""

from __future__ import annotations

import ast
import re
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from datetime import date
from pathlib import Path

# Of each package: the modules with the classes, and the programs whose files have their fields as keys.
MODULES = {
    "accelerate": (r"accelerate/commands/config/config_args\.py", ("accelerate",)),
    "llamafactory": (r"(llamafactory|llmtuner)/hparams/\w+_args\.py", ("LLaMA-Factory",)),
    "transformers": (r"transformers/training_args(_seq2seq)?\.py", ("LLaMA-Factory",)),
}
SECTIONS = re.compile(r"accelerate/commands/launch\.py")
_WHEEL = re.compile(r"(\w+)-([\d.]+)-py3")
_OPTION = re.compile(r"--((?:fsdp|deepspeed)_\w+|zero\w+|offload_\w+|gradient_\w+)$")


def fields(tree: ast.Module) -> Iterator[str]:
    """The annotated fields of every class, and the keys that a method takes out of `config_dict`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from (
                f.target.id for f in node.body if isinstance(f, ast.AnnAssign) and isinstance(f.target, ast.Name)
            )
        elif isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]) == "config_dict":
            yield from (
                one.value for one in [node.left] if isinstance(one, ast.Constant) and isinstance(one.value, str)
            )


def options(tree: ast.Module) -> Iterator[str]:
    """The launcher's options for FSDP and DeepSpeed, which are the keys of two sections."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (match := _OPTION.fullmatch(node.value)):
            yield match[1]


def main(wheels: list[str]) -> None:
    keys: dict[str, set[str]] = defaultdict(set)
    versions: dict[str, list[str]] = defaultdict(list)
    for name in wheels:
        match = _WHEEL.match(Path(name).name)
        if match is None or match[1] not in MODULES:
            continue
        pattern, programs = MODULES[match[1]]
        with zipfile.ZipFile(name) as wheel:
            for member in wheel.namelist():
                if re.fullmatch(pattern, member):
                    for program in programs:
                        keys[program].update(fields(ast.parse(wheel.read(member))))
                elif SECTIONS.fullmatch(member):
                    for option in options(ast.parse(wheel.read(member))):
                        section = "fsdp_config" if option.startswith("fsdp_") else "deepspeed_config"
                        keys[f"accelerate {section}"].add(option)
        versions[match[1]].append(match[2])
    said = "; ".join(f"{package} {', '.join(sorted(each, key=_numbers))}" for package, each in sorted(versions.items()))
    print(f"# source: classes of {said}\n# date: {date.today()}\nprogram,keys")
    for program, each in sorted(keys.items()):
        print(f"{program},{' '.join(sorted(key for key in each if not key.startswith('_')))}")


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


if __name__ == "__main__":
    main(sys.argv[1:])
