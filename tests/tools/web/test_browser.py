"""Pages in a real browser: nothing refused, nothing fetched from elsewhere, nothing too wide."""

from __future__ import annotations

import functools
import http.server
import re
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.tools.web.browsing import mistakes_of, needs_browser, served
from tests.tools.web.conftest import HOSTILE, hostile_run
from tools.web.export import write_export
from tools.web.pages.pages import PAGES
from tools.web.runs import named_runs

pytestmark = [pytest.mark.slow, pytest.mark.integration, needs_browser]
NAMES = [*PAGES, "player-p000"]
LOOKS: list[Any] = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]


def look_at_all(
    browser: Browser,
    first: str,
    folder: str,
    names: list[str],
    *,
    looks: list[Any] = LOOKS,
    is_checked: bool = False,
) -> None:
    """Open pages in looks; fail on the first thing that is wrong."""
    for width, scheme in looks:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = context.new_page()
        wrong = mistakes_of(page, urlsplit(first).netloc)
        page.goto(first)
        for name in names:
            page.goto(f"{folder}/{name}.html")
            # A server's first pages come by themselves.
            page.locator("#being-computed").wait_for(state="detached")
            for chart in page.locator(".chart").all():
                assert chart.locator("svg").count() > 0, (name, chart.get_attribute("data-kind"))
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
            if is_checked:
                assert not obstacles(page), (name, width, scheme)
            assert not wrong, (name, width, scheme, wrong)
        context.close()


def obstacles(page: Page) -> list[str]:
    """Return what keeps readers with a screen reader, a keyboard or weak eyes from a page.

    By the rules of WCAG 2.2 at level AA that axe-core checks, contrast among them.
    """
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    # It would load style sheets again, which a file may not.
    rules = {"runOnly": tags, "preload": False}
    found = Axe().run(page, options=rules).response["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found]


def test_pages_of_a_server(browser: Browser, board_run: Path) -> None:
    with served(board_run) as first:
        folder = first.partition("/?")[0] + "/board"
        look_at_all(browser, first, folder, NAMES, is_checked=True)


def test_differences_of_two_runs(browser: Browser, board_run: Path, tag_run: Path) -> None:
    with served(board_run, tag_run) as first:
        for folder, name in (("board", "diff-with-tag"), ("tag", "diff-with-board")):
            look_at_all(
                browser, first, first.partition("/?")[0] + f"/{folder}", [name], is_checked=True
            )


@pytest.mark.timeout(300)
def test_texts_of_strangers_run_nothing_and_break_no_page(
    browser: Browser, board_run: Path, tmp_path: Path
) -> None:
    run = hostile_run(board_run, tmp_path / "run", HOSTILE)
    looks = [LOOKS[0], LOOKS[-1]]
    with served(run, board_run) as first:
        folder = first.partition("/?")[0] + "/run"
        look_at_all(browser, first, folder, [*NAMES, "diff-with-board"], looks=looks)
    # In a file no header forbids code: there is none.
    files = tmp_path / "page"
    write_export(named_runs([run, board_run]), files)
    names = [*NAMES, "metrics-2", "diff-with-board"]
    folder = (files / "run").as_uri()
    look_at_all(browser, (files / "index.html").as_uri(), folder, names, looks=looks)


def test_an_export_from_disk_and_from_a_web_server(
    browser: Browser, board_run: Path, tmp_path: Path
) -> None:
    write_export(named_runs([board_run]), tmp_path)
    names = NAMES
    look_at_all(browser, (tmp_path / "index.html").as_uri(), (tmp_path / "board").as_uri(), names)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    handler = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            look_at_all(browser, f"{url}/index.html", f"{url}/board", names)
        finally:
            server.shutdown()
            thread.join()


def test_a_chart_tells_where_it_is_pointed_at_and_leads_to_players(
    browser: Browser, board_run: Path
) -> None:
    with served(board_run) as first:
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        wrong = mistakes_of(page, urlsplit(first).netloc)
        page.goto(first)
        page.goto(first.partition("/?")[0] + "/board/standings.html")
        page.locator("#being-computed").wait_for(state="detached")
        dots = page.locator(".chart svg .mark-symbol.role-mark path")
        dots.first.wait_for()
        dots.first.hover()
        page.locator(".tip").get_by_text("value: ").wait_for()
        dots.first.click()
        page.wait_for_url("**/board/player-p*.html")
        assert not wrong
        context.close()


def test_charts_follow_the_look_and_the_width(
    browser: Browser, board_run: Path, tmp_path: Path
) -> None:
    write_export(named_runs([board_run]), tmp_path)
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    page = context.new_page()
    page.goto((tmp_path / "board" / "ratings.html").as_uri())
    chart = page.locator(".chart svg").first
    label = page.locator(".chart svg .role-axis-label text").first
    label.wait_for()
    light, wide = label.get_attribute("fill"), chart.bounding_box()
    assert light is not None
    assert wide is not None
    assert wide["width"] > 1000
    page.emulate_media(color_scheme="dark")
    expect(label).not_to_have_attribute("fill", light)
    page.set_viewport_size({"width": 390, "height": 900})
    expect(chart).to_have_attribute("width", re.compile("3[0-9][0-9]"))
    # One drawing each, however often it was drawn.
    for element in page.locator(".chart").all():
        expect(element.locator("svg")).to_have_count(1)
    context.close()
