"""A `pcluster` command for tests that need many clusters: the stand-in's small stack behind the real one's options. The
test of the whole story uses the real pcluster."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from standin.tool import StandInTool
from trainwright.aws.session import Account
from trainwright.platforms.apply.steps import BuildFailed


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("verb")
    for option in ("--region", "--cluster-name", "--cluster-configuration", "--status"):
        parser.add_argument(option, default="")
    asked = parser.parse_args()
    tool = StandInTool(Account(asked.region))
    try:
        if asked.verb in ("create-cluster", "update-cluster"):
            config = Path(asked.cluster_configuration).read_text()
            (tool.create if asked.verb == "create-cluster" else tool.update)(asked.cluster_name, config)
        elif asked.verb == "delete-cluster":
            tool.delete(asked.cluster_name)
        elif asked.verb == "update-compute-fleet":
            tool.fleet(asked.cluster_name, asked.status)
    except BuildFailed as error:
        print(json.dumps({"message": error.what}))
        sys.exit(1)


if __name__ == "__main__":
    main()
