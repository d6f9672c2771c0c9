"""What plots show, read back from the drawn parts and compared with the documents."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, StepPatch
from matplotlib.text import Text

from arena.errors import ConfigError
from tests.tools.plots import documents
from tools.plots import style
from tools.plots.kinds import PLOTS


@pytest.fixture(autouse=True)
def _style() -> Iterator[None]:
    with mpl.rc_context():
        mpl.rcParams.update(style.STYLE)
        yield


def draw(view: str, **changed: Any) -> Figure:
    figure = PLOTS[view].draw({**documents.everything(), **changed})
    figure.draw_without_rendering()
    return figure


def lines_of(axes: Axes) -> dict[str, np.ndarray]:
    """Labelled lines, by label."""
    return {
        str(line.get_label()): np.array(line.get_xydata())
        for line in axes.get_lines()
        if not str(line.get_label()).startswith("_")
    }


def ticks(axes: Axes, axis: str) -> list[str]:
    labels = axes.get_yticklabels() if axis == "y" else axes.get_xticklabels()
    return [label.get_text() for label in labels]


def test_ratings_are_lines_with_bands_through_the_points() -> None:
    panel, strip = draw("ratings").axes
    lines = lines_of(panel)
    assert set(lines) == {"player/p000", "player/p001", "player/p002"}
    assert lines["player/p002"].tolist() == [[0, 0], [1000, 52], [3000, 120]]
    # By hand: 30 below the ratings, 40 above.
    (band,) = [
        band.get_paths()[0].vertices
        for band in panel.collections
        if 160.0 in np.asarray(band.get_paths()[0].vertices)[:, 1]
    ]
    corners = {(x, y) for x, y in np.asarray(band).tolist()}
    assert {(0, -30), (0, 40), (1000, 22), (1000, 92), (3000, 90), (3000, 160)} <= corners
    assert panel.get_xlabel() == "agent steps"
    assert panel.get_ylabel() == "rating (Elo)"
    # From the first point's time on, in minutes; the last champion until the last moment.
    bars = [np.asarray(bar.get_paths()[0].vertices)[:, 0] for bar in strip.collections]
    assert [(bar.min(), bar.max()) for bar in bars] == [(1.0, 2.5), (2.5, 3.0)]
    assert strip.get_xlabel() == "time (minutes)"
    assert [text.get_text() for text in strip.texts] == ["p001@1k", "p002"]


def test_copies_and_other_generations_are_marked_in_ratings() -> None:
    panel, _ = draw("ratings").axes
    marked = {
        marker: sorted(
            tuple(xy)
            for line in panel.get_lines()
            if line.get_marker() == marker
            for xy in np.array(line.get_xydata()).tolist()
        )
        for marker in ("v", "o")
    }
    assert marked["v"] == [(3000, 100), (3000, 110), (3000, 120)]
    assert marked["o"] == [(1000, 50), (1000, 51), (1000, 52)]


def test_of_many_policies_the_best_stand_out_and_have_labels() -> None:
    figure = draw("ratings", ratings=documents.ratings(64))
    panel = figure.axes[0]
    assert len(lines_of(panel)) == 64
    greys = [line for line in panel.get_lines() if line.get_color() == style.OTHERS]
    assert len(greys) == 59
    best = ["p063", "p062", "p061", "p060", "p059"]
    labels = [text for text in panel.texts if text.get_text() in best]
    assert [text.get_text() for text in labels] == best
    # Read from top to bottom without touching each other.
    boxes = [Text.get_window_extent(text) for text in labels]
    assert all(upper.y0 >= lower.y1 - 1.0 for upper, lower in pairwise(boxes))


def test_the_payoff_map_has_the_scores_sorted_by_rating() -> None:
    panel = draw("payoff", payoff=documents.payoff()).axes[0]
    (image,) = panel.images
    # p001 has 300, p000 has 100, bot:random 0; the ghost and p002 met nobody.
    assert ticks(panel, "y") == ticks(panel, "x") == ["p001", "p000", "bot:random"]
    shown: np.ndarray = np.ma.filled(np.ma.asarray(image.get_array()), -1.0)
    assert shown.tolist() == [[-1, 0.75, 1], [0.25, -1, -1], [0, -1, -1]]
    assert image.get_clim() == (0.0, 1.0)
    numbers = {(x, y): text.get_text() for text in panel.texts for x, y in [text.get_position()]}
    assert numbers == {(1, 0): ".75", (2, 0): "1", (0, 1): ".25", (0, 2): ".00"}


def test_a_large_payoff_map_leaves_out_ghosts_numbers_and_labels() -> None:
    ghosts = [f"player/p000@{index:012}" for index in range(60)]
    policies = [f"player/p{index:03}" for index in range(100, 164)]
    extra = [documents.standing(ghost, "ghost", 10.0) for ghost in ghosts]
    # The last one is the best.
    extra += [
        documents.standing(policy, "policy", 400.0 + index) for index, policy in enumerate(policies)
    ]
    cells = [documents.cell(player, "bot:random", 0.5) for player in (*ghosts, *policies)]
    panel = draw(
        "payoff", payoff=documents.payoff(*cells), standings=documents.standings(*extra)
    ).axes[0]
    (image,) = panel.images
    assert np.ma.asarray(image.get_array()).shape == (67, 67)
    assert panel.get_title(loc="left") == "hatched: no matches; 60 ghosts are left out"
    assert not panel.texts
    shown = ticks(panel, "y")
    assert shown[:2] == ["p163", "p161"]
    heights = [label.get_window_extent() for label in panel.get_yticklabels()]
    assert all(upper.y0 >= lower.y1 for upper, lower in pairwise(heights))


def test_populations_are_blocks_of_the_payoff_map() -> None:
    populations = {
        "red": [documents.standing("red/p000", "policy", 10.0)],
        "blue": [documents.standing("blue/p000", "policy", 500.0)],
    }
    one = {"population": "red", "opponent_population": "blue", "score": 0.2}
    cells = [{**one, "player": "red/p000", "opponent": "blue/p000"}]
    panel = draw("payoff", payoff={"payoff": cells}, standings={"populations": populations}).axes[0]
    # In the order of the populations, whose scales of ratings have nothing in common.
    assert ticks(panel, "y") == ["red/p000", "blue/p000"]


def test_standings_are_points_with_whiskers_the_best_on_top() -> None:
    ghost, policy = "player/p001@000000001200", "player/p001"
    # With the weights of its policy it is one with it.
    twin = documents.standing(ghost, "ghost", 300.0, same_as=policy)
    (panel,) = draw("standings", standings=documents.standings(twin)).axes
    assert ticks(panel, "y") == ["p001", "p001@1k", "p000", "bot:random"]
    low, high = panel.get_ylim()
    assert low > high
    whiskers = [
        np.asarray(segment).tolist()
        for bars in panel.collections
        if isinstance(bars, LineCollection)
        for segment in bars.get_segments()
    ]
    # By hand: 30 below, 40 above; bot:random has no interval.
    assert whiskers == [[[270, 0], [340, 0]], [[170, 1], [240, 1]], [[70, 2], [140, 2]]]
    points = [
        tuple(np.array(bar.lines[0].get_xydata())[0].tolist())  # type: ignore[attr-defined]
        for bar in panel.containers
    ]
    assert points == [(300, 0), (200, 1), (100, 2), (0, 3)]
    assert panel.get_title(loc="left") == "left out: 1 of 5 players"


def test_lineage_has_lanes_by_rating_and_arrows_from_donors() -> None:
    panel = draw("lineage").axes[0]
    assert ticks(panel, "y") == ["p002", "p001", "p000"]
    (lanes,) = [one for one in panel.collections if isinstance(one, LineCollection)]
    segments = [np.asarray(one).tolist() for one in lanes.get_segments()]
    assert segments[:2] == [[[0, 0], [1000, 0]], [[1000, 0], [3000, 0]]]
    # Coloured by the ratings that they lead to.
    assert np.asarray(lanes.get_array()).tolist() == [52, 120, 51, 110, 50, 100]
    arrows = [patch for patch in panel.patches if isinstance(patch, FancyArrowPatch)]
    ends = [arrow._posA_posB for arrow in arrows]  # type: ignore[attr-defined]
    # Lane 1 is p001, the donor of both; lanes 2 and 0 copied it.
    assert ends == [[(1900, 1), (2000, 2)], [(1900, 1), (2500, 0)]]
    # p002 is the best, and goes back to the second copy only.
    assert [mpl.colors.to_hex(arrow.get_edgecolor()).upper() for arrow in arrows] == [
        "#8A8A8A",
        "#D55E00",
    ]


def test_schedules_are_steps_through_the_generations() -> None:
    panels = {panel.get_title(loc="left"): panel for panel in draw("hyperparameters").axes}
    assert not panels.pop("").get_visible()
    # clip_coef is the same everywhere, and no one may change it.
    assert set(panels) == {"learning_rate", "gamma", "mode"}
    rate = lines_of(panels["learning_rate"])
    assert rate["player/p001"].tolist() == [[0, 3e-3], [1000, 2e-3], [3500, 2e-3]]
    assert rate["player/p000"].tolist() == [[0, 1e-3], [2000, 1e-3], [4000, 1e-3]]
    assert panels["learning_rate"].get_yscale() == "log"
    assert panels["gamma"].get_yscale() == "function"
    assert panels["mode"].get_yscale() == "linear"
    assert ticks(panels["mode"], "y") == ["$b $b $b $b ...", "a"]
    drawn = {str(line.get_label()): line for line in panels["learning_rate"].get_lines()}
    assert {line.get_drawstyle() for name, line in drawn.items() if name[0] != "_"} == {
        "steps-post"
    }
    widths = {name: line.get_linewidth() for name, line in drawn.items() if name[0] != "_"}
    assert max(widths, key=lambda name: widths[name]) == "player/p001"
    copied = [
        tuple(xy)
        for line in panels["gamma"].get_lines()
        if line.get_marker() == "v"
        for xy in np.array(line.get_xydata()).tolist()
    ]
    assert sorted(copied) == [(2000, 0.995), (2500, 0.99)]


def test_metrics_are_those_that_are_asked_for() -> None:
    asked = ["policy/entropy", "environment/$ \n_mean", "none/such"]
    panels = draw("metrics", metrics=documents.metrics(asked)).axes
    assert [panel.get_title(loc="left") for panel in panels if panel.get_visible()] == [
        "policy/entropy",
        "environment/$ _mean",
    ]
    entropy = lines_of(panels[0])
    assert entropy["player/p000"].tolist() == [[1000, 1.5], [2000, 1.2]]
    assert entropy["player/p001"].tolist() == [[1000, 1.4]]
    panels = draw("metrics").axes
    assert [panel.get_title(loc="left") for panel in panels] == ["policy/entropy", "loss/value"]


def shares_of(axes: Axes) -> dict[str, tuple[Any, Any]]:
    """Lower and upper ends of each opening in each window, by label."""
    found = {}
    for patch in axes.patches:
        assert isinstance(patch, StepPatch)
        values, _, baseline = patch.get_data()
        found[str(patch.get_label())] = (np.asarray(baseline).tolist(), values.tolist())
    return found


def test_openings_are_stacked_shares_beside_a_map_of_scores() -> None:
    figure = draw("openings", openings=documents.openings())
    left, right, own, own_scores = figure.axes[:4]
    # By hand: in order of the actions; 40 and 60 of 100, then nothing, then 5 and 15 of 20.
    nothing = pytest.approx(np.nan, nan_ok=True)
    assert shares_of(left) == {
        "action 2": ([0, 0, 0], [0.4, nothing, 0]),
        "action 4": ([0.4, 0, 0], [1.0, nothing, 0.25]),
        "action 7": ([1.0, 0, 0.25], [1.0, nothing, 1.0]),
    }
    (image,) = right.images
    # Five matches of 20 tell no score; no match of window 2 began with action 2.
    scores: np.ndarray = np.ma.filled(np.ma.asarray(image.get_array()), -1.0)
    assert scores.tolist() == [[0.75, -1, -1], [0.5, -1, -1], [-1, -1, 1]]
    assert image.get_clim() == (0.0, 1.0)
    assert list(image.get_extent()) == [0, 3000, -0.5, 2.5]
    assert ticks(right, "y") == ["action 2", "action 4", "action 7"]
    # The labels' colours are those of the shares, also for the champion's policy.
    colours = [patch.get_facecolor() for patch in left.patches]
    assert [to_rgba(str(line.get_color())) for line in right.get_lines()] == colours
    assert [patch.get_facecolor() for patch in own.patches] == colours
    assert [panel.get_title(loc="left") for panel in (left, own)] == [
        "player_0: all policies",
        "player_0: p001",
    ]
    assert shares_of(own)["action 2"] == ([0, 0, 0], [nothing, nothing, 1.0])
    assert left.get_xlim() == own_scores.get_xlim() == (0, 3000)


def test_openings_that_are_played_little_are_others() -> None:
    # Twelve actions, of which 9 have a colour: 6 to 14 of 120 matches. The document counts 18 rare
    # ones together. So the others are 5 + 4 + 3 + 18 = 30, with 2.5 + 2 + 3 + 0 = 7.5 points.
    counts = [5, 4, 3, *range(6, 15)]
    rows = [documents.opening(0, action, count, 120) for action, count in enumerate(counts)]
    rows[2]["score"] = 1.0
    rows.append(documents.opening(0, None, 18, 120, score=0.0))
    left, right = draw("openings", openings={"openings": rows}).axes[:2]
    found = shares_of(left)
    assert list(found) == [*(f"action {action}" for action in range(3, 12)), "others"]
    assert found["others"] == (pytest.approx([0.75]), pytest.approx([1.0]))
    assert left.patches[-1].get_facecolor() == to_rgba(style.OTHERS)
    assert np.ma.asarray(right.images[0].get_array())[-1, 0] == pytest.approx(0.25)
    labels = [label.get_window_extent() for label in right.get_yticklabels()]
    assert all(lower.y1 <= upper.y0 for lower, upper in pairwise(labels))
    assert len({patch.get_facecolor() for patch in left.patches}) == 10


@pytest.mark.slow
def test_of_many_seats_rows_of_single_policies_are_left_out_first() -> None:
    rows = [
        documents.opening(0, 1, 10, 10, seat=f"s{seat}", player=player)
        for seat in range(3)
        for player in (None, "player/p001")
    ]
    figure = draw("openings", openings={"openings": rows})
    titles = [panel.get_title(loc="left") for panel in figure.axes]
    assert [title for title in titles if title.startswith("s") and title != "score"] == [
        "s0: all policies",
        "s0: p001",
        "s1: all policies",
        "s2: all policies",
    ]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()][1:] == ["left out: 2 of 6 rows"]


def test_openings_without_a_rival_have_shares_and_no_scores() -> None:
    rows = [documents.opening(0, 1, 10, 10, score=None)]
    left, right = draw("openings", openings={"openings": rows}).axes[:2]
    assert shares_of(left) == {"action 1": ([0], [1.0])}
    assert np.ma.asarray(right.images[0].get_array()).mask.all()


@pytest.mark.parametrize(
    ("view", "empty"),
    [
        ("ratings", {"populations": {"player": []}, "champions": []}),
        ("standings", {"populations": {"player": []}}),
        ("payoff", {"payoff": []}),
        ("hyperparameters", {"generations": [], "search_space": {"player": {}}}),
        ("metrics", {"names": None, "metrics": []}),
        ("openings", {"summary": [], "openings": []}),
    ],
)
def test_without_anything_to_draw_a_plot_says_so(view: str, empty: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="nothing to plot"):
        draw(view, **{view: empty})


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.0, 1.0), max_size=12), st.floats(0.01, 0.2))
def test_labels_are_spread_in_order(wanted: list[float], gap: float) -> None:
    places = style.spread(wanted, gap=gap)
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    gaps = np.diff([places[place] for place in order])
    assert np.all(gaps >= gap - 1e-9)
    # They move as a whole: their middle stays.
    assert np.mean(places or [0.0]) == pytest.approx(np.mean(wanted or [0.0]))


@pytest.mark.parametrize(
    ("colour", "text"), [("#000000", "white"), ("#FFFFFF", "black"), ("#0072B2", "white")]
)
def test_text_is_readable_on_its_ground(colour: str, text: str) -> None:
    assert style.text_on(colour) == text


def test_all_of_64_lanes_have_names() -> None:
    policies = [f"player/p{index:03}" for index in range(64)]
    rows = [{"policy": policy, "agent_steps": 100} for policy in policies]
    lineage = {"policies": rows, "generations": [], "exploits": []}
    figure = draw("lineage", lineage=lineage, ratings=documents.ratings(64))
    assert len(ticks(figure.axes[0], "y")) == 64


def test_of_many_policies_only_the_champion_has_steps() -> None:
    document = documents.hyperparameters()
    (first, *_) = document["generations"]
    more = [{**first, "policy": f"player/p{index:03}"} for index in range(100, 164)]
    figure = draw("hyperparameters", hyperparameters={**document, "generations": more})
    panel = figure.axes[0]
    assert len(panel.collections) >= 63
    assert all(line.get_color() != style.OTHERS for line in panel.get_lines())
