"""Pages in a real browser: nothing refused, nothing fetched from elsewhere, nothing too wide."""

from __future__ import annotations

import functools
import http.server
import re
import threading
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.tools.web.browsing import mistakes_of, served
from tests.tools.web.conftest import HOSTILE, hostile_run
from tools.web.export import write_export
from tools.web.pages.pages import PAGES
from tools.web.runs import named_runs

pytestmark = [pytest.mark.slow, pytest.mark.integration]
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
            # A server's first pages appear without a reload.
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
    # Preloading would load style sheets again, which a file must not.
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
    # A file has no header that forbids code.
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
    # Each chart has one drawing, however often it was drawn.
    for element in page.locator(".chart").all():
        expect(element.locator("svg")).to_have_count(1)
    context.close()


def saved(page: Page, name: str, to: Path) -> bytes:
    """Press the button below a chart with the keyboard; return the picture that comes."""
    button = page.get_by_role("button", name=f"SVG of {name}", exact=True)
    button.focus()
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    assert re.fullmatch("[a-z0-9-]+[.]svg", download.value.suggested_filename)
    download.value.save_as(to)
    return to.read_bytes()


PICTURES = {
    "ratings": "Ratings of player over agent steps",
    "payoff": "player against player",
    "lineage": "Lineage over agent steps",
}


@pytest.mark.parametrize("is_static", [False, True], ids=["server", "file"])
def test_a_chart_is_saved_as_a_picture_that_needs_no_page(
    browser: Browser, board_run: Path, tmp_path: Path, is_static: bool
) -> None:
    with served(board_run) as first:
        folder = first.partition("/?")[0] + "/board"
        if is_static:
            write_export(named_runs([board_run]), tmp_path)
            first, folder = ((tmp_path / one).as_uri() for one in ("index.html", "board"))
        for scheme, back in (("light", "#ffffff"), ("dark", "#12161b")):
            context = browser.new_context(color_scheme=scheme)  # type: ignore[arg-type]
            page = context.new_page()
            wrong = mistakes_of(page, urlsplit(first).netloc)
            page.goto(first)
            for name, heading in PICTURES.items():
                page.goto(f"{folder}/{name}.html")
                page.locator("#being-computed").wait_for(state="detached")
                page.locator(".chart svg").first.wait_for()
                picture = saved(page, heading, tmp_path / f"{name}.svg")
                root = ElementTree.fromstring(picture)
                texts = {text for one in root.iter() for text in one.itertext()}
                assert "p000" in texts, name
                assert root[0].get("fill", "").lower() == back
                # The picture has neither links nor colours of the page.
                assert not re.search(rb'href="[^#]|var[(]|url[(][^#]|style="', picture), name
                for file in root, root[1]:
                    assert float(file.get("width", "")) > 300
            assert not wrong
            context.close()


def test_text_of_charts_is_readable_in_both_looks(
    browser: Browser, board_run: Path, tmp_path: Path
) -> None:
    write_export(named_runs([board_run]), tmp_path)
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme)
        page = context.new_page()
        for name in ("ratings", "lineage", "payoff", "mixture"):
            page.goto((tmp_path / "board" / f"{name}.html").as_uri())
            page.locator(".chart svg").first.wait_for()
            texts = page.evaluate(CONTRASTS)
            assert len(texts) > 5
            # WCAG 2.2 level AA requires a contrast of 4.5.
            assert [one for one in texts if one[1] < 4.5] == [], (name, scheme)
        context.close()


CONTRASTS = """() => {
    const shade = (text) => {
        const parts = text.match(/[0-9.]+/g).slice(0, 3).map((one) => one / 255);
        const [r, g, b] = parts.map((p) => p <= 0.04045 ? p / 12.92 : ((p + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const holds = (box, x, y) => box.left <= x && x <= box.right && box.top <= y && y <= box.bottom;
    const bars = Array.from(document.querySelectorAll(".mark-rect.role-mark path"));
    const page = getComputedStyle(document.body).backgroundColor;
    return Array.from(document.querySelectorAll(".chart svg text"), (text) => {
        const box = text.getBoundingClientRect();
        const x = (box.left + box.right) / 2, y = (box.top + box.bottom) / 2;
        const bar = bars.find((one) => holds(one.getBoundingClientRect(), x, y));
        const ground = shade(bar ? getComputedStyle(bar).fill : page);
        const ink = shade(getComputedStyle(text).fill);
        const [low, high] = [ink, ground].sort((one, other) => one - other);
        return [text.textContent, (high + 0.05) / (low + 0.05)];
    });
}"""
"""Texts of a page's charts, each with the contrast to what it stands on."""
