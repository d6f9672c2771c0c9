from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.types import Entrant, PlayerId, PolicyId
from populations.core import Candidate, Matchmaker, OpponentRequest
from populations.matchmaking.make import KINDS, make_matchmaker
from populations.matchmaking.pfsp import Weighting, pfsp_probabilities

TRAINEE = PolicyId("player/p000")
WEIGHTINGS = get_args(Weighting)
Rate = Callable[[Entrant, Entrant], float]


def candidate(number: int, *, population: str = "player", ghost: bool = True) -> Candidate:
    policy = f"{population}/p{number % 3:03d}"
    return Candidate(
        player=PlayerId(f"{policy}@{number:012d}" if ghost else policy),
        policy=PolicyId(policy),
        entrant=Entrant(f"{population}{number:060d}"),
        agent_steps=number,
    )


def even(first: Entrant, second: Entrant) -> float:
    del first, second
    return 0.5


def request(
    *,
    ghosts: int = 6,
    latest: int = 0,
    num_opponents: int = 8,
    win_rate: Rate = even,
) -> OpponentRequest:
    return OpponentRequest(
        trainee=TRAINEE,
        entrant=Entrant("player/p000#0"),
        num_opponents=num_opponents,
        ghosts=tuple(candidate(number) for number in range(ghosts)),
        latest=tuple(candidate(n, population="prey", ghost=False) for n in range(latest)),
        win_rate=win_rate,
    )


def shares(matchmaker: Matchmaker, asked: OpponentRequest, *, num_draws: int) -> dict[str, float]:
    rng = np.random.default_rng(7)
    drawn: Counter[str] = Counter()
    for _ in range(num_draws):
        opponents = matchmaker.draw(asked, rng=rng)
        drawn.update(player.player for player in opponents.players)
        drawn["mirror"] += opponents.num_mirrors
    total = drawn.total()
    return {player: count / total for player, count in drawn.items()}


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(
    ghosts=st.integers(0, 5),
    latest=st.integers(0, 3),
    num_opponents=st.integers(1, 9),
    latest_ratio=st.floats(0.0, 1.0),
    rate=st.floats(0.0, 1.0),
    seed=st.integers(0, 2**32),
)
def test_every_rule_fills_every_block_and_is_a_function_of_its_arguments(
    kind: str,
    ghosts: int,
    latest: int,
    num_opponents: int,
    latest_ratio: float,
    rate: float,
    seed: int,
) -> None:
    asked = request(
        ghosts=ghosts, latest=latest, num_opponents=num_opponents, win_rate=lambda a, b: rate
    )
    matchmaker = make_matchmaker(kind, latest_ratio=latest_ratio, window=2)
    first, second = (matchmaker.draw(asked, rng=np.random.default_rng(seed)) for _ in range(2))
    assert first == second
    assert first.num_mirrors + len(first.players) == num_opponents
    assert set(first.players) <= {*asked.ghosts, *asked.latest}
    if latest:
        assert first.num_mirrors == 0
    num_ghosts = sum(player in asked.ghosts for player in first.players)
    if ghosts and kind != "latest":
        assert abs(num_ghosts - (1.0 - latest_ratio) * num_opponents) < 1.0 + 1e-6
    else:
        assert num_ghosts == 0


def test_the_share_of_the_latest_is_exact_on_average() -> None:
    # 0.3 x 8 = 2.4: two or three blocks.
    asked = request(num_opponents=8)
    matchmaker = make_matchmaker("uniform", latest_ratio=0.3)
    rng = np.random.default_rng(1)
    mirrors = [matchmaker.draw(asked, rng=rng).num_mirrors for _ in range(2000)]
    assert set(mirrors) == {2, 3}
    # standard deviation of the mean: sqrt(0.24 / 2000) = 0.011
    assert np.mean(mirrors) == pytest.approx(2.4, abs=0.05)


def test_a_whole_share_needs_no_chance() -> None:
    rng = np.random.default_rng(1)
    # 0.1 * 30 is a bit more than 3 in binary.
    matchmaker = make_matchmaker("uniform", latest_ratio=0.1)
    drawn = {matchmaker.draw(request(num_opponents=30), rng=rng).num_mirrors for _ in range(50)}
    assert drawn == {3}


def test_uniform_draws_ghosts_of_all_policies_alike() -> None:
    drawn = shares(make_matchmaker("uniform", latest_ratio=0.0), request(ghosts=6), num_draws=1500)
    # 12000 draws: standard deviation of a share is sqrt(1/6 * 5/6 / 12000) = 0.0034
    assert drawn == pytest.approx(
        {candidate(n).player: 1 / 6 for n in range(6)} | {"mirror": 0.0}, abs=0.015
    )


def test_window_draws_only_from_the_newest() -> None:
    drawn = shares(
        make_matchmaker("window", latest_ratio=0.5, window=2), request(ghosts=6), num_draws=500
    )
    assert drawn.keys() == {candidate(4).player, candidate(5).player, "mirror"}
    assert drawn["mirror"] == 0.5


def test_window_goes_by_agent_steps_and_not_by_order() -> None:
    asked = request(ghosts=4)
    shuffled = OpponentRequest(
        trainee=TRAINEE,
        entrant=asked.entrant,
        num_opponents=8,
        ghosts=asked.ghosts[::-1],
        win_rate=even,
    )
    matchmaker = make_matchmaker("window", latest_ratio=0.0, window=1)
    drawn = matchmaker.draw(shuffled, rng=np.random.default_rng(0))
    assert set(drawn.players) == {candidate(3)}


def test_pfsp_meets_those_it_cannot_beat() -> None:
    rates = dict(zip((candidate(n).entrant for n in range(3)), (1.0, 0.5, 0.0), strict=True))
    asked = request(ghosts=3, win_rate=lambda trainee, ghost: rates[ghost])
    drawn = shares(
        make_matchmaker("pfsp", weighting="squared", latest_ratio=0.0), asked, num_draws=1500
    )
    # squared weights 0, 1/4, 1
    assert candidate(0).player not in drawn
    assert drawn[candidate(1).player] == pytest.approx(0.2, abs=0.015)
    assert drawn[candidate(2).player] == pytest.approx(0.8, abs=0.015)


def test_the_latest_of_another_population_are_drawn_alike() -> None:
    drawn = shares(make_matchmaker("latest"), request(ghosts=3, latest=2), num_draws=1000)
    assert drawn == pytest.approx({"prey/p000": 0.5, "prey/p001": 0.5, "mirror": 0.0}, abs=0.03)


# Hand-computed for win rates 1, 1/2, 1/4: 1 - x is 0, 1/2, 3/4.
@pytest.mark.parametrize(
    ("weighting", "expected"),
    [
        ("squared", [0.0, 4 / 13, 9 / 13]),  # 0, 4/16, 9/16
        ("linear", [0.0, 0.4, 0.6]),  # 0, 2/4, 3/4
        ("linear_capped", [0.0, 0.5, 0.5]),  # 0, 1/2, 1/2
        ("variance", [0.0, 4 / 7, 3 / 7]),  # 0, 4/16, 3/16
    ],
)
def test_pfsp_probabilities_by_hand(weighting: Weighting, expected: list[float]) -> None:
    probabilities = pfsp_probabilities(np.array([1.0, 0.5, 0.25]), weighting=weighting)
    assert probabilities == pytest.approx(expected)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_who_beats_everyone_meets_all_alike(weighting: Weighting) -> None:
    assert pfsp_probabilities(np.ones(4), weighting=weighting) == pytest.approx([0.25] * 4)


def test_who_loses_to_everyone_meets_all_alike_under_variance() -> None:
    assert pfsp_probabilities(np.zeros(4), weighting="variance") == pytest.approx([0.25] * 4)


@settings(deadline=None)
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=50), st.sampled_from(WEIGHTINGS))
def test_pfsp_probabilities_are_probabilities(rates: list[float], weighting: Weighting) -> None:
    probabilities = pfsp_probabilities(np.array(rates), weighting=weighting)
    assert np.all(np.isfinite(probabilities))
    assert np.all(probabilities >= 0.0)
    assert probabilities.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("rates", [[], [1.5], [-0.1], [float("nan")]])
def test_pfsp_refuses_what_is_no_win_rate(rates: list[float]) -> None:
    with pytest.raises(ValueError, match=r"win_rates must be one or more numbers in \[0, 1\]"):
        pfsp_probabilities(np.array(rates), weighting="linear")


def test_errors_name_the_rule_and_the_value() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="must be one of latest, uniform, window, pfsp, got 'x'"):
        make_matchmaker("x")
    with pytest.raises(ValueError, match=r"latest_ratio must be in \[0, 1\], got 2.0"):
        make_matchmaker("uniform", latest_ratio=2.0).draw(request(), rng=rng)
    with pytest.raises(ValueError, match="window must be at least 1, got 0"):
        make_matchmaker("window", window=0).draw(request(), rng=rng)
    for kind in KINDS:
        with pytest.raises(ValueError, match="num_opponents must be at least 1, got 0"):
            make_matchmaker(kind).draw(request(num_opponents=0), rng=rng)
