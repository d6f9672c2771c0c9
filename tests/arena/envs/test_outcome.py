from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.config import InfoOutcome, MarginOutcome, Outcome, ThresholdOutcome
from arena.envs.batched.scoring import MAX_COMPARED, make_batched_score, score_against
from arena.envs.outcome import Score, Sides, make_outcome, sides_beaten
from arena.errors import ConfigError, EnvironmentFault

TWO: Sides = {"a": ("a",), "b": ("b",)}
TEAMS: Sides = {"predators": ("p_0", "p_1"), "prey": ("q",)}
THREE: Sides = {"a": ("a",), "b": ("b",), "c": ("c",)}


def made(outcome: Outcome, sides: Sides, *, assets: str = "") -> Score:
    agents = tuple(agent for members in sides.values() for agent in members)
    return make_outcome(outcome, sides=sides, agents=agents, launch_directory=assets)


@pytest.mark.parametrize(
    ("returns", "scores"),
    [((1.0, -1.0), (1.0, 0.0)), ((-1.0, 0.0), (0.0, 1.0)), ((2.0, 2.0), (0.5, 0.5))],
)
def test_the_higher_return_wins(returns: tuple[float, float], scores: tuple[float, float]) -> None:
    assert made("return", TWO)({"a": returns[0], "b": returns[1]}, {}) == scores


@pytest.mark.parametrize("scale", [1e-3, 1.0, 123456.7])
def test_rounding_wins_nothing(scale: float) -> None:
    assert made("return", TWO)({"a": scale * (0.1 + 0.2), "b": scale * 0.3}, {}) == (0.5, 0.5)
    # Environments return float32 rewards, which are summed in float64.
    first, second, both = (float(np.float32(scale * part)) for part in (0.1, 0.2, 0.3))
    returns = {"a": first + second, "b": both}
    assert made("return", TWO)(returns, {}) == (0.5, 0.5)
    batched = make_batched_score(
        "return", sides=TWO, agents=("a", "b"), launch_directory="", device=torch.device("cpu")
    )
    assert batched(torch.tensor([list(returns.values())], dtype=torch.float64)).tolist() == [
        [0.5, 0.5]
    ]


def test_what_is_more_than_rounding_wins() -> None:
    assert made("return", TWO)({"a": 1000.01, "b": 1000.0}, {}) == (1.0, 0.0)
    assert made("return", TWO)({"a": 0.0, "b": 0.00001}, {}) == (0.0, 1.0)


def test_a_side_has_the_mean_of_its_agents() -> None:
    # The sum is 3 against 2, but the mean is 1.5 against 2.
    assert made("return", TEAMS)({"p_0": 3.0, "p_1": 0.0, "q": 2.0}, {}) == (0.0, 1.0)


def test_more_sides_are_scored_pairwise() -> None:
    score = made("return", THREE)
    assert score({"a": 3.0, "b": 1.0, "c": 1.0}, {}) == (2.0, 0.5, 0.5)
    assert score({"a": 3.0, "b": 2.0, "c": 1.0}, {}) == (2.0, 1.0, 0.0)


@settings(deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=2, max_size=6))
def test_points_are_shares_of_all_pairs(values: list[int]) -> None:
    scores = sides_beaten([float(value) for value in values])
    assert all(0.0 <= score <= len(values) - 1 for score in scores)
    assert sum(scores) == len(values) * (len(values) - 1) / 2
    for one, score in zip(values, scores, strict=True):
        for other, other_score in zip(values, scores, strict=True):
            assert (one > other) == (score >= other_score + 1.0)


@pytest.mark.parametrize(
    ("returns", "expected"), [(0.0, (1.0, 0.0)), (-0.5, (0.0, 1.0)), (0.5, (1.0, 0.0))]
)
def test_a_threshold_of_0_is_a_threshold(returns: float, expected: tuple[float, float]) -> None:
    """The 21st of the fifty bugs: ``if threshold and ...`` switches it off."""
    score = made(ThresholdOutcome(threshold=0.0, side="predators"), TEAMS)
    agents = [agent for members in TEAMS.values() for agent in members]
    assert score(dict.fromkeys(agents, returns), {}) == expected


def test_a_threshold_decides_for_its_side() -> None:
    score = made(ThresholdOutcome(threshold=2.0, side="predators"), TEAMS)
    assert score({"p_0": 4.0, "p_1": 0.0, "q": 9.0}, {}) == (1.0, 0.0)
    assert score({"p_0": 3.9, "p_1": 0.0, "q": -9.0}, {}) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("infos", "scores"),
    [
        ({"p_0": {"winner": "prey"}}, (0.0, 1.0)),
        ({"p_0": {}, "q": {"winner": "p_1"}}, (1.0, 0.0)),
        ({"p_0": {"winner": "p_0"}, "p_1": {"winner": "predators"}}, (1.0, 0.0)),
        ({"p_0": {"winner": None}, "q": {}}, (0.5, 0.5)),
        ({}, (0.5, 0.5)),
    ],
)
def test_info_names_the_winner(
    infos: dict[str, dict[str, object]], scores: tuple[float, float]
) -> None:
    score = made(InfoOutcome(info="winner"), TEAMS)
    assert score(dict.fromkeys(("p_0", "p_1", "q"), 0.0), infos) == scores


def test_one_winner_of_three_beats_both() -> None:
    score = made(InfoOutcome(info="winner"), THREE)
    assert score(dict.fromkeys("abc", 0.0), {"c": {"winner": "b"}}) == (0.5, 2.0, 0.5)


@pytest.mark.parametrize(
    "infos",
    [{"q": {"winner": "nobody"}}, {"q": {"winner": "q"}, "p_0": {"winner": "p_0"}}],
)
def test_info_must_name_one_side(infos: dict[str, dict[str, object]]) -> None:
    with pytest.raises(EnvironmentFault, match="'winner' must name one side"):
        made(InfoOutcome(info="winner"), TEAMS)({}, infos)


def test_a_function_says_who_wins(assets: str) -> None:
    score = made("environments:higher_index_wins", TWO, assets=assets)
    assert score({"a": 5.0, "b": 0.0}, {}) == (0.0, 1.0)


def scored(outcome: Outcome, sides: Sides, *returns: tuple[float, ...]) -> list[list[float]]:
    """The points that both ways of scoring give to episodes with these returns."""
    agents = tuple(agent for members in sides.values() for agent in members)
    one = make_outcome(outcome, sides=sides, agents=agents, launch_directory="")
    many = make_batched_score(
        outcome, sides=sides, agents=agents, launch_directory="", device=torch.device("cpu")
    )
    alone = [list(one(dict(zip(agents, row, strict=True)), {})) for row in returns]
    assert many(torch.tensor(returns, dtype=torch.float64)).tolist() == pytest.approx(
        np.array(alone), abs=1e-6
    )
    return alone


def test_a_margin_of_the_scale_is_a_whole_match() -> None:
    """Leduc poker, where a side wins 13 at most: 1/2 + u / 26."""
    games = ((13.0, -13.0), (-13.0, 13.0), (0.0, 0.0), (6.5, -6.5), (-1.3, 1.3))
    points = scored(MarginOutcome(margin=13.0), TWO, *games)
    first = [0.5 + (mine - theirs) / 2 for mine, theirs in points]
    assert first == pytest.approx([1.0, 0.0, 0.5, 0.75, 0.45])
    against = score_against(torch.tensor(points)[:, 0], torch.tensor(points)[:, 1])
    assert against.tolist() == pytest.approx(first)


def test_a_margin_is_that_of_the_returns_of_two_sides() -> None:
    """Whatever both receive beside; 1/2 + (u - v) / (4 SCALE), within [0, 1]."""
    games = ((5.0, 3.0), (105.0, 103.0), (3.0, 5.0), (9.0, 0.0), (0.0, 9.0))
    points = torch.tensor(scored(MarginOutcome(margin=2.0), TWO, *games))
    against = score_against(points[:, 0], points[:, 1])
    assert against.tolist() == pytest.approx([0.75, 0.75, 0.25, 1.0, 0.0])


def test_teams_have_the_mean_of_their_agents_in_margins_too() -> None:
    points = torch.tensor(scored(MarginOutcome(margin=2.0), TEAMS, (3.0, 1.0, 1.0)))
    # The margin is 2 against 1: 1/2 + 1/8.
    assert score_against(points[:, 0], points[:, 1]).tolist() == pytest.approx([0.625])


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(-40, 40), min_size=4, max_size=4), min_size=1, max_size=8),
    st.sampled_from([1.0, 3.5, 20.0]),
)
def test_every_two_of_four_sides_are_compared_by_their_own_margin(
    games: list[list[int]], scale: float
) -> None:
    sides = {name: (name,) for name in "abcd"}
    points = scored(MarginOutcome(margin=scale), sides, *(tuple(map(float, g)) for g in games))
    for row, game in zip(torch.tensor(points), games, strict=True):
        for i, mine in enumerate(game):
            for j, theirs in enumerate(game):
                expected = min(max(0.5 + (mine - theirs) / (4 * scale), 0.0), 1.0)
                against = score_against(row[i : i + 1], row[j : j + 1])
                assert float(against) == pytest.approx(expected, abs=1e-5)


@settings(deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=2, max_size=6))
def test_where_the_order_counts_every_two_sides_have_won_drawn_or_lost(values: list[int]) -> None:
    points = torch.tensor(sides_beaten([float(value) for value in values]))
    for one, mine in zip(values, points, strict=True):
        for other, theirs in zip(values, points, strict=True):
            result = 0.5 if one == other else float(one > other)
            assert float(score_against(mine, theirs)) == result


def test_a_margin_needs_another_side_and_a_number() -> None:
    with pytest.raises(ConfigError, match="a margin is between sides, and there is one: all"):
        made(MarginOutcome(margin=1.0), {"all": ("a", "b")})
    with pytest.raises(ConfigError, match=r"environment.outcome.margin must be a number where"):
        made(MarginOutcome(margin="auto"), TWO)


def test_what_a_function_returns_is_checked(assets: str) -> None:
    score = made("environments:names_no_side", TWO, assets=assets)
    with pytest.raises(ConfigError, match=r"a score for each of \['a', 'b'\], got {'a': 1.0}"):
        score({"a": 5.0, "b": 0.0}, {})


def test_a_bug_in_a_function_is_one_message_with_its_own_lines(assets: str) -> None:
    score = made("broken:divides", TWO, assets=assets)
    with pytest.raises(ConfigError) as caught:
        score({"a": 5.0, "b": 0.0}, {})
    said, place, code = str(caught.value).splitlines()
    assert (
        said
        == "environment.outcome broken:divides raised ZeroDivisionError: float division by zero"
    )
    assert place.endswith("in divides")
    assert code == '    return {"a": returns["a"] / returns["b"], "b": 0.0}'
    score = made("broken:says_who_wins", TWO, assets=assets)
    with pytest.raises(ConfigError, match=r"must return numbers, got {'a': 'won', 'b': 'lost'}"):
        score({"a": 5.0, "b": 0.0}, {})


def test_cooperation_by_returns_has_no_score() -> None:
    score = made("return", {"team": ("a", "b")})
    assert [math.isnan(value) for value in score({"a": 1.0, "b": 2.0}, {})] == [True]


def test_in_cooperation_an_info_is_the_objective() -> None:
    score = made(InfoOutcome(info="progress"), {"team": ("a", "b", "c")})
    infos: dict[str, dict[str, object]] = {"a": {"progress": 10}, "b": {"progress": 4.0}, "c": {}}
    assert score(dict.fromkeys("abc", 0.0), infos) == (7.0,)


@pytest.mark.parametrize("value", [None, "a lot", math.inf])
def test_an_objective_must_be_a_finite_number(value: object) -> None:
    score = made(InfoOutcome(info="progress"), {"team": ("a", "b")})
    with pytest.raises(EnvironmentFault, match="'progress' must be a finite number"):
        score({"a": 1.0, "b": 1.0}, {"b": {"progress": value}})


def test_in_cooperation_a_function_is_the_objective(assets: str) -> None:
    score = made("environments:minus_the_larger", {"team": ("a", "b")}, assets=assets)
    assert score({"a": 5.0, "b": 12.0}, {}) == (-12.0,)


def test_the_side_with_the_higher_mean_number_in_its_infos_wins() -> None:
    score = made(InfoOutcome(info="kills"), TEAMS)
    infos: dict[str, dict[str, object]] = {
        "p_0": {"kills": 3}, "p_1": {"kills": 0}, "q": {"kills": 2.0}
    }  # fmt: skip
    assert score(dict.fromkeys(("p_0", "p_1", "q"), 0.0), infos) == (0.0, 1.0)
    with pytest.raises(EnvironmentFault, match="for one agent of q at least, got \\[\\]"):
        score({}, {"p_0": {"kills": 3}})


@pytest.mark.parametrize(
    ("outcome", "sides", "text"),
    [
        (
            ThresholdOutcome(threshold=1.0, side="pray"),
            TEAMS,
            "no side 'pray'; did you mean 'prey'",
        ),
        (ThresholdOutcome(threshold=1.0, side="a"), THREE, "between two sides, got 3"),
        (InfoOutcome(info=""), TEAMS, "must name a key"),
        ("returns", TEAMS, "got 'returns'"),
        ("environments:nothing", TEAMS, "has no 'nothing'"),
        ("environments:CLOCKWORK", TEAMS, "must name a function"),
    ],
)
def test_wrong_outcomes_are_refused_when_made(
    outcome: Outcome, sides: Sides, text: str, assets: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        made(outcome, sides, assets=assets)


def test_sides_must_have_agents_that_there_are() -> None:
    with pytest.raises(ConfigError, match="no agent 'predator_O'; did you mean 'predator_0'"):
        make_outcome(
            "return",
            sides={"x": ("predator_O",), "y": ("prey",)},
            agents=("predator_0", "prey"),
            launch_directory="",
        )


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([0.0, 1.0, 1.0 + 5e-7, 3.0, -2.0, 1e9]), min_size=17, max_size=40))
def test_many_sides_are_counted_as_few_are(values: list[float]) -> None:
    one_by_one = [
        sum(sides_beaten([mine, other])[0] for at, other in enumerate(values) if at != index)
        for index, mine in enumerate(values)
    ]
    assert list(sides_beaten(values)) == one_by_one
    batched = make_batched_score(
        "return",
        sides={f"s{i}": (f"a{i}",) for i in range(len(values))},
        agents=tuple(f"a{i}" for i in range(len(values))),
        launch_directory="",
        device=torch.device("cpu"),
    )
    # There are so many matches that they are scored in several chunks.
    matches = torch.tensor([values] * (MAX_COMPARED // len(values) ** 2 + 3), dtype=torch.float64)
    assert batched(matches).tolist() == [one_by_one] * len(matches)
