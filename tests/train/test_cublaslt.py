"""How products come to cuBLASLt, without a GPU: what is passed by address is what the C headers say, and a product that
cuBLASLt cannot take is torch's own. tests/train/test_engine_gpu.py runs the algorithms themselves."""

import ctypes
from types import SimpleNamespace

import pytest
import torch

from trainwright.train.kernels import cublaslt
from trainwright.train.kernels.cublaslt import Products
from trainwright.train.models.decoder import Decoder, Linear
from trainwright.train.models.shape import lookup
from trainwright.train.products import choose_products


class Recorder:
    """Stands for libcublasLt: every call succeeds and is kept; so many algorithms are proposed."""

    def __init__(self, proposals: int = 1, status: int = 0) -> None:
        self.proposals, self.status, self.calls = proposals, status, []

    def __getattr__(self, name: str):
        def call(*arguments):
            self.calls.append((name, arguments))
            if name == "cublasLtMatmulAlgoGetHeuristic":
                arguments[-1]._obj.value = self.proposals
            return self.status if name == "cublasLtMatmul" else 0

        return call

    def named(self, name: str) -> list[tuple]:
        return [arguments for called, arguments in self.calls if called == name]


def test_values_and_offsets_are_those_of_the_headers():
    """library_types.h, cublas_api.h and cublasLt.h of cuBLAS 13.8, compiled: CUDA_R_32F, CUDA_R_16BF,
    CUBLAS_COMPUTE_32F, CUBLASLT_MATMUL_DESC_TRANSA, _TRANSB, _EPILOGUE, _BIAS_POINTER, CUBLASLT_EPILOGUE_BIAS,
    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, and cublasLtMatmulHeuristicResult_t."""
    assert (cublaslt.REAL_32F, cublaslt.REAL_16BF, cublaslt.COMPUTE_32F) == (0, 14, 68)
    assert (cublaslt.TRANSPOSE_A, cublaslt.TRANSPOSE_B, cublaslt.EPILOGUE, cublaslt.BIAS_POINTER) == (3, 4, 7, 8)
    assert (cublaslt.ADD_BIAS, cublaslt.MAX_WORKSPACE) == (4, 1)
    result = cublaslt._Proposal
    offsets = {name: getattr(result, name).offset for name, _ in result._fields_}
    assert offsets == {"algorithm": 0, "workspace": 64, "state": 72, "waves": 76, "reserved": 80}
    assert ctypes.sizeof(result) == 96


@pytest.mark.parametrize("transpose_left", [False, True])
@pytest.mark.parametrize("transpose_right", [False, True])
def test_layouts_are_the_transposed_product(transpose_left, transpose_right):
    """A row-major matrix is its transpose to cuBLAS: it computes right.t() @ left.t(), of n rows and m columns."""
    library, (m, k, n) = Recorder(), (6, 4, 10)
    assert cublaslt.make_plan(library, None, m, k, n, transpose_left, transpose_right, True) is not None
    layouts = [tuple(x.value for x in made[2:]) for made in library.named("cublasLtMatrixLayoutCreate")]
    first, second = (k, n) if transpose_right else (n, k), (m, k) if transpose_left else (k, m)
    assert layouts == [(*first, first[0]), (*second, second[0]), (n, m, n)]
    attributes = {at: value._obj.value for _, at, value, _ in library.named("cublasLtMatmulDescSetAttribute")}
    assert attributes == {3: int(transpose_right), 4: int(transpose_left), 7: 4}
    assert all(size.value == 4 for *_, size in library.named("cublasLtMatmulDescSetAttribute"))


@pytest.fixture
def chosen(monkeypatch):
    """Products whose plan for 2 x 128 by 128 x 128 is the only proposal of a recorder, which computes nothing."""

    def make(status: int = 0):
        recorder = Recorder(status=status)
        monkeypatch.setattr(cublaslt, "library", lambda: (recorder, None))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda _: SimpleNamespace(cuda_stream=0))
        products = Products()
        products.workspace = torch.empty(1)
        plan = cublaslt.make_plan(recorder, None, 2, 128, 128, False, True, False)
        products.plans[2, 128, 128, False, True, False] = plan, 0
        return products, recorder

    return make


def aligned(rows: int, dtype: torch.dtype, offset: int = 0) -> torch.Tensor:
    """[rows, 128] so many numbers behind an address that is a multiple of 256."""
    memory = torch.randn(rows * 128 + 512).to(dtype)
    start = -memory.data_ptr() % 256 // memory.element_size() + offset
    return memory[start : start + rows * 128].view(rows, 128)


def test_a_plan_is_run_on_the_addresses_of_the_product(chosen):
    products, recorder = chosen()
    left, right = aligned(2, torch.bfloat16), aligned(128, torch.bfloat16)
    out = products(left, right, False, True)
    ((_, _, one, first, _, second, _, zero, third, _, to, _, _, space, size, _),) = recorder.named("cublasLtMatmul")
    assert [x.value for x in (first, second, third, to)] == [x.data_ptr() for x in (right, left, out, out)]
    assert (one._obj.value, zero._obj.value, size.value) == (1.0, 0.0, cublaslt.WORKSPACE)
    assert space.value == products.workspace.data_ptr()


@pytest.mark.parametrize(("dtype", "offset"), [(torch.float32, 0), (torch.bfloat16, 8)])
def test_other_types_and_alignments_than_a_plan_is_for_are_torchs_own(chosen, dtype, offset):
    """Algorithms are proposed for bf16 at addresses that are multiples of 256, cuBLASLt's default."""
    products, recorder = chosen()
    left, right = aligned(2, dtype, offset), aligned(128, dtype)
    torch.testing.assert_close(products(left, right, False, True), left @ right.t())
    assert not recorder.named("cublasLtMatmul")


def test_a_product_that_fails_is_torchs_own(chosen):
    products, recorder = chosen(status=15)  # not supported
    left, right = aligned(2, torch.bfloat16), aligned(128, torch.bfloat16)
    torch.testing.assert_close(products(left, right, False, True), left @ right.t())
    assert recorder.named("cublasLtMatmul")


@pytest.mark.parametrize(
    ("maps", "reason"), [("", "torch has not loaded it"), ("7f00-7f01 r-xp /none/libcublasLt.so.13", "cannot open")]
)
def test_the_log_says_why_products_are_torchs_own(monkeypatch, maps, reason):
    monkeypatch.setattr(cublaslt, "Path", lambda _: SimpleNamespace(read_text=lambda encoding: maps))
    monkeypatch.setattr(cublaslt, "library", cublaslt.library.__wrapped__)
    with torch.device("meta"):
        model = Decoder(lookup("llama3.1-8b-debug"))
    linear = [module for block in model.layers() for module in block.modules() if isinstance(module, Linear)]
    note = choose_products(model)
    assert "cuBLASLt cannot be used" in note
    assert reason in note
    assert all(module.product is Linear.product for module in linear)
    monkeypatch.setattr(cublaslt, "library", lambda: (Recorder(), None))
    assert "timed at its first use" in choose_products(model)
    assert all(module.product is not Linear.product for module in linear)
