"""Record a terminal per verb as SVG, from what the verb really prints: run by `make docs`, shown on the verb's page.

Everything runs in one folder that is removed at the end, with a local Slurm where there is one; without it, the verbs
that need a cluster show why they were not recorded. `--long` records the two that take minutes and photographs the
demo's report; these are kept in the repository."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import html
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs/images/terminal"
WIDTH, LINES = 120, 44
FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
FILES = {
    "mistakes.yaml": "src/trainwright/demo/mistakes.yaml",
    "pretrain.sbatch": "tests/golden/jobs/parallelcluster/pretrain.sbatch",
    "cluster.yaml": "examples/p5-reservation.yaml",
    "local.yaml": "examples/local.yaml",
    "notes.txt": "LICENSE",
    "clustermgtd.log": "tests/platforms/diagnosis/logs/insufficient-capacity.log",
}


@dataclass(frozen=True)
class Recording:
    """One verb: the command that is shown. `after` is run before it and not shown."""

    verb: str
    command: str
    after: str = ""
    cluster: bool = False  # needs the local Slurm
    lines: int = LINES


RECORDINGS = (
    Recording("init", "trainwright init p5-reservation -o new.yaml"),
    Recording("check", "trainwright check mistakes.yaml"),
    Recording("adopt", "trainwright adopt pretrain.sbatch -o adopted.yaml"),
    Recording("predict", "trainwright predict --model llama3-70b --instance p5.48xlarge --nodes 16 --batch 4M"),
    Recording("advise", "trainwright advise --model llama3-70b --tokens 1T --deadline 30d --instances p5,p5en"),
    Recording("plan", "trainwright plan cluster.yaml -o plan"),
    Recording("iam", "trainwright iam cluster.yaml", lines=28),
    Recording("explain", "trainwright explain clustermgtd.log"),
    Recording("recipes", "trainwright recipes list", lines=24),
    Recording("catalog", "trainwright catalog show p5.48xlarge"),
    Recording("schema", "trainwright schema | head -n 20"),
    Recording("versions", "trainwright versions", lines=24),
    Recording("health", "trainwright health"),
    Recording("data", "trainwright data prepare notes.txt -o data"),
    Recording("bench", "trainwright bench collectives --processes 2 --high 64K"),
    Recording("train", "trainwright train --model llama3.2-1b-debug --data builtin:stdlib --sequence 128 --batch 8 "
              "--steps 8 --folder first"),
    Recording("up", "trainwright up local.yaml", cluster=True),
    Recording("status", "trainwright status local --nodes", cluster=True),
    Recording("connect", "trainwright connect local -- srun -N 4 hostname", cluster=True),
    Recording("discover", "trainwright connect local -- trainwright discover", cluster=True),
    Recording("submit", "trainwright submit local.yaml --recipe cpu-ddp --nodes 2 --follow -- --steps 6", cluster=True),
    Recording("logs", "trainwright logs last --rank 0", cluster=True, lines=16),
    Recording("report", "trainwright report last --md", cluster=True),
    Recording("profile", "trainwright profile last", "trainwright submit local.yaml --recipe cpu-ddp --nodes 2 "
              "--follow --profile 'steps=2..4 ranks=0' -- --steps 6", cluster=True),
    Recording("jobs", "trainwright jobs", "trainwright submit local.yaml --recipe cpu-ddp --nodes 2 -- --steps 500",
              cluster=True),
    Recording("cancel", "trainwright cancel last", cluster=True),
    Recording("resume", "trainwright resume last --force -- --steps 10", cluster=True),
    Recording("runs", "trainwright runs", cluster=True),
    Recording("down", "trainwright down local --force", cluster=True),
)  # fmt: skip
LONG = (
    Recording("demo", "trainwright demo", lines=80),
    Recording("drill", "trainwright drill local.yaml --fault rank", "trainwright up local.yaml", cluster=True),
)
NOT_RECORDED = "not recorded: there was no Slurm on the machine that built this page\n"
SECONDS_TO_A_RUN = 60  # until the app of `watch` shows one
NAMES = frozenset({*(each.verb for each in (*RECORDINGS, *LONG)), "watch"})  # `watch` is a picture of its app


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help="record the demo and a drill instead")
    arguments = parser.parse_args()
    IMAGES.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with workplace() as (folder, environment):
        for each in LONG if arguments.long else RECORDINGS:
            record(each, folder, environment)
            if each.verb == "report":
                record_watch(environment)
            if each.verb == "demo":
                photograph(folder / "home/demo/report.html")
    print(f"recorded {len(LONG if arguments.long else RECORDINGS)} verbs in {time.monotonic() - began:.0f} s")
    return 0


@contextmanager
def workplace() -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder with the files that the commands name, and an environment of its own."""
    with tempfile.TemporaryDirectory(prefix="tw") as name:
        folder = Path(name)
        for target, source in FILES.items():
            shutil.copy(ROOT / source, folder / target)
        environment = {
            **os.environ, "TRAINWRIGHT_HOME": str(folder / "home"), "HOME": str(folder), "TERM": "xterm-256color",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TRAINWRIGHT_ENDS_WITH": str(os.getpid()),
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
        }  # fmt: skip
        environment.pop("NO_COLOR", None)
        try:
            yield folder, environment
        finally:
            for cluster in (folder / "home/clusters").glob("*/"):
                subprocess.run(["trainwright", "down", cluster.name, "--force"], env=environment, capture_output=True)


def record(each: Recording, folder: Path, environment: dict[str, str]) -> None:
    if each.cluster and not shutil.which("slurmctld"):
        output = NOT_RECORDED
    else:
        if each.after:
            subprocess.run(["bash", "-c", each.after], cwd=folder, env=environment, capture_output=True, check=True)
        output = terminal_output(each.command, folder, environment)
    text = output.replace(str(folder), "~")
    lines = text.rstrip().splitlines()
    if len(lines) > each.lines:
        lines = [*lines[: each.lines - 1], "…"]
    write_svg(each.verb, each.command, Text.from_ansi("\n".join(lines)))


def terminal_output(command: str, folder: Path, environment: dict[str, str]) -> str:
    """What a command prints on a terminal, as it stands there at the end: a line that was written over counts once."""
    head, tail = pty.openpty()
    fcntl.ioctl(tail, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, WIDTH, 0, 0))
    process = subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=tail, stderr=tail
    )
    os.close(tail)
    output = b""
    while True:
        ready, _, _ = select.select([head], [], [], 0.2)
        try:
            piece = os.read(head, 65536) if ready else b""
        except OSError:  # the other end is closed
            break
        output += piece
        if not piece and process.poll() is not None:
            break
    os.close(head)
    process.wait()
    if process.returncode not in (0, 1):  # 1 is an answer: findings
        raise SystemExit(f"`{command}` ended with status {process.returncode}:\n{output.decode(errors='replace')}")
    text = output.decode(errors="replace").replace("\r\n", "\n")
    text = re.sub(r"\x1b\[(\d*)A", "", re.sub(r"\x1b\[\?25[lh]", "", text))  # the cursor is shown, hidden, moved up
    return "\n".join(line.rsplit("\r", 1)[-1].replace("\x1b[2K", "").replace("\x1b[K", "") for line in text.split("\n"))


def write_svg(verb: str, command: str, text: Text) -> None:
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    console.print(Text(f"$ {command}", style="bold"))
    console.print(text)
    svg = console.export_svg(
        title=f"trainwright {verb}", code_format=without_network(CONSOLE_SVG_FORMAT), unique_id=verb
    )
    (IMAGES / f"{verb}.svg").write_text(svg, encoding="utf-8")


def without_network(svg: str) -> str:
    """No font from elsewhere: the reader's own monospace font is as good."""
    svg = re.sub(r"@font-face \{.*?\}\s*(?=@font-face|\.)", "", svg, flags=re.DOTALL)
    return re.sub(r"font-family: (?:Fira Code, monospace|arial)", f"font-family: {FONT}", svg)


def photograph(report: Path) -> None:
    """The top of the demo's report, for the README and the first page: needs Chromium, playwright and pillow."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    shot = report.with_name("report.png")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 1620})
        page.goto(report.as_uri())
        page.wait_for_selector("html[data-drawn]")
        page.screenshot(path=shot)
        browser.close()
    Image.open(shot).save(ROOT / "docs/images/report.webp", quality=82, method=6)


def record_watch(environment: dict[str, str]) -> None:
    """The app of `watch`, on the run that was submitted last."""
    if not shutil.which("slurmctld"):
        write_svg("watch", "trainwright watch", Text(NOT_RECORDED.rstrip()))
        return
    os.environ |= {"TRAINWRIGHT_HOME": environment["TRAINWRIGHT_HOME"]}
    from trainwright.report.watch.app import WatchApp
    from trainwright.report.watch.snapshot import Watcher

    async def picture() -> str:
        app = WatchApp(Watcher(), pause=0.5)
        async with app.run_test(size=(WIDTH, 30)) as pilot:
            async with asyncio.timeout(SECONDS_TO_A_RUN):
                while app.snapshot is None or app.snapshot.run is None:
                    await pilot.pause(0.1)
            await pilot.press("l")
            await pilot.pause(0.5)
            return app.export_screenshot(title="trainwright watch")

    svg = re.sub(r"@font-face \{.*?\}\s*(?=@font-face|\.)", "", asyncio.run(picture()), flags=re.DOTALL)
    svg = svg.replace("Fira Code, monospace", html.escape(FONT)).replace(
        "font-family: Fira Code", f"font-family: {FONT}"
    )
    (IMAGES / "watch.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
