from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import Clock
from tools.web.pace import LEAST_S, MAX_PAGES, SHARE, WATCHED_S, KeptPages, Pace


def test_a_thing_waits_by_what_it_took_and_by_how_many_are_looked_at() -> None:
    clock = Clock()
    pace = Pace(clock)
    clock.now_s = LEAST_S
    assert pace.is_due("a", made_s=0.0, took_s=0.0)
    # The cost is two seconds of the share: alone it is due after 2 s, one of two after 4.
    assert pace.is_due("a", made_s=0.0, took_s=2.0 * SHARE)
    assert not pace.is_due("b", made_s=0.0, took_s=2.0 * SHARE)
    clock.now_s = 4.0
    assert pace.is_due("b", made_s=0.0, took_s=2.0 * SHARE)
    # The other page is not viewed any more.
    clock.now_s = LEAST_S + WATCHED_S + 0.5
    assert pace.is_due("b", made_s=clock.now_s - 2.0, took_s=2.0 * SHARE)


@settings(max_examples=30)
@given(
    costs=st.lists(st.floats(0.001, 2.0), min_size=1, max_size=30),
    readers=st.integers(1, 40),
)
def test_the_share_holds_for_any_number_of_things_and_readers(
    costs: list[float], readers: int
) -> None:
    clock = Clock()
    pace = Pace(clock)
    made = dict.fromkeys(range(len(costs)), 0.0)
    # All things are viewed from the beginning.
    for thing, took_s in enumerate(costs):
        pace.is_due(thing, made_s=0.0, took_s=took_s)
    spent_s, end_s, look = 0.0, 600.0, 0
    while clock.now_s < end_s:
        clock.now_s += 5.0 / max(readers, len(costs))
        thing = look % len(costs)
        look += 1
        if pace.is_due(thing, made_s=made[thing], took_s=costs[thing]):
            made[thing] = clock.now_s
            spent_s += costs[thing]
    assert spent_s <= SHARE * end_s
    if len(costs) * max(costs) / SHARE + 10.0 < end_s:
        assert all(made.values()), "nothing waits for ever"


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


def test_a_page_that_is_being_made_is_made_once() -> None:
    now_s = 0.0
    pages = KeptPages(Pace(lambda: now_s))
    assert pages.page("index", "1", lambda: "old")
    now_s = LEAST_S
    seen = []

    def make() -> str:
        # A second reader comes while the first one's page is being made.
        page = pages.page("index", "2", lambda: "made twice")
        assert page is not None
        seen.append(page.html)
        return "new"

    page = pages.page("index", "2", make)
    assert page is not None
    assert (page.html, seen) == ("new", ["old"])


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
