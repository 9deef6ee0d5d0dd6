"""PYT: training scripts in Python that start a process group: data per rank, checkpoints, what a resume needs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.model import File
from trainwright.check.programs.barriers import lonely_calls
from trainwright.check.programs.data_parts import divides_nothing, local_samplers, same_streams
from trainwright.check.programs.final_paths import final_path
from trainwright.check.programs.first_rank import asks_for_rank
from trainwright.check.programs.host_tensors import host_tensors
from trainwright.check.programs.lonely_stops import lonely_stops
from trainwright.check.programs.missing_barriers import missing_barriers
from trainwright.check.programs.python_names import bindings, is_changed, origin
from trainwright.check.programs.sharded_states import lonely_states
from trainwright.check.programs.skipped_steps import lonely_skips
from trainwright.check.programs.training_script import Script, name_of, script_of, span_of
from trainwright.check.programs.unused_samplers import gives_all, text_without_unused
from trainwright.check.registry import Problem, problem, rule

_SHARDED = re.compile(
    r"Sampler\b|split_dataset_by_node|\.shard\(|StreamingDataset|distribute_datapipe|IterableDataset|\.prepare\(|deepspeed"
    r"|LightningModule|lightning|dp_rank|dataset_rank|seed\s*\+\s*\w*rank|MosaicML|webdataset|wds\.|nodesplitter|dali",
    re.IGNORECASE,
)
_RANK_ARGUMENTS = {"rank", "global_rank", "world_size", "num_replicas", "process_index", "num_shards", "shard_id"}
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_OWN_FILE = re.compile(
    r"rank|tmp|temp|buf|bytesio|stream|\binit\.|getpid|uuid", re.IGNORECASE
)  # no other rank writes it, or none reads
_NOT_SHARED = re.compile(r"rank|world|replica|torch\.rand|\brandom\.|fake|synthetic|dummy|toy", re.IGNORECASE)
_PART = re.compile(
    r"(?<!local_)rank\b|world_size|num_(processes|replicas|shards)|process_index|shard_(id|index)|Get_size"
    r"|SLURM_(PROCID|NTASKS|NPROCS|NODEID)|OMPI_COMM_WORLD|\bPMIX?_|\bMV2_COMM",
    re.IGNORECASE,
)
_NO_DATA = re.compile(r"init|setup|spawn|parallel|ddp|fsdp|print|log|main|train$|test$|reduce|barrier", re.IGNORECASE)
_MAKES_DATA = re.compile(r"data|load|batch|iter|shard|split|stream", re.IGNORECASE)
_VALIDATION = re.compile(r"val|test|eval", re.IGNORECASE)
_FSDP = re.compile(r"\bFullyShardedDataParallel\b|\bFSDP\(|\bfully_shard\(")


@rule("PYT001", "info")
def ranks_read_different_data(file: File) -> Iterator[Problem]:
    """Every rank must read its own part of the data.

    A script that starts a process group and builds a `DataLoader` without a sampler, and in which nothing else divides
    the data (a `shard`, a dataset that is given a rank, a streaming dataset, a framework's `prepare`), trains every
    rank on all of it; a sampler that only the loader for validation is given does not count. Loaders for validation are
    not reported, nor datasets of other files that are not shuffled: a stream may give every rank its own part. A
    warning where the script itself puts the model into DistributedDataParallel or FSDP, always starts the group, and
    trains on the loader in epochs; and where its own iterable dataset opens files by no rank (it may be given one and
    never read it) and without chance. A sampler that is given the local rank, or the GPUs of a node as `num_replicas`,
    is right on one node only.

    Why: 8 ranks then do the work of one 8 times, and an epoch takes 8 times as long as it should; with one seed all
    ranks even see the same samples at once.

    Fix: `sampler=DistributedSampler(dataset)`, and `sampler.set_epoch(epoch)` every epoch.

    Source: PyTorch, DistributedDataParallel tutorial; the FSDP test case of awsome-distributed-ai, whose ranks all read
    the same stream.

    When to ignore: the dataset divides itself in another file.
    """
    script = script_of(file)
    if script is None:
        return
    undivided = text_without_unused(script, file.text)
    if not _SHARDED.search(undivided.replace("IterableDataset", "")):
        for one in same_streams(script.parents, file.text):
            yield problem(span_of(one.node), one.what, one.fix, level=one.level, why=one.why)
    for call in local_samplers(script.parents, file.text):
        yield problem(
            span_of(call.func),
            "the sampler divides the data by the GPUs of one node: on several nodes all read the same parts",
            "leave num_replicas and rank out: the sampler asks the process group",
            why=reasons.PART_OF_ONE_NODE,
        )
    if _SHARDED.search(undivided) or _given_a_rank(script):
        return
    for call in script.calls("DataLoader"):
        said, whole = _words(script, call)
        hidden = not whole and "sampler" in file.text  # `**kwargs` that may hold one
        given = [said[name] for name in ("sampler", "batch_sampler") if name in said]
        divided = hidden or not all(map(gives_all, given))
        source = [*call.args[:1], *(said[name] for name in ("dataset",) if name in said)]
        divided |= any(_PART.search(_with_values(script, one)) for one in source)
        if not divided and _training(call) and _is_map(script, call, said):
            instead = " in place of shuffle" if "shuffle" in said else ""  # the loader refuses both
            yield problem(
                span_of(call.func),
                "every rank reads the whole data in its own order: no sampler, shard or rank divides it",
                f"pass sampler=DistributedSampler(dataset){instead}, and call its set_epoch every epoch",
                level="warning" if _trains_on(script, call) and _runs_alone(script, file.text) else None,
            )


def _runs_alone(script: Script, text: str) -> bool:
    """Whether the script itself decides that its ranks train one model: it wraps it, and always starts the group."""
    starts = script.calls("init_process_group")
    around = [above for call in starts for above in script.above(call) if isinstance(above, ast.If)]
    conditional = any("__name__" not in ast.unparse(above.test) for above in around)
    return bool(starts) and not conditional and divides_nothing(script.parents, text)


def _trains_on(script: Script, loader: ast.Call) -> bool:
    """Whether a loop over this loader holds a backward pass, within a loop over epochs."""
    given = loader.args[0] if loader.args else next((k.value for k in loader.keywords if k.arg == "dataset"), None)
    if given is None or _NOT_SHARED.search(_with_values(script, given)):
        return False
    above = script.parents[loader]
    names = {name_of(target) for target in above.targets} if isinstance(above, ast.Assign) else set()
    for call in script.calls("backward"):
        loops = [one for one in script.above(call) if isinstance(one, ast.For)]
        over = {name_of(one) for loop in loops[:1] for one in ast.walk(loop.iter) if isinstance(one, ast.Name)}
        if len(loops) > 1 and over & names:
            return True
    return False


def _with_values(script: Script, node: ast.expr, depth: int = 2) -> str:
    """An expression with all that the script assigns to its names."""
    names = {name_of(one) for one in ast.walk(node) if isinstance(one, ast.Name | ast.Attribute)}
    assigned = [one for one in script.parents if isinstance(one, ast.Assign) and names & set(map(name_of, one.targets))]
    values = [one.value for one in assigned]
    return " ".join([ast.unparse(node), *(_with_values(script, one, depth - 1) for one in values if depth)])


def _is_one_file(script: Script, save: ast.Call) -> bool:
    """Whether the script itself makes every rank write one path: no call that leads there names another one."""
    function = next((one for one in script.above(save) if isinstance(one, _FUNCTION)), None)
    path = final_path(script, save)
    names = {one.id for one in ast.walk(path) if isinstance(one, ast.Name)}
    calls = script.calls(function.name) if function is not None else []
    others = [call for call in calls if name_of(call.func) != "torch.save"]  # a function may be named `save`
    paths = [path, *(one for call in others for one in _given(call, function, names))]
    return _reached(script, save) and not any(_OWN_FILE.search(_with_values(script, one)) for one in paths)


def _given(call: ast.Call, function: ast.FunctionDef | ast.AsyncFunctionDef | None, names: set[str]) -> list[ast.expr]:
    """What a call gives to the parameters of these names."""
    parameters = [one.arg for one in function.args.args if one.arg != "self"] if function is not None else []
    given = [*zip(parameters, call.args, strict=False), *((word.arg, word.value) for word in call.keywords)]
    return [value for name, value in given if name in names]


def _reached(script: Script, node: ast.AST, depth: int = 0) -> bool:
    """Whether the script itself runs a node: its function, and those that call it, are called from the module."""
    function = next((above for above in script.above(node) if isinstance(above, _FUNCTION)), None)
    if function is None or depth > 5:
        return function is None
    spawned = [one for one in script.parents if isinstance(one, ast.Name) and one.id == function.name]
    handed = any(isinstance(script.parents[one], ast.Call) and one in script.parents[one].args for one in spawned)  # type: ignore[attr-defined]
    calls = [call for call in script.calls(function.name) if not any(above is function for above in script.above(call))]
    return handed or any(_reached(script, call, depth + 1) for call in calls)


def _training(call: ast.Call) -> bool:
    """Whether a loader is not plainly one for validation, which every rank may read whole."""
    return not _VALIDATION.search(ast.unparse(call))


def _words(script: Script, call: ast.Call) -> tuple[dict[str, ast.expr], bool]:
    """The options of a call with those of a dict that the script shows; and whether these are all."""
    said: dict[str, ast.expr] = {}
    whole = True
    for keyword in call.keywords:
        given: list[ast.expr | None] = [keyword.value]
        if keyword.arg is not None:
            said[keyword.arg] = keyword.value
            continue
        if isinstance(keyword.value, ast.Name):
            given = bindings(script.parents, keyword.value)
            whole &= not is_changed(script.parents, keyword.value)
        shown = given[0] if len(given) == 1 else None
        if isinstance(shown, ast.Dict):
            pairs = [(getattr(key, "value", None), value) for key, value in zip(shown.keys, shown.values, strict=True)]
        else:
            plain = isinstance(shown, ast.Call) and name_of(shown.func) == "dict" and not shown.args
            pairs = [(word.arg, word.value) for word in shown.keywords] if plain else [(None, call)]  # type: ignore[union-attr]
        said |= {name: value for name, value in pairs if isinstance(name, str)}
        whole &= all(isinstance(name, str) for name, _ in pairs)
    return said, whole


def _is_map(script: Script, call: ast.Call, said: dict[str, ast.expr]) -> bool:
    """Whether the dataset is one with an index, which nothing divides by itself: its loader shuffles it, or it is
    torchvision's or of a class in this file with __getitem__. Of others the file does not show how they are read."""
    if "shuffle" in said and getattr(said["shuffle"], "value", True):
        return True
    if isinstance(said.get("sampler"), ast.Call):
        return True
    sources = [call.args[0]] if call.args else [said["dataset"]] if "dataset" in said else []
    name = name_of(sources[0]) if sources else ""
    sources += [
        n.value for n in script.parents if isinstance(n, ast.Assign) and name in map(name_of, n.targets) and name
    ]
    made = {name_of(one.func) for one in sources if isinstance(one, ast.Call)}
    own = [origin(script.parents, one.func) for one in sources if isinstance(one, ast.Call)]
    made |= {one for one in own if one.startswith("torchvision.")}
    indexed = {
        node.name
        for node in script.parents
        if isinstance(node, ast.ClassDef)
        and any(isinstance(one, ast.FunctionDef) and one.name == "__getitem__" for one in node.body)
    }
    return bool(made & indexed) or any(re.search(r"datasets\.[A-Z]|TensorDataset$", one) for one in made)


def _given_a_rank(script: Script) -> bool:
    """Whether some call divides the data by rank in a way the file does not show."""
    for node in script.parents:
        name = name_of(node.func) if isinstance(node, ast.Call) else ""
        if not isinstance(node, ast.Call) or _NO_DATA.search(name):
            continue
        words = {keyword.arg for keyword in node.keywords}
        words |= {name_of(argument) for argument in node.args} if _MAKES_DATA.search(name) else set()
        if words & _RANK_ARGUMENTS:
            return True
    return False


@rule("PYT002", "info")
def one_rank_writes_the_checkpoint(file: File) -> Iterator[Problem]:
    """One rank must write a checkpoint that all ranks share, and all ranks must call a collective.

    A `torch.save` in a script with a process group, where no rank is asked for around it, before it, or around the
    calls of its function; a warning where the script itself wraps the model, always starts the group and calls the
    function. A file name that contains the rank is not reported. Inside `if rank == 0`, alone or with
    `and`, by whatever name, or behind `if rank != 0: return` (a warning): a barrier or collective of all ranks that no
    other branch by rank meets, itself or in a function of the script; the full state of a model in FSDP, a pass
    through it, itself or in a function (a note where that may be left out), and `save` of
    torch.distributed.checkpoint. A rank whose loss is not finite and that skips its backward
    pass by itself, or that ends the training early by the loss of its own part of the data (warnings). A tensor on the
    host that is given to a collective of nccl, and a file that all ranks read as soon as rank 0 alone has written it,
    with no barrier between (warnings).

    Why: all ranks write the same file at the same time; on a shared file system the result is a mixture, and the
    job stops after the next failure because it cannot be read. The state of 8 billion parameters under Adam is 96
    GB (12 bytes each), 64 ranks write 6.1 TB.

    Fix: `if rank == 0: torch.save(…)` and a barrier after it, or torch.distributed.checkpoint. With FSDP every rank
    calls `state = model.state_dict()` first, which is a collective.

    Source: PyTorch, DistributedDataParallel tutorial (save and load checkpoints); the DDP test case of
    awsome-distributed-ai; arithmetic.

    When to ignore: the caller, in another file, calls the function on one rank only.
    """
    script = script_of(file)
    if script is None:
        return
    parents = script.parents
    lonely = [
        *lonely_calls(parents),
        *lonely_states(parents),
        *lonely_skips(parents),
        *lonely_stops(parents, file.text),
    ]
    for one in (*lonely, *host_tensors(parents, file.text), *missing_barriers(parents)):
        yield problem(span_of(one.call.func), one.what, one.fix, level=one.level, why=one.why)
    for call in script.calls("torch.save"):
        if (
            len(call.args) < 2
            or isinstance(call.args[1], ast.Dict)
            or _is_own_file(script, call)
            or _guarded(script, call)
        ):
            continue
        yield problem(
            span_of(call.func),
            "every rank writes the same file at once: no rank is asked for around this torch.save",
            "call state_dict() on every rank and torch.save on rank 0 only; or use torch.distributed.checkpoint"
            if _FSDP.search(file.text)
            else "write it on rank 0 only, with a barrier of all ranks below it; or use torch.distributed.checkpoint",
            level="warning" if _is_one_file(script, call) and _runs_alone(script, file.text) else None,
        )


def _is_own_file(script: Script, call: ast.Call) -> bool:
    """Whether the path, or what was assigned to it in the same function, names a file that no other rank writes."""
    path = final_path(script, call)
    if _OWN_FILE.search(ast.unparse(path)):
        return True
    if not isinstance(path, ast.Name):
        return False
    function = next((above for above in script.above(call) if isinstance(above, ast.FunctionDef)), script.tree)
    return any(
        isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == path.id for target in node.targets)
        and _OWN_FILE.search(ast.unparse(node.value))
        for node in ast.walk(function)
    )


def _guarded(script: Script, node: ast.AST, depth: int = 0) -> bool:
    """Whether a rank is asked for around a node, before it, or around every call of the function that holds it; or a
    lock lets one process in."""
    for above in script.above(node):
        asked = [*_conditions(above), *getattr(above, "decorator_list", ())]
        if any(asks_for_rank(one, script.parents) for one in asked):
            return True
        if isinstance(above, ast.With) and any("lock" in ast.unparse(one).lower() for one in above.items):
            return True
        body = getattr(above, "body", None)
        if isinstance(body, list) and any(_leaves_early(script, statement) for statement in body):
            return True
        if isinstance(above, _FUNCTION):
            if _has_twin(script, above) or _is_overridden(script, above):
                return True
            calls = [call for call in script.calls(above.name) if call is not node]
            if not calls or depth > 3:
                return depth == 0  # nobody calls it here: who may call it elsewhere is not known
            return all(_guarded(script, call, depth + 1) for call in calls)
    return False


def _conditions(node: ast.AST) -> list[ast.expr]:
    """What decides whether the parts of a node run: `if rank == 0:`, `rank == 0 and save()`, `match rank:`."""
    if isinstance(node, ast.If | ast.IfExp):
        return [node.test]
    if isinstance(node, ast.BoolOp):
        return node.values[:-1]
    return [node.subject] if isinstance(node, ast.Match) else []


def _is_overridden(script: Script, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether another class's function of this name asks for the rank: that class is the one for several processes."""
    same = [n for n in script.parents if isinstance(n, _FUNCTION) and n.name == function.name and n is not function]
    return any(_leaves_early(script, statement) for one in same for statement in one.body)


def _has_twin(script: Script, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function has a sister for several processes (`fit` and `fit_with_ddp`), and is for one itself."""
    names = {node.name for node in script.parents if isinstance(node, _FUNCTION)}
    return any(re.fullmatch(rf"{re.escape(function.name)}_?(with_)?(ddp|distributed|multi\w*)", name) for name in names)


def _leaves_early(script: Script, statement: ast.AST) -> bool:
    """`if rank != 0: return`, or continue."""
    return (
        isinstance(statement, ast.If)
        and asks_for_rank(statement.test, script.parents)
        and any(isinstance(one, ast.Return | ast.Raise | ast.Continue | ast.Break) for one in statement.body)
    )
