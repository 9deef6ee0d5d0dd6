"""IMG: what a stage of a Dockerfile uses and does not have: files of another stage, variables from above the first
FROM, the command that its ENTRYPOINT is given."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

from trainwright.check.around import texts
from trainwright.check.beside import text_beside
from trainwright.check.finding import Level
from trainwright.check.model import File
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.img_stages import Instruction, Stage
from trainwright.errors import nearest

_FROM = re.compile(r"--from=(\S+)")
_MOUNT_FROM = re.compile(r"--mount=\S*?\bfrom=([^\s,]+)")
_PLAIN = re.compile(r"[a-z][\w-]*", re.IGNORECASE)  # not an image with a registry or a tag
_CONTEXTS = re.compile(r"--?build-context\b|\bcontexts\s*[={:]|additional_contexts")
_CONTEXT_FILES = ("docker-bake.hcl", "docker-bake.json", "docker-compose.yml", "docker-compose.yaml", "compose.yaml")
_ALIKE = 0.7
_SHORT = 3  # letters with which a name must begin to be taken for another's beginning
# Images of Docker Hub that have no owner, and so may be named like a stage.
_OFFICIAL = {
    "alpine", "almalinux", "amazonlinux", "bash", "buildpack-deps", "busybox", "caddy", "centos", "debian", "docker",
    "eclipse-temurin", "fedora", "gcc", "golang", "gradle", "haproxy", "httpd", "julia", "maven", "memcached", "mongo",
    "archlinux", "clojure", "composer", "dart", "elixir", "erlang", "haskell", "mariadb", "mono", "oraclelinux",
    "mysql", "nginx", "node", "openjdk", "perl", "php", "postgres", "python", "pypy", "r-base", "redis", "registry",
    "rockylinux", "ruby", "rust", "scratch", "swift", "traefik", "ubuntu",
}  # fmt: skip
_AN_IMAGE = "Docker takes a name that no stage has for an image: the build stops with `pull access denied`."
_ARGUMENT = re.compile(r"([A-Za-z_]\w*)(=.*)?$")
# Images whose variables are known: those of a language and of CUDA beside them.
_KNOWN_BASES = re.compile(
    r"(docker\.io/)?(library/)?(ubuntu|debian|alpine|rockylinux|almalinux|centos|fedora|amazonlinux|python)(:|@|$)"
    r"|(\S+/)?nvidia/cuda:"
)
_OF_BASES = re.compile(
    r"(CUDA|NCCL|NV|NVIDIA|PYTHON|PIP|GPG|LD|LIBRARY|PATH|LANG|HOME|CUDNN)(_\w*)?$|TARGET\w+|BUILD\w+"
)
_BEFORE_FROM = (
    "what ARG sets above the first FROM ends there: in a stage the name is empty, unless `ARG NAME` stands in it too."
)
_ONE_COMMAND = "Docker gives the words of CMD to the program of ENTRYPOINT; the shell form starts `/bin/sh -c` instead."
_OWN_PROGRAMS = ("torchrun", "accelerate", "deepspeed", "mpirun", "python", "python3")
_FOR_A_SHELL = re.compile(r"[$&|;<>*`]")
_SEVERAL = re.compile(r"&&|[|;]")
_READS_WORDS = re.compile(r"\$[@*0-9]|\$\{[@*0-9]")


def unknown_stages(file: File, stages: list[Stage]) -> Iterator[Problem]:
    """COPY and mounts from a stage that is not there."""
    names = [stage.name for stage in stages if stage.name]
    for own, stage in enumerate(stages[1:]):
        for one in stage.parts:
            pattern = _MOUNT_FROM if one.keyword == "RUN" else _FROM if one.keyword == "COPY" else None
            for source in pattern.findall(one.flags) if pattern is not None else ():
                name = source.strip("\"'").lower()
                if name.isdecimal() and (int(name) == own or int(name) >= len(stages) - 1):
                    said = f"stage {name} is {'this one' if int(name) == own else 'not there'}: the build stops"
                    fix = "give the stage a name (FROM … AS name), and write it here"
                    yield problem(one.span, said, fix, level="error", why="stages count from 0.")
                yield from _source(file, one, name, names)


def _source(file: File, one: Instruction, name: str, names: list[str]) -> Iterator[Problem]:
    if name in names or name in _OFFICIAL or not _PLAIN.fullmatch(name):
        return
    near = _near(name, names)
    if near and not _has_contexts(file):
        said = f"no stage is named {name}: Docker looks for an image of that name"
        yield problem(one.span, said, f"write --from={near}", level="error", why=_AN_IMAGE)


def _near(name: str, names: list[str]) -> str:
    """The stage that is meant: build for builder, or one letter off."""
    plain = name.replace("_", "-")
    begun = [one for one in names if len(min(one, plain, key=len)) >= _SHORT and _begins(one.replace("_", "-"), plain)]
    return begun[0] if len(begun) == 1 else nearest(name, names, _ALIKE) or ""


def _begins(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def _has_contexts(file: File) -> bool:
    """Whether a build of the directory may name further sources (`docker build --build-context`)."""
    if file.path == "<stdin>" or _CONTEXTS.search(file.text):
        return True
    beside = (text_beside(file.path, name) or "" for name in _CONTEXT_FILES)
    around = (text for _, text in texts(os.path.dirname(os.path.abspath(file.path))))
    return any(_CONTEXTS.search(text) for text in (*beside, *around))


def lost_arguments(stages: list[Stage]) -> Iterator[Problem]:
    """Variables that ARG sets above the first FROM and a stage uses without naming them."""
    names = [match[1] for one in stages[0].parts if one.keyword == "ARG" and (match := _ARGUMENT.match(one.text))]
    for stage in stages[1:]:
        for name in names:
            use = _use(stage, name)
            if use is not None:
                level: Level = "warning" if _KNOWN_BASES.match(stage.base) and not _OF_BASES.match(name) else "info"
                said = f"{name} is empty here: its ARG stands above the first FROM, and the stage does not name it"
                yield problem(use.span, said, f"add ARG {name} below FROM", level=level, why=_BEFORE_FROM)


def _use(stage: Stage, name: str) -> Instruction | None:
    """The first instruction that reads a name before the stage sets it."""
    reads = re.compile(rf"(?<!\\)\$(?:{name}\b|\{{{name}\}})")
    sets = re.compile(rf"(?:^|[\s;&|(]){name}=|\b(?:read|for)\s+(?:-\w+\s+)*{name}\b")
    if any(_declares(one, name) for one in (stage.before.inherited if stage.before is not None else [])):
        return None
    for one in stage.parts:
        if _declares(one, name):
            return None
        if one.keyword in ("CMD", "ENTRYPOINT", "HEALTHCHECK", "ONBUILD"):
            continue  # read when the container runs
        if reads.search(_unquoted(one.text)):
            return None if sets.search(one.text) or "<<" in one.text else one
    return None


def _declares(one: Instruction, name: str) -> bool:
    return one.keyword in ("ARG", "ENV") and re.search(rf"(^|\s){name}(=|\s|$)", one.text) is not None


def _unquoted(text: str) -> str:
    return re.sub(r"'[^']*'", "", text)


def dropped_commands(stage: Stage) -> Iterator[Problem]:
    """CMD that the shell form of ENTRYPOINT does not read, or that is a shell where words are meant."""
    last = {one.keyword: one for one in stage.parts if one.keyword in ("CMD", "ENTRYPOINT")}
    entry, command = last.get("ENTRYPOINT"), last.get("CMD")
    if entry is None or command is None:
        return
    words = _words(entry)
    if words is None and not _READS_WORDS.search(entry.text):
        said = "ENTRYPOINT is in shell form, which does not read the words of CMD: they are dropped"
        fix = 'write both in exec form: ENTRYPOINT ["…"] and CMD ["…"]'
        if _FOR_A_SHELL.search(entry.text):
            fix = f"{through_shell('ENTRYPOINT', '…')}, and CMD as a list"
            if _SEVERAL.search(entry.text):  # `exec cd` starts nothing
                fix = fix.replace("exec …", "…")
        yield problem(command.span, said, fix, level="warning", why=_ONE_COMMAND)
    elif words and words[0].rsplit("/", 1)[-1] in _OWN_PROGRAMS and _words(command) is None and command.text.strip():
        said = f"CMD is in shell form: {words[0]} gets the words /bin/sh -c and not these"
        yield problem(command.span, said, 'write CMD ["…", "…"]', level="warning", why=_ONE_COMMAND)


def through_shell(keyword: str, program: str) -> str:
    """The exec form of a shell, which hands on the words of CMD where they are given to an ENTRYPOINT."""
    own = keyword == "ENTRYPOINT"
    script = f'"exec {program} … \\"$@\\"", "sh"' if own else f'"exec {program} …"'
    return f'write {keyword} ["/bin/sh", "-c", {script}]'.replace("… …", "…")


def _words(one: Instruction) -> list[str] | None:
    """The words of the exec form; None for the shell form."""
    try:
        words = json.loads(one.text)
    except ValueError:
        return None
    return [str(word) for word in words] if isinstance(words, list) else None
