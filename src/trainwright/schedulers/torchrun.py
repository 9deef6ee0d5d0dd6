"""A rank's command as torchrun takes it, for schedulers whose pods or containers start one torchrun per node."""

from __future__ import annotations

import shlex

from trainwright.schedulers.base import Launch

# After SIGTERM torchrun waits for its ranks and then kills them: 30 s, or what this variable says. PyTorch 2.13 reads
# it and 2.9 does not, so where a scheduler allows it the ranks get the signal in torchrun's place.
SHUTDOWN_TIMEOUT = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
# The kernel lists the processes that torchrun started. Where there are none yet, torchrun gets the signal itself.
_SIGNAL_RANKS = "kill -TERM $(cat /proc/{agent}/task/*/children)"
PORT = 29400  # pods and multi-node containers have an address of their own, so one port serves every job


def stop_forwarder() -> str:
    """Shell words before torchrun that pass a request to stop on to its ranks alone: they save for as long as the
    scheduler lets them, and torchrun ends with them."""
    script = (
        f"trap '{_SIGNAL_RANKS.format(agent='$agent')} || kill -TERM $agent' TERM; \"$@\" & agent=$!; "
        "while wait $agent; code=$?; kill -0 $agent 2> /dev/null; do :; done; "
        # A signal ends a wait with a status of its own, also when torchrun ends at that moment; bash remembers it.
        "wait $agent 2> /dev/null; last=$?; [ $last -eq 127 ] || code=$last; exit $code"
    )
    return f"bash -c {shlex.quote(script)} node"


def before_stop() -> list[str]:
    """The same from outside, for a container whose first process is torchrun: ends when the ranks have ended."""
    waiting = 'while [ -n "$(cat /proc/1/task/*/children)" ]; do sleep 1; done'
    return ["sh", "-c", f"{_SIGNAL_RANKS.format(agent=1)}; {waiting}"]


def log_options(launch: Launch) -> list[str]:
    """Every rank's output goes to the container's log, marked with its rank, and also into the run folder."""
    return ["--tee=3", f"--log-dir={launch.folder}/logs"]


def under_torchrun(command: tuple[str, ...]) -> list[str]:
    """`python -m mod …` and `python script.py …` without the interpreter; anything else runs without Python."""
    words = list(command)
    if words and words[0].rpartition("/")[2].startswith("python"):
        return words[1:]
    return ["--no-python", *words]
