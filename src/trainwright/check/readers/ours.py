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
    r"cluster([-_.]?config)?\.(ya?ml|json)|provisioning_parameters\.json|(ds|deepspeed)[-_]?(config)?.*\.json"
    r"|.*\.(sbatch|slurm)|dockerfile(\..*)?|.*[._-]dockerfile|(slurm|gres|topology)\.conf"
)
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


def recognisable(path: str, text: str) -> bool:
    """Whether a file is ours by its name or its words. A template is not: what its expressions become is unknown."""
    name = PurePath(path).name.lower()
    if without_suffix(name) != name or is_template(text):
        return False
    if name.endswith(".py"):
        return is_training_script(text)
    if name.endswith((".yaml", ".yml")) and text.lstrip().startswith("{"):
        return False  # GPT-NeoX's files are neither JSON nor YAML to every parser
    return _NAMES.fullmatch(name) is not None or any(all(word.search(text) for word in words) for words in _WORDS)
