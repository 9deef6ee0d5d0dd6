"""IMG: wheels of torch without CUDA in an image that has it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.launches.pip_places import CONDA, of_pip
from trainwright.check.model import Command, File, ShellScript, Value
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.img_copied import lists_at_hand
from trainwright.errors import listed

_CUDA_IMAGE = re.compile(
    r"(^|/)nvidia/cuda:|nvcr\.io/nvidia/(pytorch|nemo|cuda)|pytorch/pytorch:\S*cuda|pytorch-training\S*(-gpu-|cu\d\d)"
)
_TORCH = re.compile(r"torch(\[[\w,]*\])?([=<>~!].*)?$")
# Where wheels for another processor are: the address of an index, a local version, an option of uv.
_OTHER_INDEX = re.compile(r"download\.pytorch\.org/whl/(?:nightly/|test/)?(cpu|rocm[\d.]*|xpu)\b")
_OTHER_LOCAL = re.compile(r"torch==[\d.]+\+(cpu|rocm[\d.]*|xpu)\b")
# torch and its companions for another processor: without that index there are none of these versions.
_ANY_LOCAL = re.compile(r"torch(vision|audio)?==[\d.]+\+(cpu|rocm[\d.]*|xpu)\b")
_WITH_CUDA = re.compile(r"download\.pytorch\.org/whl/(?:nightly/|test/)?cu\d|torch==[\d.]+\+cu\d")
_MOST = 3  # packages of a fix: torch and its companions
_WITHOUT_CPUONLY = "remove cpuonly, and ask for pytorch-cuda of the driver's version instead"
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
    if file.format == "dockerfile":
        for script in file.scripts:
            yield from _script(file, script, _COMMENT.sub("", file.text))


def _script(file: File, script: ShellScript, text: str) -> Iterator[Problem]:
    bases: dict[str, str] = {}
    base, wrong = "", None
    for command in script.commands:
        if command.program == "FROM":
            yield from _report(wrong, base, text)
            base, wrong = _base(command, bases), None
        elif not command.conditional and not command.branch:
            words = _torch_words(file, command)
            wrong = _other_wheels(command, words) if words else wrong
    yield from _report(wrong, base, text)


def _base(command: Command, bases: dict[str, str]) -> str:
    """The image of a stage, through the stages that it starts from."""
    words = [word.value for word in command.words[1:] if not word.value.startswith("--")]
    image = bases.get(words[0].lower(), words[0]) if words else ""
    if len(words) > 2:
        bases[words[2].lower()] = image
    return image


def _torch_words(file: File, command: Command) -> list[Value[str]]:
    """The words of a command that installs torch, and those of the lists that it names."""
    words = of_pip(command)
    words = [*words, *(_listed(file, command) if words else ())]
    if command.program in CONDA:
        words = command.words if any(word.value == "install" for word in command.words) else []
        return words if any(re.match(r"(\S+::)?pytorch\b", word.value) for word in words) else []
    named = any(_TORCH.match(word.value.strip("\"'")) for word in words)
    return words if words and words[0].value == "install" and named else []


def _listed(file: File, command: Command) -> Iterator[Value[str]]:
    """The words of the lists beside the Dockerfile that a command installs, each as written in its list; a line with a
    condition may be for other machines."""
    for _, word, name, text in lists_at_hand(file, command):
        for line in text.split("\n"):
            if ";" not in line:
                yield from (Value(one, word.span, name) for one in line.partition("#")[0].split())


def _other_wheels(command: Command, words: list[Value[str]]) -> tuple[Value[str], str, str] | None:
    """Where the command asks for wheels of another processor, which, and what to do."""
    if command.program in CONDA:
        alone = next((word for word in words if word.value == "cpuonly"), None)
        return (alone, "the CPU", _WITHOUT_CPUONLY) if alone is not None else None
    if any(_WITH_CUDA.search(word.value) for word in words):
        return None  # pip takes these: their local version, cu128, is after cpu
    pinned = [word for word in words if _ANY_LOCAL.match(word.value.strip("\"'"))]
    for word in pinned:
        match = _OTHER_LOCAL.match(word.value.strip("\"'"))
        if match is not None:
            return word, _called(match[1]), _instead(pinned)
    for flag, word in zip([None, *words], words, strict=False):
        name, _, inner = word.value.partition("=")
        value = word.value if flag is not None and flag.value in _INDEXES else inner if name in _INDEXES else ""
        match = _OTHER_INDEX.search(value)
        backend = word.value if flag is not None and flag.value == _BACKEND else inner if name == _BACKEND else ""
        other = match[1] if match is not None else backend if backend == "cpu" else ""
        if other:
            place = f" of {word.text}" if word.text.endswith(".txt") else ""
            return word, _called(other), f"leave this option out{place}: the wheels of PyPI have CUDA"
    return None


def _called(other: str) -> str:
    return "the CPU" if other == "cpu" else other


def _report(wrong: tuple[Value[str], str, str] | None, base: str, text: str) -> Iterator[Problem]:
    if wrong is None or not _CUDA_IMAGE.search(base) or _OTHERS.search(text):
        return
    word, other, fix = wrong
    yield problem(
        word,
        f"torch for {other} in an image with CUDA ({base}): it does not see the GPUs",
        fix,
        level="warning" if _ON_GPUS.search(text) else "info",  # torch may only prepare data there
        why=_WHY,
    )


def _instead(pinned: list[Value[str]]) -> str:
    """What any version has: its wheels of PyPI are built with CUDA, while an index of one CUDA holds some versions."""
    plain = listed([word.value.strip("\"'").partition("+")[0] for word in pinned], _MOST)
    place = next((f" in {word.text}" for word in pinned if word.text.endswith(".txt")), "")
    return f"write {plain}{place}, without -f or an index: the wheels of PyPI have CUDA"
