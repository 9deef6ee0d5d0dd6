"""The helper for scripts: it works alone, under any launcher, and the example of the documentation trains with it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright import run
from trainwright.runs import code
from trainwright.runs.framework_logs import read_log

ROOT = Path(__file__).parents[1]
LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*LAUNCHED, *filter(_of_launcher, os.environ)]:
        monkeypatch.delenv(name, raising=False)


def _of_launcher(name: str) -> bool:
    return name.startswith(("TRAINWRIGHT_", "MASTER_", "SLURM_", "OMPI_", "TORCHELASTIC_", "AWS_BATCH_"))


def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_RUN", str(tmp_path))
    assert run.folder() == tmp_path
    assert run.checkpoint_folder() == tmp_path / "checkpoints"
    assert (tmp_path / "checkpoints").is_dir()
    monkeypatch.setenv("TRAINWRIGHT_CHECKPOINTS", str(tmp_path / "other"))
    assert run.checkpoint_folder() == tmp_path / "other"


def test_place_under_each_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run.place()[:5] == (0, 1, 0, 1, 0)
    for name, value in {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_NODEID": "1"}.items():
        monkeypatch.setenv(name, value)
    assert run.place()[:5] == (5, 8, 1, 1, 1)
    given = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1"}
    for name, value in {**given, "MASTER_ADDR": "head", "MASTER_PORT": "1234"}.items():
        monkeypatch.setenv(name, value)
    assert run.place() == (3, 4, 1, 2, 1, "head", 1234)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    assert run.attempt() == 2


def test_progress_is_read_by_the_log_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_RUN", str(tmp_path))
    run.progress(1, loss=2.5, total=10, tokens_per_s=100)
    run.progress(2, loss=float("nan"))
    monkeypatch.setenv("RANK", "1")
    run.progress(3, loss=1.0)  # another rank's is left
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["loss"] for line in lines] == [2.5, None]
    assert re.search(r'"time": \d+', lines[0])  # the job script looks for it
    first, second = read_log(lines)
    assert (first.step, first.total, first.loss, first.tokens_per_s) == (1, 10, 2.5, 100)
    assert second.step == 2


def test_progress_without_a_run_folder_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    run.progress(7, loss=0.5)
    assert read_log([capsys.readouterr().out])[0].step == 7


def _script(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "script.py"
    path.write_text(text)
    return path


@pytest.mark.parametrize("number", run.SIGNALS)
def test_a_signal_asks_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    """The file alone, copied beside a script, in an interpreter without site packages."""
    shutil.copy(run.__file__, tmp_path / "run.py")
    script = _script(
        tmp_path,
        "import run, signal, sys\nrun.listen()\nprint('ready', flush=True)\n"
        "while not run.should_stop():\n    signal.pause()\nprint(run.stop_reason(), flush=True)\nrun.exit_saved()\n",
    )
    process = subprocess.Popen(
        [sys.executable, "-S", str(script)], stdout=subprocess.PIPE, text=True, env={"PATH": os.environ["PATH"]}
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert (out, process.returncode) == (f"{number.name}\n", run.SAVED)


def test_a_script_takes_the_helper_along(tmp_path: Path) -> None:
    source, shipped = tmp_path / "source", tmp_path / "code"
    source.mkdir()
    shipped.mkdir()
    (source / "train.py").write_text("from trainwright import run\nprint(run.SAVED, run.__file__)\n")
    code.ship_script(source / "train.py", shipped)
    done = subprocess.run(
        [sys.executable, "-S", str(shipped / "train.py")], capture_output=True, text=True, env={}, check=True
    )
    assert done.stdout.split() == ["75", str(shipped / "trainwright" / "run.py")]
    # Where Trainwright is installed, the rest of it is still found.
    (shipped / "train.py").write_text("from trainwright import run, errors\nprint(errors.__file__, run.__file__)\n")
    path = {"PYTHONPATH": f"{shipped}:{ROOT / 'src'}"}
    done = subprocess.run(
        [sys.executable, str(shipped / "train.py")], capture_output=True, text=True, env=path, check=True
    )
    assert done.stdout.split() == [str(ROOT / "src/trainwright/errors.py"), str(shipped / "trainwright" / "run.py")]


def _example() -> str:
    page = (ROOT / "docs/run/your-script.md").read_text()
    match = re.search(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert match is not None
    return match[1]


def test_the_example_of_the_documentation_trains(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_example())
    home = tmp_path / "home"
    environment = {**os.environ, "TRAINWRIGHT_HOME": str(home), "PYTHONPATH": str(ROOT / "src")}
    words = ["submit", "--script", "train.py", "--scheduler", "process", "--processes", "2", "--follow"]
    done = subprocess.run(
        [sys.executable, "-m", "trainwright", *words], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    folder = next((home / "runs").glob("train-*"))
    records = read_log((folder / "metrics.jsonl").read_text().splitlines())
    assert [record.step for record in records] == list(range(1, 41))
    assert records[-1].loss is not None
    assert records[0].loss is not None
    assert records[-1].loss < records[0].loss
    assert json.loads((folder / "result.json").read_text()) == {"status": "done", "step": 40}


@pytest.mark.slow
def test_the_example_stops_at_a_signal_and_goes_on(tmp_path: Path) -> None:
    script = _script(tmp_path, _example())
    environment = {
        **os.environ, "TRAINWRIGHT_RUN": str(tmp_path), "PYTHONPATH": str(ROOT / "src"), "RANK": "0", "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0",
    }  # fmt: skip
    # The signal is there before the first step, so that the first step is also the last.
    first = (
        script.read_text()
        .replace("STEPS = 40", "STEPS = 40\nimport signal\n")
        .replace("run.listen()\n", "run.listen()\nsignal.raise_signal(signal.SIGUSR1)\n")
    )
    stopped = subprocess.run([sys.executable, "-c", first], env=environment, capture_output=True, text=True)
    assert stopped.returncode == run.SAVED, stopped.stderr
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    records = read_log((tmp_path / "metrics.jsonl").read_text().splitlines())
    assert [record.step for record in records] == list(range(1, 41))
