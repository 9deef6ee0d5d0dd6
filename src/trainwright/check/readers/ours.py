"""Whether a file that cannot be parsed is one of those that `check` is for. A searched directory holds broken YAML of
many programs, which is not reported; a broken job or cluster file is, because no rule ran on it."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from pathlib import PurePath

from trainwright.check.readers.templates import is_template, without_suffix
from trainwright.spec.source import SourceError, Span

_NAMES = re.compile(
    r"cluster([-_.]?config)?\.(ya?ml|json)|provisioning_parameters\.json"
    r"|.*\.(sbatch|slurm)|dockerfile(\..*)?|.*[._-]dockerfile|(slurm|gres|topology)\.conf"
)
_DEEPSPEED_NAME = re.compile(r"(ds|deepspeed)([-_. ].*|config.*|z.*|\d.*)?\.json")
_DEEPSPEED_WORD = re.compile(r"\b(zero_optimization|train_batch_size|train_micro_batch_size_per_gpu)\b")
# Values that another program fills in: `{name}-0`, `<%= size %>`, `%(size)s`, `@SIZE@`; in JSON also `$SIZE`, `<SIZE>`.
_TO_BE_FILLED = re.compile(r"(?<!\$)\{[A-Za-z_]\w*\}|<%|%\(\w+\)[sd]|@@?[A-Za-z_]\w*@|__[A-Z]\w*__")
_FILLED_IN_JSON = re.compile(r"[:,\[]\s*(\$\{?\w+\}?|<[^<>\n]+>|%[sdf]|\?\?\?)\s*([,}\]]|$)")
# Each entry: words of which every one is in the file.
_WORDS: tuple[tuple[re.Pattern[str], ...], ...] = tuple(
    tuple(re.compile(word, re.MULTILINE) for word in words)
    for words in (
        (r"^#SBATCH\s",),
        (r"\bSlurmQueues\b",),
        (r"\beksctl\.io/", r"\bkind\b"),
        (r"\bapiVersion\b", r"\bkind[\"']?\s*:\s*[\"']?(PyTorchJob|MPIJob|TrainJob|JobSet|RayJob|RayCluster|TFJob)\b"),
        (r"\bapiVersion\b", r"\bkind[\"']?\s*:", r"\bnvidia\.com/gpu\b"),
        (r"\bInstanceGroups\b", r"\bLifeCycleConfig\b"),
        (r"\bAWS::(SageMaker::Cluster|EKS::Nodegroup|FSx::FileSystem)\b",),
        (r"\bzero_optimization\b", r"\btrain_(micro_)?batch_size"),
        (r"^\s*compute_environment\s*:", r"^\s*distributed_type\s*:"),
        (r"^\[training\]", r"^\[parallelism\]"),
        (r"^platform\s*:", r"^queues\s*:"),
        (r"\b(aws_eks_node_group|eks_managed_node_groups|sagemaker_cluster|aws_fsx_lustre_file_system)\b",),
    )
)
_TRAINING_CALLS = ("init_process_group(", ".backward(")  # what every training script of several ranks calls

_IMPORT = re.compile(r"^(import|from)\s+\w", re.MULTILINE)
# What another version of Python takes: 2 (print, exec, `except A, b`, `raise A, b`, 0777, <>, backquotes), 3.6 (`async`
# as a name), 3.12 and later (quotes in f-strings, type parameters).
_OF_ANOTHER_VERSION = re.compile(
    r"Missing parentheses in call to|multiple exception types must be parenthesized|leading zeros in decimal|^f-string"
)
_LINE_OF_ANOTHER_VERSION = re.compile(
    r"\basync\s*[=,)]|^\s*raise\s+[\w.]+\s*,|<>|(?<!`)`(?!`)|\b(ur|t)[\"']|^\s*(def|class)\s+\w+\[|^\s*type\s+\w+"
)
_PYTHON_2 = re.compile(r"\A#!.*python2|^\s*print\s+[\"']", re.MULTILINE)
_NOTEBOOK_LINE = re.compile(r"^\s*([!%?]|\w+\s*=\s*!)|\?\s*$")  # IPython's commands, in a notebook that was exported


def is_training_script(text: str) -> bool:
    """Whether Python trains on several ranks."""
    return all(call in text for call in _TRAINING_CALLS)


def is_python(text: str) -> bool:
    """Whether a text without a name, such as standard input, is a training script."""
    return is_training_script(text) and _IMPORT.search(text) is not None


def syntax_error(text: str, path: str) -> SourceError | None:
    """Why Python does not run a script."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in texts
            ast.parse(text)
    except SyntaxError as error:
        line, column = error.lineno or 1, max(1, error.offset or 1)
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        span = Span(line, column, line, column + 1)
        return SourceError(f"not valid Python {version}: {error.msg}", path, span, "correct the syntax at this place")
    except (ValueError, RecursionError, MemoryError):
        return None  # too deeply nested to be parsed here, which says nothing about the script
    return None


class ConflictError(SourceError):
    """A merge that was committed before it was resolved."""


def merge_conflict(text: str, path: str) -> ConflictError | None:
    """The first of git's markers, where all three stand in the text in their order."""
    if "<<<<<<< " not in text:
        return None
    first, markers = 0, ["<<<<<<< ", "=======", ">>>>>>> "]
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith(markers[0]):
            first = first or number
            markers.pop(0)
            if not markers:
                what = "an unresolved merge conflict: the file holds both sides and git's markers"
                return ConflictError(what, path, Span(first, 1, first, 8), "resolve it, and remove the markers")
    return None


def another_reads_it(text: str, error: SourceError) -> bool:
    """Whether a script that this Python cannot parse is one for another version, a notebook or a template."""
    if _OF_ANOTHER_VERSION.search(error.what.partition(": ")[2]) or _PYTHON_2.search(text):
        return True
    line = "".join(text.splitlines()[error.span.line - 1 : error.span.line])
    return any(p.search(line) for p in (_LINE_OF_ANOTHER_VERSION, _NOTEBOOK_LINE)) or is_template(line)


def recognisable(path: str, text: str, line: int = 0) -> bool:
    """Whether a file is ours by its name or its words. A template is not: what its expressions become is unknown.
    `line` is where it could not be read on."""
    name = PurePath(path).name.lower()
    if without_suffix(name) != name or is_template(text):
        return False
    if name.endswith(".py"):
        return is_training_script(text)
    if ("template" in name and "AWS::" not in text) or _is_filled(name, text.splitlines()[max(0, line - 2) : line]):
        return False
    if name.endswith((".yaml", ".yml")) and text.lstrip().startswith("{"):
        return False  # GPT-NeoX's files are neither JSON nor YAML to every parser
    if _DEEPSPEED_NAME.fullmatch(name):
        return _DEEPSPEED_WORD.search(text) is not None
    return _NAMES.fullmatch(name) is not None or any(all(word.search(text) for word in words) for words in _WORDS)


def _is_filled(name: str, lines: list[str]) -> bool:
    patterns = (_TO_BE_FILLED, _FILLED_IN_JSON) if name.endswith(".json") else (_TO_BE_FILLED,)
    return any(pattern.search(line) for pattern in patterns for line in lines)
