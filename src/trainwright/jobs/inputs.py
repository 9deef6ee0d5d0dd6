"""What a job of another framework reads that must be on the cluster before it starts, the command that makes it, and
what its programs download from Hugging Face when they start."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainwright.jobs.frameworks import OF_IMAGES, RUN, entry_of, job_settings, known_framework
from trainwright.jobs.places import filled, places_in
from trainwright.recipes.framework import shell_line

if TYPE_CHECKING:
    from trainwright.jobs.resolved import ResolvedJob

HUB = re.compile(r"(?:hf://)?([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)")
GATED = ("meta-llama/", "mistralai/", "google/gemma", "stabilityai/")  # owners that ask for an agreement first
WRITTEN = {"checkpoint", "checkpoint_folder"}  # places of folders that the job itself fills
SUFFIX = "_text_document"  # what Megatron's preprocessing adds to its --output-prefix


@dataclass(frozen=True)
class Inputs:
    """What a job reads."""

    paths: tuple[str, ...] = ()
    prepare: str = ""  # the command that makes it, for a shell; empty where none is known
    downloads: tuple[str, ...] = ()  # repositories of Hugging Face that its programs fetch when they start
    token: bool = False  # whether one of those, or of the command's, is given only with HF_TOKEN

    def __str__(self) -> str:
        parts = [f"reads {', '.join(self.paths)}"] if self.paths else []
        parts += [f"made by: {self.prepare}"] if self.prepare else []
        parts += [f"downloads {', '.join(self.downloads)}"] if self.downloads else []
        parts += ["a gated repository needs HF_TOKEN (`secrets:` of the job)"] if self.token else []
        return "; ".join(parts)


def inputs_of(job: ResolvedJob) -> Inputs:
    """The files, folders and repositories that a job's options name; none for our trainer, which tells itself."""
    if job.recipe is None or known_framework(job.recipe) is None:
        return Inputs()
    here, settings = job_settings(job, RUN, RUN)
    variables = [line.value for line in settings.env.values()]
    stated = [*entry_of(job.recipe), *settings.options.values(), *settings.file.values(), *variables]
    texts = [text for value in stated if not places_in(value) & WRITTEN for text in _texts(filled(value, here))]
    paths = tuple(dict.fromkeys(path for text in texts for path in _paths(text)))
    offline = any(name == "HF_HUB_OFFLINE" for name in settings.env)
    hub = () if offline else tuple(dict.fromkeys(match[1] for text in texts if (match := HUB.fullmatch(text))))
    steps = [step for step in _steps(filled(settings.prepare, here)) if makes(step, paths)]
    words = [word for step in steps for word in ("&&", *step)][1:]
    gated = any(owner in name for name in (*hub, *words) for owner in GATED)
    return Inputs(paths, shell_line(words), hub, gated)


def makes(command: list[str], paths: tuple[str, ...]) -> bool:
    """Whether a command names one of the paths, the folder that it lies in, or the prefix that Megatron's preprocessing
    makes it of."""
    words = [word.partition("=")[2] if "=/" in word else word for word in command]
    return any(
        path in (word, f"{word}{SUFFIX}") or path.startswith(f"{word}/") or word.startswith(f"{path}/")
        for word in words
        if word.startswith("/") and not word.startswith(OF_IMAGES)
        for path in paths
    )


def _steps(words: list[Any]) -> Iterator[list[str]]:
    """The commands of a preparation, without those that have no value for a place; built-in data are not made."""
    step: list[Any] = []
    for word in [*words, "&&"]:
        if word != "&&":
            step.append(word)
            continue
        if step and not any(one is None or str(one).startswith("builtin:") for one in step):
            yield [str(one) for one in step]
        step = []


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def _paths(text: str) -> list[str]:
    """The paths of the cluster in one value. One that begins as a path is a path, spaces and all."""
    words = [text] if text.startswith("/") else text.split()
    paths = [word for word in words if word.startswith("/") and not word.startswith((*OF_IMAGES, str(RUN)))]
    return [path for path in paths if "/cache/" not in path]  # written by the job itself
