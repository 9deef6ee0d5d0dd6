"""The live view as a page: an HTTP server of the standard library on loopback, read-only. Its address holds a token,
because every user and every web page of this machine can reach loopback; the page updates by server-sent events."""

from __future__ import annotations

import dataclasses
import hmac
import json
import secrets
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from trainwright.errors import UserError
from trainwright.report.run_report.html import PAGE as REPORT_PAGE
from trainwright.report.run_report.html import csp_hash
from trainwright.report.watch.snapshot import Snapshot, Watcher

PAGE = Path(__file__).with_name("page")
HOST = "127.0.0.1"
PAUSE = 2.0  # seconds between polls
MOST_STREAMS = 8  # each polls by itself
KEEP_ALIVE = 15.0  # seconds without news after which a comment shows whether the reader is still there
HEADERS = {
    "Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY", "Cross-Origin-Resource-Policy": "same-origin",
}  # fmt: skip


class WatchServer(ThreadingHTTPServer):
    """Serves until it is shut down; streams end with it."""

    daemon_threads = True

    def __init__(self, run: str = "", port: int = 0, pause: float = PAUSE) -> None:
        super().__init__((HOST, port), Handler)
        self.run, self.pause = run, pause
        self.token = secrets.token_urlsafe(24)
        self.streams = threading.Semaphore(MOST_STREAMS)
        self.ended = threading.Event()

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that went away is no error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    def shutdown(self) -> None:
        self.ended.set()
        super().shutdown()


class Handler(BaseHTTPRequestHandler):
    """Only GET, only with the token, only for this host."""

    server: WatchServer
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        try:
            path = urlsplit(self.path)
        except ValueError:
            path = urlsplit("/")
        token, *rest = path.path.partition("/")[2].split("/")
        # A page of another site that made its name point here has its own name in Host.
        hosts = {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}
        if self.headers.get("Host") not in hosts or not self._is_token(token):
            self._answer(404, "text/plain", "not found\n")
        elif rest == [""]:
            self._answer(200, "text/html", live_page(), _policy())
        elif rest == ["events"]:
            self._stream(parse_qs(path.query).get("run", [""])[0])
        elif len(rest) == 2 and rest[0] == "report":
            self._report(unquote(rest[1]))
        else:
            self._answer(404, "text/plain", "not found\n")

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self.server.token.encode())

    def _report(self, name: str) -> None:
        from trainwright.report.run_report.collect import collect
        from trainwright.report.run_report.html import page
        from trainwright.runs import store

        try:
            # A name, never a path: the page shows runs, not files.
            self._answer(200, "text/html", page([collect(store.find(name).name)]))
        except UserError as error:
            self._answer(404, "text/plain", f"{error}\n")

    def _stream(self, name: str) -> None:
        if not self.server.streams.acquire(blocking=False):
            self._answer(503, "text/plain", "too many pages are open\n")
            return
        try:
            self._send_events(Watcher(self._run(name)))
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            pass  # the page was closed
        finally:
            self.server.streams.release()

    def _run(self, name: str) -> str:
        from trainwright.runs import store

        try:
            return store.find(name).name if name else self.server.run
        except UserError:
            return self.server.run

    def _send_events(self, watcher: Watcher) -> None:
        self.close_connection = True
        self.send_response(200)
        self._headers({"Content-Type": "text/event-stream", **HEADERS, "Connection": "close"})
        before, sent = "", time.monotonic()
        while not self.server.ended.is_set():
            text = snapshot_json(watcher.poll())
            if text != before:
                self._write(f"data: {text}\n\n")
                before, sent = text, time.monotonic()
            elif time.monotonic() - sent > KEEP_ALIVE:
                self._write(": nothing new\n\n")
                sent = time.monotonic()
            self.server.ended.wait(self.server.pause)

    def _write(self, text: str) -> None:
        self.wfile.write(text.encode())
        self.wfile.flush()

    def _answer(self, code: int, kind: str, text: str, policy: str = "") -> None:
        body = text.encode()
        self.send_response(code)
        more = {"Content-Security-Policy": policy} if policy else {}
        length = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}
        self._headers({**length, **HEADERS, **more})
        self.wfile.write(body)

    def _headers(self, headers: dict[str, str]) -> None:
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def version_string(self) -> str:
        return "trainwright"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the address holds the token."""


def snapshot_json(snapshot: Snapshot) -> str:
    """Without the moment, so that a poll without news is the same text."""
    plain = dataclasses.asdict(snapshot)
    del plain["time"]
    return json.dumps(plain, separators=(",", ":"), allow_nan=False)


@cache
def live_page() -> str:
    """The page with its styles and scripts in it."""
    text = _read(PAGE / "watch.html")
    parts = {
        "UPLOT_CSS": _read(REPORT_PAGE / "uPlot.min.css"), "CSS": _read(REPORT_PAGE / "page.css"),
        "UPLOT": _read(REPORT_PAGE / "uPlot.iife.min.js"), "SCRIPT": _read(PAGE / "watch.js"),
    }  # fmt: skip
    for name, part in parts.items():
        text = text.replace(f"/*{name}*/", part)
    return text


@cache
def _policy() -> str:
    scripts = (_read(REPORT_PAGE / "uPlot.iife.min.js"), _read(PAGE / "watch.js"))
    hashes = " ".join(csp_hash(script) for script in scripts)
    return f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; script-src {hashes}"


@cache
def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def serve(run: str, port: int, say: Callable[[str], None]) -> None:
    """Serve until Ctrl-C; the address is the one line on stdout."""
    try:
        server = WatchServer(run, port)
    except OSError as error:
        raise UserError(f"cannot listen on port {port}: {error.strerror}", fix="another --port") from error
    say(server.address)
    try:
        server.serve_forever(poll_interval=0.5)
    except KeyboardInterrupt:
        server.ended.set()
    finally:
        server.server_close()
