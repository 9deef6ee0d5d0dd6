"""Whether a file that cannot be parsed is one of those that `check` is for. A searched directory holds broken YAML of
many programs, which is not reported; a broken job or cluster file is, because no rule ran on it."""

from __future__ import annotations

import re
from pathlib import PurePath

from trainwright.check.readers.templates import is_template, without_suffix

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


def is_training_script(text: str) -> bool:
    """Whether Python trains on several ranks."""
    return all(call in text for call in _TRAINING_CALLS)


def recognisable(path: str, text: str) -> bool:
    """Whether a file is ours by its name or its words. A template is not: what its expressions become is unknown."""
    name = PurePath(path).name.lower()
    if without_suffix(name) != name or is_template(text):
        return False
    if name.endswith(".py"):
        return is_training_script(text)
    return _NAMES.fullmatch(name) is not None or any(all(word.search(text) for word in words) for words in _WORDS)
