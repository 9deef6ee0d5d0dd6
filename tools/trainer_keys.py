"""Print the keys that accelerate and LLaMA-Factory take in a configuration file, as the table that `check` reads, with
the values of some of accelerate's keys, those of all given versions together. Nothing is imported: the classes are read
from wheels.

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
# Lists and enumerations of accelerate, and the keys whose values they are.
VALUES = {
    "FSDP_SHARDING_STRATEGY": "fsdp_sharding_strategy",
    "FSDP_AUTO_WRAP_POLICY": "fsdp_auto_wrap_policy",
    "FSDP_BACKWARD_PREFETCH": "fsdp_backward_prefetch",
    "FSDP_STATE_DICT_TYPE": "fsdp_state_dict_type",
    "DistributedType": "distributed_type",
    "SageMakerDistributedType": "distributed_type",
    "DynamoBackend": "dynamo_backend",
}
_OF_VALUES = re.compile(r"accelerate/(state|utils/(constants|dataclasses))\.py")
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


def values(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Each key with a value that it may have."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name in VALUES:
            yield from ((VALUES[node.name], text) for one in node.body for text in _texts(getattr(one, "value", None)))
        elif isinstance(node, ast.Assign) and (name := ast.unparse(node.targets[0])) in VALUES:
            yield from ((VALUES[name], text) for one in getattr(node.value, "elts", ()) for text in _texts(one))


def _texts(node: ast.expr | None) -> list[str]:
    """The value of a member; the documentation of a class has several words."""
    text = node.value if isinstance(node, ast.Constant) else None
    return [text] if isinstance(text, str) and " " not in text else []


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
                elif _OF_VALUES.fullmatch(member):
                    for key, value in values(ast.parse(wheel.read(member))):
                        keys[f"accelerate values of {key}"].add(value)
        versions[match[1]].append(match[2])
    said = "; ".join(f"{package} {', '.join(sorted(each, key=_numbers))}" for package, each in sorted(versions.items()))
    print(f"# source: classes of {said}\n# date: {date.today()}\nprogram,keys")
    for program, each in sorted(keys.items()):
        print(f"{program},{' '.join(sorted(key for key in each if not key.startswith('_')))}")


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


if __name__ == "__main__":
    main(sys.argv[1:])
