"""The documentation site in a real browser: no request to another host, no error, nothing that keeps somebody out.
`make docs` builds it; CI does so before the tests."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import chromium, needs_chromium, opened, serious_faults

SITE = Path(__file__).parents[2] / "site"
pytestmark = [
    pytest.mark.slow,
    needs_chromium,
    pytest.mark.skipif(not (SITE / "index.html").exists(), reason="the site is not built: make docs"),
]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_site_is_readable_and_asks_nothing_of_the_network(address: str) -> None:
    pages = (
        ("", "desktop", "light"),
        ("", "phone", "dark"),
        ("oncall/", "desktop", "dark"),
        ("compare/", "phone", "light"),
    )
    with chromium() as browser:
        for path, size, scheme in pages:
            with opened(browser, address + path, size, scheme) as page:
                page.wait_for_selector("main h1")
                assert serious_faults(page) == [], path
                assert page.evaluate("document.documentElement.scrollWidth") == page.viewport_size["width"]
                broken = "[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
                assert page.evaluate(broken) == []


def test_the_search_finds_a_verb(address: str) -> None:
    with chromium() as browser, opened(browser, address) as page:
        page.keyboard.press("/")
        page.keyboard.type("straggler")
        page.wait_for_selector(".md-search-result__link")
