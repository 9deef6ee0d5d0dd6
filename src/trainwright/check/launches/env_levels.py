"""How certain a finding about an environment variable is: an error or warning where the file itself shows the harm,
else a note. Most of these variables are right on some machine."""

from __future__ import annotations

import re

from trainwright.catalog.environment import EnvRule
from trainwright.check.debugging import heading_of, is_for_debugging, names_a_trial
from trainwright.check.finding import Level
from trainwright.check.launches.environments import Setting
from trainwright.check.launches.job_sizes import processes
from trainwright.check.launches.scopes import any_reached, comment_of, starts_something
from trainwright.check.model import File, known

_WITHOUT_NVLINK = re.compile(
    r"rtx|geforce|(?<!\d)[2345]0[6789]0(ti)?(?!\d)|(?<![a-z0-9])(a[456]000|l40s?|t4)(?![a-z0-9])", re.IGNORECASE
)
# A comment with one of these says what the variable is for.
_PURPOSE = re.compile(
    r"(?<![a-z])(work-?arounds?|need(s|ed)?|requir\w*|(bug|hot)?fix(es|ed|ing)?|avoid\w*|disabl\w*|without|fall.?backs?"
    r"|forc(es?|ed|ing)|because|hang(s|ing)?|hung|issues?|tcp\w*|sockets?|p2p|nvlinks?|gdr|compar\w*|baselines?|bench\w*"
    r"|measur\w*|debug\w*)(?![a-z])|#\d+|https?://",
    re.IGNORECASE,
)
TRAINING_KINDS = (
    "PyTorchJob",
    "MPIJob",
    "TFJob",
    "JobSet",
    "TrainJob",
    "RayJob",
    "HyperPodPyTorchJob",
)  # whose pods work together
_NOTES = {"noise", "measure", "set", "allow"}  # what else is no longer needed does no harm where it once was


def level_of(file: File, entry: EnvRule, setting: Setting) -> Level | None:
    """None: the level of the rule."""
    if entry.verdict in _NOTES:
        return "info"
    if entry.verdict == "debug":
        return None if _is_routine(file, entry, setting) else "info"
    if entry.variable == "RDMAV_*":
        return "info"  # the kernel decides whether it breaks
    if is_on_purpose(file, setting):
        return "info"
    if entry.variable == "NCCL_P2P_DISABLE":  # cards without NVLink often need it
        return "info" if setting.type_ is None or _WITHOUT_NVLINK.search(file.text) else None
    if not setting.intended or _one_node(setting):
        return "info"  # a type that has EFA may be used without it, and a node alone needs no network
    if entry.variable == "NCCL_NET_GDR_LEVEL":
        asked = any((v.name, v.value.value) == ("FI_EFA_USE_DEVICE_RDMA", "1") for v in file.all_env)
        return "warning" if asked else "info"  # a remedy, unless the same file asks for GPUDirect
    return None


def is_on_purpose(file: File, setting: Setting) -> bool:
    """Whether a comment or the kind of run gives a reason."""
    near = f"{comment_of(file, setting.variable)}\n{heading_of(file, setting.variable)}"
    return _PURPOSE.search(near) is not None or setting.is_benchmark or is_for_debugging(file, setting)


def _is_routine(file: File, entry: EnvRule, setting: Setting) -> bool:
    """Whether the file itself starts a run that gets the variable, and the variable has its effect there."""
    if entry.variable == "TORCH_NCCL_ASYNC_ERROR_HANDLING" or entry.value == "INFO":
        return False  # nobody writes the 0 by accident; INFO is asked for in every report of an error
    if entry.variable == "NCCL_DEBUG_SUBSYS" and not logs_details(file):
        return False
    if setting.script is not None:
        starts = file.format != "dockerfile" and any_reached(setting.script, setting.variable, starts_something)
        return starts and not file.derived(names_a_trial)
    job = setting.job
    return job is not None and (job.pod is None or job.pod.kind in TRAINING_KINDS or job.launch is not None)


def logs_details(file: File) -> bool:
    """Whether NCCL_DEBUG_SUBSYS has an effect: it filters what NCCL_DEBUG=INFO writes, here to the log of the job."""
    levels = {v.value.value.strip("'\"").upper() for v in file.all_env if v.name == "NCCL_DEBUG" and v.value.known}
    return "INFO" in levels and not any(v.name == "NCCL_DEBUG_FILE" for v in file.all_env)


def asks_for_cards_without_nvlink(setting: Setting) -> bool:
    """Whether the partition, the constraint or the GPU that is requested has cards without NVLink: on most of them
    NCCL needs NCCL_P2P_DISABLE."""
    if setting.job is None or setting.type_ is not None:
        return False
    named = [value.value for value in setting.job.directives.values()]
    return any(_WITHOUT_NVLINK.search(text) is not None for text in named)


def one_rank(setting: Setting) -> bool:
    """Whether a node has a single process, or a single GPU."""
    job = setting.job
    if job is None:
        return False
    counts = [value.value for value in job.gpus_per_node if value.known]
    return known(processes(job)) == 1 or known(job.processes_per_node) == 1 or (bool(counts) and max(counts) == 1)


def _one_node(setting: Setting) -> bool:
    job = setting.job
    if job is None:
        return False
    return known(job.nodes) == 1 or (job.launch is not None and "standalone" in job.launch.options)
