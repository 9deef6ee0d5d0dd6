"""ENV: environment variables of NCCL, libfabric and torch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import islice

from trainwright.catalog.environment import EnvRule, rules_for
from trainwright.check import reasons
from trainwright.check.debugging import is_for_debugging
from trainwright.check.launches.env_levels import (
    asks_for_cards_without_nvlink,
    level_of,
    logs_details,
    one_rank,
)
from trainwright.check.launches.environments import Setting, removal, renaming, settings
from trainwright.check.launches.job_sizes import once
from trainwright.check.launches.scopes import branches, comment_of, is_built_only, is_replaced, option_before
from trainwright.check.model import EnvVar, File, known
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.env_names import unread_names

# Wrong but harmless: reported as information.
_HARMLESS = {"FI_PROVIDER", "FI_EFA_FORK_SAFE"}
# Other programs use libfabric too: what is said of these is about NCCL.
_LIBFABRIC = {"FI_EFA_ENABLE_SHM_TRANSFER"}
_USES_NCCL = re.compile(r"nccl|torch|deepspeed|accelerate|megatron", re.IGNORECASE)
_RDMA_CORE = ("RDMAV_FORK_SAFE", "RDMAV_HUGEPAGES_SAFE", "RDMAV_ALLOW_DISASSOC_DESTROY")
_CLOSE = 0.9  # a typing mistake; drivers and old versions have other names with this beginning
_MANY_NODES = 16  # from here, one line per rank and channel fills the log
_DEFAULT_BUFFER = 4 * 2**20
_WHYS = {
    "debug": "every rank writes lines of its own, with ALL one per collective: 16 ranks with 100 collectives per step "
    "write 1,600 lines per step.",
    "noise": "a setting without effect hides the few that have one, and is copied into the next launcher.",
}
_NOTE = re.compile(
    r"(?<![a-z])(bench\w*|measur\w*|busbw|faster|slower|because|hang(s|ing)?|hung|issues?|debug\w*)(?![a-z])"
    r"|GB/s|Gbps|tok(ens)?/s|\d\s*%|#\d+|https?://",
    re.IGNORECASE,
)


@rule("ENV001", "error")
def variables_fit_the_versions(file: File) -> Iterator[Problem]:
    """Variables of EFA and NCCL must fit the versions they are used with.

    Most of the blocks that are copied from launcher to launcher were right for one version. FI_PROVIDER=efa and
    NCCL_PROTO=simple belong to aws-ofi-nccl before 1.6, FI_EFA_USE_DEVICE_RDMA to plugins before 1.7, FI_EFA_FORK_SAFE
    to kernels before 5.15, FI_EFA_SET_CUDA_SYNC_MEMOPS=0 to EFA installers before 1.29.1. RDMAV_* breaks on some
    new kernels (a note), FI_EFA_ENABLE_SHM_TRANSFER has no effect, NCCL's socket settings have no effect over EFA, and
    FI_PROVIDER=tcp or sockets turns EFA off. Where the file does not state the version, only what is wrong for every
    version is reported. NCCL_P2P_DISABLE=1 is an error where the instance type has NVLink, else a note; it is not
    reported where the job asks for cards without NVLink (RTX 4090). What turns EFA off is an error where the same file
    sets EFA up for several nodes. All are notes where a comment gives a reason, or a branch or the caller decides.

    Why: some abort the job, the rest hide the few that matter, and some cost bandwidth: without NVLink two H200 of a
    node exchange 55 GB/s over PCIe instead of 396.

    Fix: remove it. `trainwright plan --explain` computes the variables that the versions need.

    Source: EFA cheatsheet of awsome-distributed-ai; release notes of aws-ofi-nccl and the EFA installer.

    When to ignore: the cluster still runs the old version that the variable was made for.
    """
    yield from once(p for setting in settings(file) for p in _judged(file, setting, "error"))


@rule("ENV002", "warning")
def variables_have_a_reason(file: File) -> Iterator[Problem]:
    """Forced NCCL choices need a measurement; debug output and removed variables do not belong in routine runs.

    NCCL_ALGO, NCCL_PROTO, NCCL_MIN_NCHANNELS and NCCL_BUFFSIZE override what NCCL chooses per message size (a note). A
    comment on the line or above it with the benchmark that justifies it silences the rule. NCCL_PROTO=simple and
    excluded protocols (`^LL128`) are reported only where the file shows aws-ofi-nccl 1.6 or later, because older ones
    need them. With NCCL_DEBUG=INFO,
    NCCL_DEBUG_SUBSYS=ALL writes a line per collective, CUDA_LAUNCH_BLOCKING=1 waits for every kernel, and
    TORCH_NCCL_ASYNC_ERROR_HANDLING=0 lets ranks hang after an error (a note). NCCL_TREE_THRESHOLD was removed in NCCL
    2.5; torch 2.2 renamed NCCL_ASYNC_ERROR_HANDLING. NCCL_IB_DISABLE=1 turns off the adapters that NCCL_IB_HCA names
    beside it (a note). Debugging is not reported where the file, its
    name, the queue or a comment says that it is one, and a note where the file starts nothing itself. A name that NCCL
    does not read is reported where it is one letter or underscore from one that it does (NCCL_SOCKET_IF_NAME).

    Why: NCCL chooses among 7 algorithms and 3 protocols for each collective and message size. What was forced for
    one cluster and version is slow on the next, and nobody remembers why it is there.

    Fix: remove it, or write the measurement beside it.

    Source: EFA cheatsheet of awsome-distributed-ai; NCCL and PyTorch documentation; NCCL 2.27, NCCL_ALGO and
    NCCL_PROTO.

    When to ignore: you measured it on this cluster; write the numbers in a comment.
    """
    yield from once(p for setting in settings(file) for p in _judged(file, setting, "warning"))
    yield from once(unread_names(file))
    yield from islice((p for setting in settings(file) for p in _adapters_without_use(file, setting)), 1)


def _adapters_without_use(file: File, setting: Setting) -> Iterator[Problem]:
    """`NCCL_IB_DISABLE=1` beside NCCL_IB_HCA, which names the adapters that are not used then."""
    disabled = setting.variable
    if (disabled.name, setting.value) != ("NCCL_IB_DISABLE", "1") or setting.efa or not _holds(file, setting, disabled):
        return
    named = [one for one in (setting.script.env if setting.script is not None else []) if one.name == "NCCL_IB_HCA"]
    if len(named) == 1 and named[0].value.value and _holds(file, setting, named[0]):
        yield problem(
            disabled.value,
            f"NCCL_IB_DISABLE=1 turns off the adapters that NCCL_IB_HCA names (line {named[0].span.line}): the nodes "
            "exchange their gradients over TCP",
            "remove it, or, where TCP is meant, NCCL_IB_HCA",
            level="info",  # TCP may be what works there
            why=reasons.TCP_FOR_INFINIBAND,
        )


def _holds(file: File, setting: Setting, variable: EnvVar) -> bool:
    """Whether a script sets a variable in every run, and does not change it before anything starts."""
    if setting.script is None or variable.value.default or not variable.value.known or variable.prefix:
        return False
    return not branches(file, variable) and not is_replaced(setting.script, variable)


def _judged(file: File, setting: Setting, level: str) -> Iterator[Problem]:
    variable = setting.variable
    value = setting.value if variable.value.known else "\x00"
    entries = rules_for(variable.name, value)
    if not entries or is_built_only(file, variable):
        return
    if setting.script is not None and is_replaced(setting.script, variable):
        return
    for entry in entries:
        if not entry.level or not entry.concerns(setting.type_) or (entry.efa and not setting.efa):
            continue
        if (
            _has_no_effect(file, entry, setting)
            or _is_right(entry, setting)
            or _excused(file, entry, setting)
            or (entry.variable in _LIBFABRIC and not _USES_NCCL.search(file.text))
        ):
            continue
        if entry.level != level:
            return  # the other rule says it
        if entry.variable.endswith("*") and variable.name not in _RDMA_CORE:
            yield from _misspelled(variable)
            return
        # Deleting what has an effect is the user's decision: it may be there for a reason that the file does not say.
        safe = entry.verdict == "noise" or (entry.verdict == "set" and entry.variable in _HARMLESS)
        fix, edit = entry.fix, removal(file, variable, safe=safe) if entry.fix == "remove it" else None
        option = option_before(file, variable)
        fix = f"{fix}, and the {option} above it" if option and entry.fix == "remove it" else fix
        renamed = re.search(r"\bTORCH_\w+", entry.why_not)
        if renamed is not None:
            fix, edit = f"rename it to {renamed[0]}", renaming(file, variable, renamed[0])
        shown = f"={value}" if entry.value else ""
        decided = branches(file, variable) or variable.value.default  # by a switch of the script, or by its caller
        yield problem(
            variable.value if entry.value and variable.value.value else variable.span,
            f"{variable.name}{shown}: {_complaint(file, entry, value, setting)}",
            fix,
            level="info" if decided else level_of(file, entry, setting),
            edit=edit,
            why=_why(entry),
        )
        return


def _why(entry: EnvRule) -> str:
    """The reason of this entry, where the rule's own is about others."""
    if entry.variable in ("NCCL_NET", "NCCL_NET_PLUGIN") or (entry.variable, entry.verdict) == ("FI_PROVIDER", "never"):
        return "over TCP the nodes' CPUs copy every message, and the EFA cards (32 in a p5.48xlarge) are not used."
    if entry.variable == "CUDA_LAUNCH_BLOCKING":
        return reasons.LAUNCH_BLOCKING
    if entry.variable == "TORCH_NCCL_ASYNC_ERROR_HANDLING":
        return reasons.NO_WATCHDOG
    return _WHYS.get(entry.verdict, "")


_ONE_GPU = re.compile(r"(CUDA_VISIBLE_DEVICES=[\"']?|--gpus[= ][\"']*device=)(\$\w+|\$\{\w+\}|\d+)[\"']*(\s|$)")


def _has_no_effect(file: File, entry: EnvRule, setting: Setting) -> bool:
    """A process with one GPU has no peer in its node."""
    if entry.variable == "NCCL_P2P_DISABLE":
        return _ONE_GPU.search(file.text) is not None or one_rank(setting) or asks_for_cards_without_nvlink(setting)
    if entry.variable in ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS") and entry.verdict == "debug":
        return _ONE_GPU.search(file.text) is not None
    if entry.variable == "NCCL_NET_GDR_LEVEL" and not setting.efa:
        return any((v.name, v.value.value) == ("NCCL_IB_DISABLE", "1") for v in file.all_env)  # TCP has no GPUDirect
    if entry.variable == "TORCH_NCCL_ASYNC_ERROR_HANDLING":
        return any(v.name.endswith("NCCL_BLOCKING_WAIT") and v.value.value == "1" for v in file.all_env)
    return False


def _misspelled(variable: EnvVar) -> Iterator[Problem]:
    """Other names with this beginning are left alone: drivers have some of their own."""
    meant = get_close_matches(variable.name, _RDMA_CORE, 1, _CLOSE)
    if meant:
        message = f"{variable.name}: rdma-core has no such variable, so it has no effect"
        yield problem(
            variable.span, message, f"write {meant[0]}, or remove it", level="warning", why=reasons.UNREAD_VARIABLE
        )


def _complaint(file: File, entry: EnvRule, value: str, setting: Setting) -> str:
    if entry.variable == "NCCL_P2P_DISABLE" and setting.type_ is None:
        return f"where the GPUs have NVLink, {entry.complaint}"
    if entry.variable == "NCCL_DEBUG_SUBSYS" and not logs_details(file):
        return "it chooses among the lines of NCCL_DEBUG=INFO, which this file does not set"
    if entry.variable != "NCCL_BUFFSIZE" or not value.isdecimal():
        return entry.complaint
    if int(value) < _DEFAULT_BUFFER:
        return "smaller than the default of 4 MiB, which costs bandwidth on large messages"
    return "larger than the default of 4 MiB, which uses GPU memory per channel and peer"


def _is_right(entry: EnvRule, setting: Setting) -> bool:
    """Whether the variable may stay, or nothing in the file decides it."""
    right = entry.is_right(setting.versions)
    if right is None and (entry.variable, entry.verdict) == ("NCCL_PROTO", "measure"):
        return not _forces_low_latency(setting)
    if right is None:
        return entry.verdict != "allow"  # `allow` is about versions that nobody should still use
    return right


def _forces_low_latency(setting: Setting) -> bool:
    """Whether NCCL_PROTO asks for LL or LL128 alone, which no version needs; an old plugin needs simple."""
    names = {name.strip().lower() for name in setting.value.split(",")}
    return setting.variable.value.known and names <= {"ll", "ll128"}


def _excused(file: File, entry: EnvRule, setting: Setting) -> bool:
    if entry.verdict not in ("measure", "debug"):
        return False
    if setting.is_benchmark or _NOTE.search(comment_of(file, setting.variable)):
        return True
    nodes = known(setting.job.nodes) if setting.job is not None else None
    if (entry.variable, entry.value) == ("NCCL_DEBUG", "INFO") and (nodes or 0) < _MANY_NODES:
        return True
    return entry.verdict == "debug" and is_for_debugging(file, setting)
