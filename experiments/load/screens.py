"""Pages of `arena web` in Chromium: first paint, payload and screenshots, at two widths and looks.

python -m experiments.load.screens /tmp/league --to /tmp/screens
python -m experiments.load.screens runs/a runs/b --to /tmp/screens   # with their differences
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

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
  const sent = entries.filter(one => !one.name.includes("plotly.min.js"));
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


def faults_of(page: Page) -> list[str]:
    """Return a list that takes whatever the browser's console calls an error."""
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda one: faults.append(one.text) if one.type == "error" else None)
    return faults


def measure(runs: list[Path], folder: Path) -> None:
    """Print a table of all pages in all looks, and leave their screenshots."""
    from playwright.sync_api import sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    program = [sys.executable, "-m", "tools.main", "web", *map(str, runs), "--port", "0"]
    with (
        subprocess.Popen([*program, "--token", TOKEN], stdout=subprocess.PIPE, text=True) as server,
        sync_playwright() as playwright,
    ):
        assert server.stdout is not None
        first = server.stdout.readline().strip()
        address = f"{first.partition('/?')[0]}/{runs[0].name}"
        try:
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
                faults = faults_of(page)
                page.goto(first)
                names = names or names_of(page, address)
                for name in names:
                    cells = list(look(page, address, name, width=width))
                    say(f"| {name} | {width} {scheme} | {' | '.join(cells)} | {len(faults)} |")
                    page.screenshot(path=folder / f"{name}-{width}-{scheme}.png", full_page=True)
                for fault in faults:
                    say(fault)
                context.close()
            say(f"largest memory of the server: {peak_mib(server.pid)} MiB")
            browser.close()
        finally:
            server.terminate()


def main() -> None:
    """Measure runs, and show them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="Run directories; pages of the first.")
    parser.add_argument("--to", type=Path, required=True, help="Directory for screenshots.")
    given = parser.parse_args()
    measure(given.runs, given.to)


if __name__ == "__main__":
    main()
