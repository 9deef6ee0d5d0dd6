"""Activation offload: bit for bit the same training, with and without recomputation and compiled blocks; what goes to
the host comes back, and nothing stays there."""

import gc
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from trainwright.errors import UserError
from trainwright.train.config import TrainConfig
from trainwright.train.data.batch import Batch
from trainwright.train.engine import Engine, EngineOptions
from trainwright.train.models.shape import lookup
from trainwright.train.parallel import offload
from trainwright.train.parallel.offload import ActivationOffload, apply_offload, rounded_up
from trainwright.train.parallel.plan import ParallelPlan

LLAMA = replace(lookup("llama3.1-8b-debug"), vocab=256)


def trained(
    shape=LLAMA, device="cpu", steps=3, length=40, rows=4, documents=True, **options
) -> tuple[Engine, list[tuple]]:
    """Steps of two micro-batches."""
    engine = Engine(shape, ParallelPlan(), EngineOptions(**options), device)
    outputs = []
    for step in range(steps):
        generator = torch.Generator().manual_seed(step)
        tokens = torch.randint(0, shape.vocab, (rows, length + 1), generator=generator)
        index = torch.arange(length).expand(rows, -1)
        batches = [
            Batch(tokens[part, :-1], tokens[part, 1:], index[part], index[part] // 17 if documents else None)
            for part in (slice(0, rows // 2), slice(rows // 2, rows))
        ]
        out = engine.train_step(batches, 1e-3)
        outputs.append((float(out.loss), float(out.grad_norm)))
    return engine, outputs


def bytes_to_host(engine: Engine) -> int:
    """What was in host memory at once; all of it is free again."""
    kept = engine.offload
    assert kept is not None
    assert sum(buffer.nbytes for buffers in kept.free.values() for buffer in buffers) == kept.host_bytes
    return kept.host_bytes


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("llama3.1-8b-debug", {}),
        ("llama3.1-8b-debug", {"precision": "bf16", "recompute": "selective"}),
        ("mixtral-8x7b-debug", {}),
        pytest.param("llama3.1-8b-debug", {"compile": True, "recompute": "full"}, marks=pytest.mark.slow),
    ],
    ids=["plain", "selective", "experts", "compiled"],
)
def test_training_is_the_same_bit_for_bit(name, options, monkeypatch):
    monkeypatch.setattr(offload, "SMALLEST", 0)
    shape = replace(lookup(name), vocab=256)
    (plain, wanted), (engine, got) = trained(shape, **options), trained(shape, **options, offload_activations=1.0)
    assert got == wanted
    for param, right in zip(engine.params.values(), plain.params.values(), strict=True):
        assert torch.equal(param, right)
    assert bytes_to_host(engine) > 0


def test_recomputed_blocks_send_their_input_alone(monkeypatch):
    monkeypatch.setattr(offload, "SMALLEST", 0)
    engine, _ = trained(offload_activations=1.0, recompute="full")
    each = 2 * 40 * LLAMA.hidden * 4  # one micro-batch
    assert bytes_to_host(engine) == LLAMA.layers * rounded_up(each)
    half, _ = trained(offload_activations=0.5, recompute="full")
    assert bytes_to_host(half) == LLAMA.layers // 2 * rounded_up(each)


def test_nothing_that_outlives_the_layer_is_copied(monkeypatch):
    """Neither weights, nor the rotary tables that all layers share; and small tensors are not worth it."""
    sources = []
    copy = ActivationOffload.to_host
    monkeypatch.setattr(ActivationOffload, "to_host", lambda self, t: (sources.append(t.data_ptr()), copy(self, t))[1])
    trained(offload_activations=1.0, steps=1)
    assert not sources
    monkeypatch.setattr(offload, "SMALLEST", 0)
    engine, _ = trained(offload_activations=1.0, steps=1)
    assert sources
    assert not {param.data_ptr() for param in engine.params.values()} & set(sources)


class LateStream:
    """Stands for the GPU's stream of copies: each is done as late as the events allow, when compute waits for it.
    Memory that was freed before is then gone, and counted."""

    def __init__(self) -> None:
        self.copies, self.done, self.lost, self.waits = [], 0, 0, 0

    def wait_stream(self, compute) -> None:
        """What compute has launched is done at once here."""

    def record_event(self) -> int:
        return len(self.copies)

    def wait_event(self, event: int) -> None:
        """Of the compute stream, for which this stands as well."""
        self.waits += 1
        for target, source in self.copies[self.done : event]:
            memories = [torch.UntypedStorage._new_with_weak_ptr(place[0].cdata) for place in (target, source)]
            if None in memories:
                self.lost += 1
                continue
            to, of = (
                torch.empty(0, dtype=torch.uint8).set_(memory, *place[1:])
                for memory, place in zip(memories, (target, source), strict=True)
            )
            to.copy_(of)
        self.done = max(self.done, event)


class Queued(TorchDispatchMode):
    def __init__(self, stream: LateStream) -> None:
        super().__init__()
        self.stream = stream

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is not torch.ops.aten.copy_.default:
            return func(*args, **(kwargs or {}))
        places = [(StorageWeakRef(x.untyped_storage()), x.storage_offset(), x.shape, x.stride()) for x in args[:2]]
        self.stream.copies.append(places)
        return args[0]


@pytest.mark.parametrize("options", [{}, {"recompute": "full", "offload_activations": 0.5}], ids=["all", "half"])
def test_copies_that_come_as_late_as_they_may_change_nothing(options, monkeypatch):
    """The order of a GPU's streams, played by one process: memory is freed after its copy, and used after it."""
    monkeypatch.setattr(offload, "SMALLEST", 0)
    stream = LateStream()
    _, wanted = trained(steps=2, **{k: v for k, v in options.items() if k == "recompute"})
    host = offload.HostMemory
    monkeypatch.setattr(offload, "HostMemory", lambda size, pinned: host(size, pinned=False))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _device: stream)
    monkeypatch.setattr(torch.cuda, "stream", Queued)
    begin = ActivationOffload.__init__

    def with_stream(self, device):
        begin(self, device)
        self.stream = stream

    monkeypatch.setattr(ActivationOffload, "__init__", with_stream)
    engine, got = trained(steps=2, **{"offload_activations": 1.0, **options})
    assert got == wanted
    assert stream.lost == 0
    assert stream.waits > LLAMA.layers
    assert bytes_to_host(engine) > 0


@pytest.mark.parametrize(("share", "chosen"), [(1.0, [0, 1, 2, 3]), (0.5, [0, 2]), (0.25, [0]), (0.6, [0, 1, 3])])
def test_a_share_of_the_layers_is_spread_evenly(share, chosen):
    class Layer:
        forward = None

    layers = [Layer() for _ in range(4)]
    apply_offload(SimpleNamespace(layers=lambda: layers), share, ActivationOffload(torch.device("cpu")))
    assert [at for at, layer in enumerate(layers) if layer.forward is not None] == chosen


def test_more_than_all_layers_is_refused():
    with pytest.raises(UserError, match="at most 1"):
        TrainConfig(offload_activations=1.5)


@pytest.fixture
def deterministic():
    """Kernels that give the same bits each time, for this test alone."""
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_memory_falls_on_a_gpu_and_the_loss_is_the_same(recompute, compiled, deterministic):
    """Wide enough for copies that last: a race between the streams would show in the loss."""
    shape = replace(LLAMA, hidden=1024, heads=8, kv_heads=4, head_dim=128, ffn=1024, layers=12)
    common = {"precision": "bf16", "compile": compiled, "recompute": recompute, "deterministic": True}
    results = []
    for share in (0.0, 1.0):
        size = {"device": "cuda", "length": 4096, "rows": 16, "documents": False}
        engine, outputs = trained(shape, **size, **common, offload_activations=share)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        tokens = torch.zeros(8, 4096, dtype=torch.long)
        engine.forward_backward([Batch(tokens, tokens, torch.arange(4096).expand(8, -1))])
        results.append((outputs, torch.cuda.max_memory_allocated() - before))
        engine.discard()
        del engine
        gc.collect()
    (wanted, whole), (got, less) = results
    assert got == wanted
    inputs = 11 * 8 * 4096 * 1024 * 2  # of the layers but one; gradients of the weights take some of it again
    assert less < (whole - inputs // 2 if recompute == "full" else 0.6 * whole), (whole, less)
