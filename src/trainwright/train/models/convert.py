"""`train export` and `train import`: a run as a Hugging Face folder, and back."""

from __future__ import annotations

import argparse
import json
import sys
from math import inf, nan
from pathlib import Path
from typing import TYPE_CHECKING

from torch.distributed.checkpoint.filesystem import FileSystemReader

from trainwright.errors import UserError
from trainwright.train.checkpoint.manifest import Manifest, classes_saved
from trainwright.train.checkpoint.stores import FolderStore
from trainwright.train.disk import removed_on_error
from trainwright.train.models.hf_tokenizer import FILE as TOKENIZER
from trainwright.train.models.hf_tokenizer import import_tokenizer, token_ids
from trainwright.train.models.hf_vision import classes_in
from trainwright.train.models.shape import is_published

if TYPE_CHECKING:
    from trainwright.train.base_pin import Base
from trainwright.train.models.huggingface import CONFIG, DTYPES, read_folder, write_folder
from trainwright.train.models.saved_weights import (
    find_checkpoint,
    read_adapters,
    read_checkpoint,
    run_of,
    write_checkpoint,
)


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
    ids = token_ids(run, manifest.trainer.get("tokenizer"), manifest.trainer.get("exchanged"))
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
