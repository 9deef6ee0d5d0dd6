"""The report of a run: what it says, what it must never show, what is kept when a long run is made small."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from run_folders import BEGAN, HOSTILE, PREDICTION, metrics_line, write_lines, write_run

from trainwright.cli.report import command
from trainwright.errors import UserError
from trainwright.report.run_report import redact
from trainwright.report.run_report.collect import collect
from trainwright.report.run_report.html import page
from trainwright.report.run_report.markdown import markdown
from trainwright.report.run_report.series import HeatColumns, kept_points

TITAN = "[titan] 2026-11-15 10:00:0{n},123 - root - INFO - step: {n}  loss: {loss}  grad_norm: 1.5  memory: 40.1GiB(50%)  tps: 5,000  tflops: 250.1  mfu: 25.3%\n"  # noqa: E501


def short_run(folder: Path, name: str = "short", step_s: float = 0.85, **facts: Any) -> Path:
    path = write_run(folder, name, steps=40, **facts)
    write_lines(path / "metrics.jsonl", [metrics_line(step, step_s) for step in range(1, 41)])
    events = [{"time": BEGAN, "event": "start", "step": 0, "world": 512, "plan": "p", "versions": {"gpu": "H100"}}]
    write_lines(path / "events.jsonl", [*events, {"time": BEGAN + 9, "event": "save", "step": 9, "stall_s": 1.0}])
    (path / "prediction.json").write_text(json.dumps(PREDICTION))
    return path


@given(st.lists(st.one_of(st.none(), st.floats(-1e9, 1e9)), min_size=1, max_size=300), st.integers(1, 20))
def test_a_series_made_small_keeps_its_ends_and_extremes(values: list[float | None], buckets: int) -> None:
    kept = kept_points([values], buckets)
    assert kept == sorted(set(kept))
    assert len(kept) <= 2 * buckets + 2
    assert {0, len(values) - 1} <= set(kept)
    known = [value for value in values if value is not None]
    drawn = [values[at] for at in kept if values[at] is not None]
    if known:
        assert (min(known), max(known)) == (min(drawn), max(drawn))  # type: ignore[type-var]


@given(st.integers(1, 40), st.lists(st.floats(0, 100), min_size=1, max_size=400))
def test_a_heat_map_of_any_length_keeps_the_longest_time_of_each_rank(columns: int, times: list[float]) -> None:
    heat = HeatColumns(columns)
    for step, time in enumerate(times):
        heat.take(step, (time, 1.0))
    assert len(heat.rows) <= 2 * columns + 1
    assert max(row[0] for row in heat.rows) == max(times)
    assert heat.steps[-1] == len(times) - 1
    assert heat.steps == sorted(heat.steps)


def test_predicted_stands_beside_measured_with_the_distance_and_its_cause(tmp_path: Path) -> None:
    path = short_run(tmp_path)
    slow = [metrics_line(step, 1.6, data_wait_s=0.7) for step in range(1, 41)]
    write_lines(path / "metrics.jsonl", slow)
    report = collect(str(path))
    term = report.term("step time")
    assert term is not None
    assert (term.predicted, term.measured, term.status) == (0.8, 1.6, "fail")
    assert term.distance == pytest.approx(1.0)
    assert term.why == "data wait: each step waits 0.7 s of 1.6 s for data"
    assert {"memory", "MFU", "cost", "goodput", "checkpoint stall", "bandwidth"} <= {each.name for each in report.terms}
    cost = report.term("cost")
    assert cost is not None
    assert cost.measured == pytest.approx(3520 / 3600 / (2_500_000 * 0.96) * 1e12)
    assert report.worst == "fail"


def test_a_run_within_its_interval_passes_and_a_run_that_was_never_predicted_is_not_green(tmp_path: Path) -> None:
    path = short_run(tmp_path)
    assert {v.what: v.status for v in collect(str(path)).verdicts}["speed"] == "pass"
    (path / "prediction.json").unlink()
    assert {v.what: v.status for v in collect(str(path)).verdicts}["speed"] == "skip"


def test_a_log_of_another_framework_gets_the_same_page(tmp_path: Path) -> None:
    log = tmp_path / "titan.log"
    log.write_text("".join(TITAN.format(n=n, loss=9 - n) for n in range(1, 6)))
    report = collect(str(log))
    assert (report.framework, report.step) == ("torchtitan", 5)
    assert [chart.id for chart in report.charts][:1] == ["loss"]
    assert "Curves" in page([report])
    empty = tmp_path / "empty.log"
    empty.write_text("nothing here\n")
    with pytest.raises(UserError):
        collect(str(empty))


class Markup(HTMLParser):
    """Every element of a page, and the scripts that are executed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_a_run_whose_nodes_have_no_folder_of_ours_is_read_from_its_api(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path))
    write_run(tmp_path / "runs", "pods", scheduler="kubernetes", platform="kubernetes", remote="/nowhere", ranks=2)

    class Pods:
        ships = False

        def logs(self, job: object, folder: str, seen: dict[str, str], rank: int) -> list[tuple[str, str]]:
            return [("pod", TITAN.format(n=n, loss=9 - n)) for n in range(1, 6)] if rank == 0 else []

    monkeypatch.setattr("trainwright.runs.reach.scheduler_of", lambda run: Pods())
    report = collect("pods")
    assert (report.framework, report.step, report.state) == ("torchtitan", 5, "completed")


def test_hostile_values_do_not_become_markup(tmp_path: Path) -> None:
    path = short_run(tmp_path)
    run = json.loads((path / "run.json").read_text()) | {"name": HOSTILE, "job": HOSTILE, "cluster": HOSTILE}
    (path / "run.json").write_text(json.dumps(run))
    (path / "spec.yaml").write_text(f"name: '{HOSTILE}'\n# </script><script>window.broken=1</script>\n")
    (path / "environment").write_text(f"X={HOSTILE}  # {HOSTILE}\n")
    (path / "profile").mkdir()
    hostile = {"rank": HOSTILE, "words": [HOSTILE], "kernels": [{"name": HOSTILE, "kind": HOSTILE}]}
    (path / "profile/summary.json").write_text(json.dumps({"ranks": [hostile]}))
    write_lines(path / "events.jsonl", [{"time": BEGAN, "event": "note", "text": HOSTILE, "step": 1}])
    report = collect(str(path))
    markup = Markup(page([report, report]))
    assert sum(tag == "script" for tag, _ in markup.tags) == 3  # data, uPlot, page
    assert not [attrs for _, attrs in markup.tags if any(name.startswith("on") for name in attrs)]
    assert not [attrs for tag, attrs in markup.tags if tag == "img" and not str(attrs["src"]).startswith("data:")]
    assert "<img" not in markdown([report]).replace("\\<", "")


def test_a_page_asks_nothing_of_the_network(tmp_path: Path) -> None:
    markup = Markup(page([collect(str(short_run(tmp_path)))]))
    addresses = [attrs.get(name) or "" for _, attrs in markup.tags for name in ("src", "href")]
    assert not [address for address in addresses if address and not address.startswith(("#", "data:"))]


@pytest.mark.parametrize(
    "line",
    [
        "HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz", "env: {WANDB_API_KEY: 0123456789abcdef0123}", "  password: hunter22",
        "command: train --api-key hunter22", "url: https://user:hunter22@example.com/x", "note: AKIAIOSFODNN7EXAMPLE",
        "args:\n  - --api-key\n  - 'hunter22'", "- AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIbPxRfiCYEXAMPLEKEY",
    ],
)  # fmt: skip
def test_no_secret_is_shown(line: str, tmp_path: Path) -> None:
    path = short_run(tmp_path)
    (path / "spec.yaml").write_text(f"name: x\n{line}\n")
    (path / "environment").write_text(f"{line.replace(': ', '=')}  # why\n")
    report = collect(str(path))
    text = page([report]) + json.dumps(report.spec) + markdown([report])
    for secret in ("hf_abcdef", "0123456789abcdef0123", "hunter22", "AKIAIOSFODNN7EXAMPLE", "wJalrXUtn"):
        assert secret not in text


def test_what_only_sounds_like_a_secret_is_shown() -> None:
    for line in ("tokens_per_step: 4096", "TOKENIZERS_PARALLELISM=false", "batch: {tokens: 4M}", "author: someone"):
        assert redact.lines(line) == line


def test_runs_are_compared_side_by_side_and_scale_with_nodes(tmp_path: Path) -> None:
    one = short_run(tmp_path, "one", 1.6, nodes=1, ranks=8)
    two = short_run(tmp_path, "two", 1.0, nodes=2, ranks=16)
    result = CliRunner().invoke(command, [str(one), str(two), "--md"])
    assert result.exit_code == 0, result.output
    assert "## Scaling" in result.output
    assert "| 2 | 4,000,000 | 80% |" in result.output
    written = CliRunner().invoke(command, [str(one), str(two), "-o", str(tmp_path / "both.html")])
    assert written.output.strip() == str(tmp_path / "both.html")
    ids = [attrs["id"] for _, attrs in Markup((tmp_path / "both.html").read_text()).tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_a_profile_says_where_the_step_goes(tmp_path: Path) -> None:
    path = short_run(tmp_path)
    terms = [{"name": "matrix products", "measured_s": 0.6, "predicted_s": 0.5}, {"name": "idle", "measured_s": 0.1}]
    row = {"rank": 3, "words": ["a step is 8% slower"], "terms": terms, "kernels": []}
    (path / "profile").mkdir()
    (path / "profile/summary.json").write_text(json.dumps({"ranks": [row]}))
    report = collect(str(path))
    assert [share.measured_s for share in report.shares if share.measured_s] == [0.6, 0.1]
    assert "rank 3, in words" in page([report])


def test_json_holds_the_whole_report(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, [str(short_run(tmp_path)), "--json"])
    facts = json.loads(result.output)
    assert facts["step"] == 40
    assert facts["terms"][0]["name"] == "step time"
    assert facts["charts"][0]["lines"][0]["label"] == "training loss"


def test_lines_that_were_cut_off_or_hold_nonsense_do_no_harm(tmp_path: Path) -> None:
    path = short_run(tmp_path)
    with (path / "metrics.jsonl").open("a") as out:
        out.write('{"step": 41, "loss": NaN, "time": "x"}\n[1]\nnull\n{"step": true}\n{"step": 42, "lo')
    (path / "prediction.json").write_text('{"tokens_per_s": "many"}')
    (path / "timings.jsonl").write_text('{"step": 1}\n{"step": 2, "hosts": 3}\n')
    with (path / "events.jsonl").open("a") as out:
        out.write('{"event": "ended"}\n{"time": 1, "event": "ended", "code": 3}\n{')
    report = collect(str(path))
    assert report.step == 41
    assert "failures" in {event.lane for event in report.events}
    page([report])


def test_a_loss_that_became_nan_in_any_log_is_no_pass(tmp_path: Path) -> None:
    log = tmp_path / "titan.log"
    log.write_text("".join(TITAN.format(n=n, loss=loss) for n, loss in ((1, "4.0"), (2, "3.0"), (3, "nan"))))
    loss = next(verdict for verdict in collect(str(log)).verdicts if verdict.what == "loss")
    assert (loss.status, loss.why) == ("warn", "1 of 3 steps have a loss that is not finite")
    log.write_text(TITAN.format(n=1, loss="4.0"))
    loss = next(verdict for verdict in collect(str(log)).verdicts if verdict.what == "loss")
    assert (loss.status, loss.why) == ("skip", "4.0000 at the only step that was logged")


def test_what_was_not_logged_and_what_was_faster_are_explained(tmp_path: Path) -> None:
    log = tmp_path / "titan.log"
    log.write_text("".join(TITAN.format(n=n, loss=5 - n) for n in (1, 2)))
    term = collect(str(log)).term("goodput")
    assert term is not None
    assert term.why == "not logged"
    speed = collect(str(short_run(tmp_path, step_s=0.4))).term("tokens/s")
    assert speed is not None
    assert (speed.status, speed.why) == ("warn", "faster than predicted: the prediction is too low for this machine")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("events.jsonl", '{"event": "resume", "time": 1, "seen": "x"}'),
        ("events.jsonl", '{"event": "guard", "time": 1, "samples": [1]}'),
        ("events.jsonl", '{"event": "note", "time": 1e400}'),
        ("config.json", '{"data": 5}'),
        ("last_seen.json", '{"status": []}'),
        ("resolved.json", '{"values": []}'),
        ("prediction.json", json.dumps({**PREDICTION, "cost": "x"})),
    ],
)
def test_a_folder_that_somebody_sent_is_read_or_refused_without_a_traceback(
    tmp_path: Path, name: str, text: str
) -> None:
    path = short_run(tmp_path)
    (path / name).write_text(text + "\n")
    result = CliRunner().invoke(command, [str(path), "-o", str(tmp_path / "r.html")])
    assert result.exception is None or isinstance(result.exception, UserError), result.exception


def test_a_folder_that_is_no_run_is_not_the_last_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    short_run(tmp_path / "home/runs", cluster="", scheduler="process", platform="local")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    for word in (".", "./", str(tmp_path / "empty")):
        with pytest.raises(UserError, match=r"run\.json"):
            collect(word)
    assert collect("last").name == "short"


def test_markdown_and_json_exclude_each_other() -> None:
    refused = CliRunner().invoke(command, ["last", "--md", "--json"])
    assert (refused.exit_code, "--md" in refused.output) == (2, True)


def test_markdown_holds_no_control_characters(tmp_path: Path) -> None:
    path = short_run(tmp_path)
    write_lines(path / "events.jsonl", [{"time": BEGAN, "event": "note", "text": "\x1b]0;title\x07 \x9b31m"}])
    assert all(line.isprintable() for line in markdown([collect(str(path))]).splitlines())


def test_start_up_does_not_fail_a_short_run_and_a_lost_run_does_not_pass(tmp_path: Path) -> None:
    path = short_run(tmp_path)
    rows = [metrics_line(step, 0.85, goodput=0.5) for step in range(1, 41)]
    write_lines(path / "metrics.jsonl", rows)
    goodput = collect(str(path)).term("goodput")
    assert goodput is not None
    assert (goodput.status, goodput.why) == ("skip", "too short to judge: 17 s of 34 s were spent outside the steps")
    write_lines(path / "metrics.jsonl", [{**row, "time": row["time"] + 3600} for row in rows])
    goodput = collect(str(path)).term("goodput")
    assert goodput is not None
    assert goodput.status == "fail"
    status = {"id": "7", "name": "short", "state": "lost", "scheduler": "slurm"}
    (path / "last_seen.json").write_text(json.dumps({"time": BEGAN, "status": status}))
    assert collect(str(path)).verdicts[0].status == "fail"
