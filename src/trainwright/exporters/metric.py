"""Metrics and their text format. The format is a few lines long, so nodes need no Prometheus library; a test parses
what is written here with the official one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping

PREFIX = "trainwright_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LONGEST_LABEL = 200  # characters; labels come from files and commands that anyone may have written
_NAME = re.compile(r"[a-z][a-z0-9_]*")


class Metric:
    """One metric with its samples: (labels, value)."""

    def __init__(self, name: str, kind: str, text: str) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a metric")
        self.name, self.kind, self.text = PREFIX + name, kind, text
        self.samples: list[tuple[tuple[tuple[str, str], ...], float]] = []

    def add(self, value: float | None, **labels: object) -> Metric:
        """A sample; a value that is not known is left out."""
        if value is not None and not (isinstance(value, float) and math.isnan(value)):
            self.samples.append((tuple((key, str(text)) for key, text in labels.items()), value))
        return self


def gauge(name: str, text: str) -> Metric:
    return Metric(name, "gauge", text)


def counter(name: str, text: str) -> Metric:
    """A count since some start; Prometheus takes a value that falls for a new start."""
    return Metric(name + "_total", "counter", text)


class MetricSet:
    """The metrics of one collection by name, so that several devices add to one metric."""

    def __init__(self) -> None:
        self.metrics: dict[str, Metric] = {}

    def gauge(self, name: str, text: str) -> Metric:
        return self.metrics.get(name) or self.metrics.setdefault(name, gauge(name, text))

    def counter(self, name: str, text: str) -> Metric:
        return self.metrics.get(name) or self.metrics.setdefault(name, counter(name, text))

    def __iter__(self) -> Iterator[Metric]:
        return iter(self.metrics.values())


def exposition(metrics: Iterable[Metric]) -> str:
    """All metrics as text. Of two samples with the same labels the first counts: Prometheus refuses both."""
    lines: list[str] = []
    for metric in metrics:
        if not metric.samples:
            continue
        lines.append(f"# HELP {metric.name} {_escaped(metric.text)}")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        written: set[str] = set()
        for labels, value in metric.samples:
            name = metric.name + _labels(dict(labels))
            if name not in written:
                written.add(name)
                lines.append(f"{name} {_number(value)}")
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    words = [f'{key}="{_label(text)}"' for key, text in labels.items()]
    return "{" + ",".join(words) + "}" if words else ""


def _label(text: str) -> str:
    whole = text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"
    return _escaped(whole.encode("utf-8", "replace").decode()).replace('"', '\\"')


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", " ")


def _number(value: float) -> str:
    if isinstance(value, float) and math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value) if isinstance(value, float) and not value.is_integer() else str(int(value))
