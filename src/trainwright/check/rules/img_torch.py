"""IMG: torch beside torchvision and torchaudio, each release of which is built for one torch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from trainwright.catalog.tables import read_table
from trainwright.check import reasons
from trainwright.check.launches.job_sizes import once
from trainwright.check.launches.pip_places import CONDA, Place, Places, of_pip
from trainwright.check.model import Command, File, ShellScript, Value
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.img_copied import listed_requirements, lists_at_hand

TABLE = Path(__file__).parents[1] / "data" / "torch_pins.csv"
Numbers = tuple[int, ...]

_COMPANIONS = ("torchvision", "torchaudio")
_PIN = re.compile(
    r"(?P<name>torch|torchvision|torchaudio)(?:\[[\w,]*\])?\s*(?P<how>===?|~=)\s*"
    r"(?P<version>[0-9]{1,4}(?:\.[0-9]{1,4})*)(?P<any>\.\*)?(?P<local>\+[\w.]+)?"
)
_CONDA_PIN = re.compile(
    r"(?:[\w-]+::)?(?P<name>pytorch|torchvision|torchaudio)(?P<how>==?)"
    r"(?P<version>[0-9]{1,4}(?:\.[0-9]{1,4})+)(?P<any>\.\*)?(?P<local>=\S*)?"
)
_TAKE_A_VALUE = {
    "-i", "--index-url", "--extra-index-url", "-f", "--find-links", "--cache-dir", "--timeout", "--default-timeout",
    "--trusted-host", "--retries", "--root-user-action", "--python", "-p", "--progress-bar", "--proxy", "--cert",
    "--index-strategy", "--torch-backend", "--upgrade-strategy", "--no-binary", "--only-binary",
}  # fmt: skip
# What may bring another torch along: a list of requirements, a folder or address, packages that pin torch themselves.
_LISTS = ("-r", "-c", "-e", "--requirement", "--constraint", "--editable")
_BRINGS_TORCH = re.compile(
    r"(vllm|sglang|xformers|torchtext|torchdata|unsloth|fastai|bitsandbytes|lmdeploy|autoawq"
    r"|tensorrt.llm|torch.tensorrt|torch|torchvision|torchaudio)"
    r"(?![\w-])",
    re.IGNORECASE,
)
# Ubuntu 20.04 and other images of that time have a pip before 20.3, which only complains; so have many environments
# that still ask for a torch of that time.
_OLD_PIP = re.compile(
    r"ubuntu[:-]?(16|18|20)\.04|debian:(9|10|stretch|buster)|legacy-resolver|\bpip[=<]=?(9|1[0-9]|20\.[0-2])\b|"
    r"pytorch/pytorch:1\.[0-7]\.|nvidia/pytorch:(19|20)\.|miniconda3?:4\.[0-8]"
)
_OLD_TORCH = (1, 8)
_OVERRIDES = ("--override", "--overrides")  # of uv: the pins of the packages themselves do not count
_OTHER_BUILDS = re.compile(r"jetson|l4t", re.IGNORECASE)


@dataclass(slots=True)
class Pin:
    """One of the three as a command asks for it."""

    name: str
    version: str  # as it is written, without what follows a plus
    local: str
    word: Value[str]
    torches: frozenset[Numbers]  # every torch that fits it; none where that is not known

    @property
    def title(self) -> str:
        return f"{self.name} {self.version}" + (f" ({self.source})" if self.source else "")

    @property
    def source(self) -> str:
        """The list of requirements that holds the pin, where it is none of the command itself."""
        return self.word.text if self.word.text.endswith((".txt", ".in", ".pip")) else ""

    @property
    def needed(self) -> str:
        """The torch it needs, in words."""
        first, last = (".".join(map(str, one)) for one in (min(self.torches), max(self.torches)))
        return first if first == last else f"{first} to {last}"

    @property
    def newest(self) -> str:
        return ".".join(map(str, max(self.torches)))

    def excludes(self, other: Pin, digits: int = 3) -> bool:
        own, others = ({one[:digits] for one in pin.torches} for pin in (self, other))
        return bool(own) and bool(others) and not own & others


@dataclass(slots=True)
class Environment:
    """What the commands so far have installed, and what is wrong with it unless a later one puts it right."""

    pins: dict[str, Pin] = field(default_factory=dict)
    problems: dict[str, Problem] = field(default_factory=dict)


@rule("IMG006", "error")
def torch_fits_its_companions(file: File) -> Iterator[Problem]:
    """torch, torchvision and torchaudio must be of releases that belong together.

    A release of torchvision or torchaudio requires one exact torch: torchvision 0.16.0 takes torch 2.1.0 and no other.
    In one command, pip and uv refuse other pins, and so they do in a list that a Dockerfile copies beside it (`-r
    requirements.txt`). In separate commands (a warning) the later one wins: torchvision
    replaces the torch that was installed before, or a new torch leaves a torchvision that was built for another. With
    `--no-deps` (a warning) nothing is compared before the program runs. A pip before 20.3, as Ubuntu 20.04 has it, only
    complains, so that this is a warning there, and for torch before 1.8; so are lines of conda, compared by the first
    two numbers. Local versions (`+cu118`) are not compared; versions that the table does not hold, ranges and names
    without a version say nothing. Commands for different environments do not meet: by `--python`, the variables in
    front of a command, PATH, `activate`, and for uv the folder.

    Why: pip refuses the command, and the image is never built; or the job runs with another torch than the file says,
    often for another CUDA, or stops when torchvision loads its operators (`operator torchvision::nms does not exist`).

    Fix: the release that the message names.

    Source: Requires-Dist of the wheels of torchvision 0.5 to 0.29 and torchaudio 0.4 to 2.11; pip 23.2 and uv, tried
    with packages of these versions; torchvision 0.16.0 and 0.21.0 beside torch 2.13.0.

    When to ignore: the wheels are your own builds under the version of a release.
    """
    companions = "torchvision" in file.text or "torchaudio" in file.text or file.format == "dockerfile"
    if companions and not _OTHER_BUILDS.search(file.text):
        yield from once(p for script in file.scripts for p in _script(script, file))


def _script(script: ShellScript, file: File) -> Iterator[Problem]:
    text = file.text
    old = _OLD_PIP.search(script.text) is not None
    environments: dict[Place, Environment] = {}
    places = Places(script, text)
    for command in script.commands:
        words = of_pip(command)
        places.reach(command)
        for left in [key for key in environments if places.leaves(command, key)]:
            yield from environments.pop(left).problems.values()
        if command.program in CONDA:
            yield from _conda(command)
        if not words:
            continue
        key = places.key(command)
        pins = _pins([*words, *(listed_requirements(file, command) if file.format == "dockerfile" else ())], _PIN)
        clashes = _clashes(pins)
        bare = any(word.value in ("--no-deps", "--no-dependencies") for word in words)
        if words[0].value == "install" and not _has_another_way(command, words, text):
            for pin, other in clashes:
                torch = _agreed(pins, clashes)
                before = old or max(other.torches)[:2] < _OLD_TORCH
                own = any(word.value == "--no-index" for word in words)  # wheels of the site, with pins of theirs
                for p in _together(
                    pin, other, command.program, torch, old=before and command.program != "uv", bare=bare
                ):
                    yield replace(p, level="info") if own else p
        if key is None:
            environments.clear()  # it may be any of them
        elif clashes or command.conditional or _is_open(words, pins, _closed_lists(file, command)):
            environments.pop(key, None)
        elif words[0].value == "install":
            _install(environments.setdefault(key, Environment()), pins, bare=bare)
    yield from (p for one in environments.values() for p in one.problems.values())


def _has_another_way(command: Command, words: list[Value[str]], text: str) -> bool:
    """Whether other versions are tried where pip refuses these (`|| pip install …`), or uv is told to take them."""
    if any(word.value.partition("=")[0] in _OVERRIDES for word in words):
        return True
    lines = text.split("\n")
    after = lines[command.span.end_line - 1 : command.span.end_line + 1]
    rest = " ".join([after[0][command.span.end_column - 1 :].rstrip("\\ "), *after[1:]]) if after else ""
    return re.match(r"\s*\|\|(?!\s*(exit|true|:))", rest) is not None


def _pins(words: list[Value[str]], pattern: re.Pattern[str]) -> dict[str, Pin]:
    pins = {}
    for word in words:
        match = pattern.fullmatch(word.value) if word.known and not word.default else None
        if match is not None:
            name = match["name"].replace("pytorch", "torch")
            how, local = "=" if match["any"] else match["how"], match["local"] or ""
            local = local if local.startswith("+") else ""  # not the build of a package of conda
            torches = _torches(name, tuple(int(number) for number in match["version"].split(".")), how)
            pins[name] = Pin(name, match["version"] + (match["any"] or ""), local, word, torches)
    return pins


@cache
def _table() -> dict[str, dict[Numbers, Numbers]]:
    """Software -> its releases and the torch that each requires, nothing where it takes several; of torch itself, those
    that some release requires."""
    found: dict[str, dict[Numbers, Numbers]] = {"torch": {}}
    for row in read_table(TABLE).records():
        torch = _numbers(row["torch"])
        found.setdefault(row["software"], {})[_numbers(row["version"])] = torch
        if torch:
            found["torch"][torch] = torch
    return found


def _numbers(text: str) -> Numbers:
    return tuple(int(number) for number in text.split(".")) if text else ()


def _torches(name: str, version: Numbers, how: str) -> frozenset[Numbers]:
    """The torches that fit a pin: `==` one release, `=` all that begin with it, `~=` that one and those after it."""
    if how == "=":
        fitting = [release for release in _table()[name] if release[: len(version)] == version]
    elif how == "~=":
        same = len(version) - 1
        fitting = [one for one in _table()[name] if one >= version and same and one[:same] == version[:same]]
    else:
        exact = version + (0,) * (3 - len(version))
        fitting = [release for release in _table()[name] if release == exact]
    torches = {_table()[name][release] for release in fitting}
    return frozenset() if () in torches else frozenset(torches)


def _clashes(pins: dict[str, Pin], digits: int = 3) -> list[tuple[Pin, Pin]]:
    """Each companion and what it excludes: torch; where both take that, one the other."""
    found: list[tuple[Pin, Pin]] = []
    for name, other in (("torchvision", "torch"), ("torchaudio", "torch"), ("torchaudio", "torchvision")):
        wrong = name in pins and other in pins and pins[name].excludes(pins[other], digits)
        if wrong and (other == "torch" or not found):
            found.append((pins[name], pins[other]))
    return found


def _agreed(pins: dict[str, Pin], clashes: list[tuple[Pin, Pin]]) -> str:
    """The torch that both companions take where neither takes the one that is asked for."""
    if len(clashes) < len(_COMPANIONS):
        return ""
    both = pins["torchvision"].torches & pins["torchaudio"].torches
    local = pins["torchvision"].local if pins["torchvision"].local == pins["torchaudio"].local else ""
    return f"torch=={'.'.join(map(str, max(both)))}{local}" if both else ""


def _closed_lists(file: File, command: Command) -> set[int]:
    """The words of `-r LIST` where the list is at hand and asks for torch by pins only, or not at all."""
    closed: set[int] = set()
    for flag, word, _, text in lists_at_hand(file, command) if file.format == "dockerfile" else ():
        lines = [line.partition(" #")[0].strip() for line in text.split("\n") if not line.lstrip().startswith("#")]
        if not any(_brings_torch(line) or line.startswith("-") for line in lines if not _PIN.fullmatch(line)):
            closed |= {id(flag), id(word)}
    return closed


def _is_open(words: list[Value[str]], pins: dict[str, Pin], closed: set[int]) -> bool:
    """Whether the command may change torch in a way that it does not say."""
    own = closed | ({id(pin.word) for pin in pins.values()} if words[0].value == "install" else set())
    values = {n + 1 for n, word in enumerate(words) if word.value in _TAKE_A_VALUE}
    return any(
        id(word) not in own and (not word.known or word.default or _brings_torch(word.value))
        for n, word in enumerate(words)
        if n not in values and word.value.partition("=")[0] not in _TAKE_A_VALUE
    )


def _brings_torch(word: str) -> bool:
    return (
        word == "."
        or "/" in word
        or "$" in word
        or word.startswith(_LISTS)
        or word.lower().endswith(".whl")
        or _BRINGS_TORCH.match(word) is not None
    )


def _together(pin: Pin, other: Pin, program: str, torch: str, *, old: bool, bare: bool) -> Iterator[Problem]:
    """Two pins of one command, and the torch that would do as well."""
    if bare:
        yield from _at_run_time(pin, other, torch)
        return
    asked = other.title if other.name == "torch" else f"{other.title}, which requires torch {other.needed}"
    tool = "uv" if program == "uv" else "pip"
    yield problem(
        pin.word,
        f"{pin.title} requires torch {pin.needed}, and the same command asks for {asked}: "
        + (f"{tool} before 20.3 installs what does not fit, later ones refuse it" if old else f"{tool} refuses it"),
        _instead(pin, other, torch),
        level="warning" if old else None,
        why=reasons.REFUSED_BY_PIP,
    )


def _at_run_time(pin: Pin, other: Pin, torch: str = "") -> Iterator[Problem]:
    if other.name == "torch" and pin.excludes(other, digits=2):
        message = f"{pin.title} was built for torch {pin.needed}: beside {other.title} its operators do not load"
        why = "with --no-deps nothing is compared; torchvision ends with `operator torchvision::nms does not exist`."
        yield problem(pin.word, message, _instead(pin, other, torch), level="warning", why=why)


def _instead(pin: Pin, other: Pin, torch: str = "") -> str:
    """What to write for the companion, or for torch where no release of it fits."""
    fitting = _fitting(pin, other)
    if fitting:
        return f"write {fitting}" + (f", or {torch}" if torch else "") + (f" in {pin.source}" if pin.source else "")
    return f"use {torch or f'torch=={pin.newest}'}" if other.name == "torch" else "pin releases of one torch"


def _fitting(pin: Pin, other: Pin) -> str:
    """The release of the companion that belongs to what the other one needs, or a newer one that takes several."""
    releases = _table()[pin.name]
    fitting = [release for release, torch in releases.items() if torch in other.torches]
    if fitting:
        return f"{pin.name}=={'.'.join(map(str, max(fitting)))}{other.local}"
    several = [release for release, torch in releases.items() if not torch]
    if several and min(other.torches) > max(releases.values()):
        return f"{pin.name}=={'.'.join(map(str, max(several)))}"
    return ""


def _install(environment: Environment, pins: dict[str, Pin], *, bare: bool) -> None:
    """One command after others: it wins."""
    torch = pins.get("torch")
    if torch is not None:
        environment.problems.clear()
        for pin in environment.pins.values():
            if pin.name in _COMPANIONS and pin.name not in pins and pin.excludes(torch):
                message = f"{torch.title} beside {pin.title} (line {pin.word.span.line}), which requires torch "
                fitting = _fitting(pin, torch)
                fix = f"add {fitting} to this command" if fitting else _instead(pin, torch)
                environment.problems[pin.name] = problem(
                    torch.word,
                    f"{message}{pin.needed}: nothing refuses it",
                    fix,
                    level="warning",
                    why=reasons.LEFT_BEHIND,
                )
    before = environment.pins.get("torch")
    for pin in [pins[name] for name in _COMPANIONS if name in pins]:
        environment.problems.pop(pin.name, None)
        if torch is None and before is not None and pin.excludes(before):
            if bare:
                for one in _at_run_time(pin, before):
                    environment.problems[pin.name] = one
                continue
            line = before.word.span.line
            plain = before if pin.local else replace(before, local="")  # its own command may not have that index
            environment.problems[pin.name] = problem(
                pin.word,
                f"{pin.title} replaces {before.title} of line {line} by {pin.needed}",
                _instead(pin, plain) + (", or change" if _fitting(pin, before) else " on") + f" line {line}",
                level="warning",
                why=reasons.TORCH_REPLACED,
            )
            environment.pins["torch"] = Pin("torch", pin.newest, "", pin.word, pin.torches)
    environment.pins |= pins


def _conda(command: Command) -> Iterator[Problem]:
    """conda's packages are compared by their first two numbers: those of conda-forge take every torch of a minor."""
    verb = next((word.value for word in command.words[1:] if not word.value.startswith("-")), "")
    pins = _pins(command.words, _CONDA_PIN) if verb in ("install", "create", "update") else {}
    clashes = _clashes(pins, digits=2)
    for pin, other in clashes:
        fix = _instead(pin, other, _agreed(pins, clashes))
        yield problem(
            pin.word,
            f"{pin.title} belongs to torch {pin.needed}, and the same command asks for {other.title}",
            fix.replace(" torch==", " pytorch==").replace("==", "="),
            level="warning",
            why=reasons.REFUSED_BY_CONDA,
        )
