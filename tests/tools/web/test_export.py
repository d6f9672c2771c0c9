from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

from tools.web.export import best_linked, files_of, write_export
from tools.web.runs import named_runs
from tools.web.site import Site


class Addresses(HTMLParser):
    """Addresses that a page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name in ("href", "src") and value]
        assert (tag, ("type", "module")) not in [(tag, attribute) for attribute in attrs]


def test_every_address_of_an_export_is_a_file_of_it(board_run: Path, tmp_path: Path) -> None:
    check_addresses(board_run, tmp_path / "page")


def check_addresses(run: Path, target: Path) -> None:
    count = write_export(named_runs([run]), target)
    files = [path for path in target.rglob("*") if path.is_file()]
    assert len(files) == count
    for page in target.rglob("*.html"):
        addresses = Addresses()
        addresses.feed(page.read_text())
        for address in addresses.found:
            parts = urlsplit(address)
            assert (parts.scheme, parts.netloc, parts.query) == ("", "", ""), address
            if parts.path:
                assert (page.parent / parts.path).is_file(), (page, address)


def test_the_first_page_comes_first_and_never_polls(board_run: Path) -> None:
    name, content = next(files_of(Site(named_runs([board_run]), is_static=True)))
    assert name == "index.html"
    assert b'data-poll-s="0.0"' in content


def test_an_export_has_pages_of_policies_and_of_the_best_ghosts() -> None:
    names = {f"player/p000@{steps:012d}": f"weights-{steps}" for steps in range(600)}
    linked = best_linked({"player/p000": "player-p000", **names})
    assert len(linked) == 501
    assert "player/p000" in linked
    assert "player/p000@000000000499" in linked
    assert "player/p000@000000000500" not in linked
