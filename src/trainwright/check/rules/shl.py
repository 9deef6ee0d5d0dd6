"""SHL: shell mistakes that silently change what a job does."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.finding import Edit
from trainwright.check.launches.job_sizes import once
from trainwright.check.model import File, ShellScript
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.shl_assignments import lost_values, spaced, unexported
from trainwright.check.rules.shl_directives import misread_directives
from trainwright.check.rules.shl_lines import cut_lines, lost_lines, typed_dashes
from trainwright.check.rules.shl_requirements import errors_to_file_one, loose, redirected, redirected_tests, torn
from trainwright.check.rules.shl_variables import compared, misspelled


@rule("SHL001", "warning")
def shell_does_what_it_says(file: File) -> Iterator[Problem]:
    """Shell mistakes that change a job without failing it.

    Reported, as warnings where nothing else is said:

    - variables: a test of one that nothing sets (`[ $NODES -gt 4 ]`; Slurm's name is SLURM_JOB_NUM_NODES), one that is
      never set and one letter from one that is (a note behind `source …/bin/activate`, not reported behind other
      files), an extra brace (`${DIR}}`), and a variable of NCCL, libfabric or torch that is set without `export`;
    - assignments: `export NAME /path` without `=` or with blanks beside it, `NAME = value`, `NAME= "value"`;
    - continued lines: a line of options that the line above does not continue; a backslash followed by a blank, or a
      comment inside a continued command, which end the command there; an option whose dash is no hyphen (U+2013, from a
      web page);
    - redirections that were not meant: an unquoted `pip install x>=1.2` writes a file named `=1.2`, `[ $NODES > 1 ]`
      one named 1, and so does `2>1` in the place of `2>&1`;
    - requirements: `mlflow==2.13` without `pip install` before it; `torch=2.0` and `torch == 2.0`, which pip refuses
      (errors);
    - an #SBATCH line after the first command, which Slurm ignores;
    - a log directory that the job makes itself: Slurm up to 24.11 opens the log before that, and the job fails without
      one (a note where the script does not make it, a README or a wrapper may, or a program writes the script).

    Why: the job runs with other options or versions than were written: `pip install torch>=2.4` without quotes
    installs any version, and writes a file named `=2.4`.

    Fix: see the finding.

    Source: Slurm's sbatch manual; the bash manual; launchers of awsome-distributed-ai.

    When to ignore: the variable is set by the environment that calls the script, or the directory exists on the
    cluster. Slurm 25.11 and later create it: `slurm = "25.11"` under `targets` of the settings says so.
    """
    for script in file.scripts:
        yield from once(
            [
                *redirected(file, script),
                *errors_to_file_one(script),
                *redirected_tests(script),
                *loose(file, script),
                *torn(script),
                *misspelled(file, script),
            ]
        )
        if script.kind != "dockerfile":
            yield from once(
                [
                    *compared(script),
                    *_braces(script),
                    *cut_lines(file, script),
                    *lost_lines(file, script),
                    *typed_dashes(script),
                    *lost_values(script),
                    *spaced(script),
                    *unexported(file, script),
                    *misread_directives(file, script),
                ]
            )


def _braces(script: ShellScript) -> Iterator[Problem]:
    for span in script.stray_braces:
        what = "extra closing brace: it becomes part of the value"
        yield problem(span, what, "remove it", edit=Edit(span, ""), why=reasons.STRAY_BRACE)
