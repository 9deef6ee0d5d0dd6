"""sbatch scripts, shell scripts and Dockerfiles -> model. One `Job` is one launch command with the script's
`#SBATCH` directives."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import replace

from trainwright.check.model import Command, File, Job, ShellScript, Value
from trainwright.check.readers import dockerfile
from trainwright.check.readers.arguments import apply, meanings, whole
from trainwright.check.readers.instance_hint import instance_of
from trainwright.check.readers.pins import pins_of
from trainwright.check.readers.shell_cuts import cuts
from trainwright.check.readers.shell_expand import Part, Parts, Variables
from trainwright.check.readers.shell_launch import LAUNCHERS, is_launcher
from trainwright.check.readers.shell_script import read_script
from trainwright.check.readers.shell_source import Source, whole_text
from trainwright.spec.source import Node, Span

_SHORT = {
    "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "J": "job-name", "o": "output", "e": "error", "p": "partition",
    "t": "time", "C": "constraint", "G": "gpus", "A": "account", "w": "nodelist", "q": "qos", "d": "dependency",
    "D": "chdir", "a": "array", "x": "exclude",
}  # fmt: skip
# A value as sbatch reads it: quotes and backslashes as in a shell, and `#` ends the line, with or without a blank.
_QUOTED = re.compile(r"\"((?:\\.|[^\"\\])*)\"|'((?:\\.|[^'\\])*)'|\\(.)")
_TEXT = r"(?P<value>(?:\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\\\S|[^\s#\"'\\])+)"
_DIRECTIVE = re.compile(rf"--(?P<long>[\w-]+)(?:(?:=|[= ]\s*(?!-)){_TEXT})?")
_SHORT_DIRECTIVE = re.compile(rf"-(?P<short>[A-Za-z])(?:\s*(?!-){_TEXT})?")
_FROM_DIRECTIVE = {
    "SLURM_NNODES": "nodes", "SLURM_JOB_NUM_NODES": "nodes", "SLURM_NTASKS_PER_NODE": "ntasks-per-node",
    "SLURM_GPUS_PER_NODE": "gpus-per-node", "SLURM_CPUS_PER_TASK": "cpus-per-task", "SLURM_NTASKS": "ntasks",
}  # fmt: skip
# `${PARTITION_OPTION}`, `{extra}` or `{{ NODES }}` alone: whoever fills the template in puts a directive there.
_FILLED_IN = re.compile(
    r"\$(\{\w+\}|[A-Za-z_]\w*)|\{\{.*\}\}|\{[A-Za-z_]\w*\}|@\w+@|__\w+__|%\w+%|<%.*%>|<[A-Za-z][\w ]*>"
    r"|%\s*(if|elif|else|endif|for|endfor)\b.*"  # of Mako
)
_SUBMITTED = re.compile(r"^[ \t]*#(?!SBATCH).*?\bsbatch[ \t]+(-.*)", re.MULTILINE)  # in a comment: how it is called
_GPU_REQUESTS = {"gres", "gpus", "gpus-per-node", "gpus-per-task"}
_GPU_NAMES = {"GPUS_PER_NODE", "NUM_GPU_PER_NODE", "GPU_PER_NODE", "NUM_GPUS_PER_NODE", "NPROC_PER_NODE"}
_EFA_NAMES = {"EFA_PER_NODE", "NUM_EFA_PER_NODE", "EFAS_PER_NODE"}
# A first line that names an interpreter, and not one of the shells that read the language of sh.
_OTHER_LANGUAGE = re.compile(r"\ufeff?#!(?![^\n]*(?:\b(?:ba|da|a|k|mk|z)?sh\b|[{$@]))[^\n]*\w")
_HYPERPOD = re.compile(r"hyperpod", re.I)
# A note that offers a choice between clusters says nothing of this one.
_ELSEWHERE = re.compile(r"SBATCH|parallelcluster|\b(if|when|or|not|remove|comment|uncomment|unless|both|also)\b", re.I)


def recognise(root: Node) -> bool:
    """Shell files are recognised by their text, never by a YAML document."""
    return False


def read(file: File) -> None:
    """Fill the file's scripts and jobs."""
    if file.format == "dockerfile":
        dockerfile.read(file)
        return
    directives, late = _directives(file.text)
    directives = _as_submitted(directives, file.text)
    if _OTHER_LANGUAGE.match(file.text):
        script = _of_another_language(file)
    else:
        script = read_script(whole_text(file.text), file.format, _slurm_variables(directives))
    script.directives = directives
    end = script.ends_at or len(file.text)
    script.late_directives = [s for s in late if s.line in script.comments and s.line < end]  # not inside a text
    file.scripts.append(script)
    file.jobs += jobs_in(script)
    file.pins += pins_of(script)


def _of_another_language(file: File) -> ShellScript:
    """A batch script of Python, R or csh: Slurm reads its directives, and its commands are not ours to read."""
    script = ShellScript(whole_text(file.text).span(0, 0), file.text, kind=file.format)
    for number, line in enumerate(file.text.split("\n"), start=1):
        if line.lstrip().startswith("#"):
            script.comments[number] = line.strip().lstrip("#").strip()
    return script


def jobs_in(script: ShellScript) -> list[Job]:
    """A job for each launch command; a batch script without one is still a job."""
    launches = [command for command in script.commands if _launches(command)]
    if launches:
        return [_job(script, command) for command in launches if not _is_cut(script, command)]
    return [_job(script, None)] if script.directives or _sizes(script) else []


def _is_cut(script: ShellScript, command: Command) -> bool:
    """Whether a blank or a comment after a backslash ends the command, and what was meant is not what is read."""
    lines, at = script.lines, command.span.end_line - script.first_line
    return 0 <= at < len(lines) - 1 and cuts(lines[at], lines[at + 1])


def _sizes(script: ShellScript) -> bool:
    return any(a.name in _GPU_NAMES | _EFA_NAMES for a in script.assignments)


def _launches(command: Command) -> bool:
    if command.program in LAUNCHERS - {"python", "python3"} or command.program.endswith("_perf"):
        return True
    if [word.value for word in command.words[1:3]] == ["-m", "torch.distributed.run"]:  # torchrun's module
        return True
    return is_launcher(command.program) and (command.inside_srun or len(meanings(command)) > 1)


def _directives(text: str) -> tuple[list[tuple[str, Value[str]]], list[Span]]:
    directives: list[tuple[str, Value[str]]] = []
    late: list[Span] = []
    started, heredoc = False, "{%" in text  # a template's own lines are no commands
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith("#SBATCH"):
            if not started:
                directives += options_of_line(line.rstrip("\r"), number)
            elif not heredoc:
                late.append(Span(number, 1, number, len(line.rstrip()) + 1))
        elif line.strip() and not line.lstrip().startswith("#") and not _FILLED_IN.fullmatch(line.strip()):
            started = True
            heredoc = heredoc or "<<" in line
    return directives, late


def _as_submitted(directives: list[tuple[str, Value[str]]], text: str) -> list[tuple[str, Value[str]]]:
    """Where a comment shows `sbatch --nodes=4 job.sh`, another number in the file is only a default: options win."""
    called = [one for options in _SUBMITTED.findall(text) for one in options_of_line(f"#SBATCH {options}", 0)]
    given = {request(name, value) for name, value in called}
    names = {name for name, _ in given}
    return [
        (name, replace(value, default=request(name, value)[0] in names and request(name, value) not in given))
        for name, value in directives
    ]


def request(name: str, value: Value[str]) -> tuple[str, str]:
    """What a directive asks for: `--gres=gpu:a100:8` and `--gpus-per-node=8` are the same."""
    return ("gpus", value.value.rpartition(":")[2]) if name in _GPU_REQUESTS else (name, value.value)


def options_of_line(line: str, number: int) -> list[tuple[str, Value[str]]]:
    """The options of one #SBATCH line, by their long names."""
    options = []
    at = len("#SBATCH")
    while at < len(line):
        if line[at] in " \t":
            at += 1
            continue
        match = _DIRECTIVE.match(line, at) or _SHORT_DIRECTIVE.match(line, at)
        if match is None:
            break
        groups = match.groupdict()
        name = groups.get("long") or _SHORT.get(groups.get("short") or "", groups.get("short") or "")
        text = match["value"] or ""
        start, end = match.span("value") if match["value"] else match.span()
        if _QUOTED.fullmatch(text) is not None and text[0] != "\\":
            start, end = start + 1, end - 1
        text = _QUOTED.sub(_unquoted, text)
        key = Span(number, match.start() + 1, number, match.end() + 1)
        options.append((name, Value(text, Span(number, start + 1, number, end + 1), text, key)))
        at = match.end()
    return options


def _unquoted(match: re.Match[str]) -> str:
    inside = next(group for group in match.groups() if group is not None)
    return re.sub(r"\\(.)", r"\1", inside)


def _slurm_variables(directives: list[tuple[str, Value[str]]]) -> Variables:
    """What Slurm will set, where a directive says it. It reduces the nodes to the tasks where these are fewer."""
    said = dict(directives)
    variables = Variables()
    tasks, nodes = whole(said.get("ntasks")), whole(said.get("nodes"))
    if tasks is not None and nodes is not None and tasks.known and nodes.known and 0 < tasks.value < nodes.value:
        said["nodes"] = said["ntasks"]
    for name, directive in _FROM_DIRECTIVE.items():
        value = said.get(directive)
        if value is not None and value.value.isdecimal():
            variables.values[name] = [_constant(value)]
    each = whole(said.get("ntasks-per-node"))
    if "ntasks" not in said and nodes is not None and each is not None and nodes.known and each.known:
        variables.values["SLURM_NTASKS"] = [_constant(replace(said["nodes"], value=str(nodes.value * each.value)))]
    return variables


def _constant(value: Value[str]) -> Parts:
    source = Source(value.value, fixed=value.span)
    return [Part(value.value, source, 0, len(value.value), exact=False, default=value.default)]


def _job(script: ShellScript, launch: Command | None) -> Job:
    said = dict(script.directives)
    job = Job(
        span=launch.span if launch is not None else script.span,
        scheduler="slurm" if script.kind == "sbatch" else "shell",
        name=said.get("job-name"),
        instance=script.derived(instance_of),
        nodes=whole(said.get("nodes")),
        gpus_per_node=_requested_gpus(said) + script.derived(_assigned_gpus),
        efa_per_node=list(script.derived(_assigned_efa)),
        tasks_per_node=_tasks(said),
        cpus_per_task=whole(said.get("cpus-per-task")),
        exclusive=Value(said["exclusive"].value != "no", said["exclusive"].span) if "exclusive" in said else None,
        directives=said,
        commands=script.commands,
        script=script,
        launch=launch,
    )
    resume, hyperpod = script.derived(_hyperpod)
    job.platform = "hyperpod" if hyperpod else job.platform
    job.extra |= {"auto_resume": resume} if resume is not None else {}
    if launch is not None:
        _under_runner(job, launch)
        scheduled = job.nodes
        apply(job, launch)
        open_ = job.nodes is not None and not job.nodes.known and "$" in job.nodes.text
        if open_ and launch.inside_srun and scheduled is not None and scheduled.known:
            job.nodes = (
                scheduled  # `--nnodes=$NODES` that the file does not set: srun starts it on the nodes of the job
            )
    return job


def _assigned_gpus(script: ShellScript) -> list[Value[int]]:
    return _assigned(script, _GPU_NAMES)


def _assigned_efa(script: ShellScript) -> list[Value[int]]:
    return _assigned(script, _EFA_NAMES)


def _assigned(script: ShellScript, names: set[str]) -> list[Value[int]]:
    """Numbers given to such a variable; one that is given several has its reasons."""
    given = [a for a in script.assignments if a.name in names]
    times = Counter(a.name for a in given)
    once = [a for a in given if times[a.name] == 1]
    numbers = [whole(a.value) for a in once]
    return [number for number in numbers if number is not None and number.known]


def _requested_gpus(said: dict[str, Value[str]]) -> list[Value[int]]:
    """GPUs per node that the directives ask for: `--gpus-per-node=h100:8`, `--gres=gpu:8`."""
    counts = []
    for name in ("gpus-per-node", "gres"):
        value = said.get(name)
        match = re.fullmatch(r"(gpu:)?([A-Za-z]\w*:)?(\d{1,6})", value.value) if value is not None else None
        if value is not None and match is not None and (name != "gres" or match[1]):
            counts.append(value.meaning(int(match[3])))
    return counts


def _tasks(said: dict[str, Value[str]]) -> Value[int] | None:
    stated = whole(said.get("ntasks-per-node"))
    if stated is not None:
        return stated
    total, nodes = whole(said.get("ntasks")), whole(said.get("nodes"))
    if total is not None and nodes is not None and total.known and nodes.known and nodes.value > 0:
        return replace(total, value=total.value // nodes.value) if total.value % nodes.value == 0 else None
    return None


def _hyperpod(script: ShellScript) -> tuple[Value[str] | None, bool]:
    """The last auto-resume flag, and whether a folder or a note shows that the script is for HyperPod."""
    certain = [command for command in script.commands if not command.conditional]
    flags = [command.options.get("auto_resume") for command in certain if command.program == "srun"]
    resume = next((flag for flag in reversed(flags) if flag is not None), None)
    words = (word for command in certain for word in command.words)
    values = itertools.chain(words, (a.value for a in script.assignments))
    shown = any(value.value.startswith("/opt/sagemaker") for value in values) or any(
        _HYPERPOD.search(text) and not _ELSEWHERE.search(text) for text in script.comments.values()
    )
    return resume, shown


def _under_runner(job: Job, launch: Command) -> None:
    """What the srun or mpirun around the launch says about sizes; it wins over the directives."""
    runner = launch.runner
    if runner is None:
        return
    said = runner.options
    if runner.program == "srun":
        job.nodes = whole(said.get("nodes") or said.get("N")) or job.nodes
        own = whole(said.get("ntasks_per_node"))
        total = whole(said.get("ntasks") or said.get("n"))
        if own is not None:
            job.tasks_per_node = own
        elif total is not None:
            nodes = job.nodes.value if job.nodes is not None and job.nodes.known else 0
            job.tasks_per_node = replace(total, value=max(1, total.value // nodes)) if nodes and total.known else None
        job.image = said.get("container_image")
        mounts = said.get("container_mounts")
        job.mounts = (
            [replace(mounts, value=part, known=mounts.known) for part in mounts.value.split(",")] if mounts else []
        )
    elif runner.program in ("mpirun", "mpiexec"):
        total = whole(said.get("np") or said.get("n"))
        if total is not None:
            job.extra["ranks"] = total.meaning(str(total.value))
