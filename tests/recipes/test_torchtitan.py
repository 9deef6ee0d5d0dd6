"""torchtitan's own parser reads the files that our recipes make, and keeps their values."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from test_frameworks import written_for
from resolving import loaded
from trainwright.jobs.frameworks import framework_launch
from trainwright.jobs.resolve import resolve_job
from trainwright.recipes.load import foreign_names

PYTHON = Path(__file__).parents[2] / ".venvs/frameworks/bin/python"
NAMES = [name for name in foreign_names() if name.startswith("torchtitan-")]
# Its __init__ loads kernels for GPUs; the parser needs none of them.
PARSE = """\
import dataclasses, json, sys, types
from importlib.util import find_spec
package = types.ModuleType("torchtitan")
package.__path__ = list(find_spec("torchtitan").submodule_search_locations)
sys.modules["torchtitan"] = package
from torchtitan.config.manager import ConfigManager
for path in sys.argv[1:]:
    config = ConfigManager().parse_args(["--job.config_file", path])
    print("CONFIG", json.dumps(dataclasses.asdict(config), default=str))
"""


@pytest.mark.judge
@pytest.mark.proves(*NAMES, "parsed")
def test_its_parser_reads_every_recipe(tmp_path: Path) -> None:
    for name in NAMES:
        job = resolve_job(loaded(written_for(name)), "j").require()
        launch = framework_launch(job, Path("/fsx/runs/r-1"), tmp_path)
        (tmp_path / f"{name}.toml").write_text(launch.files["torchtitan.toml"])
    files = [str(tmp_path / f"{name}.toml") for name in NAMES]
    done = subprocess.run([str(PYTHON), "-c", PARSE, *files], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    configs = [json.loads(line.removeprefix("CONFIG ")) for line in done.stdout.splitlines() if line.startswith("CONFIG ")]
    by_name = dict(zip(NAMES, configs, strict=True))
    large = by_name["torchtitan-llama3.1-405b"]
    assert (large["model"]["flavor"], large["parallelism"]["tensor_parallel_degree"]) == ("405B", 8)
    assert large["model"]["converters"] == ["quantize.linear.float8"]
    assert large["training"]["global_batch_size"] == 512
    assert by_name["torchtitan-qwen3-30b-a3b"]["parallelism"]["expert_parallel_degree"] == 8
    assert all(config["checkpoint"]["enable"] for config in configs)
