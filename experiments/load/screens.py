"""Pages of `arena web` in Chromium: first paint, payload and screenshots, at two widths and looks.

python -m experiments.load.screens /tmp/league --to /tmp/screens
python -m experiments.load.screens runs/a runs/b --to /tmp/screens   # with their differences
python -m experiments.load.screens runs/a/page --exported --to /tmp/screens
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.server
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from experiments.load.page import TOKEN, peak_mib
from experiments.load.scale import say

if TYPE_CHECKING:
    from playwright.sync_api import Page

LOOKS = ((1280, "light"), (1280, "dark"), (390, "light"), (390, "dark"))
MOST_MS = 300_000
"""Milliseconds for which a page of a large league may say that it is being computed."""

PAINTED = "() => performance.getEntriesByName('first-contentful-paint').length > 0"

TIMES = """() => {
  const entries = performance.getEntriesByType("resource").concat(
    performance.getEntriesByType("navigation"));
  const sent = entries.filter(one => !one.name.includes("vega.min.js"));
  return {
    paint: performance.getEntriesByName("first-contentful-paint")[0].startTime,
    sent: sent.reduce((sum, one) => sum + one.encodedBodySize, 0),
    loaded: performance.getEntriesByType("navigation")[0].loadEventEnd,
  };
}"""


def names_of(page: Page, address: str) -> list[str]:
    """Return the names of a run's pages: those of its navigation, a policy's and a ghost's."""
    whole(page, f"{address}/standings.html")
    links = {
        place: [Path(str(one.get_attribute("href"))).stem for one in page.locator(place).all()]
        for place in ("nav[aria-label=Pages] a", "td:first-child a")
    }
    pages, players = links.values()
    ghosts = [name for name in players if name.startswith("weights-")]
    return [*pages, *players[:1], *ghosts[:1]]


def whole(page: Page, url: str) -> None:
    """Open a page, and wait until its documents are there and it is painted."""
    page.goto(url)
    page.locator("#being-computed").wait_for(state="detached", timeout=MOST_MS)
    page.wait_for_load_state("load")
    page.wait_for_function(PAINTED)


def look(page: Page, address: str, name: str, *, width: int) -> Iterator[str]:
    """Open a page twice, and yield the cells of a table's line about the second time."""
    for _ in range(2):
        whole(page, f"{address}/{name}.html")
    times = cast("dict[str, Any]", page.evaluate(TIMES))
    yield f"{times['paint'] / 1000:.2f}"
    yield f"{times['loaded'] / 1000:.2f}"
    yield f"{times['sent'] / 1000:.0f}"
    too_wide = page.evaluate("document.documentElement.scrollWidth") - width
    yield f"{max(too_wide, 0)}"


def faults_of(page: Page, first: str) -> list[str]:
    """Return a list that takes errors of the browser's console, and requests to other places."""
    faults: list[str] = []
    host = urlsplit(first).netloc

    def check(url: str) -> None:
        if urlsplit(url).netloc != host and not url.startswith(("data:", "blob:")):
            faults.append(f"asked elsewhere: {url}")

    page.on("request", lambda request: check(request.url))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda one: faults.append(one.text) if one.type == "error" else None)
    return faults


@contextlib.contextmanager
def served(runs: list[Path]) -> Iterator[tuple[str, int]]:
    """Serve runs; give the address of the first page, and the server's process."""
    program = [sys.executable, "-m", "tools.main", "web", *map(str, runs), "--port", "0"]
    with subprocess.Popen(
        [*program, "--token", TOKEN], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip(), server.pid
        finally:
            server.terminate()


@contextlib.contextmanager
def served_files(folder: Path) -> Iterator[str]:
    """Serve files as any web server would; give their address."""
    handler = functools.partial(QuietFiles, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()


class QuietFiles(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, without a line for each."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def measure(first: str, slug: str, folder: Path) -> None:
    """Print a table of all pages in all looks, and leave their screenshots.

    Args:
        first: Address of the first page.
        slug: Name of the run in addresses.
        folder: Directory for screenshots.
    """
    from playwright.sync_api import sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    address = f"{first.partition('/?')[0].removesuffix('/')}/{slug}"
    with sync_playwright() as playwright:
        names: list[str] = []
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        say("| page | look | first paint, s | loaded, s | kB | too wide, px | faults |")
        say("|---|---|---|---|---|---|---|")
        for width, scheme in LOOKS:
            context = browser.new_context(
                viewport={"width": width, "height": 900}, color_scheme=cast("Any", scheme)
            )
            page = context.new_page()
            faults = faults_of(page, first)
            page.goto(first)
            names = names or names_of(page, address)
            for name in names:
                cells = list(look(page, address, name, width=width))
                say(f"| {name} | {width} {scheme} | {' | '.join(cells)} | {len(faults)} |")
                page.screenshot(path=folder / f"{name}-{width}-{scheme}.png", full_page=True)
            for fault in faults:
                say(fault)
            context.close()
        browser.close()


def measure_export(export: Path, folder: Path) -> None:
    """Measure an export, opened from disk and from a web server."""
    files = [path for path in export.rglob("*") if path.is_file()]
    say(f"{len(files)} files, {sum(path.stat().st_size for path in files) / 1e6:.1f} MB")
    # In it are the folder of scripts and those of runs.
    slug = min(path.parent.name for path in export.glob("*/index.html"))
    say("from disk")
    measure(export.resolve().as_uri(), slug, folder / "disk")
    with served_files(export) as first:
        say("from a web server")
        measure(first, slug, folder / "server")


def main() -> None:
    """Measure runs or an export, and show them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="Run directories; pages of the first.")
    parser.add_argument("--to", type=Path, required=True, help="Directory for screenshots.")
    parser.add_argument(
        "--exported", action="store_true", help="Whether they are exports, not runs."
    )
    given = parser.parse_args()
    if given.exported:
        for export in given.runs:
            measure_export(export, given.to)
        return
    with served(given.runs) as (first, pid):
        measure(first, given.runs[0].name, given.to)
        say(f"largest memory of the server: {peak_mib(pid)} MiB")


if __name__ == "__main__":
    main()
