"""Images as launchers and manifests name them, and as the scripts and Dockerfiles beside them build them."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from trainwright.check.beside import file_at
from trainwright.check.model import Command, File, Value
from trainwright.spec.source import Span

_OPEN = re.compile(r"[$<>{}]")
_TAIL = re.compile(r"[a-z0-9][\w.-]*")
_BUILDERS = ("docker", "podman", "nerdctl", "finch")
_PRIVATE = re.compile(r"[$<{]|\.dkr\.ecr\.|^localhost")
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")
_IN_DEFAULT = re.compile(r"\$\{\w+:?[-=][^}]*$")
_MOST_NESTED = 3  # variables in variables
_MOST_SCRIPTS = 40  # of one directory: one with more is no example that belongs together
_NOT_LETTERS = re.compile(r"[^a-z0-9]")


@dataclass(frozen=True, slots=True)
class ImageName:
    """What `registry/name:tag` says; a part that a variable holds is empty."""

    registry: str
    name: str
    tag: str

    @property
    def private(self) -> bool:
        """Whether it can be an image of one's own: no registry, an account's, or one that a variable holds."""
        return not self.registry or _PRIVATE.search(self.registry) is not None


@dataclass(frozen=True, slots=True)
class Build:
    """One name that a script gives to an image, and where."""

    image: ImageName
    script: str
    line: int
    dockerfile: str = ""  # as the command names it


def image_name(text: str) -> ImageName | None:
    """The parts of an image's name; None for digests, files and what a variable holds as a whole."""
    text = text.partition("://")[2] or text
    if "@" in text or text.endswith((".sqsh", ".sif")) or not text:
        return None
    registry, _, rest = text.rpartition("/")
    prefix, brace, after = rest.rpartition("}")
    name, _, tag = (after if brace else rest).partition(":")
    if not _TAIL.fullmatch(name):
        return None
    return ImageName(registry + prefix + brace, name, "" if _OPEN.search(tag) else tag or "latest")


def builds_beside(path: str) -> list[Build]:
    """The images that scripts of a file's directory, or of the one above, build, tag or push."""
    return [build for script in _scripts(path) for build in _builds(script)]


def squash_files_beside(path: str) -> list[tuple[Value[str], str]]:
    """The .sqsh files that scripts there import with enroot, each with its script."""
    files = []
    for script in _scripts(path):
        for command in (c for part in script.scripts for c in part.commands if c.program == "enroot"):
            output = command.options.get("output") or command.options.get("o")
            if output is not None and len(command.words) > 1 and command.words[1].value == "import":
                files.append((output, script.path))
    return files


def dockerfile_of(path: str, image: ImageName, builds: list[Build]) -> File | None:
    """The Dockerfile that makes an image: the one of the build command, or the only one there, if it has its name."""
    named = [b for b in builds if b.image.name == image.name]
    for build in named:
        name = os.path.basename(build.dockerfile) if build.dockerfile else "Dockerfile"
        file = file_at(os.path.join(os.path.dirname(build.script), name))
        if file is not None and file.format == "dockerfile":
            return file
    folders = _folders(path)
    names = [(folder, name) for folder in folders for name in _names(folder) if _is_dockerfile(name)]
    if named or len(names) != 1:
        return None
    folder, name = names[0]
    own = {_plain(name.lower().replace("dockerfile", "")), _plain(os.path.basename(folder))}
    return file_at(os.path.join(folder, name)) if _plain(image.name) in own else None


def alike(one: str, other: str) -> bool:
    """Whether two names differ by a typing mistake or their separators only."""
    from difflib import SequenceMatcher

    return _plain(one) == _plain(other) or SequenceMatcher(None, one, other).ratio() >= 0.85


def _plain(name: str) -> str:
    return _NOT_LETTERS.sub("", name.lower())


def _is_dockerfile(name: str) -> bool:
    lowered = name.lower()
    return lowered.startswith("dockerfile") or lowered.endswith(".dockerfile")


def _folders(path: str) -> list[str]:
    folder = os.path.dirname(os.path.abspath(path))
    return [folder, os.path.dirname(folder)]


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _scripts(path: str) -> Iterator[File]:
    for folder in _folders(path):
        names = [name for name in _names(folder) if name.endswith((".sh", ".sbatch", ".slurm", ".bash"))]
        for name in names if len(names) <= _MOST_SCRIPTS else ():
            full = os.path.join(folder, name)
            file = file_at(full) if _may_build(full) else None
            if file is not None:
                yield file


def _may_build(path: str) -> bool:
    try:
        status = os.stat(path)
        return stat.S_ISREG(status.st_mode) and _mentions_builder(path, status.st_mtime_ns, status.st_size)
    except OSError:
        return False


@lru_cache(maxsize=4 * _MOST_SCRIPTS)  # each job of a directory asks about all its scripts
def _mentions_builder(path: str, _changed: int, _size: int) -> bool:
    with open(path, "rb") as file:
        text = file.read(2**18)
    return b"enroot import" in text or any(f"{name} ".encode() in text for name in _BUILDERS)


def _builds(script: File) -> Iterator[Build]:
    for command in (c for part in script.scripts for c in part.commands):
        words = command.words
        if command.runner is None or command.runner.program not in _BUILDERS or not words:
            continue
        verb = words[1].value if words[0].value in ("buildx", "image") and len(words) > 1 else words[0].value
        at = command.options.get("f") or command.options.get("file")
        for word in _given_names(command, verb):
            image = image_name(word.value)
            if image is not None:
                if word.default:  # whoever calls the script may give another registry, or another tag
                    stated = _states_tag(script, _written(script, word.span))
                    image = replace(image, registry="", tag=image.tag if stated else "")
                yield Build(image, script.path, word.span.line, at.value if at is not None and at.known else "")


def _written(script: File, span: Span) -> str:
    """What a word is written as; nothing for what stands in the default of a variable."""
    line = script.lines[span.line - 1] if span.line <= len(script.lines) else ""
    if _IN_DEFAULT.search(line[: span.column - 1]):
        return ""
    return line[span.column - 1 : span.end_column - 1 if span.end_line == span.line else None]


def _states_tag(script: File, text: str, depth: int = 0) -> bool:
    """Whether the script decides the tag of a name in which something else has a default, such as the registry:
    `$REGISTRY/encoder:1.5.0`, `$REGISTRY/encoder:$TAG` and `$IMAGE` with constants."""
    last = text.rpartition("/")[2].strip("\"'")
    tag = last.partition(":")[2] if not _VARIABLE.fullmatch(last) else last
    variable = _VARIABLE.fullmatch(tag)
    if variable is None:
        return _TAIL.fullmatch(tag) is not None
    given = [a for part in script.scripts for a in part.assignments if a.name == variable[1]]
    if len(given) != 1 or depth > _MOST_NESTED:
        return False
    value = given[0].value
    return value.known and (not value.default or _states_tag(script, _written(script, given[0].span), depth + 1))


def _given_names(command: Command, verb: str) -> list[Value[str]]:
    """The words that name what an image is built, tagged or pushed as."""
    words = command.words
    if verb in ("tag", "push"):
        return words[-1:]
    if verb != "build":
        return []
    names = [word for flag, word in pairwise(words) if flag.value in ("-t", "--tag")]
    return names + [
        Value(word.value.partition("=")[2], word.span) for word in words if word.value.startswith(("--tag=", "-t="))
    ]
