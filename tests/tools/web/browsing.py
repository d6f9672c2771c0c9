"""The distribution's Chromium, and what it must never meet on a page."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import pytest

from tests.tools.web.conftest import TOKEN

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Request

INSTALL = "apt-get install chromium"
"""Command that installs it on Debian."""


def chromium() -> str:
    """Return the browser's path; a test fails where there is none."""
    found = shutil.which("chromium")
    if found is None:
        pytest.fail(f"there is no chromium on PATH, which tests of the page need: {INSTALL}")
    return found


@contextmanager
def launched(directory: Path) -> Iterator[Browser]:
    """Start a browser that leaves settings of the desktop in a directory."""
    from playwright.sync_api import sync_playwright

    environment = {**os.environ, "XDG_RUNTIME_DIR": str(directory)}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(),
            args=["--no-sandbox"],
            env=cast("dict[str, str | float | bool]", environment),
        )
        yield browser
        browser.close()


def served(*runs: Path) -> AbstractContextManager[str]:
    """Serve runs by the command; give the address of the first page."""
    return served_by("web", *map(str, runs), "--token", TOKEN)


@contextmanager
def served_by(*arguments: str) -> Iterator[str]:
    """Serve pages by a command; give the address that it says."""
    # The command is that of this checkout, whichever version is installed.
    program = [sys.executable, "-m", "tools.main", *arguments, "--port", "0"]
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@contextmanager
def visited(browser: Browser | BrowserContext, address: str, **how: Any) -> Iterator[Page]:
    """Open a page on which nothing goes wrong."""
    page = browser.new_page(**how)
    wrong = mistakes_of(page, urlsplit(address).netloc)
    page.goto(address)
    yield page
    assert wrong == []
    page.close()


def mistakes_of(page: Page, host: str) -> list[str]:
    """Return a list that takes whatever goes wrong on a page."""
    wrong: list[str] = []

    def check(request: Request) -> None:
        if urlsplit(request.url).netloc not in ("", host):
            wrong.append(request.url)

    page.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append(dialog.message))
    page.on("request", check)
    return wrong
