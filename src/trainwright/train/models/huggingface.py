"""A trained model as a Hugging Face folder, and back: safetensors, in one or several files, config.json and tokenizer.
Tensors are converted one at a time."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from math import inf, nan, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load as load_sharded
from torch.distributed.checkpoint.state_dict_saver import save as save_sharded

from trainwright.errors import UserError
from trainwright.train.checkpoint.manifest import Manifest, classes_saved, describe_file, read_complete, shape_in
from trainwright.train.checkpoint.staging import state_bytes
from trainwright.train.checkpoint.stores import FolderStore, open_store, step_name
from trainwright.train.data.image_classes import ImageClasses
from trainwright.train.data.image_samples import decoded_side
from trainwright.train.data.multicrop import MEAN, OTHER_MEAN, OTHER_SPREAD, SPREAD
from trainwright.train.disk import new_folder, removed_on_error, require_space
from trainwright.train.models import model_class
from trainwright.train.models.hf_config import config_of, differences, shape_of
from trainwright.train.models.hf_encoders import spellings
from trainwright.train.models.hf_layout import Read, from_huggingface, to_huggingface
from trainwright.train.models.hf_tokenizer import FILE as TOKENIZER
from trainwright.train.models.hf_tokenizer import FOLDER as TOKENIZER_FOLDER
from trainwright.train.models.hf_tokenizer import export_tokenizer, import_tokenizer, token_ids
from trainwright.train.models.hf_vision import classes_in, label_names
from trainwright.train.models.safetensors import TensorFile, write
from trainwright.train.models.shape import ModelShape, is_published

if TYPE_CHECKING:
    from trainwright.train.base_pin import Base

WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
PROCESSOR, BILINEAR = "preprocessor_config.json", 2
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def parameter_sizes(shape: ModelShape) -> dict[str, torch.Size]:
    """Every parameter of a model (and the biases of its routers), in order, without memory for any."""
    with torch.device("meta"):
        model = model_class(shape)(shape)
    return {name: tensor.shape for name, tensor in (*model.named_parameters(), *model.named_buffers())}


def write_folder(
    shape: ModelShape,
    read: Read,
    folder: Path,
    dtype: str = "float32",
    file_bytes: int = 5 << 30,
    run: Path | None = None,
    ids: dict[str, Any] | None = None,
    classes: Sequence[str] = (),
    processed: bool = False,
) -> None:
    """Write the model whose parameters `read` gives by name, with the tokenizer of `run`, the token ids `ids` and the
    names of its classes; `processed`: and with how the trainer prepares images. The folder appears when complete."""
    total = sum(prod(size) for size in parameter_sizes(shape).values()) * DTYPES[dtype].itemsize
    with new_folder(folder, total) as beside:
        files = _split(parameter_sizes(shape), DTYPES[dtype].itemsize, file_bytes)
        index: dict[str, str] = {}
        for number, names in enumerate(files, 1):
            name = WEIGHTS if len(files) == 1 else f"model-{number:05}-of-{len(files):05}.safetensors"
            sizes = _write_file(shape, read, names, beside / name, DTYPES[dtype])
            index.update(dict.fromkeys(sizes, name))
        if len(files) > 1:
            text = json.dumps({"metadata": {"total_size": total}, "weight_map": index}, indent=1)
            (beside / INDEX).write_text(text)
        # What the model itself fixes wins: RoBERTa counts positions from its padding token.
        config, own = dict(ids or {}), config_of(shape, dtype)
        mask, pad = config.pop("mask_token_id", None), config.get("pad_token_id")
        config |= own
        if pad is not None and shape.kind != "decoder" and shape.family != "roberta":
            config["pad_token_id"] = pad
        if mask is not None and "mask_token_id" in own:
            config["mask_token_id"] = mask  # the run's: the data need not be in ESM-2's alphabet
        if classes and "id2label" in own:
            config |= label_names(shape.vocab, classes)
        (beside / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
        if processed and shape.kind == "vision":
            (beside / PROCESSOR).write_text(json.dumps(processor_of(shape), indent=2) + "\n")
        export_tokenizer(run, beside)


def processor_of(shape: ModelShape) -> dict[str, Any]:
    """How the trainer makes a model's input of an image when it evaluates, for transformers' AutoImageProcessor."""
    colours = shape.channels == len(MEAN)
    return {
        "image_processor_type": "BitImageProcessor",  # the one that cuts the middle out of an image of any proportions
        "do_convert_rgb": colours,
        "do_resize": True,
        "size": {"shortest_edge": decoded_side(shape.image)},
        "resample": BILINEAR,
        "do_center_crop": True,
        "crop_size": {"height": shape.image, "width": shape.image},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(MEAN) if colours else [OTHER_MEAN] * shape.channels,
        "image_std": list(SPREAD) if colours else [OTHER_SPREAD] * shape.channels,
    }


def _split(sizes: dict[str, torch.Size], item: int, file_bytes: int) -> list[list[str]]:
    """Parameter names by file, each file under the limit unless a single tensor is over it."""
    files: list[list[str]] = [[]]
    room = file_bytes
    for name, size in sizes.items():
        room -= prod(size) * item
        if room < 0 and files[-1]:
            files.append([])
            room = file_bytes - prod(size) * item
        files[-1].append(name)
    return files


def _write_file(
    shape: ModelShape, read: Read, names: list[str], path: Path, dtype: torch.dtype
) -> dict[str, torch.Size]:
    own = parameter_sizes(shape)

    def empty_one(name: str) -> Tensor:
        return torch.empty(own[name], device="meta")

    empty = (to_huggingface(shape, name, empty_one(name), empty_one) for name in names)
    sizes = {theirs: tensor.shape for pieces in empty for theirs, tensor in pieces.items()}

    def stream() -> Iterator[tuple[str, Tensor]]:
        for name in names:
            yield from to_huggingface(shape, name, read(name), read).items()

    write(path, sizes, dtype, stream())
    return sizes


def read_folder(folder: Path, model: str = "") -> tuple[ModelShape, Callable[[str], Tensor]]:
    """The shape of a Hugging Face folder, and a function that gives our parameters by name, in fp32."""
    if not (folder / CONFIG).is_file():
        raise UserError(f"no {CONFIG} in {folder}", fix="name a folder that transformers wrote")
    shape = shape_of(json.loads((folder / CONFIG).read_text()), model, str(folder / CONFIG))
    files = [TensorFile(path) for path in sorted(folder.glob("*.safetensors"))]
    where = {name: file for file in files for name in file.entries}

    def theirs(name: str) -> Tensor:
        # Some writers leave the prefix of the model's own class out.
        for candidate in (*spellings(name), name.removeprefix("transformer."), name.removeprefix("model.")):
            if candidate in where:
                return where[candidate].read(candidate)
        raise UserError(f"tensor {name} is missing", where=str(folder))

    sizes = parameter_sizes(shape)

    def ours(name: str) -> Tensor:
        tensor = from_huggingface(shape, name, theirs).to(torch.float32)
        if tensor.shape != sizes[name]:
            raise UserError(
                f"{name} is {tuple(tensor.shape)}, {shape.name} needs {tuple(sizes[name])}", where=str(folder)
            )
        return tensor

    return shape, ours


def find_checkpoint(named: str, step: int | None = None) -> tuple[Manifest, FileSystemReader]:
    """The checkpoint that is meant: one step, or of a run, a checkpoint folder or S3 the newest complete one, unless
    its step is given."""
    one = read_complete(Path(named))
    if one is not None:
        return one, FileSystemReader(named)
    store = open_store(saved_to(named), scratch=Path())
    if step is not None:
        manifest = store.manifest(step)
        return manifest, store.reader(manifest)
    steps = store.complete_steps()
    if not steps:
        raise UserError(
            f"no complete checkpoint in {store.where}",
            fix="name a run, its checkpoints (folder or s3://…), or one step",
        )
    manifest = store.manifest(steps[0])
    return manifest, store.reader(manifest)


def saved_to(named: str) -> str:
    """Where a run keeps its checkpoints; anything else is such a store itself."""
    run = Path(named)
    if named.startswith("s3://") or not (run / "config.json").is_file():
        return str(run / "checkpoints") if (run / "checkpoints").is_dir() else named
    return json.loads((run / "config.json").read_text()).get("checkpoint_to") or str(run / "checkpoints")


def run_of(named: str) -> Path | None:
    """The run folder that a run, its checkpoint folder or one of its steps belongs to."""
    path = Path(named)
    candidates = [] if named.startswith("s3://") else [path, path.resolve().parent, path.resolve().parent.parent]
    return next((p for p in candidates if (p / TOKENIZER_FOLDER).is_dir() or (p / "events.jsonl").is_file()), None)


def tokenizer_folder(base: str) -> Path | None:
    """Where the tokenizer of a base model lies: in its Hugging Face folder, or in the run that it is of."""
    if not base or (Path(base) / TOKENIZER).is_file():
        return Path(base) if base else None
    run = run_of(base)
    return run / TOKENIZER_FOLDER if run else None


def read_checkpoint(manifest: Manifest, reader: FileSystemReader, base: Base | None = None) -> tuple[ModelShape, Read]:
    """The shape of one of our checkpoints, and a function that reads a parameter of it. `base` is what it adapts, where
    that is known already."""
    if manifest.model.get("lora_rank"):
        from trainwright.train.base_pin import INNER, base_of
        from trainwright.train.base_weights import open_base
        from trainwright.train.models.adapters import merged, options_of

        base = base or base_of(manifest, remedy=INNER)
        shape, weights = open_base(base)
        apart = differences(shape_in(manifest), shape)
        if apart:
            raise UserError(f"the base is not the model that was adapted: {'; '.join(apart)}", where=str(base))
        return shape, merged(shape, options_of(manifest), weights, read_adapters(manifest, reader)[1])
    shape, part, prefix = shape_in(manifest), *place_of_weights(manifest)
    if part == "objective":
        shape = replace(shape, vocab=0)
    sizes = parameter_sizes(shape)

    def read(name: str) -> Tensor:
        return _read_tensor(reader, part, prefix + name, sizes[name])

    return shape, read


def place_of_weights(manifest: Manifest) -> tuple[str, str]:
    """The part of a checkpoint that holds the model, and what comes before its names: DINO trains for its teacher's
    backbone, DPO has a policy beside its reference."""
    objective = manifest.trainer.get("config", {}).get("objective")
    return {"dino": ("objective", "teacher.backbone."), "dpo": ("model", "policy.")}.get(objective, ("model", ""))


def read_adapters(manifest: Manifest, reader: FileSystemReader) -> tuple[ModelShape, Read]:
    """The shape of the adapted model, and a function that reads an adapter of a checkpoint."""
    from trainwright.train.models.adapters import adapter_sizes, options_of

    shape, (_, prefix) = shape_in(manifest), place_of_weights(manifest)
    sizes = adapter_sizes(shape, options_of(manifest))

    def read(name: str) -> Tensor:
        return _read_tensor(reader, "model", prefix + name, sizes[name])

    return shape, read


def _read_tensor(reader: FileSystemReader, part: str, name: str, size: torch.Size) -> Tensor:
    """One tensor of a checkpoint, by this rank alone, which is nothing to warn of."""
    warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
    tensor = torch.empty(size)
    load_sharded({part: {name: tensor}}, storage_reader=reader, no_dist=True)
    return tensor


def write_checkpoint(shape: ModelShape, read: Read, run: Path, classes: Sequence[str] = ()) -> Path:
    """Step 0 of a run that starts with these weights: the trainer continues from it, with classes of these names."""
    from trainwright.train.record import State
    from trainwright.train.saving import ORDER_KEYS
    from trainwright.train.setup import model_identity

    store = FolderStore(run / "checkpoints")
    sizes = parameter_sizes(shape)
    # One zero, seen at every size: moments take no memory.
    moments = {name: torch.zeros(()).expand(size) for name, size in sizes.items()}
    state = {"model": {name: read(name) for name in sizes}, "exp_avg": moments, "exp_avg_sq": moments}
    folder, needed = store.writing(0), state_bytes(state)
    fix = "free the disk, or name a run folder on another one"
    with removed_on_error(folder, where=run, needed=needed, fix=fix):
        store.clean(0)
        require_space(run, needed, fix)
        save_sharded({**state, "step": torch.tensor(0)}, storage_writer=FileSystemWriter(folder), no_dist=True)
        files = tuple(describe_file(path) for path in sorted(folder.iterdir()))
        trainer: dict[str, Any] = {"state": asdict(State()), "order": dict.fromkeys(ORDER_KEYS), "recent": []}
        trainer |= {"classes": asdict(ImageClasses(tuple(classes)))} if classes else {}
        store.publish(0, Manifest(0, model_identity(shape), trainer, files))
    return store.root / step_name(0)


def gigabytes(text: str) -> float:
    """A size of at least one byte, given in GB."""
    try:
        size = float(text)
    except ValueError:
        size = nan
    if not 1 <= size * 1e9 < inf:
        raise argparse.ArgumentTypeError(f"{text} is not a size in GB above 0, such as 5")
    return size


def export_main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="trainwright train export", description="Checkpoint to Hugging Face folder.")
    parser.add_argument("checkpoint", help="a run, its checkpoints (a folder or s3://…), or one step of a folder")
    parser.add_argument("folder", type=Path, help="the new Hugging Face folder")
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--file-gb", type=gigabytes, default=5.0, help="largest file, in GB")
    parser.add_argument("--adapter", action="store_true", help="a LoRA run's adapters as a PEFT folder, not merged")
    parser.add_argument("--base", default="", metavar="PATH", help="where the base of a LoRA run is now, if it moved")
    args = parser.parse_args(argv)
    manifest, reader = find_checkpoint(args.checkpoint)
    if args.adapter:
        return export_adapter(manifest, reader, args.folder, args.base)
    shape, read = read_checkpoint(manifest, reader, export_base(manifest, args.base))
    run = run_of(args.checkpoint)
    ids = token_ids(run, manifest.trainer.get("tokenizer"))
    classes, trained = classes_saved(manifest), "config" in manifest.trainer
    write_folder(
        shape, read, args.folder, args.dtype, int(args.file_gb * 1e9), run, ids, classes=classes, processed=trained
    )
    lacks = ""
    if shape.kind != "vision" and not (args.folder / TOKENIZER).exists():
        lacks = " (without a tokenizer: none is in the run folder)"
    if shape.kind == "vision" and shape.vocab and trained and "classes" not in manifest.trainer:
        lacks = " (without the names of its classes: the checkpoint does not have them)"
    print(f"{args.folder}: {shape.name} in {args.dtype}{lacks}", file=sys.stderr)
    return 0


def export_base(manifest: Manifest, named: str) -> Base | None:
    """The base that adapters are merged into; None for a run that trained the whole model."""
    from trainwright.train.base_pin import RANDOM, base_of, pin_in

    if not manifest.model.get("lora_rank"):
        if named:
            print("note: --base has no effect: the run trained the whole model", file=sys.stderr)
        return None
    pin = pin_in(manifest)
    if RANDOM in (manifest.trainer["config"]["base"], pin and pin.kind):
        what = "the adapters were trained on random weights (--base random), which are not kept"
        raise UserError(what, fix="train with the --base that they are for")
    base = base_of(manifest, named)
    if pin is None:
        what = "note: the checkpoint does not say what its base was (an earlier version wrote it)"
        print(f"{what}: {base} is taken as it is now", file=sys.stderr)
    return base


def export_adapter(manifest: Manifest, reader: FileSystemReader, folder: Path, named: str) -> int:
    from trainwright.train.base_pin import pin_in
    from trainwright.train.models.adapters import options_of, write_peft

    if not manifest.model.get("lora_rank"):
        raise UserError("the run trained the whole model, it has no adapters", fix="export without --adapter")
    shape, read = read_adapters(manifest, reader)
    base, pin = export_base(manifest, named) if named else None, pin_in(manifest)
    known = base or pin
    place = known.place if known else manifest.trainer["config"]["base"]
    write_peft(shape, options_of(manifest), read, folder, place)
    print(f"{folder}: adapters of rank {options_of(manifest).rank} for {shape.name}", file=sys.stderr)
    return 0


def import_main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="trainwright train import", description="Hugging Face folder to a run's step 0."
    )
    parser.add_argument("folder", type=Path, help="a Hugging Face folder")
    parser.add_argument("run", type=Path, help="the run folder to begin")
    parser.add_argument(
        "--model", default="", help="the model it must be, a name or a file; else what config.json says"
    )
    args = parser.parse_args(argv)
    shape, read = read_folder(args.folder, args.model)
    if FolderStore(args.run / "checkpoints").complete_steps():
        raise UserError(f"{args.run} has checkpoints already", fix="name a new run folder")
    # The checkpoint comes last: an import that was interrupted can be given again.
    with removed_on_error(where=args.run, fix="free the disk, or name a run folder on another one"):
        config = json.loads((args.folder / CONFIG).read_text())
        import_tokenizer(args.folder, args.run, config)
    written = write_checkpoint(shape, read, args.run, classes_in(config) if shape.kind == "vision" else ())
    model = shape.name if is_published(shape.name) else args.folder
    print(f"{written}: {shape.name}; train it with --model {model} --folder {args.run}", file=sys.stderr)
    return 0
