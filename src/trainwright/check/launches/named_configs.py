"""Which configuration files a launch command names: by an option, in Hydra's way, or as the script's first argument;
and whether they are read as they lie there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from trainwright.check.beside import is_directory, text_beside
from trainwright.check.model import Command, ShellScript, Value

_OPTIONS = ("job.config_file", "config_file", "config", "deepspeed", "deepspeed_config")
_HERE = ("$PWD", "${PWD}", "$(pwd)")
_YAML = (".yaml", ".yml")
# Where sbatch was called, whatever `cd` did since: the folder of the script or the one above.
_SUBMITTED = re.compile(r"\$\{?SLURM_SUBMIT_DIR\}?/(?=[^$`]+$)")
_LAUNCHERS = (".sh", ".bash", ".sbatch", ".slurm", ".job")
_READ_BESIDE = 200  # names of a directory
_WRITES = re.compile(
    r"\b(tee|sed|cp|scp|mv|ln|yq|jq|perl|envsubst|rsync|wget|curl|patch)\b|generate|render|make_|write|create|dump\(|"
    r",\s*(mode=)?[\"'][wxa]b?\+?[\"']"  # open(…, "w")
)
_OUTPUT = r"(?<!\S)--?(o|out|output|save|dest|destination|dst|to)([-_]?(file|path|name|to|config|json|yaml))*[ =]+"


def named_configs(launch: Command) -> Iterator[tuple[Value[str], str]]:
    """Each file's name, where it is written, and its path from the launcher."""
    for name in _OPTIONS:
        at = launch.options.get(name)
        if at is not None and (at.known or is_submitted(at)):
            yield at, _SUBMITTED.sub("", at.value)
    script = next((i for i, word in enumerate(launch.words) if word.value.endswith(".py")), None)
    if script is None:
        return
    yield from _of_hydra(launch, launch.words[script].value)
    after = launch.words[script + 1] if script + 1 < len(launch.words) else None
    if after is not None and (after.known or is_submitted(after)) and after.value.endswith(_YAML):
        yield after, _SUBMITTED.sub("", after.value)


def is_submitted(at: Value[str]) -> bool:
    """Whether a file is named from the directory in which sbatch was called."""
    return _SUBMITTED.match(at.value) is not None


def _of_hydra(launch: Command, script: str) -> Iterator[tuple[Value[str], str]]:
    """A relative `--config-path` counts from the script's directory; without one the script's own default holds."""
    at, folder = launch.options.get("config_name"), launch.options.get("config_path")
    beside = folder is not None and (folder.value in _HERE or (folder.value in (".", "./") and "/" not in script))
    changed = any(word.value.startswith(("+", "~")) for word in launch.words)  # keys are added or removed
    if at is not None and at.known and beside and not changed:
        yield at, at.value if at.value.endswith(_YAML) else f"{at.value}.yaml"


def is_changed(script: ShellScript | None, launch: Command, name: str) -> bool:
    """Whether a script writes or edits a file that its launcher names, or looks for it in a directory below."""
    if script is None:
        return False
    base = re.escape(os.path.basename(name))
    own = range(launch.span.line, launch.span.end_line + 1)
    for number, line in enumerate(script.text.splitlines(), start=script.first_line):
        if number in own or line.lstrip().startswith("#"):
            continue
        if re.search(rf"^\s*cd\s+[\"']?\w|>\s*[\"']?[^\s>|;]*{base}", line):
            return True
        if re.search(base, line) and (_WRITES.search(line) or re.search(rf"{_OUTPUT}[^\s=]*{base}", line)):
            return True
    return False


def states_beside(path: str, *options: str) -> bool:
    """Whether a launcher in the directory of a configuration, or the one above, names it and passes one of the options,
    which win over the file."""
    name = os.path.basename(path)
    texts = texts_beside(path, _LAUNCHERS)
    return any(name in text and any(f"--{option}" in text for option in options) for _, text in texts)


def assigned_beside(path: str, key: str) -> bool:
    """Whether a script in the directory of a configuration, or the one above, gives a key another value after it read
    the file: `config["train_batch_size"] = …`."""
    pattern = re.compile(rf"\[[\"']{re.escape(key)}[\"']\]\s*=[^=]")
    return any(pattern.search(text) for _, text in texts_beside(path, (".py",)))


def texts_beside(path: str, suffixes: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The names and texts of the files with these endings in the directory of a configuration and the one above."""
    folder = Path(os.path.abspath(path)).parent
    for place in (folder, folder.parent):
        for other in sorted(os.listdir(place) if is_directory(str(place)) else ())[:_READ_BESIDE]:
            if other.endswith(suffixes):
                yield other, text_beside(str(place / other), other) or ""
