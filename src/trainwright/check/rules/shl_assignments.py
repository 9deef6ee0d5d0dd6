"""SHL: assignments with blanks: `NAME = value` runs a command named NAME, `export NAME value` sets nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.jobs import LostValue
from trainwright.check.launches.scopes import any_reached, starts_something
from trainwright.check.model import Command, File, ShellScript
from trainwright.check.registry import Problem, problem

_NUMBER = re.compile(r"[\d.]+([eE][-+]?\d+)?")
_PATH = re.compile(r"[\"']?(\$\{?\w+\}?)?/[\w./$ {}-]*[\"']?")
_ENVIRONMENT = re.compile(r"PATH$|PRELOAD$|VISIBLE_DEVICES$|^(IFS|DISPLAY|TMPDIR|HOME|LANG|LC_\w+)$")
_READ_BY_PROGRAMS = re.compile(
    r"(TORCH_)?NCCL_\w+|(GLOO|FI|OFI_NCCL)_\w+|PYTORCH_(CUDA_)?ALLOC_CONF|CUDA_DEVICE_MAX_CONNECTIONS"
)
_EXPORTS_ALL = re.compile(r"^\s*set\s+(-\w*a|-o\s+allexport)|\A#!.*sh\s+-\w*a", re.MULTILINE)
_OF_ENVIRONMENTS = re.compile(r"(^|/)(de)?activate$|conda\.sh$|(^|/)(modules?|lmod)(\.\w+)?$|/init/\w+$|z00_lmod")
_SEPARATORS = (",", ":")
# `TMPDIR = 'mktemp -d'`: between quotes of this kind a command is a text.
_OUTPUT = re.compile(
    r"[ \t]*=[ \t]*([\"'])(?P<command>(mktemp|date|hostname|pwd|whoami|nproc|basename|dirname|realpath|which|scontrol"
    r"|ls|wc|seq|cat|sed|awk|grep)( [^\"']+)?)\1"
)
_BLANKS = r"([ \t]|\\\n)"
# An option or plain text, which is neither a redirection nor the name of another variable.
_NEXT_OF_VALUE = re.compile(rf"{_BLANKS}+(?![A-Za-z_]\w*{_BLANKS}*=)[-\w./:,@%+=${{}}]+(?=[\s;&|]|$)")
_OPTION = re.compile("--?[A-Za-z]")
_COMMAND = re.compile(
    r"srun|torchrun|python[\d.]*|accelerate|deepspeed|mpirun|mpiexec|(ba|z)?sh|sbatch|env|time|timeout|nohup|exec|numactl"
    r"|.+\.(sh|py)"
)
_QUOTED_VALUE = re.compile(r"[ \t]*=[ \t]*[\"']")
_QUOTED = re.compile(r"\"[^\"$]*\"|'[^']*'")


def spaced(script: ShellScript) -> Iterator[Problem]:
    """Commands whose second word is `=`; or begins with it, where the first is written as variables are."""
    for command in script.commands:
        if _assigns(script, command) and not _is_of_template(script, command.span.line):
            effect = _effect(script, command)
            why = reasons.BLANK_AT_EQUALS if "syntax" not in effect else reasons.BLANK_BEFORE_ARRAY
            output = _OUTPUT.match(_behind(script, command))
            value = f"{command.program}=$({output['command']})" if output is not None else "name=value"
            fix = f"write {value} without blanks"
            if "syntax" in effect:
                fix = "write name=(…) without the blanks beside `=`"
            elif _is_of_several_words(script, command):
                fix = f'write {command.program}="…", with quotes around the value and no blanks beside `=`'
            yield problem(command.words[0], effect, fix, why=why)


def _is_of_several_words(script: ShellScript, command: Command) -> bool:
    """`ARGS = --lr 0.1`; `NAME = value python train.py` sets it for the command behind it, and behind `A = 1 B = 2`
    quotes would take in the other variable."""
    words = [word.value for word in command.words[1:]]
    value, *behind = words[1:] if words[0] == "=" else [words[0][1:], *words[1:]]
    if not behind or _QUOTED_VALUE.match(_behind(script, command)):
        return False
    if re.match(r"\w+=", behind[0]) or any(word.startswith("=") for word in behind[1:2]):
        return False
    return _OPTION.match(value) is not None or not ("/" in behind[0] or any(map(_COMMAND.fullmatch, behind)))


def _is_of_template(script: ShellScript, line: int) -> bool:
    """`export {{ name }}` is for Jinja to fill in."""
    lines, at = script.lines, line - script.first_line
    return 0 <= at < len(lines) and re.search(r"\{\{|\{%", lines[at]) is not None


def _effect(script: ShellScript, command: Command) -> str:
    """In the same words for every variable, so that several are one finding."""
    if re.match(r"[ \t]+=[ \t]*\(", _behind(script, command)):
        return "blanks before `=(`: a syntax error, at which the shell ends the script"
    if command.words[1].value != "=":
        return "a blank before `=`: the shell runs a command of this name, and the variable is not set"
    return "blanks around `=`: the shell runs a command of this name, and the variable is not set"


def _assigns(script: ShellScript, command: Command) -> bool:
    if len(command.words) < 2 or not re.fullmatch(r"[A-Za-z_]\w*", command.program):
        return False
    invoked, second = command.invoked, command.words[1].value
    if invoked is None or invoked.value != command.program or command.program in ("echo", "printf"):
        return False
    if second != "=" and not (command.program.isupper() and re.match(r"=(?!=)", second)):
        return False
    # an empty word between the two is not among the words: `test "$EMPTY" = a`
    return re.match(r"[ \t]+=", _behind(script, command)) is not None


def _behind(script: ShellScript, command: Command) -> str:
    """The text of the line behind a command's name."""
    lines, at = script.lines, command.words[0].span.line - script.first_line
    line = lines[at] if 0 <= at < len(lines) else script.text
    name = re.search(rf"\b{command.program}(?=[ \t]+=)", line)
    return line[name.end() :] if name is not None else ""


def lost_values(script: ShellScript) -> Iterator[Problem]:
    """`NAME= "value"` runs the value as a command; `export NAME value` and `export NAME = value` set nothing."""
    for one in script.lost_values:
        if _is_of_template(script, one.span.line) or not one.name or one.text in ("", "="):
            continue  # `export NAME = (…)` is a syntax error, which is another finding
        if one.builtin:
            yield _refused(script, one)
        elif _is_a_value(script, one):
            what = f"a blank after `=`: the line does not set {one.name}, and the shell runs {one.text} as a command"
            yield problem(one.span, what, f"write {one.name}={one.text}", why=reasons.BLANK_AT_EQUALS)


def unexported(file: File, script: ShellScript) -> Iterator[Problem]:
    """`NCCL_SOCKET_IFNAME=ib0` without `export`, where the script starts something and names the variable nowhere
    else: nothing reads it. A script that it sources may export the name."""
    if file.format not in ("sbatch", "shell") or _EXPORTS_ALL.search(script.text) or _sources_unknown(script):
        return
    exported = {one.name for one in script.env}
    for one in script.assignments:
        if one.name in exported or one.prefix or not _READ_BY_PROGRAMS.fullmatch(one.name):
            continue
        named = sum(len(re.findall(rf"\b{one.name}\b", line)) for line in script.derived(_code_lines))
        set_ = sum(other.name == one.name for other in script.assignments)
        if named == set_ and any_reached(script, one, starts_something):
            what = f"{one.name} is set without `export`: no program that the script starts gets it"
            yield problem(one.span, what, f"write export {one.name}=…", why=reasons.UNEXPORTED)


def _code_lines(script: ShellScript) -> list[str]:
    return [line for line in script.lines if not line.lstrip().startswith("#")]


def _sources_unknown(script: ShellScript) -> bool:
    """Whether the script sources what may export variables: not a virtual environment, conda or the modules."""
    sourced = [one.words[1].value for one in script.commands if one.program in ("source", ".") and len(one.words) > 1]
    return not all(_OF_ENVIRONMENTS.search(name) for name in sourced)


def _is_a_value(script: ShellScript, one: LostValue) -> bool:
    """`CUDA_VISIBLE_DEVICES= "$@"` and `LD_PRELOAD= /bin/ls` are an idiom: the command runs with an empty variable."""
    if _NUMBER.fullmatch(one.text) or (_QUOTED.fullmatch(one.text) and "/" not in one.text):
        return True
    used = one.name in script.derived(_used_names)
    return used and _PATH.fullmatch(one.text) is not None and _ENVIRONMENT.search(one.name) is None


def _used_names(script: ShellScript) -> set[str]:
    return set(re.findall(r"\$\{?(\w+)", script.text))


def _refused(script: ShellScript, one: LostValue) -> Problem:
    """All shells refuse a word that is no name; what they then do, and with which status, differs."""
    refused = f"{one.builtin} refuses `{one.refused}` as a name"
    if one.given:
        what = f"a blank in the value: {one.name} is only `{one.given}`, and {refused}"
        return problem(one.span, what, _whole(one), why=reasons.BLANK_AT_EQUALS)
    if one.given is not None:
        what = f"a blank after `=`: {one.name} is empty, and {refused}"
    else:
        blanks = "blanks around `=`" if one.refused == "=" else "a blank in place of `=`"
        what = f"{blanks}: the line does not set {one.name}, and {refused}"
    value = one.text.removeprefix("=") if one.given is None else one.text  # `export NAME =value`
    several = _has_more(script, one)
    fix = f'write {one.name}="{value} …", with quotes around the whole value and no blanks beside `=`'
    plain = f"write {one.name}={value} without a blank"
    return problem(one.span, what, fix if several else plain, why=reasons.BLANK_AT_EQUALS)


def _has_more(script: ShellScript, one: LostValue) -> bool:
    """`export ARGS = --lr 0.1`: the value goes on behind its first word. Quotes around one that has some end these."""
    at = one.span.end_line - script.first_line
    if not 0 <= at < len(script.lines) or re.search("[\"']", one.text):
        return False
    behind = "\n".join([script.lines[at][one.span.end_column - 1 :], *script.lines[at + 1 : at + 2]])
    return _NEXT_OF_VALUE.match(behind) is not None


def _whole(one: LostValue) -> str:
    """A blank in a list (`0, 1` and `$PATH: /opt`) would stay a part of the value between quotes."""
    of_list = (one.given or "")[-1:] in _SEPARATORS or one.refused[:1] in _SEPARATORS
    return "remove the blanks from the value" if of_list else "quote the whole value"
