"""A real Chromium for the tests of pages: Debian's, driven by playwright. Where it is missing, the tests say so; CI
installs it (tools/system-packages.sh), so there they run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
SIZES = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Any, address: str, size: str = "desktop", scheme: str = "light") -> Iterator[Any]:
    """A page that must neither log an error nor ask anything of another host."""
    page = browser.new_page(viewport=SIZES[size], color_scheme=scheme)
    page.set_default_timeout(15_000)
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    home = address.split("/", 3)[:3]
    page.on(
        "request",
        lambda request: problems.append(f"asked for {request.url}") if not _own(request.url, home) else None,
    )
    page.goto(address)
    try:
        yield page
        assert problems == []
    finally:
        page.close()


def _own(url: str, home: list[str]) -> bool:
    return url.startswith(("data:", "blob:")) or url.split("/", 3)[:3] == home


def serious_faults(page: Any) -> list[str]:
    """What axe-core finds that keeps somebody from using the page."""
    from axe_playwright_python.sync_playwright import Axe

    violations = Axe().run(page).response["violations"]
    return [
        f"{fault['id']}: {[node['target'] for node in fault['nodes']][:3]}"
        for fault in violations
        if fault["impact"] in ("serious", "critical")
    ]
