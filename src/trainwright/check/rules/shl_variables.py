"""SHL: variables that nothing sets: one letter from one that is set, or compared with a number."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path

from trainwright.check import around, reasons
from trainwright.check.model import Command, File, ShellScript, Value
from trainwright.check.readers.templates import STAND_IN
from trainwright.check.registry import Problem, problem
from trainwright.spec.source import Span

_COMPARISONS = {"-eq", "-ne", "-lt", "-le", "-gt", "-ge"}
_VARIABLE = re.compile(r"^\$\{?([A-Za-z_]\w*)\}?$")
# Names that a shell, a login or a scheduler sets.
_GIVEN = re.compile(
    r"^(SLURM|PBS|LSB|OMPI|PMI|AWS|CUDA|NCCL|NVIDIA|TORCH|BASH|KUBERNETES|JOB|HOSTNAME|RANDOM|SECONDS|EUID|UID|PPID|"
    r"OPT|RANK|WORLD_SIZE|LOCAL_RANK|MASTER|COLUMNS|LINES|PIPESTATUS|FUNCNAME|SHLVL|REPLY|HOME|USER|PATH|PWD|TMPDIR|"
    r"(LD_LIBRARY_PATH|PYTHONPATH|VIRTUAL_ENV|CONDA_(PREFIX|EXE|DEFAULT_ENV|PYTHON_EXE))$)"
)
# Variables that modules set, by their endings: MKLROOT, EBROOTCUDA, TACC_GCC_LIB.
_LOADS_MODULES = re.compile(r"^[ \t]*(module|ml|spack)[ \t]+\w", re.MULTILINE)
_OF_MODULES = re.compile(r"[A-Z0-9_]*(ROOT[A-Z0-9]*|HOME|_DIR|_LIB|_INC|_BIN|_BASE|_PREFIX)$")
# Directories that clusters give their users: `$WORKDIR` is another variable than `$WORK_DIR`.
_OF_SITES = re.compile(r"(WORK|SCRATCH|PROJ|DATA|TMP|TEMP|STORE|GROUP|LOCAL|SHARED)[A-Z]*$")
_NAME = re.compile(r"\$\{?([A-Za-z_]\w*)")
# `source venv/bin/activate`, `source activate name`, conda's own files; those of a user (~/.bashrc) set anything.
_ENVIRONMENT = re.compile(
    r"(^|/)bin/activate$|^activate$|/profile\.d/(conda|mamba|micromamba|modules|lmod)\.sh$|/lmod/init/"
)
_EVALUATED = re.compile(r"^\$\([^()|;&]*\b(conda|mamba|micromamba)\b[^()|;&]*\bhook\b[^()|;&]*\)$")
_DIGITS = re.compile(r"\d+")
_MESSAGES = ("echo", "printf", "die", "log", "error", "fatal", "warn", "usage")
_FROM_OUTSIDE = 3  # names that nothing sets: the environment is meant to
_SHORT_NAME, _LONG_NAME, _RESEMBLES = 4, 5, 0.85
_MOST_NEAR = 50  # of one script: more are generated, not misspelt
_LONGEST_NAME = 100
_READ_BESIDE, _LARGEST = 20, 100_000  # files, bytes


def misspelled(file: File, script: ShellScript) -> Iterator[Problem]:
    """Variables that nothing sets and that resemble one that is set."""
    if script.sources_others and not script.derived(_sources_environments_only):
        return
    seen: set[str] = set()
    near = 0
    for command in script.commands:
        for word in command.words:
            for name in _NAME.findall(word.value) if not word.known else ():
                if name in seen or name in script.assigned or _GIVEN.match(name) or command.program in _MESSAGES:
                    continue
                seen.add(name)
                if not _has_neighbours(name, script):
                    continue
                near += 1
                if near > _MOST_NEAR:
                    return
                meant = _resembling(name, script)
                if meant and not _comes_from_outside(file, script, name):
                    yield _misspelling(file, script, _place(file, script, name) or word.span, name, meant)


def _misspelling(file: File, script: ShellScript, place: Span, name: str, meant: str) -> Problem:
    elsewhere = _is_named_bare(file, name)
    taken = any(a.name == meant and re.search(rf"\$\{{?{name}\b", a.value.value) for a in script.assignments)
    given = _is_of_a_site(name, meant) or _is_of_a_module(script, name)
    certain = is_launcher(script) and not elsewhere and not taken and not given and not script.sources_others
    stops = re.search(r"\bset\s+-\w*u|\bnounset\b", file.text) is not None
    return problem(
        place,
        f"nothing in the script sets ${name}; it sets ${meant}",
        f"write ${meant}, or set ${name}",
        level=None if certain else "info",
        why=reasons.UNSET_STOPS if stops else reasons.MISSPELT_VARIABLE,
    )


def _sources_environments_only(script: ShellScript) -> bool:
    """Whether all that a launcher reads in are environments of Python and the system's modules, which set variables of
    their own: seldom one that resembles the script's."""
    read = [one for one in script.commands if one.program in ("source", ".", "eval")]
    return is_launcher(script) and bool(read) and all(map(_is_environment, read))


def _is_environment(command: Command) -> bool:
    given = command.words[1].value if len(command.words) > 1 else ""
    return (_EVALUATED if command.program == "eval" else _ENVIRONMENT).search(given) is not None


def _has_neighbours(name: str, script: ShellScript) -> bool:
    """Whether a variable may be one letter from one that is set: they are then the same without a letter each, or have
    the same letters."""
    without, letters = script.derived(_neighbours_of_names)
    return "".join(sorted(name)) in letters or name in without or not without.isdisjoint(_shortened(name))


def _neighbours_of_names(script: ShellScript) -> tuple[set[str], set[str]]:
    """The names that the script sets, whole and without any one letter; and the letters of each in their order."""
    long = [name for name in script.assigned if _LONG_NAME <= len(name) <= _LONGEST_NAME]
    return {text for name in long for text in (name, *_shortened(name))}, {"".join(sorted(n)) for n in script.assigned}


def _shortened(name: str) -> list[str]:
    return [name[:at] + name[at + 1 :] for at in range(min(len(name), _LONGEST_NAME))]


def _resembling(name: str, script: ShellScript) -> str:
    own = sorted(name for name in script.assigned if len(name) >= _LONG_NAME)
    near = [other for other in script.assigned if _letters_swapped(name, other)]
    if not near and len(name) >= _LONG_NAME:
        near = difflib.get_close_matches(name, own, n=1, cutoff=_RESEMBLES)
    return near[0] if near and _one_letter_apart(name, near[0]) else ""


def _comes_from_outside(file: File, script: ShellScript, name: str) -> bool:
    """Whether the script itself shows that its caller sets the variable: it demands it or looks whether it is there."""
    if script.sources_others and _is_named_bare(file, name):
        return True  # in a comment, which may say who sets it
    tested = rf"\$\{{{name}(:|-|\+|\?)|-[nzv]\s+[\"']?\$?\{{?{name}\b|\b(export|declare|unset)\b[^\n;&|=]*\b{name}\b"
    return re.search(tested, script.text) is not None or _set_by_name(script, name) or _set_beside(file.path, name)


def _is_named_bare(file: File, name: str) -> bool:
    """Whether a variable is set by eval, or named in a comment or a message."""
    return re.search(rf"(?<![\w$\{{]){name}\b", file.text) is not None


def _is_of_a_site(name: str, meant: str) -> bool:
    return name.replace("_", "") == meant.replace("_", "") and _OF_SITES.match(name) is not None


def _is_of_a_module(script: ShellScript, name: str) -> bool:
    return _OF_MODULES.match(name) is not None and _LOADS_MODULES.search(script.text) is not None


def _place(file: File, script: ShellScript, name: str) -> Span | None:
    """Where the script reads the variable first; a value may be used far from there."""
    if file.format not in ("shell", "sbatch"):
        return None
    for number, line in enumerate(file.lines, start=1):
        match = re.search(rf"\$\{{?{name}\b", line)
        if match is not None and not line.lstrip().startswith("#"):
            return Span(number, match.start() + 1, number, match.end() + 1)
    return None


def _set_by_name(script: ShellScript, name: str) -> bool:
    """Whether a function may set the variable: its bare name is an argument somewhere (`words_of_line cur cword`)."""
    return any(word.value == name for command in script.commands for word in command.words[1:])


def _letters_swapped(one: str, other: str) -> bool:
    """`haed` for `head`: two neighbouring letters in the other order, in a name of at least four."""
    if len(one) != len(other) or len(one) < _SHORT_NAME or sorted(one) != sorted(other):
        return False
    differing = [index for index, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]]
    return len(differing) == 2 and differing[1] == differing[0] + 1 and one.isalpha()


def _one_letter_apart(one: str, other: str) -> bool:
    """A letter more, less, other or swapped; a different number or letter at the end (`MODEL_A`, `MODEL_B`) is another
    variable, and so is an underscore before or behind the name."""
    if one.strip("_") == other.strip("_"):
        return False
    if _DIGITS.sub("", one) == _DIGITS.sub("", other) or abs(len(one) - len(other)) > 1:
        return False
    if len(one.rpartition("_")[2]) == len(other.rpartition("_")[2]) == 1:
        return False
    if _letters_swapped(one, other):
        return True
    short, long = sorted((one, other), key=len)
    same = next((i for i, pair in enumerate(zip(short, long, strict=False)) if pair[0] != pair[1]), len(short))
    return long[same + 1 :] == (short[same + 1 :] if len(short) == len(long) else short[same:])


def compared(script: ShellScript) -> Iterator[Problem]:
    """`[ $NODES -gt 4 ]`, and nothing sets NODES."""
    if script.sources_others or not is_launcher(script) or len(_unset(script)) > _FROM_OUTSIDE:
        return
    mentioned = set(re.findall(r"\w+", " ".join(script.comments.values())))
    for command in script.commands:
        if not _is_test(command):
            continue
        for before, word, after in _neighbours(command):
            match = _VARIABLE.match(word.value)
            numbers = (before in _COMPARISONS or after in _COMPARISONS) and not _with_zero(command)
            if match is None or word.known or not numbers or STAND_IN.match(word.value):
                continue
            name = match[1]
            if name in script.assigned or _GIVEN.match(name) or name in mentioned:
                continue
            hint = "Slurm calls it SLURM_JOB_NUM_NODES" if "NODES" in name else "set it, or give it a default"
            what = f"${name} is compared, but nothing in the script sets it"
            yield problem(word, what, hint, level="info")  # its environment may


def _unset(script: ShellScript) -> set[str]:
    words = (word for command in script.commands for word in command.words if not word.known)
    names = {name for word in words for name in _NAME.findall(word.value)}
    return {name for name in names if name not in script.assigned and not _GIVEN.match(name)}


def is_launcher(script: ShellScript) -> bool:
    """Other scripts may get values from their environment; a launcher's sizes come from the scheduler."""
    return script.kind == "sbatch" or any(
        c.program in ("srun", "torchrun", "sbatch", "mpirun") for c in script.commands
    )


def _is_test(command: Command) -> bool:
    return bool(command.words) and (command.program in ("[", "[[", "test") or command.words[-1].value == "]]")


def _with_zero(command: Command) -> bool:
    """`[[ $DEBUG -eq 0 ]]`: inside double brackets an unset variable is 0, which is meant."""
    return command.words[-1].value == "]]" and any(word.value == "0" for word in command.words)


def _neighbours(command: Command) -> Iterator[tuple[str, Value[str], str]]:
    texts = [word.value for word in command.words]
    for index, word in enumerate(command.words):
        yield texts[index - 1] if index else "", word, texts[index + 1] if index + 1 < len(texts) else ""


def _set_beside(path: str, name: str) -> bool:
    """Whether a file of settings in the directory sets a variable (`env.conf`, which the user sources), or one
    that calls the script does (`sbatch --export=ALL,MODEL=gpt2`)."""
    if path == "<stdin>":
        return False
    own = Path(path).absolute()
    places = [place for pattern in ("*.conf", "*.env", ".env", "env*") for place in Path(path).parent.glob(pattern)]
    small = [place for place in places[:_READ_BESIDE] if place.is_file() and place.stat().st_size < _LARGEST]
    if any(re.search(rf"^\s*(export )?{name}=", p.read_text(errors="replace"), re.MULTILINE) for p in small):
        return True
    texts = (text for place, text in around.texts(str(own.parent)) if place != own and own.name in text)
    given = re.compile(rf"\b{name}\b[\"']?\s*[=:\]]|--export\b\S*\b{name}\b")
    return any(given.search(text) for text in texts)
