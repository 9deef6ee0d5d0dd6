"""The loss kernel without a GPU: its source, as NVRTC gets it, is compiled as C++ with the few parts of CUDA that it
uses (cuda_block.h) and run thread by thread. That a GPU's compiler and memory agree, test_engine_gpu.py shows."""

import ctypes
import mmap
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from trainwright.train.data.batch import IGNORED
from trainwright.train.kernels.cross_entropy_cuda import MOST_IN_REGISTERS, ONE_BLOCK, WIDTH, division, kernel, source

# (vocabulary, columns, division); the last two as they are chosen.
CASES = [
    (2989, 3000, (64, 5, 1)),
    (2800, 3000, (96, 2, 2)),
    (50_257, 50_304, division(50_304)),
    (128_256, 128_256, division(128_256)),
]
NO_RESERVE = 0x4000  # of mmap(2), which Python 3.11 does not name
BARRIERS = 2 * 2 * 5 + 1  # of each thread: two in each exchange of two numbers in five steps, and one of its own
PLAIN = {
    r'asm\("ex2\.approx\.ftz\.f32 %0, %1;" : "=f"\((\w+)\) : "f"\((\w+)\)\)': r"\1 = exp2f(\2)",
    r'asm\("cvt\.rn\.bf16x2\.f32 %0, %1, %2;" : "=r"\((\w+)\) : "f"\((\w+)\), "f"\((\w+)\)\)': (
        r"\1 = bf16_pair(\2, \3)"
    ),
    r'asm volatile\("cp\.async\.wait_group %0;" :: "n"\(N\) : "memory"\)': "copy_wait(N)",
    r'asm volatile\("cp\.async\.commit_group;" ::: "memory"\)': "copy_commit()",
    r'asm volatile\("cp\.async\.cg\.shared\.global \[%0\], \[%1\], 16;" :: "r"\((.+?)\), "l"\((.+?)\) : "memory"\)': (
        r"copy_begin(\1, \2)"
    ),
    r"extern __shared__ uint4 held\[\];": "",
    r'extern "C" __global__': "__global__",
}


def as_plain_cpp(text: str) -> str:
    for pattern, plain in PLAIN.items():
        text, count = re.subn(pattern, plain, text)
        assert count, pattern
    assert "asm" not in text
    return text


@pytest.fixture(scope="module")
def block(tmp_path_factory):
    """Runs one block of one case's kernel, that is one row."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    folder = tmp_path_factory.mktemp("kernel")
    header = Path(__file__).with_name("cuda_block.h").read_text(encoding="utf-8")
    parts = [header.replace("ROUNDS", str(BARRIERS + 1))]
    for number, (_, columns, parted) in enumerate(CASES):
        threads, in_shared, _ = parted
        parts.append(f"namespace n{number} {{ {as_plain_cpp(source(columns, *parted))} }}")
        call = f"run_block(n{number}::cross_entropy_rows, arguments, block, {threads}, {threads * in_shared * 16})"
        parts.append(f'extern "C" void run{number}(Arguments arguments, int block) {{ {call}; }}')
    (folder / "kernel.cpp").write_text("\n".join(parts), encoding="utf-8")
    built = folder / "kernel.so"
    command = ["g++", "-w", "-O0", "-shared", "-fPIC", "-o", str(built), str(folder / "kernel.cpp")]
    made = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert made.returncode == 0, made.stderr
    library = ctypes.CDLL(str(built))

    class Arguments(ctypes.Structure):
        _fields_ = (
            *((name, ctypes.c_void_p) for name in ("logits", "targets", "scale", "losses")),
            *((name, ctypes.c_int) for name in ("vocab", "columns", "ignored")),
        )

    def run(case: int, row: int, logits: int, targets, scale, losses) -> None:
        addresses = (logits, *(x.data_ptr() for x in (targets, scale, losses)))
        getattr(library, f"run{case}")(Arguments(*addresses, *CASES[case][:2], IGNORED), row)

    return run


def judged(logits, targets, scale, vocab):
    exact = logits[:, :vocab].double().requires_grad_()
    loss = F.cross_entropy(exact, targets, ignore_index=IGNORED, reduction="none") * scale
    return loss.detach(), torch.autograd.grad(loss.sum(), exact)[0]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_kernel_is_cross_entropy(block, case):
    vocab, columns, _ = CASES[case]
    targets = torch.tensor([0, vocab - 1, IGNORED, vocab // 2])
    torch.manual_seed(0)
    logits = (torch.randn(len(targets), columns) * 4).bfloat16()
    logits[:, vocab:] = 1e4  # what lies behind the vocabulary must not count
    logits[1, vocab - 1], logits[3, :5] = 80.0, -torch.inf
    scale, losses, grad = torch.tensor(0.25), torch.full((len(targets),), torch.nan), logits.clone()
    for row in range(len(targets)):
        block(case, row, grad.data_ptr(), targets, scale, losses)
    loss, right = judged(logits, targets, 0.25, vocab)
    torch.testing.assert_close(losses.double(), loss, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(grad[:, :vocab].double(), right, rtol=2**-8, atol=1e-9)
    assert not grad[:, vocab:].any()


def test_rows_beyond_two_to_the_31_numbers(block):
    """The address of a row is computed in 64 bits. Only the pages of that row are ever touched."""
    vocab, columns, _ = CASES[0]
    row = 2**31 // columns + 1
    with mmap.mmap(-1, 2 * columns * (row + 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE) as pages:
        everything = torch.frombuffer(pages, dtype=torch.bfloat16)
        own = everything[-columns:]
        own.copy_(torch.randn(columns))
        targets, losses = torch.zeros(row + 1, dtype=torch.int64), torch.zeros(row + 1)
        loss, right = judged(own.clone()[None], targets[:1], 1.0, vocab)
        block(0, row, everything.data_ptr(), targets, torch.tensor(1.0), losses)
        torch.testing.assert_close(losses[row:].double(), loss, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(own[None, :vocab].double(), right, rtol=2**-8, atol=1e-9)
        assert not losses[:row].any()
        del everything, own


def test_every_row_is_divided_among_threads_that_a_gpu_has():
    for columns in range(8192, 300_000, 64):
        parted = division(columns)
        if parted is None:
            assert columns > ONE_BLOCK // 2
            continue
        threads, in_shared, in_registers = parted
        each = in_shared + in_registers
        assert threads * each * WIDTH >= columns > threads * (each - 1) * WIDTH
        assert threads * in_shared * 16 + 256 <= 227 << 10
        assert in_registers <= MOST_IN_REGISTERS


def test_a_kernel_that_cannot_be_made_is_named_once(monkeypatch, recwarn):
    """And the Triton kernel computes the loss; a row that does not fit, or an older card, is no reason for a word."""

    def fail(*_):
        raise RuntimeError("no NVRTC")

    monkeypatch.setattr(torch.cuda, "_compile_kernel", fail)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, device.index))
    kernel.cache_clear()
    assert [kernel(columns, torch.device("cuda", 0)) for columns in (50_304, 50_304, 300_032, 1024)] == [None] * 4
    assert [str(warning.message) for warning in recwarn] == [
        "the loss of 50,304 columns takes its Triton kernel: no NVRTC"
    ]
    kernel.cache_clear()
