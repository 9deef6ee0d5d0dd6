"""What only a GPU can show: the Triton kernels against their plain forms, float8, compiled against eager blocks."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from trainwright.train.data.batch import Batch
from trainwright.train.engine import Engine, EngineOptions
from trainwright.train.float8.layers import LAYERS
from trainwright.train.float8.recipes import RECIPES, lacking
from trainwright.train.kernels.adamw import adamw_split, join, split
from trainwright.train.loss import IGNORED, chunked_cross_entropy
from trainwright.train.models.shape import lookup
from trainwright.train.parallel.plan import ParallelPlan

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]


def random_batch(vocab: int, documents: bool) -> Batch:
    tokens = torch.randint(0, vocab, (2, 513))
    index = torch.arange(512).expand(2, -1).contiguous()
    return Batch(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), index, index // 200 if documents else None)


@pytest.mark.parametrize("vocab", [1000, 50257, 128256])
def test_loss_kernel_is_cross_entropy(vocab, monkeypatch):
    monkeypatch.setattr("trainwright.train.loss.CHUNK_BYTES", 1 << 24)
    # Small, so that the rounding of bf16 logits stays small in their softmax.
    hidden = (torch.randn(700, 64, device="cuda") / 10).bfloat16().requires_grad_()
    weight = torch.randn(vocab, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    targets = torch.randint(0, vocab, (700,), device="cuda")
    targets[::7] = IGNORED
    scale = torch.tensor(1 / 600, device="cuda")
    loss = chunked_cross_entropy(hidden, weight, targets, scale)
    grads = torch.autograd.grad(loss, (hidden, weight))
    exact = [hidden.detach().double().requires_grad_(), weight.detach().double().requires_grad_()]
    wanted = F.cross_entropy(exact[0] @ exact[1].t(), targets, ignore_index=IGNORED, reduction="sum") / 600
    assert float(loss) == pytest.approx(float(wanted), rel=1e-3)
    for got, right in zip(grads, torch.autograd.grad(wanted, exact), strict=True):
        assert float((got.double() - right).norm() / right.norm()) < 1e-2


def test_adamw_kernel_is_its_plain_form():
    value, grad = torch.randn(100_003), torch.randn(100_003).bfloat16()
    states = []
    for device in ("cpu", "cuda"):
        high, low = torch.empty(100_003, dtype=torch.bfloat16), torch.empty(100_003, dtype=torch.int16)
        split(value, high, low)
        state = [t.to(device) for t in (high, low, torch.zeros(100_003), torch.zeros(100_003))]
        for step in (1, 2, 3):
            named = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "decay": 0.1, "step": step}
            adamw_split((*state, grad.to(device)), torch.tensor(0.5, device=device), **named)
        states.append(join(state[0].cpu(), state[1].cpu()))
    assert torch.allclose(states[0], states[1], atol=1e-6)
    assert not torch.allclose(states[0], value, atol=1e-4)


@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.parametrize("mode", ["none", "selective"])
@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_compiled_blocks_train_as_eager_cpu_ones(precision, mode, documents):
    torch.manual_seed(0)
    shape = replace(lookup("llama3.1-8b-debug"), head_dim=32)
    batch = random_batch(shape.vocab, documents)
    options = EngineOptions(precision=precision, compile=True, recompute=mode)
    engine, judge = (
        Engine(shape, ParallelPlan(), options, "cuda"),
        Engine(shape, ParallelPlan(), EngineOptions(), "cpu"),
    )
    for name, param in judge.params.items():
        engine.optimizer.write(name, param.detach().cuda())
    for _ in range(3):
        got, right = engine.train_step([batch], 1e-4), judge.train_step([batch], 1e-4)
        assert float(got.loss) == pytest.approx(float(right.loss), rel=5e-4 if precision == "bf16" else 2e-3)
        assert float(got.grad_norm) == pytest.approx(float(right.grad_norm), rel=0.01 if precision == "bf16" else 0.05)


def of_this_card(recipe: str) -> str:
    lack = lacking(recipe, torch.cuda.get_device_capability())
    if lack:
        pytest.skip(f"{recipe} needs {lack}")
    return recipe


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("tokens", [256, 200])
def test_float8_products_are_those_of_the_cpu(recipe, tokens):
    """The hardware's products of matrices with an outlier, beside the same casts multiplied in fp32."""
    layer = LAYERS[of_this_card(recipe)]
    torch.manual_seed(0)
    x, weight = torch.randn(tokens, 512).bfloat16(), (torch.randn(384, 512) / 50).bfloat16()
    x[3, 5], upstream = 300, torch.randn(tokens, 384).bfloat16()
    results = []
    for device in ("cuda", "cpu"):
        left, right = (t.to(device).requires_grad_() for t in (x, weight))
        y = layer(left, right, None)
        results.append(
            [t.detach().cpu().double() for t in (y, *torch.autograd.grad(y, (left, right), upstream.to(device)))]
        )
    for got, wanted in zip(*results, strict=True):
        # The forward accumulates in fewer bits where the recipe lets it.
        assert float((got - wanted).norm() / wanted.norm()) < 5e-3


@pytest.mark.parametrize("mode", ["none", "selective"])
@pytest.mark.parametrize("recipe", [name for name in RECIPES if name != "tensorwise"])
def test_compiled_float8_recipes_train_as_bf16(recipe, mode):
    torch.manual_seed(0)
    shape = replace(lookup("llama3.1-8b-debug"), hidden=256, ffn=512, heads=8, kv_heads=4, head_dim=32)
    batch = random_batch(shape.vocab, documents=True)
    curves = []
    for precision in ("fp8", "bf16"):
        options = EngineOptions(precision=precision, float8=of_this_card(recipe), compile=True, recompute=mode)
        engine = Engine(shape, ParallelPlan(), options, "cuda")
        curves.append([engine.train_step([batch], 1e-3) for _ in range(4)])
    for got, right in zip(*curves, strict=True):
        assert float(got.loss) == pytest.approx(float(right.loss), rel=4e-3)
        assert float(got.grad_norm) == pytest.approx(float(right.grad_norm), rel=0.05)
    assert float(got.loss) < 0.99 * float(curves[0][0].loss)


@pytest.mark.parametrize("recompute", ["none", "selective"])
@pytest.mark.parametrize("mixed", [0, 1, 3])
def test_rows_with_one_document_in_the_causal_kernel_give_the_same_step(mixed, recompute):
    """Only the first rows hold two documents; FlexAttention for all rows, or for those alone, is the same step."""
    torch.manual_seed(0)
    shape = replace(lookup("llama3.1-8b-debug"), head_dim=32)
    batch = random_batch(shape.vocab, documents=False)
    tokens, targets, positions = (torch.cat([t, t]) for t in (batch.tokens, batch.targets, batch.positions))
    documents = torch.zeros(4, 512, dtype=torch.int64)
    documents[:mixed, 200:] = 1
    steps = []
    for known in (None, mixed):
        engine = Engine(
            shape, ParallelPlan(), EngineOptions(precision="bf16", compile=True, recompute=recompute), "cuda"
        )
        given = Batch(tokens, targets, positions, documents, known)
        steps.append([engine.train_step([given], 1e-3) for _ in range(3)])
    for one, other in zip(*steps, strict=True):
        assert float(one.loss) == pytest.approx(float(other.loss), rel=1e-3)
        assert float(one.grad_norm) == pytest.approx(float(other.grad_norm), rel=0.02)


def test_the_largest_micro_batch_that_fits_is_chosen(tmp_path):
    from single import corpus, settings

    from trainwright.train.setup import assemble
    from trainwright.train.world import World

    config = replace(settings(corpus(tmp_path), tmp_path / "run"), micro_batch=0, batch=8, compile=False)
    parts = assemble(config, World(0, 1, 0, torch.device("cuda")))
    assert parts.config.micro_batch == 8
    assert (tmp_path / "run" / "micro_batch.json").exists()


def test_a_step_that_is_not_finite_leaves_the_weights_alone():
    """The GPU decides by itself; the host reads the loss a step later."""
    shape = replace(lookup("llama3.1-8b-debug"), head_dim=32)
    engine = Engine(shape, ParallelPlan(), EngineOptions(precision="bf16"), "cuda")
    engine.train_step([random_batch(shape.vocab, documents=False)], 1e-3)
    before = {name: engine.optimizer.read(name).clone() for name in engine.params}
    engine.forward_backward([random_batch(shape.vocab, documents=False)])
    next(iter(engine.params.values())).grad[0, 0] = torch.nan
    assert not torch.isfinite(engine.optimizer_step(1e-3))
    assert all(torch.equal(engine.optimizer.read(name), value) for name, value in before.items())
    engine.train_step([random_batch(shape.vocab, documents=False)], 1e-3)
    assert all(torch.isfinite(engine.optimizer.read(name)).all() for name in engine.params)


def test_attention_within_images_is_its_plain_form():
    from trainwright.train.kernels.image_attention import _attend_plain, attend_images

    groups = ((3, 197), (5, 37))
    qkv = torch.randn(3 * 197 + 5 * 37, 6, 3, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    exact = qkv.detach().double().requires_grad_()
    upstream = torch.randn(len(qkv), 6, 64, device="cuda", dtype=torch.bfloat16)
    got, right = attend_images(qkv, groups), _attend_plain(exact, groups)
    grads = [torch.autograd.grad(o, x, upstream.to(o.dtype))[0] for o, x in ((got, qkv), (right, exact))]
    for one, other in ((got, right), grads):
        assert float((one.double() - other).norm() / other.norm()) < 1e-2


def test_a_replayed_step_is_the_step():
    """DINO on the GPU, its steps replayed as a CUDA graph or launched one by one, with different batches."""
    from trainwright.train.data.image_batch import ImageBatch
    from trainwright.train.objectives.dino import Dino

    shape = replace(lookup("vit-s-16-debug"), head_dim=16)
    dice = torch.Generator().manual_seed(0)
    batches = [
        ImageBatch(
            torch.randint(0, 255, (4, 3, 36, 36), dtype=torch.uint8, generator=dice),
            torch.zeros(4, dtype=torch.int64),
            torch.rand(4, 160, generator=dice),
        )
        for _ in range(7)
    ]
    curves = []
    for replayed in (True, False):
        options = EngineOptions(precision="bf16", compile=True, attention="flash")
        engine = Engine(shape, ParallelPlan(), options, "cuda", Dino(shape))
        engine.graph = engine.graph if replayed else None
        outs = [engine.train_step([batch], 1e-3) for batch in batches]
        curves.append([(float(out.loss), float(out.grad_norm)) for out in outs])
        assert not replayed or engine.graph.recordings
    for one, other in zip(*curves, strict=True):
        assert one == pytest.approx(other, rel=1e-3)


@pytest.mark.parametrize(
    ("transpose_left", "transpose_right", "biased"),
    [(False, True, False), (False, True, True), (False, False, False), (True, False, False)],
)
def test_chosen_products_are_products(transpose_left, transpose_right, biased):
    """Every proposal of cuBLASLt, for the three products of a linear layer, and within a CUDA graph."""
    from trainwright.train.kernels.cublaslt import Products

    m, k, n = 4096, 1024, 1536
    left = torch.randn((k, m) if transpose_left else (m, k), device="cuda", dtype=torch.bfloat16)
    right = torch.randn((n, k) if transpose_right else (k, n), device="cuda", dtype=torch.bfloat16)
    a, b = left.t() if transpose_left else left, right.t() if transpose_right else right
    bias = torch.randn(n, device="cuda", dtype=torch.bfloat16) * 30 if biased else None
    exact = a.double() @ b.double() + (0 if bias is None else bias.double())
    products = Products()
    first = products(left, right, transpose_left, transpose_right, bias)
    (key,) = products.plans
    from trainwright.train.kernels.cublaslt import library, make_plan

    plan = make_plan(*library(), *key)
    assert plan is not None
    for which in range(plan.count):
        products.plans[key] = plan, which
        graph, out = torch.cuda.CUDAGraph(), products(left, right, transpose_left, transpose_right, bias)
        with torch.cuda.graph(graph):
            recorded = products(left, right, transpose_left, transpose_right, bias)
        graph.replay()
        for got in (first, out, recorded):
            assert float((got.double() - exact).norm() / exact.norm()) < 5e-3


def test_reading_a_step_does_not_wait_for_the_next():
    from trainwright.train.readback import Readback

    values = Readback(torch.tensor(1.5, device="cuda"), torch.tensor(2.5, device="cuda"))
    wide = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    wide @ wide
    torch.cuda.synchronize()
    for _ in range(400):
        wide @ wide
    assert values.read() == [1.5, 2.5]
    assert not torch.cuda.current_stream().query()


@pytest.fixture
def fake_ranks():
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield
    dist.destroy_process_group()


def test_async_tensor_parallelism_is_in_the_compiled_code(fake_ranks):
    """With torch's fake process group, one GPU stands for two: the code of a whole step is generated and run."""
    from torch._inductor import config as inductor
    from torch._inductor.utils import fresh_cache, run_and_get_code
    from torch.distributed import _symmetric_memory as symmetric

    shape = replace(lookup("llama3.1-8b-debug"), hidden=256, ffn=512, heads=8, kv_heads=4, head_dim=32)
    options = EngineOptions(precision="bf16", compile=True, async_tp=True)
    try:
        with symmetric._test_mode(), fresh_cache():
            engine = Engine(shape, ParallelPlan(tp=2), options, "cuda")
            batch = random_batch(shape.vocab, documents=False)
            _, code = run_and_get_code(engine.train_step, [batch], 1e-4)
    finally:
        inductor._micro_pipeline_tp = False
    whole = "\n".join(code)
    assert "fused_all_gather_matmul" in whole
    assert "fused_matmul_reduce_scatter" in whole


def test_float8_gathers_compile(fake_ranks):
    """FSDP's weights in float8 enter the compiled blocks; the fake gather gives no numbers to compare."""
    shape = replace(lookup("llama3.1-8b-debug"), hidden=256, ffn=512, heads=8, kv_heads=4, head_dim=32)
    options = EngineOptions(precision="fp8", float8_gather=True, compile=True)
    engine = Engine(shape, ParallelPlan(shard=2), options, "cuda")
    for _ in range(2):
        engine.train_step([random_batch(shape.vocab, documents=False)], 1e-4)
    torch.cuda.synchronize()
    assert len(engine.gathered.shards) == 5 * shape.layers
