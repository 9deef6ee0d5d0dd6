"""The weights in checkpoints of our own: of a run, of one step, of adapters and the base that they belong to."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load as load_sharded
from torch.distributed.checkpoint.state_dict_saver import save as save_sharded

from trainwright.errors import UserError
from trainwright.train.checkpoint.manifest import Manifest, describe_file, read_complete, shape_in
from trainwright.train.checkpoint.staging import state_bytes
from trainwright.train.checkpoint.stores import FolderStore, open_store, step_name
from trainwright.train.data.image_classes import ImageClasses
from trainwright.train.disk import removed_on_error, require_space
from trainwright.train.models.hf_config import differences
from trainwright.train.models.hf_layout import Read
from trainwright.train.models.hf_tokenizer import FILE as TOKENIZER
from trainwright.train.models.hf_tokenizer import FOLDER as TOKENIZER_FOLDER
from trainwright.train.models.shape import ModelShape

if TYPE_CHECKING:
    from trainwright.train.base_pin import Base
from trainwright.train.models.huggingface import parameter_sizes


def find_checkpoint(named: str, step: int | None = None) -> tuple[Manifest, FileSystemReader]:
    """The checkpoint that is meant: one step, or of a run, a checkpoint folder or S3 the newest complete one, unless
    its step is given."""
    one = read_complete(Path(named))
    if one is not None:
        return one, FileSystemReader(named)
    store = open_store(saved_to(named), scratch=Path())
    if step is not None:
        try:
            manifest = store.manifest(step)
        except FileNotFoundError as error:  # its run may have removed it a moment ago
            raise UserError(str(error), fix="start again: what is there now is looked up") from error
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
        from trainwright.train.base_pin import INNER, base_of, pin_in
        from trainwright.train.base_weights import open_base
        from trainwright.train.models.adapters import merged, options_of

        base = base or pin_in(manifest) or base_of(manifest, remedy=INNER)  # the first rank has compared the pin
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
