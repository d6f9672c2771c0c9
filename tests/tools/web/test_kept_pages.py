from __future__ import annotations

from collections.abc import Callable

from tools.web.kept_pages import MAX_PAGES, KeptPages
from tools.web.pace import LEAST_S, Pace


def making(pages: KeptPages) -> tuple[list[object], Callable[[object, str], str]]:
    """Return what was made, and a function that gets a page."""
    made: list[object] = []

    def get(address: object, tag: str) -> str:
        def make() -> str:
            made.append(address)
            return f"{address} by {tag}"

        page = pages.page(address, tag, make)
        assert page is not None
        assert page.html == f"{address} by {page.tag}"
        return page.tag

    return made, get


def test_readers_share_a_page_until_it_is_due() -> None:
    now_s = 0.0
    made, get = making(KeptPages(Pace(lambda: now_s)))
    assert get("index", "1") == "1"
    assert get("index", "1") == "1"
    assert get("index", "2") == "1", "it is too new to be made again"
    assert get("events", "2") == "2", "of another one there is no older version"
    now_s = LEAST_S
    assert get("index", "2") == "2"
    assert made == ["index", "events", "index"]


def test_a_page_that_is_not_there_is_asked_for_each_time() -> None:
    pages = KeptPages(Pace())
    assert pages.page("nothing", "1", lambda: None) is None
    page = pages.page("nothing", "1", lambda: "there")
    assert page is not None
    assert page.html == "there"


def test_only_the_last_pages_are_kept() -> None:
    made, get = making(KeptPages(Pace()))
    for number in range(MAX_PAGES + 1):
        get(number, "1")
    get(MAX_PAGES, "1")
    assert made[-1] == MAX_PAGES
    assert len(made) == MAX_PAGES + 1
    get(0, "1")
    assert len(made) == MAX_PAGES + 2
