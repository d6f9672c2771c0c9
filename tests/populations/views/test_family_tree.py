"""The family tree, read back from its SVG."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from typing import Any

from populations.views.charts.family_tree import BIG_GAIN, LANE, LOSS, NEITHER, TOP, family_tree
from populations.views.charts.figures import lineage
from populations.views.charts.parts import COLOURS, Reader
from tests.populations.views import documents

SVG = "{http://www.w3.org/2000/svg}"
FILE = Reader(["player"], width=400)
POLICIES = sorted(documents.lineage()["policies"], key=lambda row: -row["rating"])


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def lines_of(root: ElementTree.Element, text: str) -> list[dict[str, str]]:
    """Return the lines whose title has a text, in the order of drawing."""
    found = []
    for line in root.iter(f"{SVG}line"):
        title = line.find(f"{SVG}title")
        if title is not None and text in (title.text or ""):
            found.append(dict(line.attrib))
    return found


def middle(lane: int) -> int:
    return TOP + LANE * lane + LANE // 2


def test_a_bar_is_a_generation_from_its_first_step_to_its_last() -> None:
    root = parsed(family_tree([POLICIES], documents.lineage(), FILE))
    first, second = lines_of(root, "p000 generation")
    # 4000 agent steps are drawn on 400 pixels; the second generation is still open.
    assert (first["x1"], first["x2"], first["y1"]) == ("0.0", "200.0", str(middle(2)))
    assert (second["x1"], second["x2"]) == ("200.0", "400.0")
    (lost, unknown) = lines_of(root, "p001 generation")
    # 50 Elo are the largest gain, 20 are lost; the other gains are unknown.
    strokes = [COLOURS[name].light for name in (BIG_GAIN, LOSS, NEITHER)]
    assert [one["stroke"] for one in (first, lost, unknown)] == strokes
    assert {"+50", "-20"} <= {one.text for one in root.iter(f"{SVG}text")}


def test_arrows_lead_from_donors_and_those_of_the_best_are_thick_and_on_top() -> None:
    root = parsed(family_tree([POLICIES], documents.lineage(), FILE))
    other, best = lines_of(root, "copied p001 at 1,900 agent steps")
    # Lane 1 is p001, the donor of both; lanes 2 and 0 copied it, at the edges of the bars.
    assert (other["x1"], other["y1"]) == ("190.0", str(middle(1) + 4))
    assert (other["x2"], other["y2"]) == ("200.0", str(middle(2) - 4))
    assert (best["x2"], best["y2"]) == ("250.0", str(middle(0) + 4))
    # p002 is the best, and descends from the second copy only.
    assert float(best["stroke-width"]) > float(other["stroke-width"])
    assert best["marker-end"] == "url(#head-best)"


def test_a_generation_that_is_its_own_parent_ends_the_search() -> None:
    rows = [documents.generation("player/p000", 0, 0, "start", parent="player/p000#0")]
    lineage = {**documents.lineage(), "generations": rows}
    assert lines_of(
        parsed(family_tree([POLICIES], lineage, replace(FILE, width=9))), "p000 generation 0"
    )


def test_all_of_64_lanes_have_names() -> None:
    rows: Any = [
        {"policy": f"player/p{index:03}", "agent_steps": 100, "rating": None} for index in range(64)
    ]
    document = {"policies": rows, "generations": [], "exploits": []}
    svg = str(lineage({"lineage": document}, FILE)[0].chart)
    texts = [one.text for one in parsed(svg).iter(f"{SVG}text")]
    assert {f"p{index:03}" for index in range(64)} <= set(texts)


def test_texts_of_strangers_are_text() -> None:
    hostile = "<script>alert(1)</script>\"'&\x00\u202e" + "x" * 10_000
    policy: Any = {"policy": 'player/<b>&"', "agent_steps": 1, "rating": 0.0}
    row = documents.generation(policy["policy"], 0, 0, hostile)
    row["hyperparameters"] = {hostile: hostile}
    lineage = {"policies": [policy], "generations": [row], "exploits": []}
    root = parsed(family_tree([[policy]], lineage, FILE))
    assert {one.tag for one in root.iter()}.isdisjoint({f"{SVG}script", f"{SVG}b"})
    assert 'player/<b>&"' in [one.text for one in root.iter(f"{SVG}text")]
    assert not [key for one in root.iter() for key in one.attrib if key.startswith("on")]
    (title,) = (one.text or "" for one in root.iter(f"{SVG}title"))
    assert "<script>alert(1)" in title
    assert len(title) < 300
    assert title.replace("\n", "").isprintable()
