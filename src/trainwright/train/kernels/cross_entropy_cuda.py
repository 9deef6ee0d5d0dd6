"""Softmax, loss and gradient of a chunk of logits in one kernel, in place, where a whole row fits into the shared
memory and the registers of one block of threads: each row is then read from memory once. The Triton form reads it
twice, because more rows are in flight than the cache holds."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor

WIDTH = 8  # numbers that a thread loads at once
GROUP = 4  # such loads between two waits
MOST_IN_REGISTERS = 6  # such loads that a thread keeps in registers, where shared memory is full
TWO_BLOCKS, ONE_BLOCK = 112 << 10, 226 << 10  # bytes of shared memory, for two blocks per multiprocessor and for one

SOURCE = """
#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f
#define LOWEST -1e30f

__device__ __forceinline__ float low(unsigned pair) { return __uint_as_float(pair << 16) * LOG2E; }
__device__ __forceinline__ float high(unsigned pair) { return __uint_as_float(pair & 0xffff0000u) * LOG2E; }
__device__ __forceinline__ float power(float x) {
    float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y;
}
__device__ __forceinline__ unsigned pack(float a, float b) {
    unsigned pair; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a)); return pair;
}
template <int N> __device__ __forceinline__ void wait() {
    asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory");
}

struct Eight { float x[8]; };

__device__ __forceinline__ Eight scores(uint4 v, int column, int vocab) {
    Eight e = {{low(v.x), high(v.x), low(v.y), high(v.y), low(v.z), high(v.z), low(v.w), high(v.w)}};
    if (column + 8 > vocab)
        #pragma unroll
        for (int n = 0; n < 8; n++) if (column + n >= vocab) e.x[n] = LOWEST;
    return e;
}

__device__ __forceinline__ void add(uint4 v, int column, int vocab, float &peak, float &total) {
    Eight e = scores(v, column, vocab);
    float most = e.x[0];
    #pragma unroll
    for (int n = 1; n < 8; n++) most = fmaxf(most, e.x[n]);
    if (most > peak) { total *= power(peak - most); peak = most; }
    #pragma unroll
    for (int n = 0; n < 8; n++) total += power(e.x[n] - peak);
}

__device__ __forceinline__ uint4 slope(uint4 v, int column, int vocab, float log_sum, float weight, int target) {
    Eight e = scores(v, column, vocab);
    #pragma unroll
    for (int n = 0; n < 8; n++) e.x[n] = power(e.x[n] - log_sum) * weight;
    if (target >= column && target < column + 8)
        #pragma unroll
        for (int n = 0; n < 8; n++) if (column + n == target) e.x[n] -= weight;
    uint4 out = {pack(e.x[0], e.x[1]), pack(e.x[2], e.x[3]), pack(e.x[4], e.x[5]), pack(e.x[6], e.x[7])};
    return out;
}

__device__ __forceinline__ void merge(float &peak, float &total, float other_peak, float other_total) {
    float most = fmaxf(peak, other_peak);
    total = total * power(peak - most) + other_total * power(other_peak - most);
    peak = most;
}

extern "C" __global__ void __launch_bounds__(THREADS) cross_entropy_rows(
    unsigned short *logits, const long long *targets, const float *scale, float *losses, int vocab, int columns,
    int ignored) {
    extern __shared__ uint4 held[];
    __shared__ float peaks[32], totals[32];
    const int thread = threadIdx.x;
    unsigned short *own = logits + (long long)blockIdx.x * columns;
    uint4 *row = (uint4 *)own;
    const int target = (int)targets[blockIdx.x];
    const float weight = target == ignored ? 0.0f : *scale;
    float picked = 0.0f;
    if (thread == 0) picked = __uint_as_float((unsigned)own[target < 0 ? 0 : target] << 16);
    const unsigned shared = (unsigned)__cvta_generic_to_shared(held) + thread * 16;
LOADS
    float peak = LOWEST, total = 0.0f;
SUMS
    #pragma unroll
    for (int far = 16; far; far >>= 1)
        merge(peak, total, __shfl_xor_sync(~0u, peak, far), __shfl_xor_sync(~0u, total, far));
    if (thread % 32 == 0) { peaks[thread / 32] = peak; totals[thread / 32] = total; }
    __syncthreads();
    peak = peaks[0]; total = totals[0];
    #pragma unroll
    for (int warp = 1; warp < THREADS / 32; warp++) merge(peak, total, peaks[warp], totals[warp]);
    const float log_sum = peak + __log2f(total);
    if (thread == 0) losses[blockIdx.x] = (log_sum * LN2 - picked) * weight;
STORES
}
"""


def source(columns: int, threads: int, in_shared: int, in_registers: int) -> str:
    """The kernel for one number of columns: every thread's loads, sums and stores are written out."""
    vectors = columns // WIDTH
    loads, sums, stores = [], [], []

    def inside(n: int) -> str:
        return f"if ({n * threads} + thread < {vectors}) " if (n + 1) * threads > vectors else ""

    for n in range(in_shared, in_shared + in_registers):
        at = f"{n * threads} + thread"
        loads.append(f"uint4 kept{n} = {{0, 0, 0, 0}}; {inside(n)}kept{n} = row[{at}];")
        sums.append(f"{inside(n)}add(kept{n}, ({at}) * 8, vocab, peak, total);")
        stores.append(f"{inside(n)}row[{at}] = slope(kept{n}, ({at}) * 8, vocab, log_sum, weight, target);")
    groups = -(-in_shared // GROUP)
    waits = []
    for group in range(groups):
        mine = range(group * GROUP, min(in_shared, (group + 1) * GROUP))
        for n in mine:
            to, where = f"shared + {n * threads * 16}", f"row + {n * threads} + thread"
            copy = f'asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"({to}), "l"({where}) : "memory");'
            loads.append(inside(n) + "{ " + copy + " }")
        loads.append('asm volatile("cp.async.commit_group;" ::: "memory");')
        waits.append(f"wait<{groups - 1 - group}>();")
        for n in mine:
            at = f"{n * threads} + thread"
            waits.append(f"{inside(n)}add(held[{at}], ({at}) * 8, vocab, peak, total);")
            stores.append(f"{inside(n)}row[{at}] = slope(held[{at}], ({at}) * 8, vocab, log_sum, weight, target);")
    text = SOURCE.replace("THREADS", str(threads)).replace("LOADS", "\n".join(loads))
    return text.replace("SUMS", "\n".join(waits + sums)).replace("STORES", "\n".join(stores))


def division(columns: int) -> tuple[int, int, int] | None:
    """(threads, loads of a thread into shared memory, loads into registers); None where a row does not fit."""
    vectors = columns // WIDTH
    if columns % WIDTH or columns < 8192:
        return None
    each = -(-vectors // 512)
    if each * 512 * 16 <= TWO_BLOCKS:
        return 512, each, 0
    each = -(-vectors // 1024)
    in_shared = min(each, ONE_BLOCK // (1024 * 16))
    return (1024, in_shared, each - in_shared) if each - in_shared <= MOST_IN_REGISTERS else None


@cache
def kernel(columns: int, device: torch.device) -> tuple[Any, int, int] | None:
    """(kernel, threads, bytes of shared memory); None where the row does not fit, or the GPU or torch lacks what is
    needed."""
    parts = division(columns)
    if parts is None or torch.cuda.get_device_capability(device) < (9, 0) or not hasattr(torch.cuda, "_compile_kernel"):
        return None
    threads, in_shared, _ = parts
    size = threads * in_shared * 16
    try:
        made = torch.cuda._compile_kernel(source(columns, *parts), "cross_entropy_rows")
        made.set_shared_memory_config(size)
    except (RuntimeError, OSError, AttributeError) as error:
        warnings.warn(f"the loss of {columns:,} columns takes its Triton kernel: {error}", stacklevel=2)
        return None
    return made, threads, size


def score(
    logits: Tensor, targets: Tensor, scale: Tensor, vocab: int, first_row: int, group: Any
) -> tuple[Tensor, Tensor]:
    """Summed loss, and `logits` overwritten by their gradient; columns from `vocab` on are padding."""
    made = kernel(logits.shape[1], logits.device) if len(targets) else None
    if made is None:
        from trainwright.train.kernels.cross_entropy_triton import score as by_triton

        return by_triton(logits, targets, scale, vocab, first_row, group)  # type: ignore[no-any-return]
    losses = torch.empty(len(targets), dtype=torch.float32, device=logits.device)
    values = [logits, targets.contiguous(), scale.float(), losses, vocab, logits.shape[1], -100]
    made[0]((len(targets), 1, 1), (made[1], 1, 1), values, shared_mem=made[2])
    return losses.sum(), logits
