"""Print the keys of torchtitan's TOML files, as the table that `check` reads: those of the configuration classes and of
the TOML files in all given wheels, and of the options in the table of flags. Nothing is imported.

    pip download --no-deps torchtitan==0.2.2 …    (a wheel for each version)
    python tools/torchtitan_keys.py FLAGS.csv *.whl > src/trainwright/check/data/torchtitan_keys.csv"""

from __future__ import annotations

import ast
import csv
import re
import sys
import tomllib
import zipfile
from collections import defaultdict
from datetime import date
from pathlib import Path
from typing import Any

_CLASSES = re.compile(r"(job_config|config_manager)\.py$")
_CORE = re.compile(r"torchtitan/(config/job_config|config_manager)\.py")
_WHEEL = re.compile(r"torchtitan-([\d.]+)-py3")
Keys = dict[str, set[str]]  # of each section, by its dotted name
Classes = dict[str, ast.ClassDef]


def add_fields(keys: Keys, section: str, node: ast.ClassDef, classes: Classes) -> None:
    """The annotated fields of a class, and those of the classes that they hold."""
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            name, kind = one.target.id, ast.unparse(one.annotation).strip("'\"").rpartition(".")[2]
            keys[section].add(name)
            if kind in classes and kind != node.name:
                add_fields(keys, f"{section}.{name}".lstrip("."), classes[kind], classes)


def add_table(keys: Keys, section: str, table: dict[str, Any]) -> None:
    for name, value in table.items():
        keys[section].add(name)
        if isinstance(value, dict):
            add_table(keys, f"{section}.{name}".lstrip("."), value)


def add_wheel(keys: Keys, wheel: zipfile.ZipFile) -> None:
    modules = {name: _classes(wheel.read(name)) for name in wheel.namelist() if _CLASSES.search(name)}
    core = {k: v for name, found in modules.items() if _CORE.fullmatch(name) for k, v in found.items()}
    for found in modules.values():
        for name, node in found.items():
            if name.endswith("JobConfig"):
                add_fields(keys, "", node, {**core, **found})
    for name in wheel.namelist():
        table = tomllib.loads(wheel.read(name).decode()) if name.endswith(".toml") else {}
        if "training" in table:
            add_table(keys, "", table)


def _classes(source: bytes) -> Classes:
    return {node.name: node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)}


def add_options(keys: Keys, rows: list[dict[str, str]]) -> None:
    for row in rows:
        *sections, name = row["option"].lstrip("-").split(".")
        if row["framework"] == "torchtitan" and sections and re.fullmatch(r"\w+", name):
            for depth, one in enumerate([*sections, name]):
                keys[".".join(sections[:depth])].add(one)


def main(flags: str, wheels: list[str]) -> None:
    keys: Keys = defaultdict(set)
    with open(flags, encoding="utf-8") as file:
        add_options(keys, list(csv.DictReader(file)))
    versions = []
    for path in wheels:
        match = _WHEEL.match(Path(path).name)
        with zipfile.ZipFile(path) as wheel:
            add_wheel(keys, wheel)
        versions.append(match[1] if match is not None else path)
    print(f"# source: classes and TOML files of torchtitan {', '.join(sorted(versions))}; options of its main branch")
    print(f"# date: {date.today()}")
    print("section,keys")
    for section in sorted(keys):
        print(f"{section},{' '.join(sorted(keys[section]))}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
