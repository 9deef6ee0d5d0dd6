"""A Ray cluster over the nodes of a job, for as long as its driver runs. Every node of the job starts this:

    NODE_RANK=0 MASTER_ADDR=first-node MASTER_PORT=29400 python3 ray_nodes.py NODES WORD...

The first node is the head of the cluster and runs the driver, the command of the words. The others are workers.
Each worker keeps a connection to MASTER_PORT of the first node. Over it the worker learns the port of Ray's head, and
the exit status of the driver. So all nodes end together and with the same status, whoever started them; a node that is
lost ends the job with status 1. `ray stop` is not used: it would end the Ray of another job on the same node."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Coroutine
from typing import Any

MEET = 1800  # seconds that a node waits for the others: images of many GiB are fetched first
PAUSE = 0.5
GRACE = 100  # seconds that a driver or Ray has to end after SIGTERM
LOST = 1
STOPPED = 128 + signal.SIGTERM
WORKER_PORTS = range(10002, 20000)  # Ray's own default for its worker processes; its head may not listen there


def say(text: str) -> None:
    print(f"ray_nodes: {text}", file=sys.stderr, flush=True)


def free_port() -> int:
    """A port that Ray's head may listen on."""
    while True:
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = int(probe.getsockname()[1])
        if port not in WORKER_PORTS:
            return port


async def start_ray(*options: str) -> asyncio.subprocess.Process:
    """Ray on this node, as a process that ends when one of Ray's own does, and that takes them along."""
    return await asyncio.create_subprocess_exec("ray", "start", *options, "--block", stdin=asyncio.subprocess.DEVNULL)


async def alive_nodes(address: str) -> int:
    """How many nodes Ray's head counts; none while it does not answer."""
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    status = await asyncio.create_subprocess_exec("ray", "status", "--address", address, stdout=pipe, stderr=null)
    text, _ = await status.communicate()
    active = text.decode(errors="replace").partition("Active:")[2].partition("Pending:")[0]
    return sum(int(count) for count in re.findall(r"(?m)^\s*(\d+) \S", active))


async def wait_for_nodes(address: str, nodes: int) -> None:
    while await alive_nodes(address) < nodes:
        await asyncio.sleep(PAUSE)


async def end(process: asyncio.subprocess.Process) -> int:
    """Ask a process to end and wait for it; its exit status as a shell would give it."""
    if process.returncode is None:
        process.terminate()
        await asyncio.wait([asyncio.ensure_future(process.wait())], timeout=GRACE)
        if process.returncode is None:
            process.kill()
    code = await process.wait()
    return code if code >= 0 else 128 - code


def watch(sock: socket.socket) -> None:
    """A node that vanishes without a word is noticed within two minutes."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)):
        sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


class Head:
    """The first node."""

    def __init__(self, nodes: int, words: list[str], meet: int) -> None:
        self.nodes, self.words, self.meet = nodes, words, meet
        self.port = free_port()
        self.workers: list[asyncio.StreamWriter] = []
        self.lost = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        watch(writer.get_extra_info("socket"))
        self.workers.append(writer)
        writer.write(f"{self.port}\n".encode())
        with contextlib.suppress(OSError):
            await reader.read()  # a worker sends nothing: its end is all there is to read
        self.lost.set()

    async def run(self) -> int:
        ray = await start_ray("--head", f"--port={self.port}", "--include-dashboard=false", "--disable-usage-stats")
        server, code = None, LOST
        try:
            address = f"127.0.0.1:{self.port}"
            if await self.came(wait_for_nodes(address, 1), ray, MEET):
                server = await asyncio.start_server(self.serve, port=self.meet)
                if await self.came(wait_for_nodes(address, self.nodes), ray, MEET):
                    code = await self.drive(address, ray)
        except asyncio.CancelledError:
            code = STOPPED
        finally:
            if server is not None:
                server.close()  # a worker that starts again must not meet this head
            for worker in self.workers:
                worker.write(f"{code}\n".encode())
                worker.close()
            await end(ray)
        return code

    async def came(self, goal: Coroutine[Any, Any, Any], ray: asyncio.subprocess.Process, most: float | None) -> bool:
        """Whether the goal is reached before a node is lost and before the time is up; if not, says why."""
        task = asyncio.ensure_future(goal)
        reasons = {
            asyncio.ensure_future(ray.wait()): "Ray ended on the first node",
            asyncio.ensure_future(self.lost.wait()): "a node of the job was lost",
        }
        try:
            done, _ = await asyncio.wait([task, *reasons], timeout=most, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in (task, *reasons):
                one.cancel()
        if task not in done:
            say(next((why for one, why in reasons.items() if one in done), f"a node did not come within {MEET} s"))
        return task in done

    async def drive(self, address: str, ray: asyncio.subprocess.Process) -> int:
        """The driver's exit status."""
        driver = await asyncio.create_subprocess_exec(*self.words, env={**os.environ, "RAY_ADDRESS": address})
        try:
            ended = await self.came(driver.wait(), ray, None)
        except asyncio.CancelledError:
            return await end(driver)
        code = await end(driver)
        return code if ended else LOST


async def connected(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The connection to the first node, which may not have started yet or whose name may not be known yet."""
    late = time.monotonic() + MEET
    while True:
        try:
            return await asyncio.open_connection(host, port)
        except OSError as error:
            if time.monotonic() > late:
                raise SystemExit(f"ray_nodes: {host}:{port} does not answer within {MEET} s: {error}") from None
            await asyncio.sleep(PAUSE)


async def work(host: str, meet: int) -> int:
    """A worker's part."""
    try:
        reader, writer = await connected(host, meet)
    except asyncio.CancelledError:
        return STOPPED
    watch(writer.get_extra_info("socket"))
    ray: asyncio.subprocess.Process | None = None
    try:
        port = (await reader.readline()).decode().strip()
        if not port:
            say("the first node ended before Ray was up")
            return LOST
        ray = await start_ray(f"--address={host}:{port}")
        told = asyncio.ensure_future(reader.readline())
        gone = asyncio.ensure_future(ray.wait())
        await asyncio.wait([told, gone], return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if not told.done():
            told.cancel()
            say("Ray ended on this node")
            return LOST
        status = told.result().decode().strip() if told.exception() is None else ""
        if not status:
            say("the first node was lost")
        return int(status or LOST)
    except asyncio.CancelledError:
        return STOPPED
    finally:
        writer.close()
        if ray is not None:
            await end(ray)


async def main(nodes: int, words: list[str]) -> int:
    place = os.environ
    host, meet = place["MASTER_ADDR"], int(place["MASTER_PORT"])
    part = Head(nodes, words, meet).run() if place["NODE_RANK"] == "0" else work(host, meet)
    task = asyncio.ensure_future(part)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


if __name__ == "__main__":
    sys.exit(asyncio.run(main(int(sys.argv[1]), sys.argv[2:])))
