"""JOB: options that the launcher or trainer has, and restarts that find their checkpoint."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.beside import text_beside
from trainwright.check.finding import Edit
from trainwright.check.launches.job_sizes import once
from trainwright.check.launches.launchers import hides_options, is_python, launcher_of, own_options
from trainwright.check.launches.options import Options, megatron, options_of_script, split, table
from trainwright.check.launches.other_launchers import counterpart
from trainwright.check.launches.trainers import MEGATRON_SCRIPT
from trainwright.check.launches.working_directory import deployed_folders, folders_of
from trainwright.check.model import Command, File, Job, ShellScript, Value
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.job_words import if_copied, misspelt_words
from trainwright.errors import listed, nearest
from trainwright.spec.source import Span

_HUGGING_FACE_EXAMPLE = re.compile(r"\brun_\w+\.py$")  # they look for the last checkpoint, unless told to overwrite
_FIXED_CHECKPOINT = re.compile(r"checkpoint-\d+/?$")
_LONG = re.compile(r"--[A-Za-z][\w-]*")
_NEAR_MISS = 0.85
_TYPING_MISTAKE = 0.92
# Options of sbatch that plugins bring, or that only some versions have.
_NOT_EVERYWHERE = re.compile(r"--(container|extra$|prefer|resv-ports|segment|share|stepmgr|tres-|workdir)")
_OF_OTHERS = {
    "walltime": "--time", "queue": "--partition", "name": "--job-name", "email": "--mail-user", "memory": "--mem",
}  # fmt: skip
_OF_SRUN = {  # options that sbatch refuses in a script
    "accel-bind", "cpu-bind", "exact", "het-group", "kill-on-bad-exit", "label", "mpi", "multi-prog", "overlap",
    "preserve-env", "pty", "task-epilog", "task-prolog", "unbuffered",
}  # fmt: skip
_LISTED = 3  # of the options that a beginning may mean
_HUGGING_FACE = 3  # so many options of TrainingArguments show that a script takes them


@rule("JOB013", "error")
def options_exist(file: File) -> Iterator[Problem]:
    """The launcher and the trainer must have the options they are given.

    The options of torchrun, `accelerate launch` and the deepspeed launcher are compared with their argument parsers,
    those of sbatch, Megatron-LM (0.12 to 0.20) and of the Hugging Face Trainer as far as they look like typing
    mistakes; those of srun too, since plugins bring others. sbatch takes the beginning of an option only where no other
    begins so: `--gpu=4` may be one of six; and it refuses options of srun. `-m` takes a module, not a file (`python -m
    train.py`), and torchrun registers the rendezvous backends c10d, etcd, etcd-v2 and static (another that is no near
    miss is a note); the deepspeed launcher takes no `--master-port` for `--master_port`. A number or address of a
    launcher is no `$NAME` that single quotes keep from the shell. `--fp16` and `--bf16` exclude each other. Where the
    script lies beside its launcher and has a plain argparse parser, its own options are read (as notes where the script
    changes to an absolute directory, which may hold a copy). A launcher is given the script, not `python script`, and
    `python -m deepspeed` starts nothing. An option whose value is missing takes the script for it.

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
    yield from once(p for command in commands for p in misspelt_words(command))
    yield from once(p for script in file.scripts for p in _unknown_directives(script))
    yield from once(p for job in file.jobs if job.launch is not None for p in _two_precisions(job.launch))


def _two_precisions(launch: Command) -> Iterator[Problem]:
    """Megatron-LM and the Hugging Face Trainer stop at `--bf16` together with `--fp16`."""
    half, brain = (launch.options.get(name) for name in ("fp16", "bf16"))
    refuses = "per_device_train_batch_size" in launch.options or any(
        MEGATRON_SCRIPT.search(word.value) for word in launch.words
    )
    if refuses and half is not None and brain is not None and is_on(half) and is_on(brain):
        later = max(half, brain, key=lambda value: (value.span.line, value.span.column))
        yield problem(later, "--fp16 and --bf16 together: the trainer stops", "keep one of the two")


def is_on(flag: Value[str]) -> bool:
    """Whether a flag is given, alone or as `true`."""
    return flag.known and flag.value.strip("'\"").lower() in ("", "true", "1", "yes")


def _unknown_directives(script: ShellScript) -> Iterator[Problem]:
    """A site's plugins add options of their own to sbatch: a near miss is reported, a word of another scheduler, and
    the beginning of several options, which no plugin can make the beginning of one."""
    known = table()["sbatch"]
    for name, value in script.directives:
        option = f"--{name}"
        if len(name) == 1 or option in known.takes_value or value.key is None:
            continue
        several = [other for other in known.takes_value if other.startswith(option)]
        certain = sorted(other for other in several if not _NOT_EVERYWHERE.match(other))
        if len(certain) > 1:
            what = f"sbatch refuses {option}: it is the beginning of {listed(certain, _LISTED)}"
            yield problem(value.key, what, "write the whole name", why=reasons.NOT_QUEUED)
        elif not several:
            near = _OF_OTHERS.get(name) or known.nearest(option, _NEAR_MISS)
            fix = "give it to srun" if name in _OF_SRUN else f"did you mean {near}?" if near else ""
            plain = option.lower().replace("_", "-")
            if plain in known.takes_value:
                fix = f"write {plain}: sbatch's options have small letters and hyphens"
            if fix:
                what = f"sbatch has no option {option}, and refuses the script"
                yield problem(value.key, what, fix, why=reasons.NOT_QUEUED)


def _unknown(file: File, command: Command) -> Iterator[Problem]:
    launcher, start = _launcher(command)
    script: Value[str] | None
    if [word.value for word in command.words[1:3]] == ["-m", "deepspeed"] and is_python(command.program):
        yield problem(
            command.words[2], "the package deepspeed is no program: python stops", "start the command deepspeed"
        )
    if launcher is not None:
        options, script, words = split(command, launcher, start)
        yield from _compared(options, launcher, script=script, own=own_options(command))
        yield from _python_as_script(launcher, options, script, words)
    elif is_python(command.program):
        script = next((w for w in command.words[1:3] if w.value.endswith(".py")), None)
        words = command.words[command.words.index(script) + 1 :] if script is not None else []
    else:
        return
    if script is None or not script.known:
        return
    if script.value.endswith("setup.py"):
        return  # setuptools' commands have options of their own
    beside = _beside(file, command, script.value)
    if beside is not None:
        yield from _compared(words, beside, exact=True)
    elif MEGATRON_SCRIPT.search(script.value):
        yield from _compared(words, megatron(), exact=True, cutoff=_TYPING_MISTAKE)
    else:
        yield from _typing_mistakes(words)
        yield from _of_copy(file, command, script.value, words)


def _of_copy(file: File, command: Command, script: str, words: list[Value[str]]) -> Iterator[Problem]:
    """Notes of typing mistakes where the script goes to an absolute directory, which may hold a copy of the program."""
    folders, place = deployed_folders(file, command)
    text = text_beside(file.path, script, folders) if folders and not script.startswith(("/", "~")) else None
    beside = options_of_script(script, text) if text else None
    for one in _compared(words, beside, exact=True, cutoff=_TYPING_MISTAKE) if beside is not None else ():
        yield if_copied(one, place)


def _python_as_script(
    launcher: Options, options: list[Value[str]], script: Value[str] | None, words: list[Value[str]]
) -> Iterator[Problem]:
    """`torchrun … python train.py` starts `python python train.py`."""
    if script is None or not script.known or not is_python(script.value):
        return
    if words and words[0].value.endswith(".py") and not any("no" in o.value and "python" in o.value for o in options):
        yield problem(
            script,
            f"{launcher.program} starts Python itself and takes {script.value} for the script: no such file",
            f"remove {script.value}",
        )


def _launcher(command: Command) -> tuple[Options | None, int]:
    """The launcher that a command is; the older module of torchrun has options that its table lacks."""
    older = any(word.value == "torch.distributed.launch" for word in command.words[1:6])
    return launcher_of(command) if not older else (None, 1)


def _beside(file: File, command: Command, script: str) -> Options | None:
    if script.startswith(("/", "~")):
        return None
    text = text_beside(file.path, script, folders_of(file, command))
    return options_of_script(script, text) if text else None


def _compared(
    words: list[Value[str]],
    known: Options,
    exact: bool = False,
    cutoff: float | None = None,
    script: Value[str] | None = None,
    own: dict[str, Value[str]] | None = None,
) -> Iterator[Problem]:
    """Options that a program does not have. `cutoff`: a program that has forks, where only what resembles an option so
    much is a mistake, and nothing where others are unknown too. `script`: what a launcher starts, `own`: its options
    with their values."""
    before = itertools.takewhile(lambda word: word.value != "--", words)  # what follows is for another program
    names = [(word, word.value.partition("=")[0]) for word in before]
    unknown = [(word, name) for word, name in names if _LONG.fullmatch(name) and not known.has(name, exact=exact)]
    if cutoff is not None and not all(known.nearest(name, cutoff) for _, name in unknown):
        return
    if own is not None and unknown and known.program.startswith("accelerate"):
        # Older versions took abbreviations: they are reported only beside an option that all versions refuse.
        unknown = [(word, name) for word, name in names if _LONG.fullmatch(name) and known.takes(name) is None]
    for word, name in unknown:
        other = counterpart(known, word, own) if own is not None else ""
        near = "" if other else _meant(known, name, exact, own)
        yield problem(
            word,
            f"{known.program} has no option {name}",
            other or (f"did you mean {near}?" if near else _remedy(known, script, exact)),
            edit=_renamed(word, name, near),
            level="info" if own is not None and script is None and not (other or near) else None,  # it may be elsewhere
        )


def _meant(known: Options, name: str, exact: bool, own: dict[str, Value[str]] | None) -> str:
    """The option that a misspelled one resembles, or that it begins with (`--num_gpus_per_node`). Before the script of
    a launcher it may be one of the script's own: an option that takes a value does not stand for one without."""
    given = own.get(name[2:].replace("-", "_")) if own is not None else None
    options = {
        one: takes
        for one, takes in known.takes_value.items()
        if given is None or not given.known or takes == bool(given.value)
    }
    stems = [
        one for one in options if name.startswith((f"{one}_", f"{one}-")) and (exact or re.search("[_-]", one[2:]))
    ]
    return nearest(name, options, _NEAR_MISS) or max(stems, key=len, default="")


def _remedy(known: Options, script: Value[str] | None, of_script: bool) -> str:
    """What to do about an option that resembles none: it may be the script's, or be missing there."""
    if of_script:
        return f"rename or remove it, or add it to {known.program}: argparse stops at an unknown option"
    place = script.value.rpartition("/")[2] if script is not None and script.value.endswith(".py") else "the script"
    return f"write it after {place} if it is the script's, else remove it: {known.program} stops at it"


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
        near = "" if known.has(name) else known.nearest(name, _TYPING_MISTAKE)
        if near:
            message = f"TrainingArguments of Hugging Face has no option {name}"
            yield problem(word, message, f"did you mean {near}?", level="info")


@rule("JOB014", "warning")
def restarts_find_their_checkpoint(file: File) -> Iterator[Problem]:
    """A job that restarts by itself must load the checkpoints it saves.

    A job with `#SBATCH --requeue` or HyperPod's `--auto-resume=1` starts again after a failure with the same command.
    Megatron-LM then needs `--load` with the directory of `--save`; the example scripts of Hugging Face must not have
    `--overwrite_output_dir` (a note for other scripts), nor the Trainer resume from one checkpoint by its number.

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
    overwrite, text = options.get("overwrite_output_dir"), job.script.text if job.script is not None else ""
    if overwrite is not None and overwrite.value.lower() != "false" and "resume_from_checkpoint" not in text:
        example = any(_HUGGING_FACE_EXAMPLE.search(word.value) for word in launch.words)
        trains = "do_train" in options or not {"do_eval", "do_predict"} & options.keys()
        yield problem(
            overwrite.key or overwrite,
            "the job restarts by itself, and --overwrite_output_dir makes it start over",
            "remove it, or add --resume_from_checkpoint",
            level=None if example and trains else "info",
        )
    resumed = options.get("resume_from_checkpoint")
    if resumed is not None and resumed.known and _FIXED_CHECKPOINT.search(resumed.value):
        yield problem(
            resumed,
            f"the job restarts by itself, and every restart goes back to {resumed.value}",
            "write --resume_from_checkpoint True: the Trainer finds the newest in output_dir",
        )
    if save is None or not any(MEGATRON_SCRIPT.search(word.value) for word in launch.words):
        return
    if load is None and (re.search(r"--load\b", text) or hides_options(launch.words)):
        return  # a branch may add it
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
