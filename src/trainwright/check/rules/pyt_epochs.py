"""PYT: the order in which epochs see the data."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.model import File
from trainwright.check.programs.python_names import bindings, is_torchs, origin, whole_number
from trainwright.check.programs.training_script import Script, script_of, span_of
from trainwright.check.registry import Problem, problem, rule

_FRAMEWORKS = re.compile(r"lightning|accelerat|ignite|composer|\.prepare\(|Trainer\(", re.IGNORECASE)
_EPOCHS = re.compile(r"epoch", re.IGNORECASE)
_KEEPS_A_MODEL = re.compile(r"\bsave|checkpoint|accuracy|evaluate", re.IGNORECASE)
_SAMPLER = re.compile(r"(^|\.)[A-Z]\w*Sampler$")
_VALIDATION = re.compile(r"val|test|eval|dev(?!ice)|infer|predict", re.IGNORECASE)
_SETS_EPOCH = re.compile(r"set_epoch|sampler\w*\.(epoch|seed)\s*\+?=[^=]", re.IGNORECASE)
_LOADER = re.compile(r"load|sampler|data", re.IGNORECASE)
# Data that a script makes up: their order teaches nothing.
_SYNTHETIC = re.compile(
    r"FakeData|Synthetic|(Dummy|Toy|Fake|Random)\w*(Data|Set)\b|TensorDataset\(\s*torch\.(rand|ones|zeros)"
    r"|\bmake_(classification|regression|blobs|moons|circles)\(",
    re.IGNORECASE,
)
_ORDER = re.compile(r"order|determinis|reproduc|on purpose|intention|compar", re.IGNORECASE)
_RANDOM = re.compile(
    r"torch\.(rand|randn|randint|ones|zeros)\(|\b(np|numpy)\.random\.(rand|randn|randint|random|normal|uniform)\("
)


@rule("PYT004", "warning")
def epochs_shuffle_anew(file: File) -> Iterator[Problem]:
    """A DistributedSampler must be given the epoch, or every epoch has the same order.

    A script with a loop over epochs that shuffles with `DistributedSampler` and nowhere calls `set_epoch`. Samplers
    with `shuffle=False` and those for validation are not reported, nor benchmarks and scripts that a framework drives.
    A note where the data are made up, the sampler is made in a loop, a comment speaks of the order, nothing is saved or
    measured, or a function of another file is given the loader and the epoch.
    A `DataLoader` that is given a sampler and `shuffle=True` (an error).

    Why: the sampler shuffles with seed + epoch, and the epoch stays 0: in a run of 90 epochs all 90 have one order, and
    each rank sees only its own 1/8 of the data on 8 ranks, the same in every epoch.

    Fix: `sampler.set_epoch(epoch)` at the start of every epoch.

    Source: PyTorch 2.9, torch.utils.data.distributed.DistributedSampler.

    When to ignore: the same order is wanted, to compare runs.
    """
    script = script_of(file)
    if script is not None:
        yield from _shuffled_twice(script)
    if (
        script is None
        or _SETS_EPOCH.search(file.text)
        or "bench" in file.path
        or _FRAMEWORKS.search(_without_own(file))
    ):
        return
    loops = [node for node in script.parents if isinstance(node, ast.For)]
    epochs = [one for one in loops if _EPOCHS.search(ast.unparse(one.target)) and _several(script, one.iter)]
    if not epochs:
        return
    for call in script.calls("DistributedSampler"):
        if _shuffles(call) and is_torchs(script.parents, call.func) and not _is_for_validation(script, call):
            made_up = _SYNTHETIC.search(file.text) or _is_made_up(script, call)
            meant = made_up or _is_made_anew(script, call) or _is_explained(file, call)
            decided = _KEEPS_A_MODEL.search(file.text) and not meant and _trains(script, epochs)
            yield problem(
                span_of(call.func),
                "no set_epoch: every epoch has the same order, and each rank the same part of the data",
                "call its set_epoch(epoch) at the start of every epoch",
                level=None if decided else "info",  # a measurement, a trial, or a loop in another file
            )
            return


def _without_own(file: File) -> str:
    """The text without the names of its own classes, such as a Trainer that is no framework's."""
    own = re.findall(r"^class (\w*Trainer)(?:\(object\)|\(\))?:", file.text, re.MULTILINE)
    return re.sub(rf"\b({'|'.join(own)})\(", "(", file.text) if own else file.text


def _shuffles(call: ast.Call) -> bool:
    """Whether a sampler shuffles for certain, with the same seed in every epoch."""
    said = {keyword.arg: keyword.value for keyword in call.keywords}
    shuffle, seed = said.get("shuffle"), said.get("seed")
    if None in said or len(call.args) > 1 or (seed is not None and _may_change(ast.unparse(seed))):
        return False
    return shuffle is None or getattr(shuffle, "value", None) is True


def _may_change(seed: str) -> bool:
    """Whether a seed may be another one in every epoch: it is no number, and not named as the seed of a run."""
    return "epoch" in seed or not re.fullmatch(r"\d+|[\w.]*seed", seed, re.IGNORECASE)


def _is_made_anew(script: Script, call: ast.Call) -> bool:
    """Whether a sampler is made in a loop, itself or by a function that is called there: of other data, perhaps."""
    functions = [one for one in script.above(call) if isinstance(one, ast.FunctionDef)]
    places = [call, *(one for function in functions for one in script.calls(function.name))]
    return any(isinstance(above, ast.For | ast.While) for place in places for above in script.above(place))


def _is_explained(file: File, call: ast.Call) -> bool:
    """Whether a comment on the line or above it speaks of the order."""
    lines = file.lines[max(call.lineno - 2, 0) : call.lineno]
    comments = [lines[-1].partition("#")[2], *(line for line in lines[:-1] if line.lstrip().startswith("#"))]
    return any(_ORDER.search(comment) for comment in comments)


def _is_made_up(script: Script, call: ast.Call) -> bool:
    """Whether the data of a sampler are random numbers: of a TensorDataset, or of a class of this file."""
    given = call.args[0] if call.args else None
    values = bindings(script.parents, given) if isinstance(given, ast.Name | ast.Attribute) else []
    for made in (one for one in values if isinstance(one, ast.Call)):
        if any(_RANDOM.search(_value(script, argument)) for argument in made.args):
            return True
        name = ast.unparse(made.func)
        classes = (node for node in script.parents if isinstance(node, ast.ClassDef) and node.name == name)
        if any(_RANDOM.match(_kept(node)) for one in classes for node in ast.walk(one)):
            return True
    return False


def _value(script: Script, node: ast.expr) -> str:
    """An expression, or what was assigned to its name."""
    values = bindings(script.parents, node) if isinstance(node, ast.Name) else [node]
    return " ".join(ast.unparse(one) for one in values if one is not None)


def _kept(node: ast.AST) -> str:
    """What a class keeps of itself, or returns: its first value where there are several."""
    if isinstance(node, ast.Assign) and not ast.unparse(node.targets[0]).startswith("self."):
        return ""
    value = node.value if isinstance(node, ast.Assign | ast.Return) else None
    while isinstance(value, ast.ListComp | ast.Tuple | ast.List) and (not hasattr(value, "elts") or value.elts):
        value = value.elt if isinstance(value, ast.ListComp) else value.elts[0]
    return ast.unparse(value) if value is not None else ""


def _is_for_validation(script: Script, call: ast.Call) -> bool:
    functions = [one.name for one in script.above(call) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    words = [_statement(script.parents, call), *functions]
    return any(_VALIDATION.search(word) for word in words)


def _trains(script: Script, epochs: list[ast.For]) -> bool:
    """Whether the loop over the data is in this file, and no function of another is given both loader and epoch: it
    may call set_epoch."""
    steps = [node for node in script.calls("backward") if any(isinstance(one, ast.For) for one in script.above(node))]
    if not steps:
        return False
    inside = (node for loop in epochs for node in ast.walk(loop) if isinstance(node, ast.Call))
    return not any(_hands_over(script, call) for call in inside)


def _hands_over(script: Script, call: ast.Call) -> bool:
    given = [ast.unparse(one) for one in (*call.args, *(keyword.value for keyword in call.keywords))]
    both = any(_LOADER.search(one) for one in given) and any(_EPOCHS.search(one) for one in given)
    return both and origin(script.parents, call.func) != "" and not is_torchs(script.parents, call.func)


def _shuffled_twice(script: Script) -> Iterator[Problem]:
    """`DataLoader(shuffle=True, sampler=…)`, where the sampler cannot be None."""
    for call in script.calls("DataLoader"):
        said = {keyword.arg: keyword.value for keyword in call.keywords}
        shuffle, sampler = said.get("shuffle"), said.get("sampler")
        if not isinstance(shuffle, ast.Constant) or shuffle.value is not True or sampler is None:
            continue
        made = _made(script, sampler)
        if made is not None and is_torchs(script.parents, call.func):
            distributed = ast.unparse(made.func).endswith("DistributedSampler") and _shuffles(made)
            yield problem(
                span_of(shuffle),
                "DataLoader raises ValueError: a sampler and shuffle=True exclude each other",
                "remove shuffle=True: "
                + ("DistributedSampler shuffles" if distributed else "the sampler sets the order"),
                level="error",
                why=reasons.SAMPLER_AND_SHUFFLE,
            )


def _made(script: Script, sampler: ast.expr) -> ast.Call | None:
    """The call that makes a sampler, where the expression is one for certain: itself, or the only value of its name."""
    if isinstance(sampler, ast.Call):
        return sampler if _SAMPLER.search(ast.unparse(sampler.func)) else None
    given = bindings(script.parents, sampler) if isinstance(sampler, ast.Name | ast.Attribute) else []
    only = given[0] if len(given) == 1 else None
    return _made(script, only) if isinstance(only, ast.Call) else None


def _several(script: Script, count: ast.expr) -> bool:
    """Whether a loop has more than one turn, as far as one sees."""
    last = count.args[:2][-1] if isinstance(count, ast.Call) and count.args else None
    number = whole_number(script.parents, last) if last is not None else None
    return number is None or number > 1


def _statement(parents: dict[ast.AST, ast.AST], node: ast.AST) -> str:
    while node in parents and not isinstance(node, ast.stmt):
        node = parents[node]
    return ast.unparse(node)
