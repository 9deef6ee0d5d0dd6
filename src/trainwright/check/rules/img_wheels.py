"""IMG: wheels of torch without CUDA in an image that has it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.model import Command, File, ShellScript, Value
from trainwright.check.pip_places import CONDA, of_pip
from trainwright.check.registry import Problem, problem

_CUDA_IMAGE = re.compile(
    r"(^|/)nvidia/cuda:|nvcr\.io/nvidia/(pytorch|nemo|cuda)|pytorch/pytorch:\S*cuda|pytorch-training\S*(-gpu-|cu\d\d)"
)
_TORCH = re.compile(r"torch(\[[\w,]*\])?([=<>~!].*)?$")
# Where wheels for another processor are: the address of an index, a local version, an option of uv.
_OTHER_INDEX = re.compile(r"download\.pytorch\.org/whl/(?:nightly/|test/)?(cpu|rocm[\d.]*|xpu)\b")
_OTHER_LOCAL = re.compile(r"torch==[\d.]+\+(cpu|rocm[\d.]*|xpu)\b")
_INDEXES = {"-i", "--index-url", "--extra-index-url", "-f", "--find-links", "--index", "--default-index"}
_BACKEND = "--torch-backend"
# What needs torch with CUDA: ranks on GPUs, and packages whose kernels are CUDA's.
_ON_GPUS = re.compile(
    r"torchrun|torch\.distributed\.(run|launch)|accelerate\W+launch|deepspeed|flash[-_]attn|transformer[-_]engine|"
    r"bitsandbytes|xformers|\bapex\b|\bNCCL_\w+|\bvllm\b",
    re.IGNORECASE,
)
# Programs that run on the GPUs themselves, beside which torch only reads data.
_OTHERS = re.compile(r"\bjax\b|jaxlib|tensorflow|paddlepaddle|onnxruntime-gpu|mxnet|cupy|tensorrt", re.IGNORECASE)
_COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)
_WHY = (
    "these wheels hold neither CUDA nor NCCL: torch.cuda.is_available() is False, and every rank stops at "
    "init_process_group (`Distributed package doesn't have NCCL built in`), or trains on the CPU."
)


def wheels_without_cuda(file: File) -> Iterator[Problem]:
    """The last torch of each stage that starts from an image with CUDA."""
    if file.format == "dockerfile" and "torch" in file.text:
        for script in file.scripts:
            yield from _script(script, _COMMENT.sub("", file.text))


def _script(script: ShellScript, text: str) -> Iterator[Problem]:
    bases: dict[str, str] = {}
    base, wrong = "", None
    for command in script.commands:
        if command.program == "FROM":
            yield from _report(wrong, base, text)
            base, wrong = _base(command, bases), None
        elif not command.conditional and not command.branch:
            words = _torch_words(command)
            wrong = _other_wheels(command, words) if words else wrong
    yield from _report(wrong, base, text)


def _base(command: Command, bases: dict[str, str]) -> str:
    """The image of a stage, through the stages that it starts from."""
    words = [word.value for word in command.words[1:] if not word.value.startswith("--")]
    image = bases.get(words[0].lower(), words[0]) if words else ""
    if len(words) > 2:
        bases[words[2].lower()] = image
    return image


def _torch_words(command: Command) -> list[Value[str]]:
    """The words of a command that installs torch."""
    words = of_pip(command)
    if command.program in CONDA:
        words = command.words if any(word.value == "install" for word in command.words) else []
        return words if any(re.match(r"(\S+::)?pytorch\b", word.value) for word in words) else []
    named = any(_TORCH.match(word.value.strip("\"'")) for word in words)
    return words if words and words[0].value == "install" and named else []


def _other_wheels(command: Command, words: list[Value[str]]) -> tuple[Value[str], str] | None:
    """Where the command asks for wheels of another processor, and which."""
    if command.program in CONDA:
        alone = next((word for word in words if word.value == "cpuonly"), None)
        return (alone, "the CPU") if alone is not None else None
    for flag, word in zip([None, *words], words, strict=False):
        name, _, inner = word.value.partition("=")
        value = word.value if flag is not None and flag.value in _INDEXES else inner if name in _INDEXES else ""
        match = _OTHER_INDEX.search(value) or _OTHER_LOCAL.match(word.value.strip("\"'"))
        backend = word.value if flag is not None and flag.value == _BACKEND else inner if name == _BACKEND else ""
        other = match[1] if match is not None else backend if backend == "cpu" else ""
        if other:
            return word, "the CPU" if other == "cpu" else other
    return None


def _report(wrong: tuple[Value[str], str] | None, base: str, text: str) -> Iterator[Problem]:
    if wrong is None or not _CUDA_IMAGE.search(base) or _OTHERS.search(text):
        return
    word, other = wrong
    yield problem(
        word,
        f"torch for {other} in an image with CUDA ({base}): it does not see the GPUs",
        _instead(word.value),
        level="warning" if _ON_GPUS.search(text) else "info",  # torch may only prepare data there
        why=_WHY,
    )


def _instead(word: str) -> str:
    """What any version has: its wheels of PyPI are built with CUDA, while an index of one CUDA holds some versions."""
    if word == "cpuonly":
        return "remove cpuonly, and ask for pytorch-cuda of the driver's version instead"
    local = _OTHER_LOCAL.match(word.strip("\"'"))
    if local is not None:
        return f"write {word.partition('+')[0]}, without -f or an index: the wheels of PyPI have CUDA"
    return "leave this option out: the wheels of PyPI have CUDA"
