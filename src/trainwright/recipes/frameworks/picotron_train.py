"""Starts picotron's train.py from its newest whole checkpoint. picotron loads only what its file names, so a job that
comes back would start from zero: each rank names the newest one in a copy of the file, then runs train.py.

    python3 picotron_train.py /opt/picotron/train.py config.json"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path


def newest(folder: Path, parts: int) -> str:
    """The newest step that every tensor and pipeline rank has written; empty where there is none."""
    steps = sorted((int(path.name) for path in folder.glob("*") if path.name.isdecimal()), reverse=True)
    whole = [step for step in steps if len(list((folder / str(step)).glob("weights_*.pth"))) >= parts]
    return str(folder / str(whole[0])) if whole else ""


def main() -> None:
    program, source = sys.argv[1], Path(sys.argv[2])
    config = json.loads(source.read_text(encoding="utf-8"))
    spread = config["distributed"]
    config["checkpoint"]["load_path"] = newest(
        Path(config["checkpoint"]["save_dir"]), spread["tp_size"] * spread["pp_size"]
    )
    own = Path(f"/tmp/picotron-{os.environ.get('MASTER_PORT', '0')}-{os.environ.get('RANK', '0')}.json")
    own.write_text(json.dumps(config), encoding="utf-8")
    sys.path.insert(0, str(Path(program).parent))
    sys.argv = [program, "--config", str(own)]
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
