"""Runs the collectors and answers scrapes. Quick collectors run during the scrape; slow ones (commands, network file
systems) in a thread of their own, and a scrape takes their last answer."""

from __future__ import annotations

import socketserver
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from trainwright.exporters.metric import CONTENT_TYPE, Metric, exposition, gauge

EVERY = 15.0  # seconds between two runs of a slow collector
LOOK_EVERY = 300.0  # seconds between two looks for collectors that had nothing to collect
STALE = 8  # that many times `EVERY` without an answer, and the last one is no longer given
MOST_REQUESTS = 8  # at once
REQUEST_SECONDS = 10.0
LONGEST_LINE, MOST_HEADERS = 8192, 100


class Collector(Protocol):
    name: str

    def available(self) -> bool:
        """Whether there is something to collect on this node."""
        ...

    def collect(self) -> Iterable[Metric]: ...


class Guarded:
    """A collector whose failure costs its own metrics and nothing else."""

    def __init__(self, collector: Collector) -> None:
        self.collector, self.name = collector, collector.name
        self.ok, self.seconds, self.finished = False, 0.0, 0.0
        self.said = ""
        self.ready = threading.Event()
        self.ready.set()

    def collect(self) -> list[Metric]:
        began = time.perf_counter()
        try:
            metrics = list(self.collector.collect())
            self.ok, self.finished = True, time.monotonic()
        except Exception as error:
            metrics, self.ok = [], False
            self._complain(f"{type(error).__name__}: {error}")
        self.seconds = time.perf_counter() - began
        return metrics

    def close(self) -> None:
        """End what the collector started."""
        getattr(self.collector, "close", lambda: None)()

    def _complain(self, text: str) -> None:
        if text != self.said:  # once, not at every scrape
            print(f"collector {self.name} failed: {text}", file=sys.stderr, flush=True)
            self.said = text


class Background(Guarded):
    """A slow collector: runs by itself, and a scrape takes the last answer."""

    def __init__(self, collector: Collector, every: float = EVERY) -> None:
        super().__init__(collector)
        self.every = every
        self.last: list[Metric] = []
        self.ready.clear()
        self.stop = threading.Event()
        threading.Thread(target=self._work, daemon=True, name=self.name).start()

    def _work(self) -> None:
        while not self.stop.is_set():
            self.last = super().collect()
            self.ready.set()
            self.stop.wait(self.every)

    def close(self) -> None:
        self.stop.set()
        super().close()

    def collect(self) -> list[Metric]:
        if time.monotonic() - self.finished > self.every * STALE:
            self.ok = False
            return []
        return self.last


class Exporter:
    """All collectors of a node."""

    def __init__(self, quick: Sequence[Collector], slow: Sequence[Collector], every: float = EVERY) -> None:
        self.parts: list[Guarded] = []
        self.absent: list[tuple[Collector, bool]] = [(c, False) for c in quick] + [(c, True) for c in slow]
        self.every, self.looked = every, 0.0
        self.lock = threading.Lock()
        self._look()

    def _look(self) -> None:
        """Take on what has appeared on the node since: a driver may be loaded after the exporter started."""
        self.looked = time.monotonic()
        here = [(collector, slow) for collector, slow in self.absent if collector.available()]
        self.absent = [item for item in self.absent if item not in here]
        self.parts += [Background(item, self.every) if slow else Guarded(item) for item, slow in here]

    @property
    def names(self) -> list[str]:
        return [part.name for part in self.parts]

    def page(self) -> bytes:
        """One scrape. Scrapes follow each other: collectors keep state."""
        with self.lock:
            if time.monotonic() - self.looked > LOOK_EVERY:
                self._look()
            return exposition(self._metrics()).encode()

    def _metrics(self) -> Iterator[Metric]:
        began = time.perf_counter()
        ok = gauge("exporter_collector_ok", "Whether a collector gave its metrics.")
        seconds = gauge("exporter_collector_seconds", "How long a collector took.")
        for part in self.parts:
            yield from part.collect()
            ok.add(part.ok, collector=part.name)
            seconds.add(part.seconds, collector=part.name)
        yield from (ok, seconds)
        text = "How long this scrape took."
        yield gauge("exporter_scrape_seconds", text).add(time.perf_counter() - began)

    def close(self) -> None:
        for part in self.parts:
            part.close()


class MetricsServer(socketserver.ThreadingTCPServer):
    """Answers `GET /metrics` and nothing else; a few requests at once, each for a limited time. Without Python's own
    HTTP server, which brings TLS and mail with it: a third of the memory."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], exporter: Exporter) -> None:
        self.exporter = exporter
        self.free = threading.BoundedSemaphore(MOST_REQUESTS)
        super().__init__(address, Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self.free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no event."""


class Handler(socketserver.StreamRequestHandler):
    timeout = REQUEST_SECONDS

    def handle(self) -> None:
        assert isinstance(self.server, MetricsServer)
        method, _, rest = self.rfile.readline(LONGEST_LINE).decode("latin-1").partition(" ")
        for _ in range(MOST_HEADERS):
            if self.rfile.readline(LONGEST_LINE) in (b"\r\n", b"\n", b""):
                break
        path = rest.split(" ")[0].split("?")[0]
        if method != "GET" or path != "/metrics":
            self._answer("404 Not Found", "text/plain", b"metrics are at /metrics\n")
        else:
            self._answer("200 OK", CONTENT_TYPE, self.server.exporter.page())

    def _answer(self, status: str, kind: str, body: bytes) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        self.wfile.write(head.encode() + body)
