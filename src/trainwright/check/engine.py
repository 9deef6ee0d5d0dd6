"""Runs the rules over files: reads each file, runs every rule that applies, honours `ignore` comments and settings. An
exception inside a rule becomes a finding, never a crash."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trainwright.check import reasons
from trainwright.check.beside import looked_up
from trainwright.check.config import Config
from trainwright.check.domain import keeps_level
from trainwright.check.finding import Finding, Level, Skip
from trainwright.check.ignores import MARK, bad_ignores, ignored_lines
from trainwright.check.input import is_regular, read_input, rough_text
from trainwright.check.launches.submitters import is_decided_elsewhere
from trainwright.check.model import File
from trainwright.check.own_codes import CRASHED, INVALID_SPEC, OWN_CODES, UNREADABLE
from trainwright.check.readers.ours import (
    ConflictError,
    another_reads_it,
    merge_conflict,
    recognisable,
    syntax_error,
)
from trainwright.check.readers.recognise import read_file
from trainwright.check.readers.templates import STAND_IN, is_template, without_suffix
from trainwright.check.registry import Problem, Rule, all_rules
from trainwright.check.standing import has_successor, lowers
from trainwright.check.walk import files
from trainwright.errors import UserError, did_you_mean
from trainwright.spec.mistakes import SpecError
from trainwright.spec.source import LimitError, RepeatedKeyError, SourceError, UnusualError, read_text

IMPOSSIBLE = "SPC"  # what a platform cannot do stays impossible under a comment that ignores it


@dataclass(slots=True)
class Result:
    """What one call found."""

    findings: list[Finding] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    rules: int = 0  # that were run
    files: int = 0
    unread: list[str] = field(default_factory=list)  # files of a directory that could not be parsed
    ignored: int = 0  # by comment
    ignored_by_settings: int = 0  # per-file-ignores
    texts: dict[str, str] = field(default_factory=dict)  # of files with findings, for excerpts and fixes
    templates: int = 0  # of the files, those of Jinja or Helm
    looked_up: list[str] = field(default_factory=list)  # paths that the findings of one file depend on

    def add(self, other: Result) -> None:
        """Take in the result of another file."""
        self.findings += other.findings
        self.files += other.files
        self.unread += other.unread
        self.ignored += other.ignored
        self.ignored_by_settings += other.ignored_by_settings
        self.templates += other.templates
        self.texts |= other.texts

    def text_of(self, path: str) -> str:
        """What was read of a file with findings; where its result comes from the cache, what is there now."""
        if path not in self.texts:
            try:
                self.texts[path] = Path(path).read_text(encoding="utf-8", errors="replace")
            except OSError:
                return ""
        return self.texts[path]

    def sort(self) -> None:
        self.findings.sort(key=lambda f: (f.file, f.span.line, f.span.column, f.code))

    def worst(self) -> str:
        levels = {finding.level for finding in self.findings}
        return next((level for level in ("error", "warning", "info") if level in levels), "none")


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rules to run, by prefix of their codes."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def wants(self, code: str) -> bool:
        chosen = not self.select or code.startswith(self.select)
        return chosen and not (self.ignore and code.startswith(self.ignore))

    def verify(self, codes: Sequence[str]) -> None:
        """A prefix that matches no rule is a typing mistake."""
        for prefix in (*self.select, *self.ignore):
            if not any(code.startswith(prefix) for code in codes):
                raise UserError(
                    f"no rule starts with {prefix!r}",
                    fix=did_you_mean(prefix, codes) or "`trainwright check --rules` lists them",
                )


def check(
    paths: Sequence[str],
    selection: Selection | None = None,
    facts: dict[str, Any] | None = None,
    config: Config | None = None,
) -> Result:
    """Check files and directories (`-` is standard input). `facts` answers the `aws` and `node` rules."""
    plan = RulePlan.of(selection or Selection(), facts or {}, config or Config())
    result = plan.result()
    for path, named in files(paths, plan.config):
        result.add(check_one(path, named, plan))
    result.sort()
    return result


@dataclass(frozen=True, slots=True)
class RulePlan:
    """The rules to run and how."""

    selection: Selection
    rules: tuple[Rule, ...]
    skipped: tuple[Rule, ...]
    facts: dict[str, Any]
    config: Config

    @classmethod
    def of(cls, selection: Selection, facts: dict[str, Any], config: Config) -> RulePlan:
        rules = all_rules()
        selection.verify(codes())
        config.verify(codes())
        wanted = [rule for rule in rules if selection.wants(rule.code)]
        if not any(selection.wants(code) for code in codes()):
            raise UserError(
                "no rule is left to run: all that are selected are ignored", fix="change --select or --ignore"
            )
        runnable = tuple(rule for rule in wanted if rule.needs == "offline" or facts.get(rule.needs) is not None)
        return cls(selection, runnable, tuple(rule for rule in wanted if rule not in runnable), facts, config)

    def result(self) -> Result:
        """An empty result that names the rules that do not run."""
        skips = [Skip(rule.code, _why_skipped(rule)) for rule in self.skipped]
        return Result(skips=skips, rules=len(self.rules))


def codes() -> list[str]:
    """Every code that a finding may have."""
    return [rule.code for rule in (*all_rules(), *OWN_CODES)]


def _why_skipped(rule: Rule) -> str:
    if rule.needs == "aws":
        return "needs AWS; run with --aws"
    return "needs facts of the node a job runs on; run there with --node"


def check_one(path: str, named: bool, plan: RulePlan) -> Result:
    """The findings of one file; `named`: by the user, so that a file of no known kind is an error."""
    shown = "<stdin>" if path == "-" else path
    looked_up()
    result = check_text(shown, lambda: read_input(path), named, plan)
    result.looked_up = looked_up()
    return result


def check_text(shown: str, read: Callable[[], str], named: bool, plan: RulePlan) -> Result:
    """The findings of a text, such as the one of an editor's buffer, under the name of its file."""
    result, text = Result(), ""
    try:
        text = read()
        file = read_file(shown, text, named)
    except SpecError as error:
        mistakes = [Finding(INVALID_SPEC, "error", m.file, m.span, m.what, m.fix) for m in error.mistakes]
        _add(mistakes, text, shown, plan.selection, plan.config, result)
        result.files += 1
        return result
    except SourceError as error:
        _add_unreadable(error, text, shown, named, plan, result)
        return result
    if file is None:
        if named:
            raise UserError(
                "not a kind of file that `check` knows" if text.strip() else "the file is empty", where=shown,
                fix="it reads Trainwright specs, ParallelCluster, eksctl, CloudFormation, Terraform, HyperPod, "
                "Kubernetes, Slurm's files, sbatch and shell files, variables of NCCL (.env), Dockerfiles, trainers' "
                "configurations, training scripts in Python",
            )  # fmt: skip
        return result
    file.targets, file.named = dict(plan.config.targets), named
    run_rules(file, plan, result)
    broken: SourceError | None = merge_conflict(text, shown)
    if broken is None and file.format == "python" and without_suffix(shown) == shown:
        broken = syntax_error(text, shown)
    if broken is not None:
        level: Level = "info" if another_reads_it(text, broken) else "warning"
        finding = Finding(UNREADABLE, level, shown, broken.span, broken.what, broken.fix, why=_why(broken))
        _add([finding], text, shown, plan.selection, plan.config, result)
    return result


def _add_unreadable(error: SourceError, text: str, shown: str, named: bool, plan: RulePlan, result: Result) -> None:
    """A directory may hold YAML of any kind: what cannot be parsed there is reported if it is recognisably ours."""
    text = text or ("" if named else rough_text(shown))
    if not named and not recognisable(shown, text, error.span.line):
        result.unread.append(shown)
        return
    error = merge_conflict(text, shown) or error
    level: Level = "error" if named and not isinstance(error, UnusualError) else "warning"
    if not named and (isinstance(error, LimitError) or has_successor(shown, "", text)):
        level = "info"
    finding = Finding(UNREADABLE, level, shown, error.span, error.what, error.fix, why=_why(error))
    _add([finding], text, shown, plan.selection, plan.config, result)
    if shown != "<stdin>" and is_regular(shown):
        result.texts.pop(shown, None)  # what the bytes are is read when it is shown, as for results of the cache
    result.files += 1


def _why(error: SourceError) -> str:
    """A reason of its own, where that of every unreadable file does not fit."""
    if isinstance(error, ConflictError):
        return reasons.MERGE_CONFLICT
    return reasons.REPEATED_KEY if isinstance(error, RepeatedKeyError) else ""


def run_rules(file: File, plan: RulePlan, result: Result) -> None:
    """Add the findings of a file that is read already."""
    _run_rules(file, plan.rules, plan.selection, plan.facts, result, plan.config)


def check_file(file: File, facts: dict[str, Any] | None = None) -> Result:
    """The rules over one file that is read already, for verbs that check a spec before they use it: the offline ones,
    and those that `facts` answers."""
    rules = [rule for rule in all_rules() if rule.needs == "offline" or rule.needs in (facts or {})]
    result = Result(rules=len(rules))
    _run_rules(file, rules, Selection(), facts or {}, result, Config())
    result.sort()
    return result


def _run_rules(
    file: File, rules: Sequence[Rule], selection: Selection, facts: dict[str, Any], result: Result, config: Config
) -> None:
    result.files += 1
    result.templates += file.template
    findings: list[Finding] = []
    for rule in rules:
        findings += run_rule(rule, file, facts.get(rule.needs))
    if is_template(file.text):
        findings = [replace(f, message=STAND_IN.sub("{{…}}", f.message)) for f in findings]
    _add(findings, file.text, file.path, selection, config, result)


def run_rule(rule: Rule, file: File, facts: Any = None) -> list[Finding]:
    """One rule over one file; its failure is a finding."""
    try:
        problems = list(rule.run(file, facts))
        return [_finding(rule, p, file) for p in problems] if problems else []
    except Exception as error:  # a rule may be a user's; whatever it raises is reported and the others run
        if rule.needs == "aws" and isinstance(error, UserError):
            raise  # AWS is out of reach: none of these rules can answer
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        message = f"rule {rule.code} failed on this file: {type(error).__name__}: {error} ({where})"
        return [
            Finding(
                CRASHED, "warning", file.path, file.span, message, "report it, and go on with --ignore " + rule.code
            )
        ]


def _finding(rule: Rule, p: Problem, file: File) -> Finding:
    where = p.span.source or p.span.file or file.path
    level = p.level or rule.level
    if level != "info" and (
        not keeps_level(rule.code, file)
        or is_decided_elsewhere(rule.code, file)
        or lowers(level, rule.code, p.span, file)
    ):
        level = "info"
    return Finding(rule.code, level, where, p.span, p.message, p.fix, p.edit, p.why or rule.reason)


def _add(findings: list[Finding], text: str, path: str, selection: Selection, config: Config, result: Result) -> None:
    silenced: dict[int, set[str]] = {}
    if MARK in text:
        silenced = ignored_lines(text, dockerfile="dockerfile" in Path(path).name.lower())
        findings = [*findings, *bad_ignores(text, path, codes())]
    findings = [replace(f, level=config.level_of(f)) for f in findings] if config.levels else findings
    kept = [f for f in findings if selection.wants(f.code)]
    quiet = [f for f in kept if not f.code.startswith(IMPOSSIBLE) and _is_silenced(f, path, silenced)]
    rest = [f for f in kept if f not in quiet] if quiet else kept
    loud = [f for f in rest if f.code.startswith(IMPOSSIBLE) or not config.ignores(f)]
    result.ignored += len(quiet)
    result.ignored_by_settings += len(rest) - len(loud)
    result.findings += loud
    if loud:
        result.texts[path] = text
    for base in {f.span.file for f in loud if f.span.file} - result.texts.keys():
        result.texts[base] = read_text(Path(base))


def _is_silenced(finding: Finding, path: str, silenced: dict[int, set[str]]) -> bool:
    return finding.file == path and finding.code.startswith(tuple(silenced.get(finding.span.line, ())))
