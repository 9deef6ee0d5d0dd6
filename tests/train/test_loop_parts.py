"""The small parts of the loop: schedules, the loss guard, who I am among the ranks, spot notices, the console."""

import http.server
import io
import math
import subprocess
import sys
import threading
from dataclasses import fields

import pytest

from trainwright.errors import UserError
from trainwright.train.config import Interval, TrainConfig, parse_arguments, parse_interval, parser
from trainwright.train.guards import LossGuard
from trainwright.train.metrics import Console, Metrics
from trainwright.train.schedule import Schedule
from trainwright.train.signals import spot_notice
from trainwright.train.world import first_host, read_environment


def test_schedules_at_their_corners():
    for kind in ("cosine", "linear"):
        rate = Schedule(kind, 1.0, 100, warmup=10, floor=0.1)
        assert rate(0) == pytest.approx(0.1)
        assert rate(9) == rate(10) == pytest.approx(1.0)
        assert rate(100) == pytest.approx(0.1)
        assert rate(55) == pytest.approx(0.55)
        assert all(rate(s) >= rate(s + 1) for s in range(10, 99))
    assert Schedule("cosine", 1.0, 100, floor=0)(25) == pytest.approx((1 + math.cos(math.pi / 4)) / 2)
    stable = Schedule("wsd", 1.0, 100, warmup=10, decay=20, floor=0.0)
    assert [stable(s) for s in (10, 50, 80)] == [1.0, 1.0, 1.0]
    assert stable(90) == pytest.approx(0.5)
    assert stable(99) == pytest.approx(0.05)


def test_a_schedule_longer_than_the_run_names_the_numbers():
    with pytest.raises(UserError, match="60 warmup steps and 50 decay steps are more than the 100 steps"):
        Schedule("wsd", 1.0, 100, warmup=60, decay=50)


def test_intervals():
    assert parse_interval("200") == Interval(steps=200)
    assert parse_interval("15min") == Interval(seconds=900)
    assert parse_interval("1.5h") == Interval(seconds=5400)
    assert parse_interval("never") == Interval()
    for wrong in ("0", "1.5", "soon", "10 days"):
        with pytest.raises(UserError):
            parse_interval(wrong)


def test_the_guard_knows_a_spike_from_noise_and_from_a_falling_loss():
    guard = LossGuard("skip", "rewind", 8.0)
    for step in range(200):
        loss = 5 * math.exp(-step / 80) + 2 + 0.05 * math.sin(step * 1.7)
        assert guard.judge(loss) == ("ok", "")
    assert guard.judge(6.0)[0] == "rewind"
    assert guard.judge(math.nan)[0] == "skip"
    assert guard.judge(2.5, math.inf)[0] == "skip"
    assert guard.judge(2.5)[0] == "ok"


def test_slurm_variables_make_a_rank():
    slurm = {
        "SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "1234",
        "SLURM_STEP_NODELIST": "gpu-[03-06]",
    }  # fmt: skip
    found = read_environment(slurm)
    assert found == {
        "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "gpu-03", "MASTER_PORT": "21234",
    }  # fmt: skip
    assert read_environment({**slurm, "RANK": "0", "WORLD_SIZE": "2"}) == {}, "torchrun inside srun goes first"
    batch_script = {k: v for k, v in slurm.items() if k != "SLURM_STEP_NUM_TASKS"}
    assert read_environment(batch_script) == {}, "an sbatch script without srun is one process"


def test_the_first_host_of_a_node_list():
    assert first_host("n[03-07,9],m1") == "n03"
    assert first_host("a,b") == "a"
    assert first_host("rack1-n[1-2]-x") == "rack1-n1-x"


class Metadata(http.server.BaseHTTPRequestHandler):
    """An instance metadata service: 404 for the notice until there is one."""

    notice = False

    def do_PUT(self):
        self.answer(200, b"token")

    def do_GET(self):
        known = self.path == "/latest/meta-data/spot/instance-action" and Metadata.notice
        with_token = self.headers["X-aws-ec2-metadata-token"] == "token"
        self.answer(200 if known and with_token else 404, b'{"action": "terminate"}')

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def test_a_spot_notice_is_seen(monkeypatch):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    try:
        assert not spot_notice()
        monkeypatch.setattr(Metadata, "notice", True)
        assert spot_notice()
    finally:
        server.shutdown()
        server.server_close()
    assert not spot_notice(), "no service, no notice"


def test_console_lines_align_and_have_no_colour_in_a_file():
    out = io.StringIO()
    console = Console(1000, True, out)
    for step, speed in ((9, 950.0), (10, 123_456.0), (1000, 5.2e6)):
        console.line(Metrics(step, 2.5, 1.25, 3e-4, 1, speed, 0.412, 0.5, 0.001, 0.0, 71.2, 0.99, console.began + 5))
    lines = out.getvalue().splitlines()
    assert "\x1b" not in out.getvalue()
    assert lines[0].index("mfu") == lines[1].index("mfu") == lines[2].index("mfu")
    assert "eta 8m16s" in lines[0]
    assert "took 5s" in lines[2]


@pytest.mark.parametrize("name", [f.name for f in fields(TrainConfig) if isinstance(f.default, float)])
@pytest.mark.parametrize("value", ["nan", "inf", "-1", "1e9"])
def test_the_fix_of_a_number_out_of_range_is_accepted(name, value):
    wanted = ["--model", "m", "--data", "d"]
    try:
        parse_arguments([*wanted, f"--{name.replace('_', '-')}={value}"])
    except UserError as error:
        fix = error.fix.split()
    else:
        fix = []
    assert (value == "1e9") or fix, "all others are refused"
    parse_arguments([*wanted, *fix])


def test_help_names_every_option_and_the_exit_codes():
    text = parser().format_help()
    for word in ("--checkpoint-every", "--on-nan", "exit status", "75", "builtin:stdlib"):
        assert word in text


def test_peak_memory_is_not_that_of_the_process_that_started_this_one():
    """A big launcher's memory was reported as that of each of its ranks: getrusage keeps it across exec."""
    rank = "import torch; from trainwright.train.metrics import memory_gb; print(memory_gb(torch.device('cpu')))"
    launcher = f"import subprocess, sys; held = b'x' * (1 << 30); subprocess.run([sys.executable, '-c', {rank!r}])"
    done = subprocess.run([sys.executable, "-c", launcher], check=True, capture_output=True, text=True)
    assert 0.05 < float(done.stdout) < 0.9
