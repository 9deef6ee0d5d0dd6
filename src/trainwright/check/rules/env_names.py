"""ENV: names of variables that NCCL does not read, one letter or underscore from one that it does."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.catalog.environment import rules_for
from trainwright.check import reasons
from trainwright.check.launches.environments import Setting, settings
from trainwright.check.model import File
from trainwright.check.registry import Problem, problem

_SHORTEST = 10  # letters; shorter names are too near to each other
_LOOKS_LIKE_ONE = re.compile(r"(NCCL|GLOO|TP)_\w+")
# Those that launchers set, as NCCL documents them. Others exist, and are left alone.
_KNOWN = {
    "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_ALGO", "NCCL_BUFFSIZE", "NCCL_COLLNET_ENABLE", "NCCL_CROSS_NIC",
    "NCCL_CUMEM_ENABLE", "NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS", "NCCL_IB_ADAPTIVE_ROUTING",
    "NCCL_IB_DISABLE", "NCCL_IB_GID_INDEX", "NCCL_IB_HCA", "NCCL_IB_PCI_RELAXED_ORDERING",
    "NCCL_IB_QPS_PER_CONNECTION", "NCCL_IB_RETRY_CNT", "NCCL_IB_SL", "NCCL_IB_SPLIT_DATA_ON_QPS", "NCCL_IB_TC",
    "NCCL_IB_TIMEOUT", "NCCL_LAUNCH_MODE", "NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS",
    "NCCL_MIN_NCHANNELS", "NCCL_MNNVL_ENABLE", "NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ", "NCCL_NET_PLUGIN",
    "NCCL_NSOCKS_PERTHREAD", "NCCL_NTHREADS", "NCCL_NVLS_ENABLE", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_PROTO",
    "NCCL_PXN_DISABLE", "NCCL_SHM_DISABLE", "NCCL_SOCKET_FAMILY", "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_NTHREADS",
    "NCCL_TOPO_DUMP_FILE", "NCCL_TOPO_FILE", "NCCL_TUNER_PLUGIN",
}  # fmt: skip
_JOINED = {name.replace("_", ""): name for name in _KNOWN}


def unread_names(file: File) -> Iterator[Problem]:
    """`NCCL_SOCKET_IF_NAME`, where the file does not read the variable itself."""
    for setting in settings(file):
        meant = _meant(setting)
        name = setting.variable.name
        named = {one.variable.name for one in settings(file)} if meant else set()
        if meant and not re.search(rf"\$\{{?{name}\b|\b(environ|getenv)\b[^\n]*{name}\b", file.text):
            yield problem(
                setting.variable.span,
                f"{name}: there is no such variable, so it has no effect",
                f"remove it: {meant} is set" if meant in named else f"write {meant}, or remove it",
                level="info" if meant in named else None,
                why=reasons.UNREAD_BY_NCCL,
            )


def _meant(setting: Setting) -> str:
    """The variable that is meant: other underscores, two letters swapped, one left out or one too many."""
    name = setting.variable.name
    if name in _KNOWN or len(name) < _SHORTEST or not _LOOKS_LIKE_ONE.fullmatch(name) or rules_for(name, ""):
        return ""
    joined = _JOINED.get(name.replace("_", ""))
    return joined or next((known for known in sorted(_KNOWN) if _is_slip(name, known)), "")


def _is_slip(name: str, known: str) -> bool:
    same = next((i for i, (a, b) in enumerate(zip(name, known, strict=False)) if a != b), min(len(name), len(known)))
    rest, meant = name[same:], known[same:]
    return rest[1:] == meant or rest == meant[1:] or (rest[:2] == meant[1::-1] and rest[2:] == meant[2:])
