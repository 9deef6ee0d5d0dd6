"""Powers the elastic nodes of one local cluster up and down, as a cloud's API would: Slurm asks, this process acts."""

from __future__ import annotations

import os
import sys

from trainwright.platforms.local import daemons, monitoring, state
from trainwright.platforms.local.state import Record


def main(name: str) -> None:
    """Read requests from the cluster's pipe until the cluster is taken down."""
    record = state.require(name)
    # Opened for writing as well, so that the pipe never reads as ended between two requests.
    with os.fdopen(os.open(record.folder / "run/power", os.O_RDWR), "r") as requests:
        for line in requests:
            word, _, nodes = line.strip().partition(" ")
            print(line.strip(), flush=True)
            power(record, word, nodes)


def power(record: Record, word: str, hosts: str) -> None:
    """Do what one request says: `resume burst-[1-3]` or `suspend burst-2`."""
    names = daemons.run_on_head(record, ["scontrol", "show", "hostnames", hosts]).split()
    nodes = [record.cluster.node(name) for name in names]
    roles = {daemons.node_role(node) for node in nodes}
    # A node that is resumed may still be there half dead; it starts afresh either way.
    state.kill(record, roles.__contains__)
    if word == "resume":
        daemons.start_nodes(record, nodes)
    monitoring.ensure(record)


if __name__ == "__main__":
    main(sys.argv[1])
