"""The stand-in as a process of its own, so that a command line can be killed against it and its state stays. Run as
`python -m standin.server READY_FILE SCALE`; it takes a free port and writes it to the file, and ends with its input.

Beside AWS it answers /standin/: faults (POST), reserve (POST), group (POST), calls (GET), census (GET), hold (POST)."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import tempfile
import threading
import urllib.parse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from standin.clock import Clock
from standin.faults import Failure, Rule, error_response


class Front:
    """The WSGI application in front of moto's: counts calls, injects faults, answers the control addresses."""

    def __init__(self, world: Any, moto: Callable[..., Iterable[bytes]]) -> None:
        self.world, self.moto = world, moto

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        body = _read(environ)
        if path.startswith("/standin/"):
            answer = self._control(path.removeprefix("/standin/"), json.loads(body or b"{}"))
            return _answer(start, 200, {"content-type": "application/json"}, json.dumps(answer, default=str).encode())
        service, action = _asked(environ, body)
        with self.world.lock:
            self.world.faults.seen(service, action, self.world.clock.now(), _stack_name(body))
            kind = self.world.faults.fault(service, action)
        if kind == "unreachable":
            return _drop(environ)
        if kind is not None and kind != "lost":
            return _answer(start, *error_response(service, kind))
        done = self.moto(environ, start)
        return _drop(environ) if kind == "lost" else done

    def _control(self, what: str, asked: dict[str, Any]) -> Any:
        from standin.census import census

        faults = self.world.faults
        with self.world.lock:
            if what == "faults":
                faults.rules = [Rule(**one) for one in asked.get("rules", [])]
                faults.failures = [Failure(**one) for one in asked.get("failures", [])]
                return {}
            if what == "reserve":
                self.world.reserve(**asked)
                return {}
            if what == "group":
                rows = [self.world.reservations[id]["CapacityReservationArn"] for id in asked["reservations"]]
                self.world.group_members[asked["name"]] = rows
                return {}
            if what == "calls":
                return faults.calls
            if what == "census":
                self.world.tick()
                return census(self.world, asked["region"])
            if what == "program":
                return self._program(asked)
            if what == "kubernetes":  # the API that clusters of EKS name as theirs
                self.world.kubernetes, self.world.authority = asked["endpoint"], asked["authority"]
                return {}
            if what == "hold":  # jobs of Batch run until they are terminated
                self.world.hold_jobs = asked["on"]
                return {}
            if what == "advance":
                self.world.clock.sleep(asked["seconds"])
                return {}
        raise KeyError(what)

    def _program(self, asked: dict[str, Any]) -> dict[str, Any]:
        """kubectl, helm or eksctl; the last one is asked again until its stack is made."""
        from standin.programs import Result, StandInPrograms

        if "stack" in asked:
            ended = Result(world=self.world, region=asked["region"], stack=asked["stack"])
        else:
            self.world.faults.seen(asked["program"], asked["words"][0], self.world.clock.now())
            here = StandInPrograms(self.world, asked["region"])
            ended = here.call(asked["program"], asked["words"], asked["text"], asked["cluster"])
        return {"status": ended.poll(), "out": ended.out, "err": ended.err, "stack": ended.stack}


def _read(environ: dict[str, Any]) -> bytes:
    if "chunked" in environ.get("HTTP_TRANSFER_ENCODING", ""):
        return b""
    body: bytes = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)
    return body


def _asked(environ: dict[str, Any], body: bytes) -> tuple[str, str]:
    scope = re.search(r"Credential=[^/]+/[^/]+/[^/]+/([^/]+)/", environ.get("HTTP_AUTHORIZATION", ""))
    service = scope[1] if scope else "unsigned"
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    if target:
        return service, target.rpartition(".")[2]
    form = re.search(rb"(?:^|&)Action=([A-Za-z]+)", body)
    return service, form[1].decode() if form else f"{environ['REQUEST_METHOD']} {environ.get('PATH_INFO', '')}"


def _stack_name(body: bytes) -> str:
    named = re.search(rb"(?:^|&)StackName=([^&]+)", body)
    return urllib.parse.unquote(named[1].decode()) if named else ""


def _answer(start: Callable[..., Any], status: int, headers: dict[str, str], body: bytes) -> list[bytes]:
    start(f"{status} X", [*headers.items(), ("content-length", str(len(body)))])
    return [body]


def _drop(environ: dict[str, Any]) -> list[bytes]:
    """Close the connection without an answer."""
    environ["werkzeug.socket"].close()
    raise ConnectionError("dropped on purpose")


def main() -> None:
    ready, scale = Path(sys.argv[1]), float(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        from judges.moto_extended import allow_ephemeral_disks, images_file

        os.environ["MOTO_AMIS_PATH"] = str(images_file(Path(folder)))
        os.environ["MOTO_IAM_LOAD_MANAGED_POLICIES"] = "true"
        from moto import mock_aws
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
        from werkzeug.serving import make_server

        from standin.api import install
        from standin.world import World

        allow_ephemeral_disks()
        world = World(Clock(scale))
        install(world)
        mock_aws(config={"batch": {"use_docker": False}}).start()
        front = Front(world, DomainDispatcherApplication(create_backend_app))

        class Quiet(MotoRequestHandler):
            def log(self, *args: Any) -> None:
                pass

        server = make_server("127.0.0.1", 0, front, threaded=True, request_handler=Quiet)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        partial = ready.with_suffix(".partial")
        partial.write_text(str(server.server_port))
        partial.replace(ready)
        sys.stdin.read()  # the parent holds the other end: when it goes, so does the server
    os._exit(0)  # a connection that a killed client left open would keep a thread waiting


if __name__ == "__main__":
    main()
