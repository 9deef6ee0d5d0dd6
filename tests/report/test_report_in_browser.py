"""The report in a real browser, as long as a run can be: it opens at once, draws, and works with keys alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import chromium, needs_chromium, opened, serious_faults
from run_folders import HOSTILE, write_long_run

from trainwright.report.run_report.collect import collect
from trainwright.report.run_report.html import page as html_page

pytestmark = [pytest.mark.slow, needs_chromium]
STEPS, RANKS = 100_000, 512
MOST_SECONDS, MOST_BYTES = 2.0, 5_000_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("long")
    run = write_long_run(folder, STEPS, RANKS, every=50)
    facts = json.loads((run / "run.json").read_text()) | {"name": HOSTILE}
    (run / "run.json").write_text(json.dumps(facts))
    path = folder / "report.html"
    path.write_text(html_page([collect(str(run))]))
    return path


def test_the_longest_run_opens_at_once(browser: Any, report: Path) -> None:
    assert report.stat().st_size < MOST_BYTES
    times = []
    for _ in range(3):
        with opened(browser, report.as_uri()) as page:
            page.wait_for_selector("html[data-drawn]")
            times.append(page.evaluate("performance.now() / 1000"))
    assert min(times) < MOST_SECONDS


@pytest.mark.parametrize(("size", "scheme"), [("desktop", "light"), ("phone", "dark")])
def test_it_is_drawn_and_readable_on_every_screen(browser: Any, report: Path, size: str, scheme: str) -> None:
    with opened(browser, report.as_uri(), size, scheme) as page:
        page.wait_for_selector("html[data-drawn]")
        assert len(page.query_selector_all("figure[data-chart] canvas")) >= 9
        assert page.evaluate("document.documentElement.scrollWidth") == page.viewport_size["width"]
        assert page.evaluate("window.broken") is None
        assert serious_faults(page) == []


def test_extremes_are_in_the_curve_and_in_its_table(browser: Any, report: Path) -> None:
    with opened(browser, report.as_uri()) as page:
        page.wait_for_selector("html[data-drawn]")
        page.focus("figure[data-chart=norm] summary")
        page.keyboard.press("Enter")
        page.wait_for_selector("figure[data-chart=norm] details[open] td:text-is('777')")


def test_a_chart_works_with_keys_alone(browser: Any, report: Path) -> None:
    with opened(browser, report.as_uri()) as page:
        page.wait_for_selector("html[data-drawn]")
        page.focus("figure[data-chart=loss] .plot")
        page.keyboard.press("ArrowRight")
        value = page.wait_for_selector("figure[data-chart=loss] .value:not(:empty)")
        assert value.inner_text().startswith("step 1")
        for _ in range(4):
            page.keyboard.press("+")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("0")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.tagName") == "SUMMARY"


def test_it_prints_without_what_only_a_screen_can_use(browser: Any, report: Path) -> None:
    with opened(browser, report.as_uri()) as page:
        page.wait_for_selector("html[data-drawn]")
        page.emulate_media(media="print")
        assert not page.is_visible("nav")
        assert not page.is_visible("[data-reset]")
        assert len(page.pdf()) > 50_000
