"""Matrix products by cuBLASLt with the fastest of the algorithms it proposes. torch takes the first one, which for the
products of small models is up to a quarter slower. The first product of a size is timed with each of them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from itertools import product as combinations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

WORKSPACE = 32 << 20
PROPOSALS = 12
ROUNDS, REPEATS = 4, 2
WORTH = 0.98  # of the time of torch's own choice: what is not faster than this may be noise
SMALLEST = 1e10  # operations of a product that is worth choosing for
ALIGNMENT = 256  # bytes; algorithms are proposed for matrices that begin at multiples of it, cuBLASLt's default
MOST_SIZES = 256  # where sizes change from step to step, choosing would never end
COMPUTE_32F, REAL_32F, REAL_16BF = 68, 0, 14  # of cuBLAS
TRANSPOSE_A, TRANSPOSE_B, EPILOGUE, BIAS_POINTER, ADD_BIAS, MAX_WORKSPACE = 3, 4, 7, 8, 4, 1


class _Proposal(ctypes.Structure):
    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8), ("workspace", ctypes.c_size_t), ("state", ctypes.c_int),
        ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4),
    )  # fmt: skip


@dataclass(frozen=True)
class _Plan:
    """A product of one size: what cublasLtMatmul takes beside the addresses."""

    description: Any
    layouts: tuple[Any, Any, Any]
    proposals: Any
    count: int


@cache
def library() -> tuple[Any, Any] | str:
    """cuBLASLt as torch has loaded it, and a handle; or why it cannot be used."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
        path = next((line.split()[-1] for line in lines if "libcublasLt.so" in line), None)
        if path is None:
            return "torch has not loaded it"
        loaded, handle = ctypes.CDLL(path), ctypes.c_void_p()
        status = loaded.cublasLtCreate(ctypes.byref(handle))
    except (OSError, AttributeError) as error:
        return str(error)
    return f"status {status} at its start" if status else (loaded, handle)


class Products:
    """The products of one device."""

    def __init__(self) -> None:
        self.plans: dict[tuple[Any, ...], tuple[_Plan, int] | None] = {}
        self.workspace: Tensor | None = None

    def __call__(
        self, left: Tensor, right: Tensor, transpose_left: bool, transpose_right: bool, bias: Tensor | None = None
    ) -> Tensor:
        a, b = left.t() if transpose_left else left, right.t() if transpose_right else right
        if not all(suits(x) for x in (left, right, bias) if x is not None):
            return plain(a, b, bias)
        key = (*a.shape, b.shape[1], transpose_left, transpose_right, bias is not None)
        if key not in self.plans:
            capturing, full = torch.cuda.is_current_stream_capturing(), len(self.plans) >= MOST_SIZES
            if capturing or full or 2.0 * a.shape[0] * a.shape[1] * b.shape[1] < SMALLEST:
                return plain(a, b, bias)
            self.plans[key] = self._choose(left, right, bias, *key)
        plan = self.plans[key]
        if plan is None:
            return plain(a, b, bias)
        out = left.new_empty(a.shape[0], b.shape[1])
        return out if self._run(*plan, left, right, bias, out) == 0 else plain(a, b, bias)

    def _choose(
        self, left: Tensor, right: Tensor, bias: Tensor | None, m: int, k: int, n: int, transpose_left: bool,
        transpose_right: bool, biased: bool,
    ) -> tuple[_Plan, int] | None:  # fmt: skip
        """The fastest proposal; None where torch's own choice is as fast."""
        loaded = library()
        if isinstance(loaded, str):
            return None
        if self.workspace is None:
            self.workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device=left.device)
        plan = make_plan(*loaded, m, k, n, transpose_left, transpose_right, biased)
        if plan is None:
            return None
        a, b = left.t() if transpose_left else left, right.t() if transpose_right else right
        out = left.new_empty(m, n)
        works = [i for i in range(plan.count) if self._run(plan, i, left, right, bias, out) == 0]
        plain(a, b, bias)
        best = dict.fromkeys([-1, *works], float("inf"))
        for _, which in combinations(range(ROUNDS), best):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            begin.record()
            for _ in range(REPEATS):
                if which < 0:
                    plain(a, b, bias)
                else:
                    self._run(plan, which, left, right, bias, out)
            end.record()
            end.synchronize()
            best[which] = min(best[which], begin.elapsed_time(end))
        fastest = min(best, key=lambda which: best[which])
        return (plan, fastest) if fastest >= 0 and best[fastest] < WORTH * best[-1] else None

    def _run(self, plan: _Plan, which: int, left: Tensor, right: Tensor, bias: Tensor | None, out: Tensor) -> int:
        """cuBLAS numbers columns first: there the result is transposed, and the right factor comes first."""
        loaded = library()
        assert not isinstance(loaded, str)
        assert self.workspace is not None
        if bias is not None:
            set_attribute(loaded[0], plan.description, BIAS_POINTER, ctypes.c_void_p(bias.data_ptr()))
        one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        first, second, result = plan.layouts
        pointer = ctypes.c_void_p
        return loaded[0].cublasLtMatmul(  # type: ignore[no-any-return]
            loaded[1], plan.description, ctypes.byref(one), pointer(right.data_ptr()), first,
            pointer(left.data_ptr()), second, ctypes.byref(zero), pointer(out.data_ptr()), result,
            pointer(out.data_ptr()), result, ctypes.byref(plan.proposals[which]), pointer(self.workspace.data_ptr()),
            ctypes.c_size_t(WORKSPACE), pointer(torch.cuda.current_stream(out.device).cuda_stream),
        )  # fmt: skip


def plain(a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
    return a @ b if bias is None else torch.addmm(bias, a, b)


def set_attribute(loaded: Any, description: Any, attribute: int, value: Any) -> None:
    loaded.cublasLtMatmulDescSetAttribute(
        description, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))
    )


def suits(x: Tensor) -> bool:
    """Whether a plan, which knows sizes alone, is for such numbers at such an address."""
    return x.dtype == torch.bfloat16 and x.data_ptr() % ALIGNMENT == 0


def make_plan(
    loaded: Any, handle: Any, m: int, k: int, n: int, transpose_left: bool, transpose_right: bool, biased: bool
) -> _Plan | None:
    description, preference = ctypes.c_void_p(), ctypes.c_void_p()
    loaded.cublasLtMatmulDescCreate(ctypes.byref(description), COMPUTE_32F, REAL_32F)
    set_attribute(loaded, description, TRANSPOSE_A, ctypes.c_int(transpose_right))
    set_attribute(loaded, description, TRANSPOSE_B, ctypes.c_int(transpose_left))
    if biased:
        set_attribute(loaded, description, EPILOGUE, ctypes.c_int(ADD_BIAS))
    first = layout(loaded, *((k, n) if transpose_right else (n, k)))
    second = layout(loaded, *((m, k) if transpose_left else (k, m)))
    result = layout(loaded, n, m)
    loaded.cublasLtMatmulPreferenceCreate(ctypes.byref(preference))
    size = ctypes.c_size_t(WORKSPACE)
    loaded.cublasLtMatmulPreferenceSetAttribute(
        preference, MAX_WORKSPACE, ctypes.byref(size), ctypes.c_size_t(ctypes.sizeof(size))
    )
    proposals, count = (_Proposal * PROPOSALS)(), ctypes.c_int()
    status = loaded.cublasLtMatmulAlgoGetHeuristic(
        handle, description, first, second, result, result, preference, PROPOSALS, proposals, ctypes.byref(count)
    )
    return _Plan(description, (first, second, result), proposals, count.value) if status == 0 and count.value else None


def layout(loaded: Any, rows: int, columns: int) -> Any:
    """A matrix of bf16 numbers, column after column."""
    made = ctypes.c_void_p()
    loaded.cublasLtMatrixLayoutCreate(
        ctypes.byref(made), REAL_16BF, ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows)
    )
    return made


@cache
def products(device: torch.device) -> Products:
    return Products()
