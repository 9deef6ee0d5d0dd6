"""`python -m trainwright.exporters`: serve this node's metrics on its private address."""

from __future__ import annotations

import argparse
import errno
import ipaddress
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from trainwright.exporters.efa import EfaCollector
from trainwright.exporters.files import Tree
from trainwright.exporters.filesystems import FilesystemCollector
from trainwright.exporters.gpu import GpuCollector
from trainwright.exporters.host import HostCollector
from trainwright.exporters.kernel import KernelLogCollector
from trainwright.exporters.lustre import LustreCollector
from trainwright.exporters.neuron import NeuronCollector
from trainwright.exporters.server import EVERY, Collector, Exporter, MetricsServer
from trainwright.exporters.slurm import SlurmCollector
from trainwright.exporters.trainer import TrainerCollector

PORT = 9942
ADDRESS_SECONDS = 30.0
SHARED = ipaddress.ip_network("100.64.0.0/10")  # private too: some networks on AWS use it


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="trainwright.exporters", description="Serve this node's metrics to Prometheus.")
    top.add_argument("--address", default="", help="private address to listen on (default: this node's own)")
    top.add_argument("--port", type=int, default=PORT, help=f"port (default: {PORT})")
    top.add_argument("--slurm", action="store_true", help="collect from Slurm: on one node of the cluster")
    top.add_argument("--runs", action="append", default=[], metavar="FOLDER", help="folder of run folders to follow")
    top.add_argument("--root", type=Path, default=Path("/"), help="where this host's files are, in a container")
    top.add_argument(
        "--every", type=float, default=EVERY, metavar="SECONDS", help="between two runs of slow collectors"
    )
    top.add_argument("--once", action="store_true", help="print the metrics once and exit")
    return top


def exporter_of(options: argparse.Namespace) -> Exporter:
    tree = Tree(options.root)
    quick: list[Collector] = [HostCollector(tree), EfaCollector(tree), LustreCollector(tree), GpuCollector()]
    quick.append(NeuronCollector())
    slow: list[Collector] = [FilesystemCollector(tree), TrainerCollector(options.runs), KernelLogCollector()]
    return Exporter(quick, [*slow, *([SlurmCollector()] if options.slurm else [])], options.every)


def private_address(wanted: str) -> str:
    """The address to listen on. Metrics name users, jobs and hosts: they are for the cluster's own network."""
    text = wanted or _own_address()
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise SystemExit(f"error: {text!r} is no IP address") from None
    if address.is_unspecified or not (address.is_private or address in SHARED):
        raise SystemExit(f"error: {text} is not a private address\n  fix: --address with this node's private address")
    return text


def _own_address() -> str:
    """The address of the interface towards private networks; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("10.255.255.255", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def listening(address: str, port: int, exporter: Exporter) -> MetricsServer:
    """The server. A node that boots may get its address a moment later."""
    deadline = time.monotonic() + ADDRESS_SECONDS
    while True:
        try:
            return MetricsServer((address, port), exporter)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def main(words: list[str] | None = None) -> int:
    options = parser().parse_args(words)
    if options.once:
        exporter = exporter_of(options)
        for part in exporter.parts:
            part.ready.wait(options.every)
        sys.stdout.buffer.write(exporter.page())
        return 0
    address = private_address(options.address)
    try:
        server = listening(address, options.port, exporter_of(options))
    except OSError as error:
        print(f"error: cannot listen on {address}:{options.port}: {os.strerror(error.errno or 0)}", file=sys.stderr)
        return 1
    names = ", ".join(server.exporter.names)
    print(f"http://{address}:{server.server_address[1]}/metrics serves {names}", file=sys.stderr, flush=True)
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever()
    server.exporter.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
