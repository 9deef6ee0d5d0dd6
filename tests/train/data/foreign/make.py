"""Writes the data sets of this folder with their own writers, and what their own readers give. Needs megatron-core
0.16.1, mosaicml-streaming 0.13.0, datasets 5.2.0 and webdataset 1.0.2:

    python tests/train/data/foreign/make.py
"""

from __future__ import annotations

import io
import json
import random
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

HERE = Path(__file__).parent
VOCAB = 1000


def documents(seed: int) -> list[list[int]]:
    dice = random.Random(seed)
    return [[dice.randrange(VOCAB) for _ in range(dice.randint(1, 40))] for _ in range(12)]


def megatron(folder: Path) -> list[list[int]]:
    from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder

    builder = IndexedDatasetBuilder(str(folder / "text.bin"), dtype=np.uint16)
    for document in documents(1):
        half = len(document) // 2
        parts = [part for part in (document[:half], document[half:]) if part]  # a document of two sentences
        builder.add_document(torch.tensor([token for part in parts for token in part]), [len(part) for part in parts])
    builder.finalize(str(folder / "text.idx"))
    data = IndexedDataset(str(folder / "text"))
    bounds = data.document_indices.tolist()
    sequences = [data[n].tolist() for n in range(len(data))]
    return [[t for s in sequences[a:b] for t in s] for a, b in pairwise(bounds)]


def mds(folder: Path, encoding: str) -> list[list[int]]:
    from streaming import MDSWriter, StreamingDataset

    columns = {"name": "str", "tokens": encoding}
    rows = [(document * 40)[:32] if encoding.count(":") > 1 else document for document in documents(2)]
    with MDSWriter(out=str(folder), columns=columns, size_limit=500) as out:
        for number, row in enumerate(rows):
            array = np.array(row, dtype=np.int64 if encoding == "bytes" else encoding.split(":")[1])
            out.write({"name": f"row {number}", "tokens": array.tobytes() if encoding == "bytes" else array})
    data = StreamingDataset(local=str(folder), shuffle=False, batch_size=1)
    values = [data[n]["tokens"] for n in range(len(data))]
    return [(np.frombuffer(v, np.int64) if encoding == "bytes" else v).tolist() for v in values]


def arrow(folder: Path) -> list[list[int]]:
    import datasets

    rows = documents(3)
    data = datasets.Dataset.from_dict({"text": [str(len(r)) for r in rows], "input_ids": rows})
    data.cast_column("input_ids", datasets.List(datasets.Value("int32"))).save_to_disk(str(folder), num_shards=2)
    return list(datasets.load_from_disk(str(folder))["input_ids"])


def web(folder: Path) -> list[int]:
    import webdataset
    from PIL import Image

    with webdataset.ShardWriter(str(folder / "part-%02d.tar"), maxcount=3, verbose=0) as out:
        for number in range(5):
            picture = io.BytesIO()
            Image.new("RGB", (8, 8), (40 * number, 0, 255)).save(picture, "png")
            out.write({"__key__": f"sample{number:03d}", "png": picture.getvalue(), "cls": str(2 * number)})
    data = webdataset.WebDataset(sorted(map(str, folder.glob("*.tar"))), shardshuffle=False)
    return [int(sample["cls"]) for sample in data]


def main() -> None:
    expected = {}
    makers = {
        "megatron": megatron, "arrow": arrow, "web": web, "mds-bytes": lambda f: mds(f, "bytes"),
        "mds-dynamic": lambda f: mds(f, "ndarray:uint16"), "mds-fixed": lambda f: mds(f, "ndarray:int32:32"),
    }  # fmt: skip
    for name, make in makers.items():
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        expected[name] = make(folder)
    (HERE / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main()
