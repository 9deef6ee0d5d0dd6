"""The codes of findings that `check` makes itself, without a rule, with their pages. They are listed and explained like
rules, and run with every file."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.check.model import File
from trainwright.check.registry import Problem, Rule

UNREADABLE = "TW001"
INVALID_SPEC = "TW002"
CRASHED = "TW003"
BAD_IGNORE = "TW004"


def _unreadable(file: File) -> Iterator[Problem]:
    """A file that cannot be read or parsed.

    The file is not valid YAML, JSON, TOML or HCL, is not UTF-8 text, is larger than `check` reads, or is no regular
    file. It is an error where the file was named. In a directory it is a warning where the file's name (`cluster.yaml`,
    `*.sbatch`, `Dockerfile`) or its words (`SlurmQueues`, `kind: PyTorchJob`) show that it is a cluster or job file;
    other files, and templates, are listed in the summary. Scripts and Dockerfiles may be of any encoding. DeepSpeed's
    file may be Hjson, as DeepSpeed reads it. A training script that Python cannot parse is a warning, and a note where
    another version of Python, a notebook or a template engine reads that line. A file of a directory that is only
    larger, deeper or more unusual than `check` reads is a note. A key that is written twice with two values counts as
    unreadable, and so does a file with git's markers of a merge conflict.

    Why: no rule runs on a file that cannot be parsed: that it has no other findings says nothing about it.

    Fix: correct the syntax at the place that the finding names.

    Source: the parser's own message.

    When to ignore: the file is a template of a kind that `check` does not know; leave it out with `exclude`.
    """
    return iter(())


def _invalid_spec(file: File) -> Iterator[Problem]:
    """A spec that violates its schema.

    A key that a spec does not have, a value of another type, a required key that is missing.

    Why: `plan`, `up` and `submit` refuse the spec for the same reason.

    Fix: see the finding; reference/spec.md lists the keys and their values.

    Source: the schema of the spec (`trainwright schema`).

    When to ignore: the file belongs to another program; leave it out with `exclude`.
    """
    return iter(())


def _crashed(file: File) -> Iterator[Problem]:
    """A rule that failed on a file.

    The rule raised an exception; the other rules ran.

    Why: what the rule would have reported about this file is unknown.

    Fix: report it with the message and, where you can, the file; go on with `--ignore` and the code of the rule.

    Source: the exception of the rule, which may be one of your own package.

    When to ignore: never; ignore the rule that failed instead.
    """
    return iter(())


def _bad_ignore(file: File) -> Iterator[Problem]:
    """An ignore comment without a code, with the code of no rule, or with its word misspelt.

    `# trainwright: ignore[CAP004] the reason` ignores one rule on a line, `ignore[CAP]` a family of rules. On a line of
    its own it holds for the command below it, with the lines that a backslash continues.

    Why: such a comment ignores nothing, although its author meant it to.

    Fix: write the code that the finding on the line has.

    Source: `trainwright check --rules` lists the codes.

    When to ignore: the code is one of a package of rules that is not installed here.
    """
    return iter(())


OWN_CODES: tuple[Rule, ...] = (
    Rule(UNREADABLE, "error", "offline", _unreadable),
    Rule(INVALID_SPEC, "error", "offline", _invalid_spec),
    Rule(CRASHED, "warning", "offline", _crashed),
    Rule(BAD_IGNORE, "warning", "offline", _bad_ignore),
)
