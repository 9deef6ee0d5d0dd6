"""A launch whose chosen ranks are profiled: our trainer and Python scripts by torch's profiler, any other command by
Nsight Systems. Both are part of the command that a rank runs, so it is the same on every scheduler."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from trainwright.catalog.environment import EnvVar
from trainwright.errors import UserError
from trainwright.schedulers.base import Launch
from trainwright.spec.units import parse_bytes, parse_seconds
from trainwright.train.profile import EXAMPLE, VARIABLE, parse_request

CARRIED = "trainwright_profile.py"  # train/profile.py, in the code folder of a run
KEYS = ("steps", "ranks", "nodes", "tool", "delay", "duration", "size")
# The report goes beside the others; the command goes on after the time is over.
NSYS = """rank=${RANK:-${SLURM_PROCID:-0}} node=${GROUP_RANK:-${SLURM_NODEID:-${NODE_RANK:-0}}}
case " $PROFILE_RANKS " in *" $rank "*) ;; *)
  case " $PROFILE_NODES " in *" $node "*) ;; *) exec "$@" ;; esac ;; esac
if ! command -v nsys > /dev/null; then
  echo "rank $rank is not profiled: Nsight Systems (nsys) is not installed here" >&2
  exec "$@"
fi
mkdir -p "$TRAINWRIGHT_RUN/profile"
exec nsys profile --output="$TRAINWRIGHT_RUN/profile/rank-$(printf %05d "$rank")" --force-overwrite=true \\
  --trace=cuda,nvtx,osrt --sample=none --cpuctxsw=none --kill=none --wait=all \\
  --delay="$PROFILE_DELAY" --duration="$PROFILE_DURATION" "$@"
"""


@dataclass(frozen=True, slots=True)
class ProfileOrder:
    """What `submit --profile` asked for."""

    steps: str = "10..12"
    ranks: tuple[int, ...] = (0,)
    nodes: tuple[int, ...] = ()  # all ranks of these nodes, with Nsight Systems
    tool: str = ""  # torch or nsys; empty: torch where it can be used
    delay: float = 60.0  # seconds, with Nsight Systems
    duration: float = 10.0
    size: float = 2e9  # bytes; a larger report stays on the cluster

    @property
    def first(self) -> int:
        return int(self.steps.partition("..")[0])

    @property
    def request(self) -> str:
        return f"steps={self.steps} ranks={','.join(map(str, self.ranks))}"


def parse_profile(text: str) -> ProfileOrder:
    """`steps=10..12 ranks=0,8 tool=nsys delay=60s duration=10s size=2GB nodes=0`."""
    words = dict(word.partition("=")[::2] for word in text.split())
    wrong = [key for key in words if key not in KEYS]
    try:
        if wrong:
            raise ValueError(f"{wrong[0]!r} is none of {', '.join(KEYS)}")
        if words.get("tool", "torch") not in ("torch", "nsys"):
            raise ValueError("tool is torch or nsys")
        request = parse_request(" ".join(f"{key}={words[key]}" for key in ("steps", "ranks") if key in words))
        return ProfileOrder(
            f"{request.first}..{request.last}", request.ranks, _numbers(words.get("nodes", "")), words.get("tool", ""),
            float(parse_seconds(words.get("delay", "60s"))), float(parse_seconds(words.get("duration", "10s"))),
            float(parse_bytes(words.get("size", "2GB"))),
        )  # fmt: skip
    except ValueError as error:
        raise UserError(f"--profile {text!r}: {error}", fix=f"--profile '{EXAMPLE}'") from None


def _numbers(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"(\d+(,\d+)*)?", text):
        raise ValueError(f"{text!r} is no list of numbers")
    return tuple(map(int, text.split(","))) if text else ()


def profiled(launch: Launch, order: ProfileOrder, own_trainer: bool, carries: bool) -> Launch:
    """The launch with its command profiled. `carries`: the run folder brings code to the nodes."""
    python = _is_python(launch.command) and carries
    tool = order.tool or ("torch" if own_trainer or python else "nsys")
    if tool == "torch" and own_trainer:
        return replace(launch, command=(*launch.command, "--profile", order.request))
    if tool == "torch" and not python:
        raise UserError(
            "torch's profiler is started by a Python script of the run, and this job has none",
            fix="--profile 'tool=nsys …', which profiles any command where Nsight Systems is installed",
        )
    if tool == "torch":
        interpreter, *rest = launch.command
        carried = str(Path(launch.folder) / "code" / CARRIED)
        wanted = EnvVar(VARIABLE, order.request, "which steps of which ranks torch's profiler traces")
        environment = (*launch.environment, wanted)
        return replace(launch, command=(interpreter, carried, *rest), environment=environment)
    variables = {
        "PROFILE_RANKS": " ".join(map(str, order.ranks)),
        "PROFILE_NODES": " ".join(map(str, order.nodes)),
        "PROFILE_DELAY": f"{order.delay:g}",
        "PROFILE_DURATION": f"{order.duration:g}",
    }
    lines = tuple(EnvVar(name, value, "what Nsight Systems profiles") for name, value in variables.items())
    command = ("bash", "-c", NSYS, "profile", *launch.command)
    return replace(launch, command=command, environment=(*launch.environment, *lines))


def _is_python(command: tuple[str, ...]) -> bool:
    program = Path(command[0]).name if command else ""
    return bool(re.fullmatch(r"python[\d.]*", program)) and len(command) > 1 and command[1].endswith(".py")
