"""Software: versions that fit together, and a PyTorch that fits the GPUs."""

from __future__ import annotations

import json
import sys

from trainwright.health import smi
from trainwright.health.node import Node
from trainwright.health.profile import Profile
from trainwright.health.registry import check
from trainwright.health.verdict import Outcome, failed, passed, skipped, warned, worst_outcome
from trainwright.health.versions import OF_THE_HOST, conflicts, versions_of

TORCH_SECONDS = 120.0  # the first import from a shared file system takes its time
# Printed by a process of its own: importing torch takes seconds and may crash on a broken node.
TORCH_SCREEN = """
import json, torch
d, c, n = torch.distributed, torch.cuda, torch.backends
print(json.dumps({
    "torch": torch.__version__, "git": torch.version.git_version, "cuda": torch.version.cuda,
    "gpus": c.device_count(), "architectures": c.get_arch_list(), "cudnn": n.cudnn.version(),
    "capabilities": sorted({"sm_%d%d" % c.get_device_capability(i) for i in range(c.device_count())}),
    "nccl": ".".join(map(str, c.nccl.version())) if c.is_available() and d.is_nccl_available() else None,
    "distributed": {"gloo": d.is_gloo_available(), "nccl": d.is_nccl_available(), "mpi": d.is_mpi_available()},
    "matmul_tf32": n.cuda.matmul.allow_tf32, "cudnn_tf32": n.cudnn.allow_tf32, "cudnn_benchmark": n.cudnn.benchmark,
    "deterministic": torch.are_deterministic_algorithms_enabled(), "threads": torch.get_num_threads(),
    "flash": n.cuda.flash_sdp_enabled(), "mkldnn": n.mkldnn.is_available(),
}))
"""
TORCH = (sys.executable, "-c", TORCH_SCREEN)


@check("software.versions", action="isolate", seconds=0.5)
def versions(node: Node, profile: Profile) -> Outcome:
    """Driver, CUDA, NCCL, libfabric, the plugin and EFA fit together."""
    installed = versions_of(node)
    of_the_host = {name: version for name, version in installed.items() if name in OF_THE_HOST}
    outright = [words for level, words in conflicts(of_the_host, profile.accelerator) if level == "fail"]
    # What jobs may bring along in their image does not make the node unfit.
    outcomes = [failed(words) for words in outright]
    outcomes += [warned(words) for _, words in conflicts(installed, profile.accelerator) if words not in outright]
    return worst_outcome(outcomes, f"{len(installed)} versions, no conflict known")


@check("software.torch", action="isolate", suite="deep", seconds=10.0)
def torch_environment(node: Node, profile: Profile) -> Outcome:
    """PyTorch sees every GPU and was built for it."""
    screen, reason = torch_screen(node)
    if screen is None:
        return skipped(reason)
    capabilities, built = screen["capabilities"], screen["architectures"]
    missing = [one for one in capabilities if not _built_for(one, built)]
    if missing:
        return failed(f"torch {screen['torch']} has no kernels for {', '.join(missing)} (built for {', '.join(built)})")
    present = _gpu_count(node)
    if present and not screen["gpus"]:
        return failed(f"torch {screen['torch']} (CUDA {screen['cuda']}) sees none of {present} GPUs")
    if capabilities and not screen["distributed"]["nccl"]:
        return warned(f"torch {screen['torch']} was built without NCCL")
    return passed(f"torch {screen['torch']}, CUDA {screen['cuda']}, NCCL {screen['nccl']}, {screen['gpus']} GPUs")


def torch_screen(node: Node) -> tuple[dict | None, str]:
    """What torch says of itself, or why it says nothing."""
    if not any(node.paths(f"{place}/torch-*.dist-info") for place in node.packages):
        return None, "PyTorch is not installed"
    output = node.run(*TORCH, seconds=TORCH_SECONDS)
    try:
        return json.loads(output.out.splitlines()[-1]), ""
    except (ValueError, IndexError):
        return None, f"PyTorch does not start: {output.err.strip().splitlines()[-1:] or output.complaint}"


def _built_for(capability: str, built: list[str]) -> bool:
    """Kernels of the same major version run, and PTX of an older one is compiled when first used."""
    number = int(capability[3:])
    exact = {int("".join(filter(str.isdigit, one))) for one in built if one.startswith("sm_")}
    ptx = {int("".join(filter(str.isdigit, one))) for one in built if one.startswith("compute_")}
    return any(one // 10 == number // 10 and one <= number for one in exact) or any(one <= number for one in ptx)


def _gpu_count(node: Node) -> int:
    try:
        return len(smi.query(node).gpus)
    except smi.SmiError:
        return 0
