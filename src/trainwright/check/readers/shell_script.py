"""Follows a shell script statement by statement, as far as that is certain: what each variable holds, which commands
run under srun or mpirun, which variables are exported."""

from __future__ import annotations

import re
from itertools import pairwise, takewhile

from trainwright.check.jobs import LostValue, Subshell
from trainwright.check.model import Command, EnvVar, ShellScript
from trainwright.check.readers.shell_blocks import CLOSING, Blocks
from trainwright.check.readers.shell_changes import by_arithmetic, by_command
from trainwright.check.readers.shell_expand import Expander, Parts, Variables, script_in, value_of
from trainwright.check.readers.shell_forms import (
    adds_other_options,
    given_variables,
    installer,
    is_no_name,
    is_output,
    names_with_open_brace,
    options_in,
)
from trainwright.check.readers.shell_launch import commands_of, shell_string
from trainwright.check.readers.shell_source import Source, part_of
from trainwright.check.readers.shell_words import Statement, Word, scan

MAX_DEPTH = 4  # scripts in strings in scripts
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?=)")
_ELEMENT = re.compile(r"([A-Za-z_]\w*)\[[^\]\n=]*\$[^\]\n=]*\]\+?=")  # `HOSTS[$i]=a`
_ERRORS_TO_FILE_ONE = re.compile(r"\s2>1(?![^\s;|&)])")
_VERSION_REDIRECT = re.compile(r"[<>]\s*=\s*\d[\w.*]*,?|[<>]\s*\d+(\.[\w*]+)*,?")
_OPEN = {"if", "while", "until", "for", "case", "select"}
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


class _Follower:
    """Walks the statements of one source."""

    def __init__(self, source: Source, script: ShellScript, variables: Variables, in_batch: bool, depth: int) -> None:
        self.source = source
        self.script = script
        self.variables = variables
        self.depth = depth
        self.inside: Command | None = None
        self.expander = Expander(source, variables, in_batch)
        self.blocks = Blocks(source.text)
        self.in_pipe = False  # the output of the command before is the input of the next
        self.listed: list[Command] = []  # the commands so far of a list (`a && b`), which a `&` behind it puts aside
        self.plain: dict[str, EnvVar] = {}  # assigned, not yet exported
        self.alone: set[int] = set()  # lines that hold nothing but a comment
        self.functions: dict[str, set[str]] = {}  # what each of them assigns
        self.ended = False  # by an `exit` that every run reaches
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
        for number, statement in enumerate(scanned.statements):
            self.statement(statement)
            if self.ended:
                break
            if _defines_function(statement, scanned.statements[number + 1 : number + 2]):
                self.blocks.function = statement.words[-1].bare
                self.functions.setdefault(self.blocks.function, set())
        self.script.assigned |= self.variables.assigned
        if self.depth == 0 and self.source.fixed is None:
            self.script.branches.append((self.source.place(len(self.source.text)), None))

    def statement(self, statement: Statement) -> None:
        self.blocks.begin(statement)
        if statement.arithmetic >= 0:
            self.changed(by_arithmetic(self.source.text, statement.arithmetic))
        words = command = self.blocks_in(statement.words)
        if words:
            if self.source.fixed is None:
                start = words[0].start
                self.script.branches.append((self.source.place(start), self.blocks.branch_at(start)))
            self.braces(words)
            words = self.assignments(words)
        if words:
            self.command(words, statement)
            self.exit(words, statement)
        negated = any(word.bare == "!" for word in statement.words[: len(statement.words) - len(command)])
        if statement.operator == ")":
            self.leave(")")
        self.blocks.end(statement, negated, command)
        self.in_pipe = statement.operator in ("|", "|&")
        if statement.operator == "&":
            self.put_aside()
        if not self.in_pipe and statement.operator not in ("&&", "||"):
            self.listed = []
        if statement.operator == ";;":
            self.forget_branch()

    def exit(self, words: list[Word], statement: Statement) -> None:
        """Nothing runs behind an `exit` that every run reaches; behind that of a branch that trains, another choice."""
        if self.in_pipe or self.script.kind == "dockerfile" or not self.blocks.exits(statement, words):
            return
        if self.blocks.is_certain:
            self.ended = True
            if self.depth == 0:
                self.script.ends_at = self.source.place(words[0].start)[0]
        elif self.blocks.open:
            line = self.source.place(self.blocks.innermost.start)[0]
            started = takewhile(lambda command: command.span.line >= line, reversed(self.script.commands))
            self.blocks.base.may_not_run |= self.blocks.leaves_a_choice(words, started)

    def put_aside(self) -> None:
        """`cd a && b &`: the whole list runs in a subshell."""
        around = self.blocks.innermost.subshell
        aside = Subshell(around)
        for command in self.listed:
            if command.subshell is around:
                command.subshell = aside

    def blocks_in(self, words: list[Word]) -> list[Word]:
        """The words after keywords; blocks are opened and closed on the way."""
        at = 0
        while at < len(words):
            keyword, start = words[at].bare, words[at].start
            if keyword in CLOSING:
                self.leave(keyword)
                return []
            if keyword == "function":
                self.blocks.function = words[at + 1].bare if at + 1 < len(words) else ""
                self.functions.setdefault(self.blocks.function, set())
                at = next((i for i in range(at, len(words)) if words[i].bare == "{"), len(words))
                continue
            if keyword in ("for", "select", "case"):
                self.blocks.enter(keyword, self.blocks.guarded, start)
                if keyword != "case" and at + 1 < len(words) and words[at + 1].bare.isidentifier():
                    self.assign(words[at + 1].bare, None)
                return []
            if keyword not in _PREFIX:
                break
            if keyword in ("else", "elif"):
                self.forget_branch()
                self.blocks.next_branch(start)
            elif keyword == "then":
                self.blocks.then()
            elif keyword in _OPEN or keyword == "{":
                self.blocks.enter(keyword, self.blocks.guarded, start)
            at += 1
        return words[at:]

    def leave(self, closing: str) -> None:
        """A block ends: what it may have assigned is no longer certain."""
        block = self.blocks.leave(closing)
        for name in block.names if block is not None else ():
            self.variables.set(name, None)
        if block is not None and block.branch is not None and block.branch.function:
            self.functions.setdefault(block.branch.function, set()).update(block.names)

    def forget_branch(self) -> None:
        """Another branch begins: what the one before has assigned does not hold in it."""
        for name in self.blocks.open[-1].names if self.blocks.open else ():
            self.variables.set(name, None)

    def assign(self, name: str, value: list[Parts] | None) -> None:
        """A variable gets a value; behind a test (`[ … ] && N=1`) it may keep the one before."""
        self.variables.set(name, value if not self.blocks.guarded else None)
        if self.blocks.open:
            self.blocks.open[-1].names.add(name)

    def changed(self, names: set[str]) -> None:
        for name in names:
            self.assign(name, None)

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
            if self.blocks.open and old and adds_other_options(old, items):
                self.script.added_options |= options_in(items)
                return  # what a branch may add leaves the options before it as they are
            self.assign(name, [*old, *items] if not match[2] else None)
            return
        parts = [p for p in self.expander.one(word) if p.text or not p.known]
        parts = self._after_equals(parts, match.end())
        entry = self.entry(name, parts, word)
        entry.prefix = not keep
        entry.applies = keep and not self.blocks.open and not self.blocks.guarded and self.depth == 0
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
        if self.blocks.open:
            self.script.added_options |= options_in([parts])
        return old if self.blocks.open else [[*old[0], *parts]]

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
        commands = commands_of(expanded, span, self.inside, bool(self.blocks.open))
        self.version_redirects(commands, words, statement)
        for start, end in statement.redirects if name not in ("[[", "[", "test") else ():
            if _ERRORS_TO_FILE_ONE.match(self.source.text, start - 2):
                self.script.errors_to_file_one.append(self.source.span(start - 1, end))
        subshell = self.blocks.innermost.subshell
        if self.in_pipe or statement.operator in ("|", "|&"):
            subshell = Subshell(subshell)
        self.listed += commands
        for command in commands:
            command.piped = statement.operator in ("|", "|&")
            command.background = statement.operator == "&"
            command.branch = self.blocks.may_not_run
            command.subshell = subshell
        self.script.commands += commands
        self.script.env += given_variables(commands)
        self.changed(by_command(self.source.text, words, expanded, self.variables, self.functions))
        if commands and self.depth < MAX_DEPTH:
            self.embedded(expanded, commands[-1], statement, words[0].start)

    def version_redirects(self, commands: list[Command], words: list[Word], statement: Statement) -> None:
        """`pip install x>=1.2` without quotes writes to a file named `=1.2`."""
        program = next(filter(None, map(installer, commands)), "")
        ends = {word.end for word in words}
        for start, end in statement.redirects if program else ():
            text = self.source.text[start:end]
            behind = start in ends or text[1:].lstrip().startswith("=")
            if behind and _VERSION_REDIRECT.fullmatch(text) and not re.search(r"\.(log|txt|out|err)$", text):
                self.script.version_redirects.append((self.source.span(start, end), text, program))

    def declare(self, words: list[Word]) -> None:
        exported = words[0].bare == "export" or any(
            w.bare.startswith("-") and "x" in w.bare for w in words[1:] if w.bare
        )
        options = list(takewhile(lambda word: word.bare.startswith("-"), words[1:]))
        if any(letter in word.bare for word in options for letter in "fFp"):
            return  # of functions, or prints
        for before, word in pairwise(words):
            if self.assignment_of(word) is not None:
                self.take(word, exported)
                if any("i" in option.bare for option in options):  # arithmetic
                    self.assign(word.bare.partition("=")[0], None)
            elif exported and word.bare in self.plain:
                self.script.env.append(self.plain.pop(word.bare))
            elif before is not words[0] and is_no_name(word) and not before.bare.startswith(("-", "+")):
                last = words[words.index(word) + 1 :][:1] if word.bare == "=" else []
                self.lost(before, last[0] if last else word, words[0].bare, word.bare)
                return  # the words after it belong to the value

    def embedded(self, words: list[Parts], command: Command, statement: Statement, start: int) -> None:
        """A script in a string (`bash -c '...'`) or in a here-document of a shell."""
        string = shell_string(words)
        if string is not None:
            self.inner(script_in(string), command, start, copied=False)
        elif statement.heredocs and command.program in ("bash", "sh", "/bin/bash"):
            body = statement.heredocs[0]
            self.inner(part_of(self.source, body.start, body.end), command, start, copied=not body.quoted)

    def inner(self, source: Source, command: Command, start: int, copied: bool) -> None:
        in_batch = command.runner is None and self.inside is None
        follower = _Follower(source, self.script, self.variables.copy(), in_batch or copied, self.depth + 1)
        follower.inside = command.runner or self.inside
        follower.blocks.base.branch = self.blocks.branch_at(start)
        follower.blocks.base.may_not_run = self.blocks.may_not_run
        follower.blocks.base.subshell = Subshell(command.subshell)
        if self.blocks.open:
            follower.blocks.enter("{", guarded=False, start=0)
        follower.run()


def _defines_function(statement: Statement, following: list[Statement]) -> bool:
    """`name () { … }`."""
    named = statement.operator == "(" and bool(statement.words) and bool(statement.words[-1].bare)
    return named and bool(following) and following[0].operator == ")" and not following[0].words
