"""Whether anybody runs a file as it is. A form is filled in first, a superseded file has a successor, and a trainer's
configuration that nothing names is not read: what is wrong in them is a note. Secrets keep their level, and so does
what is said about placeholders."""

from __future__ import annotations

import re
from pathlib import Path

from trainwright.check import around
from trainwright.check.beside import text_beside
from trainwright.check.finding import Level
from trainwright.check.model import File
from trainwright.check.used_configs import is_unused
from trainwright.spec.source import Span

_KEPT = ("SEC", "CFG001", "SPC")
_SCRIPTS = ("sbatch", "shell")
_CONFIGS = ("deepspeed", "trainer_config")
_CHOSEN = ("EKS001", "TFM002")  # what whoever fills a form in chooses anew, such as a version
_CLOUD = ("kubernetes", "eksctl", "terraform", "tfvars", "cloudformation", "parallelcluster", "hyperpod")

_WHOLE_NAME = re.compile(
    r"_*(old|archived?|archives|deprecated|legacy|obsolete|outdated|superseded|unused|attic|trash|graveyard|backups?|bak)"
    r"_*",
    re.IGNORECASE,
)
_PART_OF_NAME = re.compile(
    r"(old|archived?|deprecated|legacy|obsolete|outdated|superseded|unused)[-_. ].+"
    r"|.+[-_. ](old|archived?|deprecated|obsolete|outdated|superseded|unused)",
    re.IGNORECASE,
)
_BACKUP = re.compile(r"_*(backups?|bak)_*", re.IGNORECASE)  # in a cloud: also what makes copies of data
_COPY = re.compile(r"(?P<name>.+?)([-_. ](copy|backup|bak|legacy|orig)([-_ ]?\d+)?| ?\(\d+\))", re.IGNORECASE)
_VERSION = re.compile(r"(?P<name>.+?)[-_.]v(?P<number>\d{1,2})", re.IGNORECASE)
_STARTS_IT = re.compile(
    r"\b(sbatch|bash|sh|source|srun|qsub|submit\w*|kubectl|eksctl|terraform|docker|accelerate|deepspeed|torchrun|python3?"
    r"|pcluster|helm|make)\b|\./|--config|\s-f\s"
)
_ALIKE = 0.5  # of the lines of the older version

_NOUNS = r"script|program|code|commands?|app|application|executable|job|training|binary"
PLACEHOLDER = re.compile(
    r"<\s*(your|my|insert|enter|replace|path|name|account|project|partition|e-?mail|user)\b[^<>\n]*>"
    r"|<[A-Z][A-Z0-9_ -]+>|(?<![\w${])(([Yy]our[-_.]?|YOUR)(?=[A-Z])|([Yy]our|YOUR)[-_.])\w+(?!\w*=)"
    r"|(?<![\w$])/?path[/_]to[/_]\w*|(?<![\w$])PATH_TO_\w+(?!=)|/your/\w+"
    r"|\b(CHANGE|REPLACE|FILL)[-_ ]?(ME|WITH|THIS|IN)\w*|\bPLACEHOLDER\w*|\bTODO\b|\bX{4,}\b"
)
_PROGRAM_TO_NAME = re.compile(
    rf"(\S*/)?(your[-_]?\w*({_NOUNS}|train|main)|my[-_]?(script|program|code|app|executable|job))\w*(\.\w+)?"
    r"|/?path/to/\S+\.(py|sh|R|jl)",
    re.IGNORECASE,
)
_LAUNCHERS = (
    "python",
    "python3",
    "srun",
    "torchrun",
    "mpirun",
    "mpiexec",
    "Rscript",
    "julia",
    "accelerate",
    "deepspeed",
)
_TO_WRITE = re.compile(
    rf"^[ \t]*#[^\n]{{0,60}}\b(your|actual)\b[^\n]{{0,30}}\b({_NOUNS})\b[^\n]{{0,20}}\b(here|below|goes?)\b",
    re.MULTILINE | re.IGNORECASE,
)
_BLANK = re.compile(  # `srun <your command>`, and `<actual code ...>` alone
    rf"^[ \t]*([\w./-][^#\n<>]{{0,120}}[ \t])?<(?!/?(script|code)>)[^<>|&;$\n]{{0,60}}\b({_NOUNS})\b[^<>\n]{{0,60}}>",
    re.MULTILINE | re.I,
)
_EMPTY_OPTION = re.compile(r"^#SBATCH[ \t]+--[a-z-]+(=|[ \t]*=)[ \t]*(#.*)?$", re.MULTILINE)
_TEMPLATE = re.compile(r"template|skeleton|boilerplate|cookiecutter", re.IGNORECASE)
_LEFT_OUT = ("...", "…")  # `mpirun -np 4 ...` starts it
_PREPARES = ("cd", "module", "ml", "echo", "source", ".", "conda", "export", "set", "mkdir", "date", "hostname", "eval")


def lowers(level: Level, code: str, span: Span, file: File) -> bool:
    """Whether an error or warning is only a note, because nobody runs the file as it is."""
    if code.startswith(_KEPT) or file.format == "spec" or file.path == "<stdin>":
        return False
    if file.derived(is_superseded):
        return True
    if file.format in _SCRIPTS and file.derived(is_form):
        return True
    if level == "warning" and code.startswith(_CHOSEN) and file.derived(_is_cloud_form):
        return True
    if file.format in _CONFIGS and not file.named and file.derived(is_unused):
        return True
    return _is_to_fill_in(file, span)


def _is_cloud_form(file: File) -> bool:
    """Whether several values of a cluster's file are still to be written."""
    texts = (match[0] for line in file.lines for match in PLACEHOLDER.finditer(line.partition("#")[0]))
    return file.format in _CLOUD and len(set(texts)) > 1


def _is_to_fill_in(file: File, span: Span) -> bool:
    """Whether what a finding points at holds a placeholder."""
    if span.file or span.line != span.end_line or not 0 < span.line <= len(file.lines):
        return False
    return PLACEHOLDER.search(file.lines[span.line - 1][span.column - 1 : span.end_column - 1]) is not None


def is_form(file: File) -> bool:
    """Whether a script starts nothing before somebody has written what, or was put down as a template."""
    path = Path(file.path)
    if _TEMPLATE.search(path.name) or _TEMPLATE.search(path.absolute().parent.name):
        return True
    empty = len(_EMPTY_OPTION.findall(file.text)) > 1
    return empty or _is_to_name(file) or _is_to_write(file)


def _is_to_name(file: File) -> bool:
    """`srun python your_script.py`, where no such file lies beside, `srun <your command>` and `mpirun ...`."""
    commands = [one for script in file.scripts for one in script.commands]
    if any(one.program in _LEFT_OUT for one in commands):
        return True
    words = (word.value for one in commands if one.program in _LAUNCHERS for word in one.words[1:])
    named = (word for word in words if _PROGRAM_TO_NAME.fullmatch(word))
    return any(text_beside(file.path, name) is None for name in named) or _BLANK.search(file.text) is not None


def _is_to_write(file: File) -> bool:
    """`# your commands here`, where nothing else stands that does the job's work."""
    works = any(one.program not in _PREPARES for script in file.scripts for one in script.commands)
    return not works and _TO_WRITE.search(file.text) is not None


def is_superseded(file: File) -> bool:
    return file.path != "<stdin>" and has_successor(file.path, file.format, file.text)


def has_successor(path: str, format: str, text: str) -> bool:
    """Whether the place or name of a file says that it was put aside, or a newer version lies beside it, and no text
    of the repository starts this one."""
    full = Path(path).absolute()
    folder = _folder_aside(full, format)
    if folder:
        return not _is_started(full, f"{folder}/")
    aside = format not in _CLOUD and _PART_OF_NAME.fullmatch(full.stem) is not None
    return (aside or _has_newer(full, text)) and not _is_started(full, "")


def _folder_aside(path: Path, format: str) -> str:
    """The folder of the repository, or without one of the file, that holds what is not used any more."""
    folders, rooted = around.folders_above(str(path))
    for folder in folders[:-1] if rooted else folders[:1]:
        name = folder.name
        if _BACKUP.fullmatch(name) and format in _CLOUD:
            continue
        part = rooted and format not in _CLOUD and _PART_OF_NAME.fullmatch(name)
        if _WHOLE_NAME.fullmatch(name) or part:
            return name
    return ""


def _has_newer(path: Path, text: str) -> bool:
    """`train.sh` beside `train_v2.sh`, `job copy.sbatch` beside `job.sbatch`."""
    names = around.names_in(str(path.parent))
    copy = _COPY.fullmatch(path.stem)
    if copy is not None and f"{copy['name']}{path.suffix}" in names:
        return True
    name, number = _version(path.stem)
    newer = (other for other in names if other.endswith(path.suffix) and _is_later(Path(other), path, name, number))
    return any(_resembles(text, path.parent / other) for other in newer)


def _is_later(other: Path, own: Path, name: str, number: int) -> bool:
    other_name, other_number = _version(other.stem)
    return other.suffix == own.suffix and other_name == name and other_number > max(number, 1)


def _version(stem: str) -> tuple[str, int]:
    match = _VERSION.fullmatch(stem)
    return (match["name"], int(match["number"])) if match is not None else (stem, 0)


def _resembles(text: str, other: Path) -> bool:
    own = {line.strip() for line in text.split("\n")} - {""}
    theirs = {line.strip() for line in around.text_of(str(other)).split("\n")}
    return len(own & theirs) > _ALIKE * len(own)


def _is_started(path: Path, folder: str) -> bool:
    """Whether a text of the repository that was not put aside itself starts the file, under the name of that folder."""
    named = re.compile(rf"(?<![\w-]){re.escape(folder)}[^\s:]*{re.escape(path.name)}(?![\w-])")
    if not folder:
        named = re.compile(rf"(?<![\w.-]){re.escape(path.name)}(?![\w-])")
    return any(
        named.search(line) is not None and _STARTS_IT.search(line) is not None
        for place, text in around.texts(str(path.parent))
        if place != path and path.name in text and not (folder and f"/{folder}" in str(place))
        for line in text.split("\n")
    )
