"""The AWS region of the files that are checked, for the rules that ask AWS."""

from __future__ import annotations

import os
from collections.abc import Sequence

from trainwright.check.beside import file_at
from trainwright.check.model import known


def stated_region(paths: Sequence[str]) -> str | None:
    """The one region that the named files state; None where they state none, or several."""
    files = [file_at(path) for path in paths if os.path.isfile(path)]
    clusters = [cluster for file in files if file is not None for cluster in file.clusters]
    regions = {region for cluster in clusters if (region := known(cluster.region))}
    return regions.pop() if len(regions) == 1 else None
