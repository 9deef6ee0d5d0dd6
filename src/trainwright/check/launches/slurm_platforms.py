"""On which of AWS's Slurm clusters a script runs: ParallelCluster's or HyperPod's. Their Slurm takes different options,
and a script seldom says which one it is for; its comments, its paths and the files of its repository do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from trainwright.check import around
from trainwright.check.model import File

_HYPERPOD = re.compile(r"hyperpod|/opt/sagemaker", re.IGNORECASE)
_PARALLELCLUSTER = re.compile(r"(?<![\w./-])(aws[ -])?(parallel[ -]?cluster|pcluster)(?![\w/-])", re.IGNORECASE)
# A comment that compares clusters, tells where the script comes from or gives a choice says nothing of this run.
_ANOTHER = re.compile(
    r"\b(if|when|where|or|and|not|no|never|nor|unless|unlike|both|also|either|other|another|instead|like|from|than"
    r"|former\w*|was|were|used to|before|earlier|previous\w*|old|moved|migrat\w*|ported|copied|compar\w*|same|without"
    r"|remove|see)\b"
    r"|n't\b|://",
    re.IGNORECASE,
)
_OF_CLUSTER = tuple(re.compile(rf"^{key}", re.MULTILINE) for key in ("HeadNode:", "Scheduling:", r"\s+SlurmQueues:"))


def parallelcluster_evidence(file: File) -> Literal["script", "repository", ""]:
    """What says that a script runs on ParallelCluster and on nothing else: the script itself or its repository."""
    if _HYPERPOD.search(file.text) or _HYPERPOD.search(_place(file)):
        return ""
    if "/opt/parallelcluster" in file.text or any(_names_it(script.comments) for script in file.scripts):
        return "script"
    return "repository" if file.path != "<stdin>" and _has_cluster_file(file) else ""


def _place(file: File) -> str:
    """The path of a file in its repository."""
    folders, rooted = around.folders_above(file.path)
    return str(Path(file.path).absolute().relative_to(folders[-1])) if rooted else Path(file.path).name


def _names_it(comments: dict[int, str]) -> bool:
    """Whether a comment says that the script's cluster is a ParallelCluster; a sentence may go over three lines."""
    for line, text in comments.items():
        near = " ".join(comments.get(number, "") for number in (line - 1, line, line + 1))
        if _PARALLELCLUSTER.search(text) and not _ANOTHER.search(near):
            return True
    return False


def _has_cluster_file(file: File) -> bool:
    """Whether a cluster file of ParallelCluster lies around the script, and nothing there speaks of HyperPod."""
    folder = str(Path(file.path).absolute().parent)
    texts = list(around.configurations(folder))
    if not any(all(key.search(text) for key in _OF_CLUSTER) for _, text in texts):
        return False
    return not any(_HYPERPOD.search(f"{path}\n{text}") for path, text in (*texts, *around.texts(folder)))
