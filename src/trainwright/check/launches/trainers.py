"""Which trainer a job starts, where its command or configuration shows it. A trainer whose checks are known stops at a
wrong number; what another program does with an option of the same name is its own affair."""

from __future__ import annotations

import re

from trainwright.check.model import Job, ShellScript, known
from trainwright.check.trial_words import NAME, SENTENCE

MEGATRON_SCRIPT = re.compile(r"pretrain_(gpt|bert|t5|mamba|ict|retro)\.py$")
# Tools of Megatron-LM and its forks that take the sizes of a model without splitting it over their own ranks.
_TOOL = re.compile(r"convert|hf2|2hf|mcore2|checkpoint|server|infer|generat|eval|merge|util|preprocess", re.I)
_MEGATRON_SIZES = {"tensor_model_parallel_size", "pipeline_model_parallel_size"}
_TRIAL_OPTIONS = {"mock_data", "skip_train", "profile", "benchmark", "debug", "dry_run", "exit_interval"}

MEGATRON, MEGATRON_DEEPSPEED, NEMO, TORCHTITAN = "Megatron-LM", "Megatron-DeepSpeed", "NeMo", "torchtitan"
HUGGING_FACE, FAIRSEQ, SPEC = "Hugging Face", "fairseq", "spec"
SPLITS_MODELS = (MEGATRON, MEGATRON_DEEPSPEED, NEMO, TORCHTITAN, SPEC)


def trainer_of(job: Job) -> str:
    """The trainer's name, or an empty text."""
    if job.scheduler == "spec":
        return SPEC
    stated = job.extra.get("trainer")
    if stated is not None:
        return str(stated.value)
    options = set(job.launch.options) if job.launch is not None else set()
    words = [word.value for word in job.launch.words] if job.launch is not None else []
    if _is_megatron(options, words):
        return MEGATRON_DEEPSPEED if "deepspeed" in options or words[0] == "deepspeed" else MEGATRON
    if {"model.", "trainer."} <= {f"{name.partition('.')[0]}." for name in options if "." in name}:
        return NEMO
    if any("fairseq" in word for word in words[:4]):
        return FAIRSEQ
    if "job.config_file" in options or any("torchtitan" in word for word in words):
        return TORCHTITAN
    return HUGGING_FACE if "per_device_train_batch_size" in options else ""


def _is_megatron(options: set[str], words: list[str]) -> bool:
    script = next((word for word in words if word.endswith(".py")), "")
    named = bool(options & _MEGATRON_SIZES) and not _TOOL.search(script.rpartition("/")[2])
    return MEGATRON_SCRIPT.search(script) is not None or named


def is_trial(job: Job) -> bool:
    """Whether a job says that it measures or tries something, and trains nothing that anybody keeps."""
    launch = job.launch
    if launch is not None and launch.options.keys() & _TRIAL_OPTIONS:
        return True
    script = next((word.value for word in launch.words if word.value.endswith(".py")), "") if launch is not None else ""
    names = [known(job.name) or "", script.rpartition("/")[2]]
    # A path may contain the home of a user or a project named `dev`.
    if any(NAME.search(name) for name in names) or SENTENCE.search(known(job.checkpoint_dir) or ""):
        return True
    return job.script is not None and job.script.derived(_has_header_of_a_trial)


def _has_header_of_a_trial(script: ShellScript) -> bool:
    """Whether the comments before the first command say so."""
    first = min((command.span.line for command in script.commands), default=0)
    header = (text for line, text in script.comments.items() if line < first and not text.startswith("SBATCH"))
    return any(SENTENCE.search(text) for text in header)
