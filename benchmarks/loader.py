"""Token loader against Hugging Face `datasets`, on the same tokens, in one run, on one core.

    python benchmarks/loader.py [--sequence 2048] [--json]

Both serve shuffled batches of packed samples from files on disk as int64 tensors. Ours also gives targets, positions
and document numbers; the peer gives tokens alone. Time is CPU time of the process, so a busy machine changes little.

The peer the ratio is against is what `transformers.Trainer` builds from a `datasets` data set: a DataLoader with the
default collator. The faster forms that a user can tune by hand (torch or numpy format, whole batches, no collator) are
listed beside it: they come near the speed of copying memory, as ours does, and no loader is 5 times faster than that.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from trainwright.train.data.loader import Loader, Options
from trainwright.train.data.named import open_samples
from trainwright.train.data.prepare import prepare

BATCH = 16
PEER = "datasets: as transformers.Trainer reads"
FLOOR_RATE, FLOOR_RATIO = 20e6, 5.0


def rate(batches: Callable[[], Iterator[int]], tokens: int, repeats: int = 5) -> float:
    """Tokens per CPU second: the median of repeated runs over about `tokens` tokens, after one warm-up run."""
    found = []
    for repeat in range(repeats + 1):
        done, began = 0, time.process_time()
        for count in batches():
            done += count
            if done >= tokens:
                break
        if repeat:
            found.append(done / (time.process_time() - began))
    return statistics.median(found)


def ours(folder: Path, sequence: int, isolate: bool) -> Callable[[], Iterator[int]]:
    loader = Loader(open_samples([str(folder)], Options(sequence=sequence, seed=1, isolate=isolate)), BATCH, BATCH)

    def batches() -> Iterator[int]:
        seen = 0
        while True:
            data = loader.step(seen)
            seen = data.seen
            yield data.microbatches[0].tokens.numel()

    return batches


def peers(folder: Path, sequence: int, scratch: Path) -> dict[str, Callable[[], Iterator[int]]]:
    """Hugging Face datasets over the same samples: saved, memory-mapped, shuffled."""
    import datasets
    from transformers import default_data_collator

    datasets.disable_progress_bars()
    samples = open_samples([str(folder)], Options(sequence=sequence, shuffle=False, isolate=False))
    features = datasets.Features({"input_ids": datasets.Sequence(datasets.Value("int32"))})

    def rows() -> Iterator[dict]:
        for n in range(samples.counts[0]):
            yield {"input_ids": samples.batch([samples.locate(n)]).tokens[0].tolist()}

    made = datasets.Dataset.from_generator(rows, features=features, cache_dir=str(scratch / "cache"))
    made.save_to_disk(str(scratch / "saved"))
    shuffled = datasets.load_from_disk(str(scratch / "saved")).shuffle(seed=1)

    def trainer() -> Iterator[int]:
        for batch in torch.utils.data.DataLoader(shuffled, batch_size=BATCH, collate_fn=default_data_collator):
            yield batch["input_ids"].numel()

    def data_loader() -> Iterator[int]:
        for batch in torch.utils.data.DataLoader(shuffled.with_format("torch"), batch_size=BATCH):
            yield batch["input_ids"].long().numel()

    def torch_batches() -> Iterator[int]:
        for batch in shuffled.with_format("torch").iter(batch_size=BATCH):
            yield batch["input_ids"].long().numel()

    def numpy_batches() -> Iterator[int]:
        for batch in shuffled.with_format("numpy").iter(batch_size=BATCH):
            yield torch.from_numpy(batch["input_ids"]).long().numel()

    return {
        PEER: trainer,
        "datasets: DataLoader, torch format": data_loader,
        "datasets: whole batches, torch format": torch_batches,
        "datasets: whole batches, numpy format": numpy_batches,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequence", type=int, default=2048)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        prepare(["builtin:stdlib"], scratch / "data", workers=1, quiet=True)
        found = {
            "trainwright": rate(ours(scratch / "data", args.sequence, True), 20_000_000),
            "trainwright, documents not isolated": rate(ours(scratch / "data", args.sequence, False), 20_000_000),
        }
        for form, batches in peers(scratch / "data", args.sequence, scratch).items():
            found[form] = rate(batches, 2_000_000)
    ratio = found["trainwright"] / found[PEER]
    passed = found["trainwright"] >= FLOOR_RATE and ratio >= FLOOR_RATIO
    if args.json:
        print(json.dumps({"sequence": args.sequence, "tokens_per_cpu_s": found, "ratio": ratio, "passed": passed}))
    else:
        for name, value in found.items():
            print(f"{name:<40} {value / 1e6:8.1f} M tokens/s a core")
        print(f"{'trainwright / Trainer':<40} {ratio:8.1f} x")
        print(f"{'pass' if passed else 'FAIL'}: at least {FLOOR_RATE / 1e6:.0f} M tokens/s and {FLOOR_RATIO:g} x")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
