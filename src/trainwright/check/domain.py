"""Whether a file is about training or the clusters for it. Shell scripts, images and templates of the cloud are written
for everything; where nothing in a file speaks of training, its author knows more about it than our rules do."""

from __future__ import annotations

import re
from functools import lru_cache

from trainwright.check.model import File

# Formats that everybody uses; the others are read by what trains or by its cluster.
_GENERAL = ("shell", "dockerfile", "cloudformation", "terraform", "kubernetes")
_ALWAYS = ("SEC003",)  # a key in a file is lost whatever the file is for
# Words of training, not those that contain one (constraints, restraint) or have another meaning alone: an epoch of
# Debian or of the clock, a checkpoint of a database, `--disable-gpu` of a browser, JAX-RS, "to accelerate the build".
_WORDS = re.compile(
    r"(?<!disable-)gpu|cuda|nvidia|nccl|torch|tensorflow|\bjax\b(?!-)|deepspeed|megatron|nemo|transformers"
    r"|\baccelerate(?=\s+(launch|config|env|test)\b|[=<>~\[]|\s*$)|hugging.?face|\bhf_|wandb"
    r"|(?<!cons)(?<!res)(?<!\bs)train|fine.?tun|\bllm|ckpt|model.?checkpoint|checkpoint[_-](dir|path|interval|step)"
    r"|epochs\b|epoch[_-]?\d|(num|max|start|per|every|-)[_-]epoch"
    r"|slurm|sbatch|\bsrun\b|mpirun|\bmpi\b|\befa\b|\bFI_|lustre|\bfsx\b|hyperpod|sagemaker|p(arallel)?cluster|\beks|karpenter|kueue|kubeflow|kuberay|rayproject|\bray\.io"
    r"|(?<![-\w])ray(?=\s+(start|job|up|submit|init|cluster)\b|[\[=<>.])|neuron|\bhpc|head.?node"
    r"|\b([pg]\d\w*|trn\d\w*|inf\d)[.-]\w*(large|metal)",
    re.IGNORECASE | re.MULTILINE,
)


def is_about_training(file: File) -> bool:
    return file.format not in _GENERAL or _speaks_of_training(file.text)


@lru_cache(maxsize=1)
def _speaks_of_training(text: str) -> bool:
    """Asked for every finding of one file after the other."""
    return _WORDS.search(text) is not None


def keeps_level(code: str, file: File) -> bool:
    """Whether a finding of a rule counts as the error or warning that it is."""
    return code in _ALWAYS or is_about_training(file)
