"""An sbatch script -> a spec with one job on an existing Slurm cluster."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainwright.adopt.result import Adoption
from trainwright.adopt.shell import assignment, command_words, in_shell, needed, variables_in
from trainwright.adopt.slurm_sizes import STEPS, BatchScript, Sizes
from trainwright.adopt.tables import PROVIDED, is_secret, table
from trainwright.check.model import Command, EnvVar, File, Value
from trainwright.errors import UserError
from trainwright.spec.source import Span
from trainwright.spec.units import format_seconds

# What any shell has.
_ENVIRONMENT = ("HOME", "PWD", "USER", "PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "HOSTNAME", "RANDOM", "TMPDIR")
# The first host's name, a list of hosts, a random port.
_MEETING = re.compile(r"hostname|\$RANDOM|NODELIST|\$\{?\w*(?:node|host)\w*\[", re.I)
# `cat > file <<EOF`, in either order.
_WRITTEN = re.compile(
    r"^[ \t]*(?:cat|tee)\b[ \t]*(?:>[ \t]*(\S+)[ \t]*<<|<<-?[ \t]*\S+[ \t]*>[ \t]*(\S+))", re.MULTILINE
)
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


def adopt_script(file: File) -> Adoption:
    """The spec of a batch script, with a note on each of its lines that has a meaning."""
    script = _Script(file)
    ray = next((one for one in script.script.commands if one.program == "ray" and "start" in _texts(one)), None)
    if ray is not None:
        raise UserError(
            "the script makes a Ray cluster of its nodes before it trains, which a job's one command cannot",
            where=f"{file.path}:{ray.span.line}",
            fix="recipes of verl make that cluster themselves: `trainwright recipes list --framework verl`",
        )
    return script.adopted()


class _Script:
    def __init__(self, file: File) -> None:
        self.file = file
        self.batch = BatchScript.of(file)
        self.script, self.said, self.launch = self.batch.script, self.batch.said, self.batch.launch
        self.launched, self.runner = self.batch.launched, self.batch.runner
        self.result = Adoption(file.path)

    def adopted(self) -> Adoption:
        result = self.result
        name = self._name()
        result.spec |= {"name": name, "platform": "slurm", "queues": [{}], "jobs": [{"name": name}]}
        self._queue()
        Sizes(self.batch, self.result).apply()
        self._limits()
        self._container()
        self._environment()
        self._command()
        self._directives()
        self._other_commands()
        return result

    # The cluster's side.

    def _name(self) -> str:
        said = self.said.get("job-name")
        text = said.value if said is not None and said.value else re.sub(r"\.\w+$", "", self.file.path.split("/")[-1])
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._") or "job"
        if said is not None:
            self.result.carry(f"--job-name={text}", said, f"name: {name}")
        return name

    def _queue(self) -> None:
        partition = self.said.get("partition")
        name = partition.value.split(",")[0] if partition is not None and partition.value else ""
        self.result.queue["name"] = name or "default"
        if name:
            self.result.carry(f"--partition={partition.value if partition else ''}", partition, f"queue {name}")
        else:
            self.result.assume(
                "queue default", None, "the script names no partition: the cluster's own default is used"
            )
        exclusive = self.said.get("exclusive")
        self.result.queue["exclusive"] = exclusive is not None
        if exclusive is not None:
            self.result.carry("--exclusive", exclusive, "queue: exclusive: true")

    def _limits(self) -> None:
        job, time = self.result.job, self.said.get("time")
        seconds = _seconds(time.value) if time is not None else None
        if seconds:
            job["time"] = format_seconds(seconds)
            self.result.carry(f"--time={time.value if time else ''}", time, f"time: {job['time']}")
        elif time is not None:
            self.result.drop(f"--time={time.value}", time, "not a time limit")
        if "no-requeue" in self.said:
            job["requeue"] = False
            self.result.carry("--no-requeue", self.said["no-requeue"], "requeue: false")
        elif "requeue" in self.said:
            self.result.carry("--requeue", self.said["requeue"], "requeue: true, which is the default")
        for directive, name in table()["fields"].items():
            value = self.said.get(directive)
            if value is not None and value.value:
                job[name] = value.value
                self.result.carry(f"--{directive}={value.value}", value, f"{name}: {value.value}")

    def _container(self) -> None:
        job = self.result.job
        image, mounts = self.batch.option("container_image"), self.batch.option("container_mounts")
        image, mounts = _from_here(image), _from_here(mounts)
        if image is not None:
            job["container"] = image.value
            self.result.carry(f"--container-image={image.value}", image, "container")
            self._needs_value(image, "container")
        if mounts is not None and mounts.value:
            job["mounts"] = [part for part in mounts.value.split(",") if part]
            self.result.carry(f"--container-mounts={mounts.value}", mounts, "mounts")
            self._needs_value(mounts, "mounts")

    def _needs_value(self, value: Value[str], field: str) -> None:
        """A spec's value is not read by a shell: what the script leaves to its shell has to be written out."""
        if not value.known:
            self.result.assume(f"{field}: {value.value}", value, "it holds a variable: write its value in its place")

    # What each rank runs.

    def _environment(self) -> None:
        env: dict[str, Any] = {}
        self.late: list[str] = []  # exports that only a running shell can tell
        for entry in self.script.env:
            line = f"export {entry.name}"
            if entry.name in PROVIDED or self._is_meeting(entry.name):
                self.result.drop(line, entry.span, "the job script sets it for each rank")
            elif is_secret(entry.name):
                env[entry.name] = {"secret": {"env": entry.name}}
                self.result.assume(line, entry.span, "the value is not copied: export it in the shell that submits")
            elif entry.value.known:
                env[entry.name] = entry.value.value
                self.result.carry(f"{line}={entry.value.value}", entry.span, f"env: {entry.name}")
            else:
                env.pop(entry.name, None)
                self.late.append(assignment(entry, export=True))
                self.result.carry(f"{line}={entry.value.value}", entry.span, "set in the command: it needs a shell")
        if env:
            self.result.job["env"] = env

    def _is_meeting(self, name: str) -> bool:
        """Whether a variable only holds where the ranks meet: the first host's name, a random port."""
        values = [entry.value.value for entry in self.script.assignments if entry.name == name]
        return bool(values) and all(re.search(_MEETING, value) for value in values)

    def _command(self) -> None:
        launched, result = self.launched, self.result
        if self.launch is None:
            result.assume("no command", None, "no launch command was recognised: write what each rank runs")
            result.job["script"] = "train.py"
            return
        for name, word in launched.replaced:
            result.drop(f"{name} {word.value}".strip(), word, "the job script sets the rendezvous")
        for name, word in launched.lost:
            result.drop(
                f"{name} (torchrun)", word, "a job has no field for it; a job that fails is requeued as a whole"
            )
        words = self._beside_the_script(launched.words)
        texts = [word.value for word in words if not word.known] + self.late
        values = self._runtime_values(texts)
        texts += [entry.value.value for entry in values]
        chosen = self._from_branches(texts, {entry.name for entry in values})
        prelude = [*self._preparations(), *map(assignment, [*chosen, *values]), *self.late]
        bare = [word for word in words if self._is_several(word)]
        result.job["command"] = command_words(words, prelude, bare, "-lc" if self._in_login_shell() else "-c")
        result.job["launcher"] = launched.launcher
        shown = " ".join(word.value for word in launched.words[:4])
        result.carry(f"{self.launch.program} … {shown} …", self.launch.span, f"command, launcher: {launched.launcher}")
        if any(not word.known for word in words):
            result.assume("command", self.launch.span, "it holds variables of the running job; bash -c expands them")
        if "container" in result.job and any(word.value.startswith("$(") for word in words if not word.known):
            result.assume(
                "$(…) in the command", self.launch.span, "it runs in the container: the image needs the program"
            )

    def _beside_the_script(self, words: list[Value[str]]) -> list[Value[str]]:
        """srun also finds a program in the folder that the job was submitted from; a shell does not."""
        name = words[0].value if words and words[0].known else ""
        if self.launched.launcher == "torchrun" or "/" in name or not (Path(self.file.path).parent / name).is_file():
            return words
        return [replace(words[0], value=f"./{name}"), *words[1:]]

    def _is_several(self, word: Value[str]) -> bool:
        """`$(command)` without quotes around it: its output becomes as many words as it has."""
        if word.known or not re.fullmatch(r"\$\(.*\)", word.value, re.DOTALL):
            return False
        line = self.script.text.split("\n")[word.span.line - 1]
        before = line[word.span.column - 2 : word.span.column - 1]
        return line[word.span.column - 1 :].startswith("$(") and before != '"'

    def _in_login_shell(self) -> bool:
        """`bash -lc '…'` reads the user's profile first."""
        shells = [c for c in self.script.commands if c.program in ("bash", "sh") and c.runner is self.runner]
        flags = [text for command in shells for text in _texts(command)[1:] if command.runner is not None]
        return any(re.fullmatch(r"-[a-z]*l[a-z]*|--login", flag) for flag in flags)

    def _runtime_values(self, texts: list[str]) -> list[EnvVar]:
        exported = {line.split("=")[0].removeprefix("export ") for line in self.late}
        return [
            entry for entry in needed(self.script, texts)
            if entry.name not in exported and entry.name not in PROVIDED and not self._is_meeting(entry.name)
        ]  # fmt: skip

    def _from_branches(self, texts: list[str], known: set[str]) -> list[EnvVar]:
        """Variables of the command that only a branch sets: its last value is taken. What is not to be had is named."""
        known |= {*self.result.job.get("env", ()), *PROVIDED, *_ENVIRONMENT}
        chosen = []
        for name in dict.fromkeys(name for text in texts for name in variables_in(text)):
            if name in known or name.startswith("SLURM_") or self._is_meeting(name):
                continue
            last = next((e for e in reversed(self.script.assignments) if e.name == name and e.value.known), None)
            if last is not None:
                chosen.append(last)
                self.result.assume(f"{name}={last.value.value}", last.span, "a branch sets it: its last value is taken")
            elif name in self.script.assigned:
                self.result.assume(f"${name}", None, "the batch script works it out: write its value in the command")
            else:
                self.result.assume(f"${name}", None, "it comes from the environment that `submit` is called in")
        return chosen

    def _preparations(self) -> list[str]:
        """Lines that prepare the shell: they run on each rank, unless it starts in a container."""
        prepare = set(table()["commands"]["prepare"])
        lines: list[str] = []
        folder = self.said.get("chdir")
        if folder is not None and folder.value:
            lines.append(f"cd {in_shell(folder)}")
            self.result.carry(f"--chdir={folder.value}", folder, "cd in the command")
        inside = self.batch.option("container_workdir")
        if inside is not None:
            lines.append(f"cd {in_shell(inside)}")
        before = itertools.takewhile(lambda command: command is not self.launch, self.script.commands)
        for command in before if self.launch is not None else ():
            if command.program not in prepare:
                continue
            text = " ".join([command.program, *(in_shell(word) for word in command.words[1:])])
            in_step = command.runner is not None and command.runner is self.runner
            if command.conditional or (command.runner is not None and not in_step):
                self.result.drop(text, command.span, "it runs only under a condition that a spec cannot state")
            elif "container" in self.result.job and not in_step:
                self.result.drop(text, command.span, "it prepares the shell outside the container")
            else:
                lines.append(text)
                self.result.carry(text, command.span, "in the command: it prepares the shell of each rank")
        return lines

    # Everything else.

    def _directives(self) -> None:
        reasons, fields = table()["dropped"], table()["fields"]
        handled = {
            "nodes", "ntasks", "ntasks-per-node", "gpus-per-node", "gpus", "gres", "gpus-per-task", "cpus-per-task",
            "time", "job-name", "partition", "exclusive", "no-requeue", "requeue", "chdir", *fields,
        }  # fmt: skip
        for name, value in self.script.directives:
            if name not in handled:
                text = f"--{name}={value.value}" if value.value else f"--{name}"
                self.result.drop(text, value, reasons.get(name, "a spec has no field for it"))
        for span in self.script.late_directives:
            self.result.drop("#SBATCH", span, "it stands after the first command, where Slurm ignores it")
        if self.runner is not None:
            reasons = table()["step_dropped"]
            for name, value in self.runner.options.items():
                if name in reasons:
                    self.result.drop(f"{self.runner.program} {name}", value.key or value.span, reasons[name])

    def _other_commands(self) -> None:
        """What runs before, after or beside the training."""
        for match in _WRITTEN.finditer(self.script.text):
            line = self.script.text.count("\n", 0, match.start()) + 1
            why = "the script writes this file: write it once, before `submit`"
            self.result.drop(match[1] or match[2], Span(line, 1, line, 1), why)
        quiet = set(table()["commands"]["silent"]) | set(table()["commands"]["prepare"]) | set(STEPS)
        functions = set(re.findall(r"^\s*(?:function\s+)?(\w+)\s*\(\s*\)", self.script.text, re.MULTILINE))
        for command in self.script.commands:
            if command is self.launch or command.program in quiet or not command.program:
                continue
            inline = any(re.fullmatch(r"-[a-z]*c", text) for text in _texts(command)[1:])
            is_shell = command.program in ("bash", "sh") and (len(command.words) == 1 or inline)
            if command.program in functions or is_shell:
                continue
            if self.launch is not None and command.span == self.launch.span:
                if command.program in ("nsys", "numactl", "timeout", "ncu"):
                    self.result.drop(" ".join(_texts(command)), command.span, "the ranks start without it")
                continue
            text = " ".join(word.value for word in command.words[:6])
            why = "a job runs one command: run this before or beside it, as a job of its own"
            self.result.drop(text, command.span, why)


def _texts(command: Command) -> list[str]:
    return [word.value for word in command.words]


def _from_here(value: Value[str] | None) -> Value[str] | None:
    """`$PWD/image.sqsh` is `./image.sqsh`: a job is submitted from the folder that its script was."""
    if value is None or value.known:
        return value
    text = re.sub(r"(?<![^,])(?:\$PWD|\$\{PWD\}|\$\(pwd\))(?=[/:])", ".", value.value)
    return Value(text, value.span, value.text, value.key, "$" not in text)


def _seconds(text: str) -> int | None:
    """Slurm's time formats: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    days, first, second, third = (int(part) if part else None for part in match.groups())
    if days is not None:
        return days * 86_400 + (first or 0) * 3600 + (second or 0) * 60 + (third or 0)
    if third is not None:
        return (first or 0) * 3600 + (second or 0) * 60 + third
    return (first or 0) * 60 + (second or 0)
