"""Follows a shell script statement by statement, as far as that is certain: what each variable holds, which commands
run under srun or mpirun, which variables are exported."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from trainwright.check.model import Command, EnvVar, ShellScript, Value
from trainwright.check.readers.shell_expand import Expander, Parts, Variables, joined, script_in, value_of
from trainwright.check.readers.shell_launch import commands_of, shell_string
from trainwright.check.readers.shell_source import Source, part_of
from trainwright.check.readers.shell_words import Statement, Word, scan
from trainwright.spec.source import Span

MAX_DEPTH = 4  # scripts in strings in scripts
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?=)")
_WRITTEN = re.compile(r"\b(\w+(?:\[\w+\])?)\+?=")
_VERSION_REDIRECT = re.compile(r">=\s*\d[\w.*]*|[<>]\s*\d+(\.[\w*]+)*")
_OPEN = {"if", "while", "until", "for", "case", "select"}
_CLOSE = {
    "fi": ("if",), "done": ("for", "while", "until", "select"), "esac": ("case",), "}": ("{",), ")": ("(",)
}  # fmt: skip
_PREFIX = {"then", "do", "else", "elif", "!", "time", "{", "if", "while", "until", "coproc"}
_DECLARE = {"export", "declare", "local", "readonly", "typeset"}


def _pip_module(command: Command) -> bool:
    return [word.value for word in command.words[1:3]] == ["-m", "pip"]


def _adds_other_options(old: list[Parts], new: list[Parts]) -> bool:
    """Whether what is appended repeats no option that is there already."""
    names = [{text.partition("=")[0] for text in _texts(words) if text.startswith("-")} for words in (old, new)]
    return bool(names[1]) and not names[0] & names[1]


def _texts(words: list[Parts]) -> list[str]:
    return [joined(parts) for parts in words]


def _names_with_open_brace(text: str) -> set[str]:
    """Names that are assigned a text with a `{` that is not part of `{name}`."""
    names: set[str] = set()
    for run in text.split():
        last = max((brace.start() for brace in re.finditer(r"\{(?!\w+\})", run)), default=0)
        names.update(match[1] for match in _WRITTEN.finditer(run, 0, last))
    return names


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
        self.plain: dict[str, EnvVar] = {}  # assigned, not yet exported
        self.alone: set[int] = set()  # lines that hold nothing but a comment
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
                self.blocks.append(_Block(keyword))
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
        """`${DIR}}`: the extra brace becomes part of the value."""
        for word in words:
            opened = any("{" in p.text for p in word.pieces if p.kind == "text")
            for before, piece in zip(word.pieces, word.pieces[1:], strict=False):
                closes = before.kind == "variable" and self.source.text[before.end - 1 : before.end] == "}"
                stray = closes and piece.kind == "text" and piece.text.startswith("}") and before.end == piece.start
                if stray and not opened and not self._holds_brace(before.text):
                    self.script.stray_braces.append(self.source.span(piece.start, piece.start + 1))

    def _holds_brace(self, name: str) -> bool:
        """Whether a variable's text opens a brace that this one closes, as where a script builds JSON."""
        if self.opening is None:
            self.opening = _names_with_open_brace(self.source.text)
        stored = self.variables.values.get(name)
        return name in self.opening or any("{" in part.text for parts in stored or () for part in parts)

    def assignments(self, words: list[Word]) -> list[Word]:
        """Handle `A=1 B=2 [command]` and return the words of the command."""
        count = 0
        while count < len(words) and self.assignment_of(words[count]) is not None:
            count += 1
        prefix = count < len(words)
        for word in words[:count]:
            self.take(word, exported=prefix, keep=not prefix)
        return words[count:]

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
            if self.blocks and old and _adds_other_options(old, items):
                return  # what a branch may add leaves the options before it as they are
            self.assign(name, [*old, *items] if not match[2] else None)
            return
        parts = [p for p in self.expander.one(word) if p.text or not p.known]
        parts = self._after_equals(parts, match.end())
        entry = self.entry(name, parts, word)
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
        if name in ("source", "."):
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
        for command in commands:
            command.piped = statement.operator in ("|", "|&")
            command.background = statement.operator == "&"
        self.script.commands += commands
        self.environment(commands)
        if commands and self.depth < MAX_DEPTH:
            self.embedded(expanded, commands[-1], statement)

    def version_redirects(self, commands: list[Command], words: list[Word], statement: Statement) -> None:
        """`pip install x>=1.2` without quotes writes to a file named `=1.2`."""
        if not any(command.program in ("pip", "pip3") or _pip_module(command) for command in commands):
            return
        ends = {word.end for word in words}
        places = [(start, end) for start, end in statement.redirects if start in ends]
        texts = [(place, self.source.text[place[0] : place[1]]) for place in places]
        matching = [(place, text) for place, text in texts if _VERSION_REDIRECT.fullmatch(text)]
        for place, text in matching[:1]:
            self.script.version_redirects.append((self.source.span(*place), text, len(matching) - 1))

    def declare(self, words: list[Word]) -> None:
        exported = words[0].bare == "export" or any(
            w.bare.startswith("-") and "x" in w.bare for w in words[1:] if w.bare
        )
        for word in words[1:]:
            if self.assignment_of(word) is not None:
                self.take(word, exported)
            elif exported and word.bare in self.plain:
                self.script.env.append(self.plain.pop(word.bare))

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
                    entry = EnvVar(name, Value(value, place, value, None, word.known), at)
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
        follower.run()
