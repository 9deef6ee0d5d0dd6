"""Where the kubeconfig of a cluster that we made lies, by the name of its context."""

from __future__ import annotations

from pathlib import Path

from trainwright.home import home


def context_of(cluster: str) -> str:
    return f"trainwright-{cluster}"


def own_kubeconfig(context: str) -> Path:
    return home() / "kube" / f"{context}.yaml"


def known_context(cluster: str) -> str | None:
    """The context of a cluster that `up` or `connect` reached from here; None: the user's own kubeconfig decides."""
    return context_of(cluster) if own_kubeconfig(context_of(cluster)).is_file() else None
