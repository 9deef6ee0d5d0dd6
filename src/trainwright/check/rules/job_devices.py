"""JOB: the GPU that each process of torchrun takes: by an option that torchrun does not pass, or by the global rank."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.launches.launchers import is_torchrun, own_options
from trainwright.check.launches.working_directory import program_text
from trainwright.check.model import Command, File, Job
from trainwright.check.programs.barriers import last
from trainwright.check.programs.data_parts import global_devices
from trainwright.check.programs.python_names import Parents
from trainwright.check.programs.training_script import script_of, span_of
from trainwright.check.readers.arguments import whole
from trainwright.check.registry import Problem, problem

MOST_GPUS = 16  # of a node
LOCAL_RANK = 'give it int(os.environ["LOCAL_RANK"]), with `import os` above'
_OPTION = "local_rank"
_ASKS_ITSELF = re.compile(
    r"LOCAL_RANK|LOCALID|get_local_rank|local_process_index|environ|getenv|accelerate|lightning|deepspeed|colossalai"
    r"|TrainingArguments|horovod"
)
_TAKES_DEVICE = ("set_device", "device", "cuda", "to")
_READS_ONLY = ("print", "vars", "str", "repr", "info", "pprint", "debug")  # what is given all options and sets none
_STARTS = re.compile(r"\btorchrun\s(?:[^\n\\]|\\\n)*")
_COUNTS = tuple(re.compile(rf"--{name}[= ](\d+)\b") for name in ("nnodes", "nproc[-_]per[-_]node"))


def unpassed_options(file: File, job: Job) -> Iterator[Problem]:
    """torchrun and a program whose `--local_rank`, 0 by default, chooses the GPU."""
    launch = job.launch
    if launch is None or not is_torchrun(launch) or launch.branch or _passes(launch):
        return
    each, text = own_options(launch).get("nproc_per_node"), program_text(file, launch) or ""
    count = whole(each)
    if each is None or (count is not None and count.known and count.value < 2) or _OPTION not in text:
        return
    script = script_of(File("program.py", text, "python")) if not _ASKS_ITSELF.search(text) else None
    option = _option_of(script.parents) if script is not None else None
    used = _device_of(script.parents) if script is not None and option is not None else None
    if option is not None and used is not None:
        yield problem(
            launch.span,
            f"torchrun passes no --{_OPTION}: it is 0 in all processes, and line {used.lineno} of the program takes it "
            "for the GPU",
            f'import os, and write default=int(os.environ.get("LOCAL_RANK", 0)) in line {option.lineno} of the program',
            level=None if count is not None and count.known and not count.default else "warning",
            why=reasons.ALL_ON_ONE_GPU,
        )


def _passes(launch: Command) -> bool:
    """torch.distributed.launch hands the option over, and so may the command itself."""
    words = [word.value for word in launch.words]
    return "torch.distributed.launch" in words or any(re.match(r"--local[-_]rank", word) for word in words)


def _option_of(parents: Parents) -> ast.Call | None:
    """Where the parser is given the option with the default 0, if the script sets it nowhere."""
    calls = [node for node in parents if isinstance(node, ast.Call) and last(node) == "add_argument"]
    own = [call for call in calls if any(ast.unparse(one) in ("'--local_rank'", "'--local-rank'") for one in call.args)]
    default = next((one.value for one in own[0].keywords if one.arg == "default"), None) if len(own) == 1 else None
    zero = isinstance(default, ast.Constant) and default.value == 0
    return own[0] if zero and not any(_may_set(parents, node) for node in parents) else None


def _may_set(parents: Parents, node: ast.AST) -> bool:
    """Whether the option is given a value, or all options are handed to a function of another file."""
    if isinstance(node, ast.Attribute) and node.attr == _OPTION:
        return isinstance(node.ctx, ast.Store)
    if isinstance(node, ast.Call) and last(node) in ("set_defaults", "setattr", "update", "Namespace"):
        return True
    if not isinstance(node, ast.Name) or not isinstance(parents[node], ast.Call | ast.keyword):
        return False
    above = parents[node] if isinstance(parents[node], ast.Call) else parents[parents[node]]
    holds = any(isinstance(one, ast.Attribute) and ast.unparse(one) == f"{node.id}.{_OPTION}" for one in parents)
    functions = {one.name for one in parents if isinstance(one, ast.FunctionDef)}
    return holds and isinstance(above, ast.Call) and last(above) not in functions and last(above) not in _READS_ONLY


def _device_of(parents: Parents) -> ast.expr | None:
    """The first use of the option as the number of a GPU, by its own name or by that of a variable that holds it."""
    options = [one for one in parents if isinstance(one, ast.Attribute) and one.attr == _OPTION]
    uses: list[ast.expr] = [*options, *(use for one in options for use in _by_variable(parents, one))]
    return next((one for one in uses if _is_device(parents[one], parents)), None)


def _by_variable(parents: Parents, option: ast.Attribute) -> list[ast.Name]:
    """The uses of `local_rank` behind `local_rank = args.local_rank`, where its function gives it no other value."""
    above = parents[option]
    target = above.targets[0] if isinstance(above, ast.Assign) and len(above.targets) == 1 else None
    if not isinstance(target, ast.Name) or any(isinstance(one, ast.Global | ast.Nonlocal) for one in parents):
        return []
    place = _function_of(parents, target)
    same = [one for one in parents if isinstance(one, ast.Name) and one.id == target.id]
    own = [one for one in same if _function_of(parents, one) is place]
    stored = [one for one in own if not isinstance(one.ctx, ast.Load)]
    return [one for one in own if isinstance(one.ctx, ast.Load)] if stored == [target] else []


def _function_of(parents: Parents, node: ast.AST) -> ast.AST | None:
    """The function that a node stands in; None at the top of the script."""
    above: ast.AST | None = parents.get(node)
    while above is not None and not isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        above = parents.get(above)
    return above


def _is_device(above: ast.AST, parents: Parents) -> bool:
    """`torch.cuda.set_device(args.local_rank)` or `f"cuda:{args.local_rank}"`."""
    if isinstance(above, ast.FormattedValue):
        return ast.unparse(parents[above])[2:].startswith("cuda:")
    return isinstance(above, ast.Call) and last(above) in _TAKES_DEVICE and "cpu" not in ast.unparse(above)


def described_launches(file: File) -> Iterator[Problem]:
    """A script that gives the global rank to set_device, and whose own text says how it is started on several nodes."""
    script = script_of(file) if "torchrun" in file.text and "set_device" in file.text else None
    ranks = _described_ranks(file) if script is not None else 0
    for call in global_devices(script.parents) if script is not None and ranks else ():
        yield problem(
            span_of(call.func),
            f"the number of the GPU is the rank among {ranks}, which the torchrun of this file starts on several nodes",
            LOCAL_RANK,
            level="warning",
            why=reasons.NO_SUCH_GPU,
        )


def _described_ranks(file: File) -> int:
    """The ranks of a command in the script's text that starts it on several nodes, if no node has as many GPUs."""
    for command in _STARTS.findall(file.text):
        counts = [match for pattern in _COUNTS if (match := pattern.search(command)) is not None]
        if len(counts) < len(_COUNTS) or os.path.basename(file.path) not in command:
            continue
        nodes, each = (int(match[1]) for match in counts)
        if nodes > 1 and each > 1 and nodes * each > MOST_GPUS:
            return nodes * each
    return 0
