"""Reads steps out of the log of any training framework, line by line: step, total, loss, speed, gradient norm, learning
rate. The framework is recognised from its own lines. The patterns are data (data/log_patterns.toml); this file holds
what they cannot say: prefixes of ranks, progress bars, steps that take several lines, several ranks in one log."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping

from trainwright.runs.log_formats import Format, StepRecord, formats, number_of

MAX_LINE = 16_384  # characters; what is longer is no step line
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# `srun -l`, torchrun's tee, Ray and SkyPilot, kubectl --prefix; the number or name says which rank prints.
_LABELS = (
    re.compile(r"\s*(\d+): ?"),
    re.compile(r"\s*\[((?:rank|default)?\d+)\]: ?"),
    re.compile(r"\(([^()]*\bpid=\d+[^()]*)\) ?"),
    re.compile(r"\[(pod/[^\]\s]+)\] ?"),
)
_BAR = re.compile(r"^\s*\d+%\|[^|]*\|\s*(\d+)/(\d+) \[(?:[^\],]*, *([\d.]+)(s/it|it/s))?")
_MOST_STEPS = 10**12
RECENT = 32  # steps; how far behind the first rank another one may print


class LogReader:
    """Reads one log as it grows. `feed` takes text as it comes, `take` one line; both give the newest record of a step,
    and the same step again when later lines add to it. `gpus` and `sequence` turn rates into tokens/s of the job."""

    def __init__(self, gpus: int | None = None, sequence: int | None = None) -> None:
        self.gpus, self.sequence = gpus, sequence
        self.framework = ""
        self.record: StepRecord | None = None
        self._formats = formats()
        self._label = ""
        self._rest = ""
        self._known: dict[str, float] = {}  # what a start line said for all steps: total, epochs
        self._bar: tuple[int, int, float | None] | None = None  # the newest progress bar that no step has used
        self._drawn = 0  # the step of the bar that the newest step line was paired with
        self._waiting: dict[str, float] | None = None  # a step line whose step a progress bar will tell
        self._recent: tuple[int, ...] = ()
        self._gap = 1

    def feed(self, text: str) -> Iterator[StepRecord]:
        """Records of a piece of a log; the last, unfinished line waits for the next piece."""
        text = self._rest + text
        cut = max(text.rfind("\n"), text.rfind("\r")) + 1
        self._rest = text[cut:] if len(text) - cut <= MAX_LINE else ""
        text = text[:cut]
        if self._is_quiet(text):
            return
        yield from self._lines(text)

    def _is_quiet(self, text: str) -> bool:
        """Whether a piece of a recognised log surely holds no step: most of a log is other output."""
        if not self.framework or '"step"' in text or "%|" in text:
            return False
        return not any(hint in text for entry in self._formats for hint in (entry.hint, *entry.more))

    def close(self) -> Iterator[StepRecord]:
        """What the end of the log still gives: a last line without a newline, a step without a progress bar."""
        rest, self._rest = self._rest, ""
        yield from self._lines(rest)
        if self._waiting is not None:
            record = self._paired(self._waiting, None)
            if record is not None:
                yield record

    def _lines(self, text: str) -> Iterator[StepRecord]:
        for line in re.split(r"[\r\n]+", text) if "\r" in text else text.split("\n"):
            record = self.take(line)
            if record is not None:
                yield record

    def take(self, line: str) -> StepRecord | None:
        """The record that a line completes or adds to, or None."""
        if not line or len(line) > MAX_LINE:
            return None
        if line[-1] == "}" and '"step"' in line:
            record = self._json(line)
            if record is not None:
                return record
        for entry in self._formats:
            if entry.hint in line:
                text, label = _clean(line)
                if entry.line(text):
                    return self._step(entry, text, label)
            for hint in entry.more:
                if hint in line:
                    record = self._more(entry, line, hint)
                    if record is not None:
                        return record
        if "%|" in line:
            return self._progress_bar(line)
        return None

    def _step(self, entry: Format, text: str, label: str) -> StepRecord | None:
        self._recognised(entry, text)
        values = entry.values(text)
        if not entry.from_bar:
            return self._merged(values, label)
        bar, self._bar = self._bar, None
        earlier, self._waiting = self._waiting, None
        if bar is not None:
            return self._paired(values, bar)
        record = self._paired(earlier, None) if earlier is not None else None
        self._waiting = values
        return record

    def _recognised(self, entry: Format, text: str) -> None:
        """From now on only this framework's lines count; those of a weak one give way to the next."""
        if self.framework not in (entry.name, *entry.variants):
            self.framework, self.record = entry.name, None
            if not entry.weak:
                self._formats = tuple(known for known in formats() if known.name == entry.name)
        for name, mark in entry.variants.items():
            if mark in text:
                self.framework = name

    def _more(self, entry: Format, line: str, hint: str) -> StepRecord | None:
        """A line that says more about the step before, or about all steps."""
        text, label = _clean(line)
        values = entry.values(text)
        self._known |= {name: values[name] for name in ("total", "epochs") if name in values}
        if self.record is None or self.framework not in (entry.name, *entry.variants) or not values:
            return None
        if hint in entry.variants.values():
            self._recognised(entry, text)
        own = {} if "step" in values or "step_from_zero" in values else {"step": float(self.record.step)}
        if "step_from_zero" in values and values["step_from_zero"] + 1 == self.record.step:
            return None
        return self._merged({**own, **values}, label, same=bool(own))

    def _progress_bar(self, line: str) -> StepRecord | None:
        text, _ = _clean(line)
        match = _BAR.match(text)
        if match is None:
            return None
        step, total = int(match[1][:13]), int(match[2][:13])
        if self._known.get("total", total) != total:
            return None  # the bar of an evaluation or of a download
        if self._waiting is None and step in (0, self._drawn):
            return None  # drawn before the first step, or once more below a step line that it has told
        rate = number_of(match[3]) if match[3] else None
        step_s = None if not rate else rate if match[4] == "s/it" else 1 / rate
        self._bar = (step, total, step_s)
        if self._waiting is None:
            return None
        values, self._waiting, bar, self._bar = self._waiting, None, self._bar, None
        return self._paired(values, bar)

    def _paired(self, values: dict[str, float], bar: tuple[int, int, float | None] | None) -> StepRecord | None:
        """A step line without a step, with the one a progress bar shows; else counted from the epoch, else by line."""
        if bar is not None:
            self._known["total"], self._drawn = bar[1], bar[0]
            values = {**values, "step": float(bar[0]), "total": float(bar[1])}
            if bar[2] is not None:
                values["step_s"] = bar[2]
            return self._merged(values, "")
        total, epochs = self._known.get("total"), self._known.get("epochs")
        step = self.record.step + max(1, self._gap) if self.record is not None else 1
        if total and epochs and "epoch_done" in values:
            step = round(values["epoch_done"] / epochs * total)
        return self._merged({**values, "step": float(step)}, "", estimated=True)

    def _json(self, line: str) -> StepRecord | None:
        """The line of JSON that a script of the user's (or our trainer) writes per step."""
        start = line.find("{")
        try:
            row = json.loads(line[start:])
        except (ValueError, RecursionError):
            return None
        if not isinstance(row, dict) or not isinstance(row.get("step"), int) or isinstance(row["step"], bool):
            return None
        if not set(row) & _JSON_FIELDS or "event" in row:
            return None
        self.framework, self._formats = "json", ()
        values: dict[str, float] = {}
        for name, value in row.items():
            if isinstance(name, str) and isinstance(value, int | float) and not abs(value) > 1e300:
                values[_JSON_NAMES.get(name, name)] = float(value)
        return self._merged(values, _clean(line[:start])[1])

    def _merged(
        self, values: dict[str, float], label: str, same: bool = False, estimated: bool = False
    ) -> StepRecord | None:
        """The record of these values, joined with what is known of the step; None where nothing is new."""
        record = self._made({**self._known, **values}, estimated)
        last = self.record
        if record is None:
            return None
        if last is not None and (same or record.step == last.step):
            record = last.filled(record)
            self.record = record
            return record if record != last else None
        if label != self._label and record.step in self._recent:
            return None  # another rank, a little behind
        self._gap = record.step - last.step if last is not None else 1
        self._label, self.record = label, record
        self._recent = (*self._recent[-RECENT:], record.step)
        return record

    def _made(self, values: dict[str, float], estimated: bool) -> StepRecord | None:
        step, total = _position(values)
        if step is None or not 0 <= step < _MOST_STEPS:
            return None
        step_s = values.get("step_s") or _scaled(values.get("step_ms"), 1e-3) or _inverse(values.get("steps_per_s"))
        samples = values.get("samples_per_s")
        if samples is None and "batch" in values and step_s:
            samples = values["batch"] / step_s
        per_gpu, tokens = values.get("tokens_per_s_gpu"), values.get("tokens_per_s")
        if tokens is None and per_gpu is not None and self.gpus:
            tokens = per_gpu * self.gpus
        if tokens is None and samples is not None and self.sequence:
            tokens = samples * self.sequence
        mfu = values.get("mfu", _scaled(values.get("mfu_percent"), 1e-2))
        return StepRecord(
            step, total, values.get("loss"), tokens, per_gpu, samples, step_s, values.get("grad_norm"),
            values.get("lr"), values.get("tflops_gpu"), mfu, self.framework, estimated,
        )  # fmt: skip


def read_log(lines: Iterable[str], gpus: int | None = None, sequence: int | None = None) -> list[StepRecord]:
    """Every step of a whole log, one record each."""
    reader = LogReader(gpus, sequence)
    records: list[StepRecord] = []
    for line in lines:
        records += reader.feed(line if line.endswith(("\n", "\r")) else line + "\n")
    records += reader.close()
    return [
        record
        for index, record in enumerate(records)
        if index + 1 == len(records) or records[index + 1].step != record.step
    ]


_JSON_FIELDS = frozenset({"loss", "tokens_per_s", "samples_per_s", "step_s", "total", "steps", "grad_norm", "lr"})
_JSON_NAMES = {"steps": "total", "learning_rate": "lr", "step_time": "step_s"}


def _position(values: Mapping[str, float]) -> tuple[int | None, int | None]:
    """Step and total, counted over all epochs."""
    per_epoch, epoch = values.get("epoch_steps"), values.get("epoch")
    step, total = values.get("step"), values.get("total")
    if "step_from_zero" in values:
        step = values["step_from_zero"] + 1
    if step is None and epoch is not None:
        step = epoch * (per_epoch or 0) + values.get("step_in_epoch", 0)
    epochs = values.get("epochs", values["last_epoch"] + 1 if "last_epoch" in values else None)
    if total is None and per_epoch and epochs:
        total = per_epoch * epochs
    return _whole(step), _whole(total)


def _whole(value: float | None) -> int | None:
    return int(value) if value is not None and abs(value) < _MOST_STEPS else None


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _inverse(value: float | None) -> float | None:
    return 1 / value if value else None


def _clean(line: str) -> tuple[str, str]:
    """A line without colours and prefixes, and the prefix that says which rank printed it."""
    if "\x1b" in line:
        line = _COLOUR.sub("", line)
    label = ""
    for pattern in _LABELS:
        match = pattern.match(line)
        if match is not None:
            label, line = label + match[1], line[match.end() :]
    return line, label
