"""JOB: options that the launcher or trainer has, and restarts that find their checkpoint."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from trainwright.check.finding import Edit
from trainwright.check.job_sizes import once
from trainwright.check.model import Command, File, Job, ShellScript, Value
from trainwright.check.options import Options, megatron, options_of_script, split, table
from trainwright.check.registry import Problem, problem, rule
from trainwright.spec.source import Span

_MEGATRON_SCRIPT = re.compile(r"pretrain_(gpt|bert|t5|mamba|ict|retro)\.py$")
_FIXED_CHECKPOINT = re.compile(r"checkpoint-\d+/?$")
_PYTHON = re.compile(r"python3?(\.\d+)?$")
_NEAR_MISS = 0.85
_HUGGING_FACE = 3  # so many options of TrainingArguments show that a script takes them


@rule("JOB013", "error")
def options_exist(file: File) -> Iterator[Problem]:
    """The launcher and the trainer must have the options they are given.

    The options of torchrun, `accelerate launch` and the deepspeed launcher are compared with their argument parsers,
    those of sbatch, Megatron-LM (0.12 to 0.20) and of the Hugging Face Trainer as far as they look like typing
    mistakes. `--fp16` and `--bf16` exclude each other. Where the script lies beside its launcher and has a plain
    argparse parser, its own options are read. A launcher is given the script, not `python script`, and `python -m
    deepspeed` starts nothing.

    Why: the parser stops on every rank, after the nodes were allocated (55 USD per hour for each p5.48xlarge) and the
    containers pulled; a parser that ignores unknown options trains with the default.

    Fix: the option that the message proposes.

    Source: the argument parsers of torchrun 2.15, accelerate 1.15, DeepSpeed 0.19, Megatron-LM 0.12 to 0.20,
    transformers 5.22; a DDP launcher that passes an option its script does not have (awsome-distributed-ai, pull
    request 1039).

    When to ignore: you use a fork that added the option.
    """
    commands = [command for script in file.scripts if script.kind != "dockerfile" for command in script.commands]
    commands += [job.launch for job in file.jobs if job.launch is not None]
    yield from once(p for command in commands for p in _unknown(file, command))
    yield from once(p for script in file.scripts for p in _unknown_directives(script))
    yield from once(p for job in file.jobs if job.launch is not None for p in _two_precisions(job.launch))


def _two_precisions(launch: Command) -> Iterator[Problem]:
    """Megatron-LM and the Hugging Face Trainer stop at `--bf16` together with `--fp16`."""
    half, brain = (launch.options.get(name) for name in ("fp16", "bf16"))
    refuses = "per_device_train_batch_size" in launch.options or any(
        _MEGATRON_SCRIPT.search(word.value) for word in launch.words
    )
    if refuses and half is not None and brain is not None and is_on(half) and is_on(brain):
        later = max(half, brain, key=lambda value: (value.span.line, value.span.column))
        yield problem(later, "--fp16 and --bf16 together: the trainer stops", "keep one of the two")


def is_on(flag: Value[str]) -> bool:
    """Whether a flag is given, alone or as `true`."""
    return flag.known and flag.value.strip("'\"").lower() in ("", "true", "1", "yes")


def _unknown_directives(script: ShellScript) -> Iterator[Problem]:
    """A site's plugins add options of their own to sbatch: only a near miss is reported."""
    known = table()["sbatch"]
    for name, value in script.directives:
        option = f"--{name}"
        if len(name) == 1 or any(other.startswith(option) for other in known.takes_value):
            continue
        near = known.nearest(option, _NEAR_MISS)
        if near and value.key is not None:
            yield problem(value.key, f"sbatch has no option {option}, and refuses the script", f"did you mean {near}?")


def _unknown(file: File, command: Command) -> Iterator[Problem]:
    launcher, start = _launcher(command)
    script: Value[str] | None
    if [word.value for word in command.words[1:3]] == ["-m", "deepspeed"] and _PYTHON.match(command.program):
        yield problem(
            command.words[2], "the package deepspeed is no program: python stops", "start the command deepspeed"
        )
    if launcher is not None:
        options, script, words = split(command, launcher, start)
        yield from _compared(options, launcher)
        yield from _python_as_script(launcher, options, script, words)
    elif _PYTHON.match(command.program):
        script = next((w for w in command.words[1:3] if w.value.endswith(".py")), None)
        words = command.words[command.words.index(script) + 1 :] if script is not None else []
    else:
        return
    if script is None or not script.known:
        return
    if script.value.endswith("setup.py"):
        return  # setuptools' commands have options of their own
    beside = _beside(file, script.value)
    if beside is not None:
        yield from _compared(words, beside, exact=True)
    elif _MEGATRON_SCRIPT.search(script.value):
        yield from _compared(words, megatron(), exact=True, certain=False)
    else:
        yield from _typing_mistakes(words)


def _python_as_script(
    launcher: Options, options: list[Value[str]], script: Value[str] | None, words: list[Value[str]]
) -> Iterator[Problem]:
    """`torchrun … python train.py` starts `python python train.py`."""
    if script is None or not script.known or not _PYTHON.fullmatch(script.value):
        return
    if words and words[0].value.endswith(".py") and not any("no" in o.value and "python" in o.value for o in options):
        yield problem(
            script,
            f"{launcher.program} starts Python itself and takes {script.value} for the script: no such file",
            f"remove {script.value}",
        )


def _launcher(command: Command) -> tuple[Options | None, int]:
    words = [word.value for word in command.words[:3]]
    if command.program == "torchrun" or words[1:] == ["-m", "torch.distributed.run"]:
        return table()["torchrun"], 1 if command.program == "torchrun" else 3
    if words[:2] == ["accelerate", "launch"]:
        return table()["accelerate"], 2
    return (table()["deepspeed"], 1) if command.program == "deepspeed" else (None, 1)


def _beside(file: File, script: str) -> Options | None:
    if file.path == "<stdin>" or script.startswith(("/", "~")):
        return None
    folder = Path(file.path).parent
    for place in (folder, folder.parent):
        options = options_of_script(place / script)
        if options is not None:
            return options
    return None


def _compared(words: list[Value[str]], known: Options, exact: bool = False, certain: bool = True) -> Iterator[Problem]:
    for word in words:
        if word.value == "--":
            return  # what follows is for another program
        name = word.value.partition("=")[0]
        if not re.fullmatch(r"--[A-Za-z][\w-]*", name) or known.has(name, exact=exact):
            continue
        near = known.nearest(name)
        if not near and not certain:
            continue
        stem = max((one for one in known.takes_value if name.startswith((f"{one}_", f"{one}-"))), key=len, default="")
        meant = near or stem
        yield problem(
            word,
            f"{known.program} has no option {name}",
            f"did you mean {meant}?" if meant else f"remove it; {known.program} stops at an unknown option",
            edit=_renamed(word, name, near),
        )


def _renamed(word: Value[str], name: str, near: str) -> Edit | None:
    """The edit that corrects an option's name, where the word is written as it is."""
    span = word.span
    if not near or span.line != span.end_line or span.end_column - span.column != len(word.value):
        return None
    return Edit(Span(span.line, span.column, span.line, span.column + len(name)), near, safe=False)


def _typing_mistakes(words: list[Value[str]]) -> Iterator[Problem]:
    """Scripts add options of their own to those of Hugging Face: only a near miss is reported."""
    known = table()["TrainingArguments"]
    names = [(word, word.value.partition("=")[0]) for word in words if word.value.startswith("--")]
    if sum(known.has(name) for _, name in names) < _HUGGING_FACE:
        return
    for word, name in names:
        near = "" if known.has(name) else known.nearest(name, 0.92)
        if near:
            message = f"TrainingArguments of Hugging Face has no option {name}"
            yield problem(word, message, f"did you mean {near}?", level="info")


@rule("JOB014", "warning")
def restarts_find_their_checkpoint(file: File) -> Iterator[Problem]:
    """A job that restarts by itself must load the checkpoints it saves.

    A job with `#SBATCH --requeue` or HyperPod's `--auto-resume=1` starts again after a failure with the same command.
    Megatron-LM then needs `--load` with the directory of `--save`; the Hugging Face Trainer must not have
    `--overwrite_output_dir`, nor resume from one checkpoint by its number.

    Why: after every failure the run starts from step 0, or from the checkpoint it was started with, and nobody notices
    until the loss curve is plotted.

    Fix: `--load` and `--save` with the same directory; the pretrained weights of a first start by
    `--pretrained-checkpoint` or `--finetune`.

    Source: Megatron-LM, checkpointing arguments; awslabs/awsome-distributed-ai issues 232, 616 and 710.

    When to ignore: the script finds the newest checkpoint itself.
    """
    yield from once(p for job in file.jobs for p in _restart(job))


def _restart(job: Job) -> Iterator[Problem]:
    launch = job.launch
    if launch is None or not _restarts(job):
        return
    options = launch.options
    save, load = options.get("save"), options.get("load")
    overwrite = options.get("overwrite_output_dir")
    if overwrite is not None and overwrite.value.lower() != "false" and "resume_from_checkpoint" not in options:
        yield problem(
            overwrite.key or overwrite,
            "the job restarts by itself, and --overwrite_output_dir makes it start over",
            "remove it, or add --resume_from_checkpoint",
        )
    resumed = options.get("resume_from_checkpoint")
    if resumed is not None and resumed.known and _FIXED_CHECKPOINT.search(resumed.value):
        yield problem(
            resumed,
            f"the job restarts by itself, and every restart goes back to {resumed.value}",
            "write --resume_from_checkpoint True: the Trainer finds the newest in output_dir",
        )
    if save is None or not any(_MEGATRON_SCRIPT.search(word.value) for word in launch.words):
        return
    if load is None:
        yield problem(
            save,
            f"the job restarts by itself but never loads what it saves to {save.value}: it starts from step 0",
            f"add --load {save.value}",
        )
    elif load.known and save.known and load.value != save.value and "finetune" not in options:
        yield problem(
            load,
            f"the job restarts by itself, but loads {load.value} and saves to {save.value}: progress is lost",
            f"write --load {save.value}, and --pretrained-checkpoint or --finetune for the first start",
        )


def _restarts(job: Job) -> bool:
    resume = job.extra.get("auto_resume")
    return "requeue" in job.directives or (resume is not None and resume.value in ("1", "true"))
