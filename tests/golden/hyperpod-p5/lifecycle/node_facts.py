"""What a HyperPod node is, from the two files that say it: prints shell variables for the lifecycle scripts. Runs with
the system's own Python: `node_facts.py RESOURCE_CONFIG PROVISIONING_PARAMETERS ADDRESS...`."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

USER = "ubuntu"  # of HyperPod's images


def facts(resources: dict[str, Any], parameters: dict[str, Any], addresses: set[str]) -> dict[str, str]:
    """The variables, under the names that ParallelCluster's nodes have them: our scripts run on both."""
    groups = {group["Name"]: group.get("Instances", []) for group in resources["InstanceGroups"]}
    mine = [
        (name, node)
        for name, nodes in groups.items()
        for node in nodes
        if addresses & {node.get("CustomerIpAddress"), node.get("AgentIpAddress")}
    ]
    if not mine:
        raise SystemExit(
            f"error: no instance group has a node with one of the addresses {', '.join(sorted(addresses))}"
        )
    group, node = mine[0]
    controllers = [other["CustomerIpAddress"] for other in groups.get(parameters["controller_group"], [])]
    if not controllers:
        raise SystemExit(f"error: the controller group {parameters['controller_group']!r} has no node yet")
    return {
        "stack_name": resources["ClusterConfig"]["ClusterName"],
        "cfn_node_type": "HeadNode" if group == parameters["controller_group"] else "ComputeFleet",
        "cfn_region": resources["ClusterConfig"]["ClusterArn"].split(":")[3],
        "cfn_cluster_user": USER,
        "node_group": group,
        "node_address": node["CustomerIpAddress"],
        "controllers": ",".join(controllers),
    }


def main(words: list[str]) -> None:
    resources, parameters = (json.loads(Path(path).read_text(encoding="utf-8")) for path in words[:2])
    for name, value in facts(resources, parameters, set(words[2:])).items():
        print(f"{name}={shlex.quote(value)}")


if __name__ == "__main__":
    main(sys.argv[1:])
