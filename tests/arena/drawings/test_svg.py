"""Pictures of one page: what comes again is drawn once."""

from __future__ import annotations

from xml.etree import ElementTree

from arena.drawings.draw import pictures_of
from arena.drawings.picture import shared
from tests.arena.drawings.conftest import SVG, PlayRandomly


def test_what_comes_again_is_drawn_once_and_nothing_is_lost(play_randomly: PlayRandomly) -> None:
    game, _ = play_randomly("classic/chess-v6", most=60)
    whole = ["", *(picture.svg for _, picture in pictures_of(game))]
    page = shared(whole)
    assert sum(map(len, page)) < sum(map(len, whole)) / 6
    assert page[0] == whole[0] == ""
    pictures = list(map(ElementTree.fromstring, page[1:]))
    definitions = pictures[0][-1]
    pictures[0].remove(definitions)
    defined = {one.attrib["id"]: one[0] for one in definitions}

    def without_uses(element: ElementTree.Element) -> str:
        for place, child in enumerate(element):
            while child.tag == f"{SVG}use":
                child = element[place] = defined[child.attrib["href"][1:]]
            without_uses(child)
        return ElementTree.tostring(element, encoding="unicode")

    for drawn, before in zip(pictures, whole[1:], strict=True):
        known = ElementTree.tostring(ElementTree.fromstring(before), encoding="unicode")
        assert without_uses(drawn) == known


def test_pictures_that_have_nothing_in_common_stay_as_they_are() -> None:
    apart = ["<svg><g/><text>a</text></svg>", "", "<svg><g><g/>b</g></svg>"]
    assert shared(apart) == apart
    same = ["<svg><g><text>a</text></g></svg>"] * 2
    assert shared(same) == [
        '<svg><use href="#d1"/><defs><g id="d0"><text>a</text></g>'
        '<g id="d1"><g><use href="#d0"/></g></g></defs></svg>',
        '<svg><use href="#d1"/></svg>',
    ]
