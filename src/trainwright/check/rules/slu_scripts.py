"""SLU: what Slurm does not do with a batch script although it is written there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.job_sizes import once
from trainwright.check.model import Command, File, ShellScript
from trainwright.check.readers.templates import is_template
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.slu_directives import refused_directives
from trainwright.spec.source import Span

_VARIABLE = re.compile(r"\$\{?[A-Za-z_]\w*\}?")
# Variables that Slurm sets only where the option is given.
_ONLY_WITH = {
    "SLURM_GPUS": "gpus",
    "SLURM_GPUS_PER_NODE": "gpus-per-node",
}
_REQUESTS_GPUS = ("gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket")
_HOURS_OF_A_DAY = 24
_STARTS = ("srun", "torchrun", "python", "python3", "accelerate", "deepspeed", "mpirun")


@rule("SLU006", "warning")
def batch_script_is_read_as_meant(file: File) -> Iterator[Problem]:
    """What a batch script asks of Slurm must be something that Slurm reads.

    Variables in #SBATCH lines are not expanded; `#sBATCH` is a comment; SLURM_GPUS and SLURM_GPUS_PER_NODE are set for
    `--gpus` and `--gpus-per-node` only, not for `--gres=gpu:8`; and the exit status of `srun … | tee log` is that of
    tee, that of a script that ends with `echo` the status of echo (a note). `dirname "$0"` is a directory of slurmd's
    (a note). `--time=10:00` is ten minutes (a note, for several nodes). Errors, since sbatch refuses the script: blanks
    beside the `=` of a number, a long option with one dash (`-ntasks=4`), units in `--time=12h`, a `--dependency`
    without a job, DOS line breaks. So is `srun … &` at the end without `wait`: Slurm ends the job. Templates are not
    reported.

    Why: sbatch rejects the script, or the log is written to a directory named `$HOME`; a script that counts
    $SLURM_GPUS starts 0 processes. A failed job whose last command is a pipe ends as COMPLETED with status 0: it is not
    requeued, and jobs that depend on it start.

    Fix: options of the command line (`sbatch --nodes=$NODES job.sbatch`) or literal values; `$SLURM_GPUS_ON_NODE`;
    `set -o pipefail`.

    Source: Slurm 25.05, manual page of sbatch (options, output environment variables); the bash manual, pipelines.

    When to ignore: another program fills in the variables before the script is submitted.
    """
    if file.format != "sbatch" or is_template(file.text) or "template" in file.path.lower() or "{{" in file.text:
        return
    for script in file.scripts:
        if script.kind == "sbatch":
            yield from once(
                [
                    *refused_directives(file, script),
                    *_unexpanded(script),
                    *_unset(script),
                    *_minutes(script),
                    *_misspelled(file),
                    *_lost_status(file, script),
                    *_ends_with_words(file, script),
                    *_own_directory(file),
                    *_not_waited_for(script),
                ]
            )


def _unexpanded(script: ShellScript) -> Iterator[Problem]:
    names = [(name, value) for name, value in script.directives if _VARIABLE.search(value.value)]
    if any(name == "job-name" and "SLURM_JOB_NAME" in value.value for name, value in names):
        return  # a program fills it in: no person names a job after itself
    if names:
        name, value = names[0]
        more = f" (and in {len(names) - 1} more lines)" if len(names) > 1 else ""
        passed = f"pass it: sbatch --{name}={value.value} …"
        if name in ("output", "error", "input"):
            fix = "use %x, %j and %u, or a literal path"
        else:
            fix = f"write a literal path, or {passed}" if name == "chdir" else passed
        yield problem(value, f"Slurm does not expand {value.value} in an #SBATCH line{more}", fix)


def _misspelled(file: File) -> Iterator[Problem]:
    """`#sBATCH --mem=8G`: Slurm reads #SBATCH only. Lines of small letters may show how to submit the script."""
    for number, line in enumerate(file.text.split("\n"), start=1):
        match = re.match(r"#(?!SBATCH)(?i:sbatch)(?=\s+-)", line)
        if match is None and line.strip() and not line.startswith("#"):
            return
        if match is not None and not re.search(r"\.\w+\s*$", line):
            yield problem(
                Span(number, 1, number, len(line.rstrip()) + 1),
                f"Slurm ignores {match[0]}: it reads #SBATCH, in capitals",
                "write #SBATCH, or ##SBATCH for a line that is put aside",
                level="info" if match[0] == "#sbatch" else None,
            )


def _minutes(script: ShellScript) -> Iterator[Problem]:
    """`--time=10:00` is ten minutes; several nodes are seldom wanted for so short a time."""
    given = dict(script.directives)
    nodes, time = given.get("nodes"), given.get("time")
    match = re.fullmatch(r"0?(\d{1,2}):00", time.value) if time is not None else None
    if time is None or match is None or not 0 < int(match[1]) <= _HOURS_OF_A_DAY:
        return
    if nodes is not None and nodes.value.isdecimal() and int(nodes.value) > 1:
        yield problem(
            time,
            f"{time.value} is {int(match[1])} minutes",
            f"write {time.value}:00 for hours",
            level="info",
            why=reasons.MINUTES,
        )


def _unset(script: ShellScript) -> Iterator[Problem]:
    """A variable that Slurm sets for another way to request GPUs than the one that is used."""
    given = {name for name, _ in script.directives}
    if not given & set(_REQUESTS_GPUS):
        return
    for name in ("SLURM_GPUS", "SLURM_GPUS_PER_NODE"):
        option = _ONLY_WITH[name]
        if option in given or name in script.assigned:
            continue
        command = _reader_of(script, name)
        if command is not None:
            yield problem(
                command.words[0],
                f"${name} is empty: Slurm sets it for --{option}, and the script requests GPUs with "
                f"--{sorted(given & set(_REQUESTS_GPUS))[0]}",
                f"use $SLURM_GPUS_ON_NODE, or request them with --{option}",
            )


def _reader_of(script: ShellScript, name: str) -> Command | None:
    """The first command that needs a variable, without a default for it anywhere. One that only shows it does not."""
    if re.search(rf"\$\{{{name}:|{name}\s*\+?=|-[nz] +\"?\$\{{?{name}\b", script.text):
        return None
    pattern = re.compile(rf"\$\{{?{name}\}}?(?!\w)")
    readers = (c for c in script.commands if any(pattern.search(word.value) for word in c.words))
    return next((c for c in readers if c.program not in ("echo", "printf") or c.piped), None)


def _lost_status(file: File, script: ShellScript) -> Iterator[Problem]:
    """`srun … | tee log` as the last command: the job ends with the status of tee."""
    if "pipefail" in file.text or "PIPESTATUS" in file.text or not script.commands:
        return
    last = script.commands[-1]
    before = [command for command in script.commands if command.piped and command.program in _STARTS]
    if last.program != "tee" or last.conditional or not before or before[-1].conditional:
        return
    line = before[-1].span.end_line
    if last.span.line == line or last.span.line == line + 1:
        yield problem(
            before[-1].words[0],
            f"the job ends with the status of tee: when {before[-1].program} fails, Slurm sees COMPLETED",
            "add `set -o pipefail` before it, or let #SBATCH --output write the log",
            why=reasons.STATUS_OF_TEE,
        )


_OWN_DIRECTORY = re.compile(r"dirname\s+[\"']?(\$0|\$\{0\}|\$\{?BASH_SOURCE(\[0\]\})?)")


def _own_directory(file: File) -> Iterator[Problem]:
    """`cd "$(dirname "$0")"`: Slurm runs a copy of the script in its spool directory."""
    if "SLURM_SUBMIT_DIR" in file.text or "scontrol show job" in file.text:
        return  # the script knows
    for number, line in enumerate(file.text.split("\n"), start=1):
        match = _OWN_DIRECTORY.search(line)
        if match is not None and not line.lstrip().startswith("#"):
            yield problem(
                Span(number, match.start() + 1, number, match.end() + 1),
                "Slurm runs a copy of the script: this is a directory of slurmd's, not that of the script",
                "use $SLURM_SUBMIT_DIR, or a literal path",
                level="info",  # the script may also be called without sbatch
                why=reasons.SPOOL_DIRECTORY,
            )
            return


def _not_waited_for(script: ShellScript) -> Iterator[Problem]:
    """`srun … &` as the last command: the job ends with the script, and Slurm kills its steps."""
    launched = [c for c in script.commands if c.background and c.runner is None and c.program in _STARTS]
    if not launched or re.search(r"(?<![-\w])(wait|fg)\b", script.text):
        return
    last = launched[-1]
    later = [command for command in script.commands if command.span.line > last.span.end_line]
    if last.conditional or any(command.program not in _WORDS for command in later):
        return
    yield problem(
        last.words[0],
        f"{last.program} runs in the background and nothing waits for it: Slurm ends the job with the script",
        "remove the `&`, or end the script with `wait`",
        level="error" if last.program == "srun" else None,  # without cgroups another process may live on
    )


_WORDS = ("echo", "printf", "date")
_KEEPS_STATUS = re.compile(r"\$\?|\bexit\b|\btrap\b|set -\w*e|errexit|PIPESTATUS|\|\|")


def _ends_with_words(file: File, script: ShellScript) -> Iterator[Problem]:
    """A script that starts the training, then prints something: the job ends with the status of the print."""
    if _KEEPS_STATUS.search(file.text) or not script.commands or script.commands[-1].program not in _WORDS:
        return
    started = [command for command in script.commands if command.program in _STARTS and not command.conditional]
    if started and not script.commands[-1].conditional:
        last, words = started[-1], script.commands[-1]
        yield problem(
            words.words[0],
            f"the job ends with the status of {words.program}: when {last.program} fails, Slurm sees COMPLETED",
            "add `set -e` at the top, or `exit $?` right after the training",
            level="info",
            why=reasons.STATUS_OF_PRINT,
        )
