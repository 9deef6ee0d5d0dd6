"""Follows a shell script statement by statement, as far as that is certain: what each variable holds, which commands
run under srun or mpirun, which variables are exported."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise

from trainwright.check.jobs import LostValue
from trainwright.check.model import Command, EnvVar, ShellScript, Value
from trainwright.check.readers.shell_expand import Expander, Parts, Variables, script_in, value_of
from trainwright.check.readers.shell_forms import (
    adds_other_options,
    installer,
    is_no_name,
    is_output,
    names_with_open_brace,
)
from trainwright.check.readers.shell_launch import commands_of, shell_string
from trainwright.check.readers.shell_source import Source, part_of
from trainwright.check.readers.shell_words import Statement, Word, scan
from trainwright.spec.source import Span

MAX_DEPTH = 4  # scripts in strings in scripts
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?=)")
_ELEMENT = re.compile(r"([A-Za-z_]\w*)\[[^\]\n=]*\$[^\]\n=]*\]\+?=")  # `HOSTS[$i]=a`
_ERRORS_TO_FILE_ONE = re.compile(r"\s2>1(?![^\s;|&)])")
_BRANCHES = {"if", "case"}
_TESTS = ("[", "[[", "test")
_VERSION_REDIRECT = re.compile(r"[<>]=\s*\d[\w.*]*,?|[<>]\s*\d+(\.[\w*]+)*,?")
_OPEN = {"if", "while", "until", "for", "case", "select"}
_CLOSE = {
    "fi": ("if",), "done": ("for", "while", "until", "select"), "esac": ("case",), "}": ("{",), ")": ("(",)
}  # fmt: skip
_PREFIX = {"then", "do", "else", "elif", "!", "time", "{", "if", "while", "until", "coproc"}
_DECLARE = {"export", "declare", "local", "readonly", "typeset"}


def read_script(source: Source, kind: str = "shell", variables: Variables | None = None) -> ShellScript:
    """A script's commands, variables and comments."""
    script = ShellScript(source.span(0, 0), source.text, kind=kind)
    _Follower(source, script, variables or Variables(), in_batch=True, depth=0).run()
    exported = {a.name for a in script.env}
    script.env.sort(key=lambda e: (e.span.line, e.span.column))
    script.assigned |= exported
    return script


@dataclass(slots=True)
class _Block:
    """A stretch that may run or not: a branch, a loop, a function, a subshell."""

    kind: str
    names: set[str] = field(default_factory=set)  # what it has assigned
    guarded: bool = False  # stands behind a test: `[ … ] && { …; }`


class _Follower:
    """Walks the statements of one source."""

    def __init__(self, source: Source, script: ShellScript, variables: Variables, in_batch: bool, depth: int) -> None:
        self.source = source
        self.script = script
        self.variables = variables
        self.depth = depth
        self.inside: Command | None = None
        self.expander = Expander(source, variables, in_batch)
        self.blocks: list[_Block] = []
        self.guarded = False  # by a test before `&&` or `||`
        self.in_branch = False  # of the script around this one
        self.plain: dict[str, EnvVar] = {}  # assigned, not yet exported
        self.alone: set[int] = set()  # lines that hold nothing but a comment
        self.unclosed = 0  # braces that the texts so far opened and did not close
        self.opening: set[str] | None = None  # variables whose text opens a brace, looked for once

    def run(self) -> None:
        scanned = scan(self.source.text)
        for start, end in scanned.comments:
            line = self.source.place(start)[0]
            text = self.source.text[start:end]
            self.script.comments[line] = text.lstrip("#").strip()
            before = self.source.text[self.source.text.rfind("\n", 0, start) + 1 : start]
            if not before.strip() and not text.startswith("#SBATCH"):
                self.alone.add(line)
        for statement in scanned.statements:
            self.statement(statement)
        self.script.assigned |= self.variables.assigned

    def statement(self, statement: Statement) -> None:
        words = self.blocks_in(statement.words)
        if words:
            self.braces(words)
            words = self.assignments(words)
        if words:
            self.command(words, statement)
        tests = bool(statement.words) and statement.words[0].bare in _TESTS
        self.guarded = statement.operator in ("&&", "||") and (tests or self.guarded)
        if statement.operator == "(":
            self.blocks.append(_Block("("))
        elif statement.operator == ")":
            self.leave(")")
        elif statement.operator == ";;":
            self.next_branch()

    def blocks_in(self, words: list[Word]) -> list[Word]:
        """The words after keywords; blocks are opened and closed on the way."""
        at = 0
        while at < len(words):
            keyword = words[at].bare
            if keyword in _CLOSE:
                self.leave(keyword)
                return []
            if keyword == "function":
                at = next((i for i in range(at, len(words)) if words[i].bare == "{"), len(words))
                continue
            if keyword in ("for", "select", "case"):
                self.blocks.append(_Block(keyword))
                if keyword != "case" and at + 1 < len(words) and words[at + 1].bare.isidentifier():
                    self.assign(words[at + 1].bare, None)
                return []
            if keyword not in _PREFIX:
                break
            if keyword in ("else", "elif"):
                self.next_branch()
            elif keyword in _OPEN or keyword == "{":
                self.blocks.append(_Block(keyword, guarded=self.guarded))
            at += 1
        return words[at:]

    def leave(self, closing: str) -> None:
        """A block ends: what it may have assigned is no longer certain. The `)` of a case's pattern closes nothing."""
        if self.blocks and self.blocks[-1].kind in _CLOSE[closing]:
            names = self.blocks.pop().names
            for name in names:
                self.variables.set(name, None)
            if self.blocks:
                self.blocks[-1].names |= names

    def next_branch(self) -> None:
        if self.blocks:
            for name in self.blocks[-1].names:
                self.variables.set(name, None)

    def assign(self, name: str, value: list[Parts] | None) -> None:
        self.variables.set(name, value)
        if self.blocks:
            self.blocks[-1].names.add(name)

    def braces(self, words: list[Word]) -> None:
        """`${DIR}}`: the extra brace becomes part of the value, unless an earlier text opened it, as where a script
        prints JSON piece by piece."""
        for word in words:
            texts = "".join(p.text for p in word.pieces if p.kind == "text")
            opened = "{" in texts or self.unclosed > 0
            self.unclosed += texts.count("{") - texts.count("}")
            for before, piece in zip(word.pieces, word.pieces[1:], strict=False):
                closes = before.kind == "variable" and self.source.text[before.end - 1 : before.end] == "}"
                stray = closes and piece.kind == "text" and piece.text.startswith("}") and before.end == piece.start
                if stray and not opened and not self._holds_brace(before.text):
                    self.script.stray_braces.append(self.source.span(piece.start, piece.start + 1))

    def _holds_brace(self, name: str) -> bool:
        """Whether a variable's text opens a brace that this one closes, as where a script builds JSON."""
        if self.opening is None:
            self.opening = names_with_open_brace(self.source.text)
        stored = self.variables.values.get(name)
        return name in self.opening or any("{" in part.text for parts in stored or () for part in parts)

    def assignments(self, words: list[Word]) -> list[Word]:
        """Handle `A=1 B=2 [command]` and return the words of the command."""
        count = 0
        while count < len(words):
            element = _ELEMENT.match(self.source.text, words[count].start, words[count].end)
            if element is not None:
                self.assign(element[1], None)
            elif self.assignment_of(words[count]) is None:
                break
            count += 1
        prefix = count < len(words)
        for word in words[:count]:
            self.take(word, exported=prefix, keep=not prefix)
        if count and len(words) == count + 1 and words[count - 1].bare.endswith("="):
            self.lost(words[count - 1], words[count])
        return words[count:]

    def lost(self, before: Word, word: Word, builtin: str = "", refused: str = "") -> None:
        """The value in `word` does not reach the variable in `before`; `NAME=<the name>` waits for one."""
        if self.source.text.startswith("<", before.end):
            return
        match = self.assignment_of(before)
        name = match[1] if match is not None else before.bare
        given = None if match is None else self.source.text[before.start + match.end() : before.end].strip("\\\n")
        text = self.source.text[word.start : word.end]
        span = self.source.span(before.start, word.end)
        self.script.lost_values.append(LostValue(span, name, given, text, builtin, refused or text))

    def assignment_of(self, word: Word) -> re.Match[str] | None:
        if not word.pieces or word.pieces[0].kind != "text" or word.pieces[0].quote:
            return None
        return _ASSIGNMENT.match(word.pieces[0].text)

    def take(self, word: Word, exported: bool, keep: bool = True) -> None:
        """One `NAME=value`."""
        match = self.assignment_of(word)
        if match is None:
            return
        name = match[1]
        if word.items is not None:
            items = [parts for item in word.items for parts in self.expander.words(item)]
            old = self.variables.values.get(name) or [] if match[3] == "+=" else []
            if self.blocks and old and adds_other_options(old, items):
                return  # what a branch may add leaves the options before it as they are
            self.assign(name, [*old, *items] if not match[2] else None)
            return
        parts = [p for p in self.expander.one(word) if p.text or not p.known]
        parts = self._after_equals(parts, match.end())
        entry = self.entry(name, parts, word)
        entry.prefix = not keep
        entry.applies = keep and not self.blocks and not self.guarded and self.depth == 0
        self.script.assignments.append(entry)
        if exported:
            self.script.env.append(entry)
        elif keep:
            self.plain[name] = entry
        if keep:
            self.assign(name, self._joined(name, parts, match[3] == "+=") if not match[2] else None)

    @staticmethod
    def _after_equals(parts: Parts, length: int) -> Parts:
        first = parts[0]
        rest = [first.cut(length, len(first.text))] if len(first.text) > length else []
        return rest + parts[1:]

    def _joined(self, name: str, parts: Parts, append: bool) -> list[Parts] | None:
        if not append:
            return [parts]
        old = self.variables.values.get(name)
        if old is None or len(old) != 1:
            return None
        return old if self.blocks else [[*old[0], *parts]]

    def entry(self, name: str, parts: Parts, word: Word) -> EnvVar:
        span = self.source.span(word.start, word.end)
        line = span.line
        near = [self.script.comments.get(line, "")]
        above = line - 1
        while above in self.alone:
            near.append(self.script.comments[above])
            above -= 1
        return EnvVar(name, value_of(parts, span), span, "\n".join(filter(None, near)))

    def command(self, words: list[Word], statement: Statement) -> None:
        name = words[0].bare
        if name in _DECLARE:
            self.declare(words)
            return
        if name in ("source", ".") or (name == "eval" and any(is_output(word) for word in words[1:])):
            self.script.sources_others = True
        if name in ("read", "mapfile", "readarray", "getopts"):
            for word in words[1:]:
                if word.bare.isidentifier():
                    self.assign(word.bare, None)
        if name == "set" and any(w.bare in ("-a", "allexport") for w in words[1:]):
            self.script.env += self.plain.values()
            self.plain.clear()
        expanded = [parts for word in words for parts in self.expander.words(word) if parts]
        if not expanded:
            return
        span = self.source.span(words[0].start, words[-1].end)
        commands = commands_of(expanded, span, self.inside, bool(self.blocks))
        self.version_redirects(commands, words, statement)
        for start, end in statement.redirects if name not in ("[[", "[", "test") else ():
            if _ERRORS_TO_FILE_ONE.match(self.source.text, start - 2):
                self.script.errors_to_file_one.append(self.source.span(start - 1, end))
        for command in commands:
            command.piped = statement.operator in ("|", "|&")
            command.background = statement.operator == "&"
            command.branch = self.may_not_run()
        self.script.commands += commands
        self.environment(commands)
        if commands and self.depth < MAX_DEPTH:
            self.embedded(expanded, commands[-1], statement)

    def may_not_run(self) -> bool:
        return self.in_branch or self.guarded or any(block.guarded or block.kind in _BRANCHES for block in self.blocks)

    def version_redirects(self, commands: list[Command], words: list[Word], statement: Statement) -> None:
        """`pip install x>=1.2` without quotes writes to a file named `=1.2`."""
        program = next(filter(None, map(installer, commands)), "")
        ends = {word.end for word in words}
        for start, end in statement.redirects if program else ():
            text = self.source.text[start:end]
            behind = start in ends or text.startswith((">=", "<="))
            if behind and _VERSION_REDIRECT.fullmatch(text) and not re.search(r"\.(log|txt|out|err)$", text):
                self.script.version_redirects.append((self.source.span(start, end), text, program))

    def declare(self, words: list[Word]) -> None:
        exported = words[0].bare == "export" or any(
            w.bare.startswith("-") and "x" in w.bare for w in words[1:] if w.bare
        )
        for before, word in pairwise(words):
            if self.assignment_of(word) is not None:
                self.take(word, exported)
            elif exported and word.bare in self.plain:
                self.script.env.append(self.plain.pop(word.bare))
            elif before is not words[0] and is_no_name(word) and not before.bare.startswith(("-", "+")):
                last = words[words.index(word) + 1 :][:1] if word.bare == "=" else []
                self.lost(before, last[0] if last else word, words[0].bare, word.bare)
                return  # the words after it belong to the value

    def environment(self, commands: list[Command]) -> None:
        """Variables given on a command line: mpirun -x, docker run -e, srun --export, env."""
        for command in commands:
            for flag, word in zip(command.words, command.words[1:], strict=False):
                given = flag.value in ("-x", "-e", "--env") and command.program in ("mpirun", "mpiexec", "docker")
                if (given or command.program == "env") and re.match(r"[A-Z_][A-Z0-9_]*=", word.value):
                    name, _, value = word.value.partition("=")
                    at = word.span
                    shift = (
                        len(name) + 1 if at.line == at.end_line and len(word.value) == at.end_column - at.column else 0
                    )
                    place = Span(at.line, at.column + shift, at.end_line, at.end_column)
                    entry = EnvVar(name, Value(value, place, value, None, word.known), at, prefix=True)
                    self.script.env.append(entry)

    def embedded(self, words: list[Parts], command: Command, statement: Statement) -> None:
        """A script in a string (`bash -c '...'`) or in a here-document of a shell."""
        string = shell_string(words)
        if string is not None:
            self.inner(script_in(string), command, copied=False)
        elif statement.heredocs and command.program in ("bash", "sh", "/bin/bash"):
            body = statement.heredocs[0]
            self.inner(part_of(self.source, body.start, body.end), command, copied=not body.quoted)

    def inner(self, source: Source, command: Command, copied: bool) -> None:
        in_batch = command.runner is None and self.inside is None
        follower = _Follower(source, self.script, self.variables.copy(), in_batch or copied, self.depth + 1)
        follower.inside = command.runner or self.inside
        follower.blocks = [_Block("{")] if self.blocks else []
        follower.in_branch = self.may_not_run()
        follower.run()
