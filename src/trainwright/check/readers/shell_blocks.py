"""The blocks of a shell script that are open at a place: which of them may not run, and which run in a subshell."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from trainwright.check.jobs import Branch, Command, Subshell
from trainwright.check.readers.shell_words import Statement, Word

_CLOSE = {
    "fi": ("if",), "done": ("for", "while", "until", "select"), "esac": ("case",), "}": ("{",), ")": ("(",)
}  # fmt: skip
_CHOICES = {"if", "case"}
_TESTS = ("[", "[[", "test")
_ASKS = {"grep", "egrep", "fgrep", "rg", "command", "which", "type", "hash", "pgrep", "diff", "cmp", "false"}
_TRAINS = {"torchrun", "accelerate", "deepspeed", "composer", "srun", "mpirun", "mpiexec"}
_FAILED = re.compile(r"[1-9]\d*")  # a status that no training ends with on purpose
_FILE_NUMBER = re.compile(r"\{\w+\}")  # `exec {log}>file`
_LONGEST_OPENING = 200  # characters of the line that opens a branch
CLOSING = frozenset(_CLOSE)


@dataclass(slots=True)
class Block:
    """A stretch that may run or not: a branch, a loop, a function, a subshell."""

    kind: str
    names: set[str] = field(default_factory=set)  # what it has assigned
    guarded: bool = False  # stands behind a test: `[ … ] && { …; }`
    may_not_run: bool = False
    opening: str = ""  # the text of its first line
    start: int = 0  # where it opens
    branch: Branch | None = None
    subshell: Subshell | None = None


class Blocks:
    """The open blocks, and the list of commands (`a && b || c`) that is being read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.open: list[Block] = []
        self.base = Block("")  # what is around the script
        self.guarded = False  # by a test before `&&` or `||`
        self.function = ""  # whose body comes next
        self._left_guarded = False  # a guarded block has just ended: the list may go on behind it
        self._list_start = 0
        self._in_list = False

    @property
    def innermost(self) -> Block:
        return self.open[-1] if self.open else self.base

    @property
    def may_not_run(self) -> bool:
        return self.guarded or self.innermost.may_not_run

    def begin(self, statement: Statement) -> None:
        """A statement begins: it continues a list of commands, or is the first of one."""
        if statement.words:
            self._left_guarded = False
            self.function = self.function if statement.words[0].bare == "{" else ""
        if not self._in_list:
            first = statement.words[0].start if statement.words else statement.arithmetic
            self._list_start = first if first >= 0 else self._list_start

    def end(self, statement: Statement, negated: bool, words: list[Word]) -> None:
        """A statement ends; what follows `||`, or `&&` behind a test, may not run. What follows `&&` behind another
        command is no choice: it depends on its success."""
        if statement.operator == "(":
            self.enter("(", self.guarded, self._list_start)
        guarded = self.guarded or self._left_guarded
        self._in_list = statement.operator in ("&&", "||")
        tests = negated or statement.arithmetic >= 0 or _is_test(words)
        self.guarded = statement.operator == "||" or (statement.operator == "&&" and (tests or guarded))

    def exits(self, statement: Statement, words: list[Word]) -> bool:
        """Whether a statement ends the shell that reads it: `exit`, or `exec` with a program."""
        if self.innermost.subshell is not self.base.subshell or statement.operator in ("|", "|&", "&"):
            return False
        return words[0].bare == "exit" or (words[0].bare == "exec" and any(not _is_file(w) for w in words[1:]))

    @property
    def is_certain(self) -> bool:
        """Whether a statement here runs in any case: in no block, and behind no other of its list."""
        return not self.open and not self._in_list

    def leaves_a_choice(self, words: list[Word], started: Iterable[Command]) -> bool:
        """Whether a branch that started these commands is one of two ways to train, and what follows it the other."""
        if not self.innermost.may_not_run or any(block.branch and block.branch.function for block in self.open):
            return False
        if words[0].bare == "exit" and any(_FAILED.fullmatch(word.bare) for word in words[1:2]):
            return False
        return any(command.program in _TRAINS for command in started)

    def enter(self, kind: str, guarded: bool, start: int) -> None:
        outer = self.innermost
        opening = self.line_at(self._list_start if guarded else start)
        block = Block(kind, set(), guarded, outer.may_not_run or guarded or kind in _CHOICES, opening)
        block.start = start
        block.subshell = Subshell(outer.subshell) if kind == "(" else outer.subshell
        function, self.function = (self.function, "") if kind == "{" else ("", self.function)
        block.branch = outer.branch
        if guarded or function or kind == "case":
            block.branch = Branch(opening, outer.branch, function)
        self.open.append(block)

    def then(self) -> None:
        """The condition of an `if` runs in any case, what follows `then` may not."""
        if self.open and self.open[-1].kind == "if" and self.open[-1].branch is self._outside():
            self.open[-1].branch = Branch(self.open[-1].opening, self._outside())

    def next_branch(self, start: int) -> None:
        if self.open and self.open[-1].kind == "if":
            text = f"{self.open[-1].opening} {self.line_at(start)}"
            self.open[-1].branch = Branch(text, self._outside())

    def _outside(self) -> Branch | None:
        return self.open[-2].branch if len(self.open) > 1 else self.base.branch

    def leave(self, closing: str) -> Block | None:
        """The block that ends, if one does: the `)` of a case's pattern closes nothing."""
        if not self.open or self.open[-1].kind not in _CLOSE[closing]:
            return None
        block = self.open.pop()
        self._left_guarded = block.guarded
        if self.open:
            self.open[-1].names |= block.names
        return block

    def branch_at(self, start: int) -> Branch | None:
        """The branch of a command that starts there."""
        outer = self.innermost.branch
        if not self.guarded:
            return outer
        return Branch(self.text[self._list_start : min(start, self._list_start + _LONGEST_OPENING)], outer)

    def line_at(self, start: int) -> str:
        most = start + _LONGEST_OPENING
        end = self.text.find("\n", start, most)
        return self.text[start : end if end >= 0 else most]


def _is_file(word: Word) -> bool:
    return _FILE_NUMBER.fullmatch(word.bare) is not None


def _is_test(words: list[Word]) -> bool:
    """`[ … ]`, `grep -q`, and `$DEBUG` alone, which holds true or false."""
    if not words:
        return False
    variable = len(words) == 1 and bool(words[0].pieces) and words[0].pieces[0].kind == "variable"
    return variable or words[0].bare in _TESTS or words[0].bare in _ASKS or words[-1].bare in ("]", "]]")
