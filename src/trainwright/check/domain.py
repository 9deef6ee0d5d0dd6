"""Whether a file is about training or the clusters for it. Shell scripts, images and templates of the cloud are written
for everything; where nothing in a file speaks of training, its author knows more about it than our rules do."""

from __future__ import annotations

import re

from trainwright.check.model import File

# Formats that everybody uses; the others are read by what trains or by its cluster.
_GENERAL = ("shell", "dockerfile", "cloudformation", "terraform", "kubernetes")
_ALWAYS = ("SEC003",)  # a key in a file is lost whatever the file is for
_WORDS = re.compile(
    r"gpu|cuda|nvidia|nccl|torch|tensorflow|\bjax\b|deepspeed|accelerate|megatron|nemo|transformers|hugging.?face|\bhf_|"
    r"wandb|train|fine.?tun|\bllm|checkpoint|epoch|slurm|sbatch|\bsrun\b|mpirun|\bmpi\b|\befa\b|\bFI_|lustre|\bfsx\b|"
    r"hyperpod|sagemaker|p(arallel)?cluster|\beks|karpenter|kueue|kubeflow|kuberay|\bray\b|neuron|\bhpc|head.?node|"
    r"\b([pg]\d\w*|trn\d\w*|inf\d)[.-]\w*(large|metal)",
    re.IGNORECASE,
)


def is_about_training(file: File) -> bool:
    return file.format not in _GENERAL or _WORDS.search(file.text) is not None


def keeps_level(code: str, file: File) -> bool:
    """Whether a finding of a rule counts as the error or warning that it is."""
    return code in _ALWAYS or is_about_training(file)
