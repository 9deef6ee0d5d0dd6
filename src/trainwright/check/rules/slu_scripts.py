"""SLU: what Slurm does not do with a batch script although it is written there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from trainwright.check import reasons
from trainwright.check.finding import Level
from trainwright.check.launches.job_sizes import once
from trainwright.check.launches.launchers import STARTERS
from trainwright.check.model import Command, File, ShellScript
from trainwright.check.readers.templates import is_template, without_suffix
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.slu_chains import printed_ids
from trainwright.check.rules.slu_directives import refused_directives
from trainwright.check.rules.slu_partitions import beyond_the_partition
from trainwright.check.rules.slu_pipes import lost_status, unseen_failures
from trainwright.check.rules.slu_signals import unanswered_signals
from trainwright.check.rules.slu_times import short_times
from trainwright.check.rules.slu_variables import lost_exports, unexpanded, unset_counts
from trainwright.spec.source import Span


@rule("SLU006", "warning")
def batch_script_is_read_as_meant(file: File) -> Iterator[Problem]:
    """What a batch script asks of Slurm must be something that Slurm reads.

    Errors, since sbatch refuses the script: blanks beside `=`, a word that is no option (`--job-name=my job`), a quote
    that is not closed, dashes and quotes of a word processor (`—mem=4G`), a blank behind the dashes, a long option with
    one dash (`-ntasks=4`), a short one with `=` (`-N=2`), a value that the option does not take (`--time=12h`,
    `--nodes=4-2`, `--mem=64GiB`, `--exclusive=yes`), `--mem` beside `--mem-per-cpu`, a `--dependency` without a job, a
    first line that is not `#!`, DOS line breaks. Two more: `srun … &` at the end without `wait`, alone or in a loop,
    because Slurm ends the job there; and what sbatch prints (`Submitted batch job 42`) as the id of a `--dependency`,
    in any script that calls sbatch.

    Warnings:

    - variables, `~` and `$(…)` in #SBATCH lines, which Slurm does not expand; `#sBATCH`, `#SBTACH` and an indented
      #SBATCH, which are comments;
    - SLURM_GPUS and SLURM_GPUS_PER_NODE beside `--gres=gpu:8`: Slurm sets them for `--gpus` and `--gpus-per-node` only;
    - the status of `srun … | tee log`, which is that of tee: at the end of a job that trains or that others wait for (a
      note elsewhere, and of a script that ends with `echo`), where `set -e` is to stop the script, and in every script
      where `if`, `||` or `$?` ask for it;
    - `--signal=USR1@300` without `B:` and with a trap of the batch shell, which it never reaches (a note where no step
      of srun gets it at all);
    - `--signal=B:USR1@300` where no trap answers it and the shell ends, where the trap waits for a command in the
      foreground, or where it ends the only `wait`, and the script with it;
    - `--time` and `--nodes` above MaxTime and MaxNodes of the partition in a slurm.conf beside the script;
    - `srun --export=NAME=1` without ALL, and `#SBATCH --export=NONE`, where the tasks need what the script exports: the
      rendezvous, NCCL's settings, and what libraries read (HF_HOME), unless the batch script starts something else that
      may read it.

    Notes: `--time=10:00`, which is ten minutes, below a comment that says 10 hours, or for several nodes; and
    `dirname "$0"`, which is a directory of slurmd's. Templates are not reported.

    Why: sbatch rejects the script, or the log is written to a directory named `$HOME`; a script that counts
    $SLURM_GPUS starts 0 processes. A failed job whose last command is a pipe ends as COMPLETED with status 0: it is not
    requeued, and jobs that depend on it start.

    Fix: options of the command line (`sbatch --nodes=$NODES job.sbatch`) or literal values; `$SLURM_GPUS_ON_NODE`;
    `set -o pipefail`.

    Source: Slurm 25.05, manual page of sbatch (options, output environment variables); the bash manual, pipelines and
    signals.

    When to ignore: another program fills in the variables before the script is submitted.
    """
    if file.format not in ("sbatch", "shell"):
        return
    if is_template(file.text) or "template" in file.path.lower() or "{{" in file.text:
        return
    yield from (p for script in file.scripts for p in printed_ids(file, script))
    if file.format != "sbatch":
        yield from (p for script in file.scripts for p in unseen_failures(file, script))
        return
    if without_suffix(Path(file.path).name) != Path(file.path).name:
        return  # `job.slurm.tmpl`
    for script in file.scripts:
        if script.kind == "sbatch":
            yield from once(
                [
                    *refused_directives(file, script),
                    *unexpanded(file, script),
                    *unset_counts(script),
                    *short_times(script),
                    *beyond_the_partition(file, script),
                    *lost_exports(script),
                    *unanswered_signals(script),
                    *unseen_failures(file, script),
                    *_misspelled(file),
                    *lost_status(file, script),
                    *_ends_with_words(file, script),
                    *_own_directory(file),
                    *_not_waited_for(script),
                ]
            )


def _misspelled(file: File) -> Iterator[Problem]:
    """`#sBATCH --mem=8G` and `#SBTACH`: Slurm reads #SBATCH only, at the beginning of a line. Lines of small letters
    may show how to submit the script; a letter before the word puts a line aside (`#XSBATCH`)."""
    for number, line in enumerate(file.text.split("\n"), start=1):
        match = re.match(r"(\s*)#(\w+)(?=\s+-)", line)
        if match is None and line.strip() and not line.lstrip().startswith("#"):
            return
        if match is None or re.search(r"\.\w+\s*$", line) or (match[2] == "SBATCH") == (match[1] == ""):
            continue
        if match[2] == "SBATCH":
            what, fix = (
                "Slurm ignores an #SBATCH that is not at the beginning of its line",
                "remove the blanks before it",
            )
        elif match[2].upper() == "SBATCH" or _is_slip(match[2]):
            what = f"Slurm ignores #{match[2]}: it reads #SBATCH"
            fix = "write #SBATCH, or ##SBATCH for a line that is put aside"
        else:
            continue
        where = Span(number, len(match[1]) + 1, number, len(line.rstrip()) + 1)
        no_effect = match[2] == "sbatch" or _OF_DEFAULTS.fullmatch(line[match.end() :].partition(" #")[0].strip())
        level: Level | None = "info" if no_effect else None
        yield problem(where, what, fix, level=level, why=reasons.A_COMMENT_TO_SLURM)


# What a job has without the option too, and what changes nothing that it does.
_OF_DEFAULTS = re.compile(
    r"(--(nodes|ntasks|cpus-per-task|ntasks-per-node)[= ]|-[Nnc] ?)1|--export[= ]ALL"
    r"|(--(job-name|mail-type|mail-user|comment|error|verbose)\b|-[Jev]\b).*"
)


def _is_slip(word: str) -> bool:
    """`SBTACH`, `SBATH`, `SBAATCH`, `SBARCH`: behind the first letter two are swapped, or one is left out, written
    twice or another one. An X puts a line aside."""
    if word == "BSATCH" or word[:1] != "S" or not word.isupper() or not word.isalpha() or "X" in word:
        return word == "BSATCH"
    left_out = {"SBATCH"[:i] + "SBATCH"[i + 1 :] for i in range(1, 6)}
    swapped = {"SBATCH"[:i] + "SBATCH"[i + 1] + "SBATCH"[i] + "SBATCH"[i + 2 :] for i in range(1, 5)}
    doubled = {"SBATCH"[:i] + "SBATCH"[i - 1 :] for i in range(2, 6)}
    other = len(word) == len("SBATCH") and sum(a != b for a, b in zip(word, "SBATCH", strict=True)) == 1
    return other or word in left_out | swapped | doubled


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
    launched = [c for c in script.commands if c.background and c.runner is None and c.program in STARTERS]
    if not launched or re.search(r"(?<![-\w])(wait|fg)\b", script.text):
        return
    last = launched[-1]
    end = (last.span.end_line, last.span.end_column)
    later = [command for command in script.commands if (command.span.line, command.span.column) > end]
    if last.branch or not all(command.program in _WORDS or _is_pause(script, last, command) for command in later):
        return
    yield problem(
        last.words[0],
        f"{last.program} runs in the background and nothing waits for it: Slurm ends the job with the script",
        "remove the `&`, or end the script with `wait`",
        level="error" if last.program == "srun" else None,  # without cgroups another process may live on
        why=reasons.ENDS_WITH_THE_SCRIPT,
    )


def _is_pause(script: ShellScript, last: Command, command: Command) -> bool:
    """`sleep 2` behind the last start, also in its loop; what sleeps for long, or again and again, waits for it."""
    seconds = command.words[1].value if len(command.words) == 2 else ""
    first = last.span.end_line - script.first_line + 1
    between = "\n".join(script.lines[first : command.span.line - script.first_line + 1])
    short = seconds.isdecimal() and int(seconds) < _PAUSE
    return command.program == "sleep" and short and _LOOP.search(between) is None


_PAUSE = 60  # seconds
_LOOP = re.compile(r"\b(for|while|until)\b")
_WORDS = ("echo", "printf", "date")
_KEEPS_STATUS = re.compile(r"\$\?|\bexit\b|\btrap\b|set -\w*e|errexit|PIPESTATUS|\|\|")


def _ends_with_words(file: File, script: ShellScript) -> Iterator[Problem]:
    """A script that starts the training, then prints something: the job ends with the status of the print."""
    if _KEEPS_STATUS.search(file.text) or not script.commands or script.commands[-1].program not in _WORDS:
        return
    started = [c for c in script.commands if c.program in STARTERS and not (c.conditional or c.background)]
    if started and not script.commands[-1].conditional:
        last, words = started[-1], script.commands[-1]
        yield problem(
            words.words[0],
            f"the job ends with the status of {words.program}: when {last.program} fails, Slurm sees COMPLETED",
            "add `set -e` at the top, or `exit $?` right after the training",
            level="info",
            why=reasons.STATUS_OF_PRINT,
        )
