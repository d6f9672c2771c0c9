"""What charts show, read from their rows and compared with the documents."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.errors import ConfigError
from populations.views.charts import curves
from populations.views.charts import parts as chart_parts
from populations.views.charts import results as charts
from populations.views.charts.parts import COLOURS, PALETTE, Axis, Reader, paint
from populations.views.views import VIEWS
from tests.populations.views import documents
from tools.show.chart_files import composed

FILE = Reader(["player"], width=540)
PAGE = Reader(["player"], lambda player: f"{player.replace('/', '-')}.html")


def draw(view: str, of: Reader = FILE, /, **changed: Any) -> Any:
    """Draw a view of the documents that it takes, changed ones among them."""
    figure = VIEWS[view].figure
    assert figure is not None
    sections = figure.draw({**documents.everything(), **changed}, of)
    return composed(figure, sections, tuple(of.populations))


def layers_of(spec: Any, mark: str) -> list[Any]:
    """Return the layers of a kind of mark."""
    layers = spec.get("layer", [spec])
    return [one for one in layers if one["mark"]["type"] == mark]


def rows_of(spec: Any, mark: str, number: int = 0) -> list[dict[str, Any]]:
    # Layers without their own rows use those of the whole chart.
    layer = layers_of(spec, mark)[number]
    rows: list[dict[str, Any]] = layer.get("data", spec.get("data"))["values"]
    return rows


def points(rows: list[dict[str, Any]], *keys: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return points by their names."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows:
        found.setdefault(row["name"], []).append(tuple(row[key] for key in keys or ("x", "y")))
    return found


def test_of_many_policies_the_best_stand_out_and_have_labels_that_do_not_touch() -> None:
    panel = draw("ratings", ratings=documents.ratings(64))["concat"][0]
    grey, bright = layers_of(panel, "line")
    assert len({row["line"] for row in grey["data"]["values"]}) == 59
    assert grey["mark"]["color"] == paint("grey")
    best = ["p063", "p062", "p061", "p060", "p059"]
    scale = {"domain": best, "range": [paint(name) for name in PALETTE[:5]]}
    assert bright["encoding"]["color"]["scale"] == scale
    (labels,) = [one["data"]["values"] for one in layers_of(panel, "text") if "place" in str(one)]
    assert [row["name"] for row in labels] == best
    places = [row["place"] for row in labels]
    # The places are pixels from the top.
    assert all(lower - upper >= chart_parts.LABEL - 0.11 for upper, lower in pairwise(places))
    assert "59 others" in [
        row.get("name") for one in layers_of(panel, "text") for row in one["data"]["values"]
    ]


def test_wide_intervals_do_not_flatten_curves() -> None:
    def ends(low: float, high: float) -> list[float]:
        line = {
            "player": "player/p000",
            "points": [
                documents.point(100 * i, 100.0 * i, rating_low=low, rating_high=high)
                for i in range(3)
            ],
        }
        scale = layers_of(curves.ratings([line], PAGE), "line")[0]["encoding"]["y"]["scale"]
        found: list[float] = scale["domain"]
        return found

    # The axis is longer than the data by a twenty-fifth of their range at both ends.
    assert ends(-50.0, 250.0) == pytest.approx([-62.0, 262.0])
    assert ends(-3000.0, 250.0) == pytest.approx([-218.0, 268.0])


def test_intervals_that_are_open_above_are_drawn_past_all_others() -> None:
    opened: Any = {"rating": 900.0, "rating_low": 700.4, "rating_high": None, "open": True}
    lines = [{**opened, "player": "player/p000", "kind": "policy"}]
    spec = charts.standings(lines, PAGE)
    assert rows_of(spec, "rule") == rows_of(spec, "point")
    (row,) = rows_of(spec, "point")
    # By hand, the upper end is a tenth of 199.6 above 900.
    assert (row["low"], row["high"], row["interval"]) == (700.4, 920.0, "open above")


def test_a_large_payoff_map_leaves_out_ghosts_and_numbers() -> None:
    ghosts = [f"player/p000@{index:012}" for index in range(60)]
    policies = [f"player/p{index:03}" for index in range(100, 164)]
    extra = [documents.standing(ghost, "ghost", 10.0) for ghost in ghosts]
    # The last policy is the best.
    extra += [
        documents.standing(policy, "policy", 400.0 + index) for index, policy in enumerate(policies)
    ]
    cells = [documents.cell(player, "bot:random", 0.5) for player in (*ghosts, *policies)]
    (panel,) = draw(
        "payoff", payoff=documents.payoff(*cells), standings=documents.standings(*extra)
    )["concat"]
    domain = layers_of(panel, "rect")[0]["encoding"]["y"]["scale"]["domain"]
    assert len(domain) == 67
    assert domain[:2] == ["p163", "p162"]
    assert panel["title"][1] == "67 of 129 players; stroke: no matches"
    assert not layers_of(panel, "text")


def test_each_pair_of_populations_has_a_map_and_they_share_bots() -> None:
    bot = documents.standing("bot:random", "bot", 0.0)
    populations = {
        "red": [documents.standing("red/p000", "policy", 10.0), bot],
        "blue": [documents.standing("blue/p000", "policy", 500.0), bot],
    }
    one = {"population": "red", "opponent_population": "blue"}
    cells = [
        {**one, "player": "red/p000", "opponent": "blue/p000", "score": 0.2},
        {**one, "player": "bot:random", "opponent": "blue/p000", "score": 0.1},
        {**one, "player": "red/p000", "opponent": "bot:random", "score": 0.9},
    ]
    two: dict[str, Any] = {"payoff": {"payoff": cells}, "standings": {"populations": populations}}
    (panel,) = draw("payoff", Reader(["red", "blue"], width=540), **two)["concat"]
    assert panel["title"][0] == "red against blue"
    encoding = layers_of(panel, "rect")[0]["encoding"]
    assert encoding["y"]["scale"]["domain"] == ["red/p000", "bot:random"]
    assert encoding["x"]["scale"]["domain"] == ["blue/p000", "bot:random"]
    found = {(row["row"], row["column"]): row["score"] for row in rows_of(panel, "rect")}
    assert found == {
        ("red/p000", "blue/p000"): 0.2,
        ("bot:random", "blue/p000"): 0.1,
        ("red/p000", "bot:random"): 0.9,
    }


def test_schedules_have_the_scales_of_their_search_space() -> None:
    panels = {panel["title"][0][8:]: panel for panel in draw("hyperparameters")["concat"]}
    # clip_coef has one value everywhere, and no policy may change it.
    assert set(panels) == {"learning_rate", "gamma", "mode"}
    scales = {
        name: layers_of(panel, "line")[0]["encoding"]["y"]["scale"]
        for name, panel in panels.items()
    }
    assert scales["learning_rate"] == {"type": "log", "domain": [0.001, 0.005], "reverse": False}
    # The rows hold the distance to 1, on a reversed axis.
    assert scales["gamma"] == {"type": "log", "domain": [0.005, 0.01], "reverse": True}
    assert scales["mode"] == {"domain": [-0.5, 1.5], "nice": False}
    (names,) = [
        one["data"]["values"] for one in layers_of(panels["mode"], "text")
        if one["mark"]["align"] == "right"
    ]  # fmt: skip
    assert [row["name"] for row in names] == ["$b $b $b $b $b $b $b $b ...", "a"]


def test_values_that_have_no_place_are_left_out() -> None:
    values: list[Any] = [None, math.nan, math.inf, 0.5]
    rows = [
        {**documents.generation("player/p000", at, at, "start", x=value), "agent_steps_end": at + 1}
        for at, value in enumerate(values)
    ]

    def drawn(name: str, space: dict[str, Any]) -> list[dict[str, Any]]:
        spec = curves.schedule(name, rows, PAGE, best_first=["player/p000"], space=space)
        json.dumps(spec, allow_nan=False)
        found: list[dict[str, Any]] = spec["data"]["values"]
        return found

    for space in ({}, {"log": True}, {"log": True, "complement": True}):
        assert [(row["x"], row["y"]) for row in drawn("x", space)] == [(3, 0.5), (4, 0.5)]
        assert drawn("of no generation", space) == []
    (span, *_) = documents.ratings()["champions"]
    (line, *_) = documents.ratings()["populations"]["player"]
    # A damaged row has no time, so its bar is left out.
    strip = curves.champions([{**span, "since": "<b>"}, span], [line], PAGE)
    assert [bar["name"] for bar in rows_of(strip, "bar")] == ["p001@1k"]
    assert curves.champions([{**span, "since": "<b>", "until": None}], [], PAGE) is None


@given(st.sampled_from(["linear", "log", "complement"]), st.data())
def test_an_axis_has_room_for_its_values_and_says_where_they_are(scale: str, data: Any) -> None:
    known = st.floats(0.001, 0.999).map(lambda value: round(value, 6))
    values = data.draw(st.lists(known, min_size=1, max_size=5))
    axis = Axis.around("x", values, scale=scale)
    places = [axis.place(value) for value in sorted(values)]
    assert all(one <= two for one, two in pairwise(places))
    assert places[0] >= -1e-6
    assert places[-1] <= 1.0 + 1e-6
    assert (axis.place(axis.low), axis.place(axis.high)) == pytest.approx((0.0, 1.0))
    for value in values:
        assert axis.drawn(axis.drawn(value)) == pytest.approx(value)
    # This computes the place of a value as Vega does, on a normal or reversed domain.
    encoding = axis.encoding()["scale"]
    shape = math.log if encoding.get("type") == "log" else float
    low, high = map(shape, encoding["domain"])
    for value in values:
        place = (shape(axis.drawn(value)) - low) / (high - low)
        assert axis.place(value) == pytest.approx(
            1.0 - place if encoding.get("reverse") else place, abs=1e-6
        )


def test_metrics_are_those_that_are_asked_for() -> None:
    asked = ["policy/entropy", "environment/$ \n_mean", "none/such"]
    panels = draw("metrics", metrics=documents.metrics(asked))["concat"]
    assert [panel["title"] for panel in panels] == [["policy/entropy"], ["environment/$ \\n_mean"]]
    entropy = points(rows_of(panels[0], "line"))
    assert entropy["p000"] == [(1000, 1.5), (2000, 1.2)]
    assert entropy["p001"] == [(1000, 1.4)]
    # A line with a single point is drawn as a point.
    assert points(rows_of(panels[0], "point")) == {"p001": [(1000, 1.4)]}
    panels = draw("metrics")["concat"]
    assert [panel["title"] for panel in panels] == [["policy/entropy"], ["loss/value"]]
    broken = [{"policy": "p", "agent_steps": 1, "a": math.nan, "b": "x", "c": True and math.inf}]
    assert [curves.metric_points(broken, name) for name in "abc"] == [{}, {}, {}]


def test_openings_are_stacked_shares_beside_a_map_of_scores() -> None:
    left, right, own, own_scores = draw("openings", openings=documents.openings())["concat"]

    def shares(spec: Any) -> dict[str, list[Any]]:
        return points(rows_of(spec, "rect"), "x", "x2", "y", "y2")

    # By hand, in the order of the actions: 40 and 60 of 100, then nothing, then 5 and 15 of 20.
    assert shares(left) == {
        "action 2": [(0, 1000, 0.0, 0.4)],
        "action 4": [(0, 1000, 0.4, 1.0), (2000, 3000, 0.0, 0.25)],
        "action 7": [(2000, 3000, 0.25, 1.0)],
    }
    scores = points(rows_of(right, "rect"), "x", "score")
    # Five matches of 20 are too few for a score.
    assert scores == {"action 2": [(0, 0.75)], "action 4": [(0, 0.5)], "action 7": [(2000, 1.0)]}
    assert rows_of(right, "point") == [{"middle": 2499, "name": "action 4"}]
    encoding = layers_of(right, "rect")[0]["encoding"]
    # The first action is lowest, as in the shares, and the squares have the same colours.
    assert encoding["y"]["scale"]["domain"] == ["action 7", "action 4", "action 2"]
    assert encoding["x"]["scale"]["domain"] == [0, 3000]
    fill = left["encoding"]["fill"]["scale"]
    assert layers_of(right, "square")[0]["encoding"]["fill"]["scale"] == fill
    assert own["encoding"]["fill"]["scale"] == fill
    assert [one["title"] for one in (left, own)] == [
        ["Shares: player_0, all policies"],
        ["Shares: player_0, p001, of the champion"],
    ]
    assert shares(own) == {"action 2": [(2000, 3000, 0.0, 1.0)]}
    assert layers_of(own_scores, "rect")[0]["encoding"]["x"]["scale"]["domain"] == [0, 3000]


def test_openings_that_are_played_little_are_others() -> None:
    # Of twelve actions 9 have a colour: 6 to 14 of 120 matches. The document counts 18 rare ones
    # together. So the others are 5 + 4 + 3 + 18 = 30, with 2.5 + 2 + 3 + 0 = 7.5 points.
    counts = [5, 4, 3, *range(6, 15)]
    rows = [documents.opening(0, action, count, 120) for action, count in enumerate(counts)]
    rows[2]["score"] = 1.0
    rows.append(documents.opening(0, None, 18, 120, score=0.0))
    left, right = draw("openings", openings=documents.openings_of(rows))["concat"]
    scale = left["encoding"]["fill"]["scale"]
    assert scale["domain"] == [*(f"action {action}" for action in range(3, 12)), "others"]
    assert (scale["range"][-1], len({*map(str, scale["range"])})) == (paint("grey"), 10)
    others = [row for row in rows_of(left, "rect") if row["name"] == "others"]
    assert [(row["y"], row["y2"], row["count"]) for row in others] == [(0.75, 1.0, 30)]
    scores = points(rows_of(right, "rect"), "score")
    assert scores["others"] == [(0.25,)]


def test_an_action_that_is_called_others_is_not_taken_for_them() -> None:
    rows = [
        documents.opening(0, 1, 10, 20, label="others"),
        documents.opening(0, None, 10, 20, label="others"),
    ]
    which = charts.Openings.of(rows, FILE)
    assert list(which.labels) == ["others", "others (2)"]
    assert [cell["name"] for cell, _ in which.cells(rows)] == ["others", "others (2)"]


def test_of_many_seats_rows_of_single_policies_are_left_out_first() -> None:
    rows = [
        documents.opening(0, 1, 10, 10, seat=f"s{seat}", player=player)
        for seat in range(3)
        for player in (None, "player/p001")
    ]
    figure = draw("openings", openings=documents.openings_of(rows))
    assert [panel["title"][0] for panel in figure["concat"][::2]] == [
        "Shares: s0, all policies",
        "Shares: s0, p001, of the champion",
        "Shares: s1, all policies",
        "Shares: s2, all policies",
    ]


def test_two_runs_are_beside_each_other() -> None:
    values = {"player": "p000", "value": 5.0, "low": 1.0, "high": 9.0}
    nothing = {**dict.fromkeys(values), "player": "-"}
    rows = [("1", [values, values]), ("2", [values, nothing])]
    spec = charts.differences(rows, ["same", "same"], PAGE, title="Elo")
    found = [(row["name"], row["run"], row["value"]) for row in rows_of(spec, "point")]
    # One run has one policy fewer: its place is empty instead of zero.
    assert found == [("1", "same", 5.0), ("1", "same (2)", 5.0), ("2", "same", 5.0)]


def test_several_runs_are_a_mean_with_a_band() -> None:
    known = {"rating": 10.0, "rating_low": 5.0, "rating_high": 15.0}
    alone = {"rating": 20.0, "rating_low": None, "rating_high": None}
    unknown = dict.fromkeys(known)
    made = [{"agent_steps": at, **one} for at, one in ((1, unknown), (2, known), (3, alone))]
    spec = curves.comparison(made, "rating", "rating", FILE)
    assert points(rows_of(spec, "line")) == {"mean": [(2, 10), (3, 20)]}
    # A single run has no interval, so the band has a gap.
    band = [(2, 5, 15), (3, None, None)]
    assert points(rows_of(spec, "area"), "x", "low", "high") == {"mean": band}


@pytest.mark.parametrize(
    ("view", "empty"),
    [
        ("ratings", {"populations": {"player": []}, "champions": []}),
        ("standings", {"populations": {"player": []}}),
        ("payoff", {"payoff": []}),
        ("hyperparameters", {"generations": [], "search_space": {"player": {}}}),
        ("metrics", {"names": None, "metrics": []}),
        ("openings", {"summary": [{**documents.openings()["summary"][0]}], "openings": []}),
    ],
)
def test_without_anything_to_draw_a_plot_says_so(view: str, empty: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="nothing to plot"):
        draw(view, FILE, **{view: empty})


def test_only_a_page_is_told_more_and_leads_somewhere() -> None:
    (line, *_) = documents.ratings()["populations"]["player"]
    texts = [json.dumps(curves.ratings([line], of)) for of in (FILE, PAGE)]
    assert ["href" in text for text in texts] == [False, True]
    assert ['"width": "container"' in text for text in texts] == [False, True]


def test_a_chart_of_a_month_is_at_most_300_kilobytes() -> None:
    line = {
        "player": "player/p000",
        "points": [documents.point(at, float(at % 977)) for at in range(3000)],
    }
    lines = [{**line, "player": f"player/p{index:03}"} for index in range(500)]
    assert len(json.dumps(curves.ratings(lines, PAGE))) < 300_000
    names = [("player", f"player/p{index:03}@000{index:09}") for index in range(32)]
    counts = {"wins": 10_000, "draws": 10_000, "losses": 10_000}
    scores = {(one, two): {"score": 1 / 3, **counts} for one in names for two in names}
    page = replace(PAGE, versus=lambda one, two: f"{one}.html#vs-{two}")
    spec = charts.payoff(scores, names, names, page)
    assert len(json.dumps(spec)) < 300_000


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.0, 1.0), max_size=12), st.floats(0.01, 0.2))
def test_labels_are_spread_in_order(wanted: list[float], gap: float) -> None:
    places = chart_parts.spread(wanted, gap=gap)
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    gaps = np.diff([places[place] for place in order])
    assert np.all(gaps >= gap - 1e-9)
    # The labels move together, so that their mean stays.
    assert np.mean(places or [0.0]) == pytest.approx(np.mean(wanted or [0.0]))


def test_no_text_is_part_of_an_expression_or_of_the_name_of_a_field() -> None:
    specs = [draw(view) for view in documents.everything() if view != "lineage"]
    shapes = set()

    def walk(node: Any, key: str = "") -> None:
        if isinstance(node, dict):
            for inner, value in node.items():
                if inner not in ("values",):
                    walk(value, inner)
        elif isinstance(node, list):
            for one in node:
                walk(one, key)
        elif key in ("field", "labelExpr", "test", "expr", "signal", "format", "url", "href"):
            shapes.add((key, node))

    for spec in specs:
        walk(spec)
    assert not {key for key, _ in shapes} & {"signal", "url", "href"}
    palette = {paint(name)["expr"] for name in COLOURS} | {"colours[datum.colour]"}
    assert {text for key, text in shapes if key == "expr"} <= palette
    assert all(re.fullmatch(r"[a-z][a-z0-9]*", text) for key, text in shapes if key == "field")
    assert {text for key, text in shapes if key in ("labelExpr", "test")} == {
        "format(datum.value, '~s')",
        "format(datum.value, '.4~g')",
        "format(1 - datum.value, '.6~g')",
        "abs(datum.score - 0.45) > 0.435",
    }
