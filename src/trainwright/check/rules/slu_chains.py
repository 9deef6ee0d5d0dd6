"""SLU: jobs that wait for others, by the id that sbatch printed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.model import EnvVar, File, ShellScript
from trainwright.check.registry import Problem, problem

_CALL = re.compile(r"[\"']?(\$\(|`)\s*sbatch\s(?P<options>.*)", re.DOTALL)
_TAKEN_APART = re.compile(r"--parsable|\||<<<|\bawk\b|\bcut\b|\bgrep\b")
_OWN_SBATCH = re.compile(r"\bsbatch\s*\(\)|\b(alias\s+sbatch|function\s+sbatch)\b|SBATCH_PARSABLE")
_OPENS, _CLOSES = re.compile(r"\s*(for|while|until)\b"), re.compile(r"\s*done\b")
_COMMENT = re.compile(r"^\s*#.*", re.MULTILINE)
_PRINTED = (
    "sbatch prints `Submitted batch job 42`, and only the number with --parsable: the next sbatch ends with `Job "
    "dependency problem`, or takes a word for its script. Of the chain, 1 job is queued."
)


def printed_ids(file: File, script: ShellScript) -> Iterator[Problem]:
    """`id=$(sbatch a)` and `--dependency=afterok:$id`."""
    if script.kind not in ("sbatch", "shell") or "sbatch " not in file.text or "after" not in file.text:
        return
    ids = _ids(script)
    text = _COMMENT.sub("", file.text) if ids and not _OWN_SBATCH.search(file.text) else ""
    for name, assignment in ids.items() if text else ():
        if _is_waited_for(name, text):
            yield problem(
                assignment.value,
                f"{name} is all that sbatch prints (`Submitted batch job …`), and --dependency takes a job's number",
                "take it with `sbatch --parsable`",
                level="error",
                why=_PRINTED,
            )


def _ids(script: ShellScript) -> dict[str, EnvVar]:
    """Variables that hold what sbatch prints, wherever they are assigned."""
    first: dict[str, EnvVar] = {}
    others: set[str] = set()
    again: dict[str, EnvVar] = {}
    for one in script.assignments:
        call = _CALL.match(one.value.value)
        if call is None or _TAKEN_APART.search(call["options"]):
            others.add(one.name)
        elif _is_of_a_chain(script, one, call["options"]):
            again[one.name] = one
        else:
            first.setdefault(one.name, one)
    return {name: one for name, one in first.items() if name not in others} | again


def _is_of_a_chain(script: ShellScript, one: EnvVar, options: str) -> bool:
    """Whether the next turn of a loop waits for what this one prints: `id=$(sbatch -d afterok:$id job.sbatch)`."""
    at = one.span.line - script.first_line
    own = re.search(rf"\bafter\w+:[\"']?\$(?:\{{{one.name}\}}|{one.name}\b)", options)
    inside = any(map(_OPENS.match, script.lines[:at])) and any(map(_CLOSES.match, script.lines[at:]))
    return own is not None and not one.applies and inside


def _is_waited_for(name: str, text: str) -> bool:
    variable = rf"\$(?:\{{{name}\}}|{name}\b(?!\[))"
    if re.search(rf"\bafter\w+:(?:[^\s\"']*:)?[\"']?{variable}", text):
        return True
    joined = re.search(rf"^\s*(\w+)=[\"']?\$\{{?\1\}}?:{variable}", text, re.MULTILINE)
    return joined is not None and re.search(rf"\bafter\w+[\"']?\$\{{?{joined[1]}\b", text) is not None
