from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import astuple, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from populations.ratings.bradley_terry import ELO_PER_UNIT, BradleyTerry
from populations.ratings.fitting.components import LIMITS_OF_PRIORS
from populations.ratings.model import Z95, Fit, Result
from populations.ratings.ranks import measured_cyclicity
from populations.ratings.results import result_columns

RANDOM = "bot:random"


def result(
    first: str,
    second: str,
    wins: float,
    draws: float,
    losses: float,
    seats: tuple[int, int] = (0, 1),
) -> Result[str]:
    return Result(first=first, second=second, seats=seats, wins=wins, draws=draws, losses=losses)


def simulate(
    theta: Mapping[str, float],
    *,
    matches: int,
    advantage: float,
    draws_of_equals: float,
    rng: np.random.Generator,
) -> list[Result[str]]:
    """Everyone plays everyone in both orders; theta and advantage in units, not Elo."""
    results = []
    for first, second in itertools.permutations(theta, 2):
        p = 1.0 / (1.0 + math.exp(theta[second] - theta[first] - advantage))
        draw = 2.0 * draws_of_equals * min(p, 1.0 - p)
        shares = [p - 0.5 * draw, draw, 1.0 - p - 0.5 * draw]
        wins, draws, losses = rng.multinomial(matches, shares)
        results.append(result(first, second, int(wins), int(draws), int(losses)))
    return results


RESULTS = [
    result(RANDOM, "a", 3, 2, 15),
    result("a", RANDOM, 17, 1, 2),
    result("a", "b", 6, 3, 11),
    result("b", "c", 9, 4, 7),
    result("c", "b", 5, 5, 10),
    result("c", "a", 8, 0, 2),
]


def test_two_players_by_hand() -> None:
    # Nearly flat priors, no draws, no order of seats: log-odds of 30 to 10, scale 400 / ln 10.
    model = BradleyTerry(root_deviation=1e6)
    fit = model.fit([result("a", RANDOM, 30, 0, 10, seats=(0, 0))], anchors=[RANDOM])
    assert fit.rating("a") == pytest.approx(400 * math.log10(3), abs=0.5)
    # Fisher information of d without draws: 40 * p (1 - p) = 7.5.
    assert fit.deviation("a") == pytest.approx(ELO_PER_UNIT / math.sqrt(7.5), rel=0.02)
    assert fit.rating(RANDOM) == 0.0
    assert fit.deviation(RANDOM) == 0.0


def test_400_points_are_an_expected_score_of_ten_elevenths_however_often_is_drawn() -> None:
    model = BradleyTerry(root_deviation=1e6)
    for draws in (0, 100, 200):
        played = result("a", RANDOM, 1000 - draws / 2, draws, 100 - draws / 2, seats=(0, 0))
        fit = model.fit([played], anchors=[RANDOM])
        assert fit.rating("a") == pytest.approx(400.0, abs=0.1)


def test_draws_make_a_rating_surer_by_hand() -> None:
    # Even scores of 400 matches, of which 300 are draws: a match has the variance 1/16, so phi is
    # 1/4; 4 of prior information lean on the same 1/4. Information of d: 400 / 4 / (1/4) = 400.
    model = BradleyTerry(root_deviation=1e6)
    fit = model.fit([result("a", RANDOM, 50, 300, 50, seats=(0, 0))], anchors=[RANDOM])
    assert fit.rating("a") == pytest.approx(0.0, abs=1e-9)
    assert fit.components.dispersion == pytest.approx(0.25)
    assert fit.deviation("a") == pytest.approx(ELO_PER_UNIT / math.sqrt(400.0), rel=1e-3)


def test_the_first_seat_is_worth_its_advantage_and_not_a_rating() -> None:
    # Who sits first wins 10:1, whoever it is.
    both = [result("a", "b", 1000, 0, 100), result("b", "a", 1000, 0, 100)]
    fit = BradleyTerry().fit(both, anchors=["b"])
    assert fit.rating("a") == pytest.approx(0.0, abs=1e-6)
    assert fit.advantages[0, 1] == pytest.approx(400.0, abs=2.0)


def test_two_populations_have_one_fit_and_two_anchors() -> None:
    # The game gives predators 10:1. Then prey 1 is 400 points better than random prey.
    predator, prey = ("predator", RANDOM), ("prey", RANDOM)
    strong = ("prey", "1")
    results = [
        Result(first=predator, second=prey, seats=(0, 1), wins=1000, draws=0, losses=100),
        Result(first=predator, second=strong, seats=(0, 1), wins=500, draws=0, losses=500),
    ]
    fit = BradleyTerry().fit(results, anchors=[predator, prey])
    assert fit.rating(predator) == fit.rating(prey) == 0.0
    assert fit.rating(strong) == pytest.approx(400.0, abs=5.0)


def test_an_unknown_entrant_has_its_parents_rating_and_a_wider_interval() -> None:
    model = BradleyTerry(num_rounds=0)
    fit = model.fit(RESULTS, parents={"child": "c", "grandchild": "child"}, anchors=[RANDOM])
    assert fit.rating("child") == pytest.approx(fit.rating("c"))
    assert fit.rating("grandchild") == pytest.approx(fit.rating("c"))
    variance = fit.deviation("c") ** 2
    assert fit.deviation("child") == pytest.approx(math.sqrt(variance + 200.0**2))
    assert fit.deviation("grandchild") == pytest.approx(math.sqrt(variance + 2 * 200.0**2))
    # Relative to its parent only the step is unknown.
    assert fit.difference("child", "c") == pytest.approx((0.0, 200.0))
    alone = model.fit(RESULTS, anchors=[RANDOM])
    assert fit.rating("c") == pytest.approx(alone.rating("c"))


def test_without_results_everyone_has_the_prior() -> None:
    fit = BradleyTerry().fit([], entrants=["a"], anchors=[RANDOM])
    assert fit.interval("a") == pytest.approx((-1000.0 * Z95, 1000.0 * Z95))
    empty: Fit[str] = BradleyTerry().fit([])
    assert empty.entrants == ()


def test_who_always_won_has_a_finite_rating() -> None:
    fit = BradleyTerry().fit([result("a", RANDOM, 10**6, 0, 0)], anchors=[RANDOM])
    assert 1000.0 < fit.rating("a") < 5000.0
    assert 0.0 < fit.deviation("a") < 1000.0


def test_groups_that_never_met_have_finite_ratings() -> None:
    fit = BradleyTerry().fit([result("a", "b", 9, 0, 1), result("c", RANDOM, 9, 0, 1)])
    assert np.all(np.isfinite(fit.ratings))
    assert np.all(np.linalg.eigvalsh(fit.covariance) > -1e-6)


def test_without_an_anchor_the_mean_is_0() -> None:
    fit = BradleyTerry().fit(RESULTS, parents={"b": "a"})
    assert fit.ratings.mean() == pytest.approx(0.0, abs=1e-9)
    assert fit.covariance.sum() == pytest.approx(0.0, abs=1e-6)
    assert len(fit.entrants) == 4


def test_the_order_of_results_and_of_names_does_not_matter() -> None:
    fits = [
        BradleyTerry().fit(shuffled, entrants=extra, anchors=[RANDOM])
        for shuffled in (RESULTS, RESULTS[::-1], RESULTS[3:] + RESULTS[:3])
        for extra in (["d", "e"], ["e", "d"])
    ]
    for fit in fits[1:]:
        assert fit.entrants == fits[0].entrants
        assert np.array_equal(fit.ratings, fits[0].ratings)
        assert np.array_equal(fit.covariance, fits[0].covariance)


def test_a_result_can_be_told_from_either_side() -> None:
    forward = BradleyTerry().fit([result("a", "b", 5, 2, 3, seats=(0, 1))])
    backward = BradleyTerry().fit([result("b", "a", 3, 2, 5, seats=(1, 0))])
    assert np.array_equal(forward.ratings, backward.ratings)
    assert forward.advantages == backward.advantages


def test_the_difference_of_two_is_surer_than_their_intervals() -> None:
    # a and b met often, the anchor is far from both.
    results = [
        result("a", RANDOM, 40, 0, 0),
        result("a", "b", 60, 0, 40),
        result("b", "a", 40, 0, 60),
    ]
    fit = BradleyTerry().fit(results, anchors=[RANDOM])
    mean, deviation = fit.difference("a", "b")
    assert mean == pytest.approx(400 * math.log10(1.5), abs=2.0)
    assert deviation < 0.2 * fit.deviation("a")
    assert fit.probability_better("a", "b") > 0.99
    total = fit.probability_better("a", "b") + fit.probability_better("b", "a")
    assert total == pytest.approx(1.0)
    assert fit.probability_better("a", "a") == 0.5


@pytest.mark.slow
def test_95_percent_intervals_hold_the_truth_95_times_in_100() -> None:
    # Planted: five players from a normal distribution with mean 150 and deviation 200 Elo, so that
    # the priors (deviation 1000 around 0) are right about none of it but hardly weigh anything.
    rng = np.random.default_rng(2024)
    names = [RANDOM, "a", "b", "c", "d", "e"]
    covered = covered_differences = total = total_differences = 0
    for _ in range(300):
        elo = np.array([0.0, *rng.normal(150.0, 200.0, size=5)])
        theta = dict(zip(names, elo / ELO_PER_UNIT, strict=True))
        results = simulate(theta, matches=20, advantage=0.4, draws_of_equals=0.16, rng=rng)
        fit = BradleyTerry().fit(results, anchors=[RANDOM])
        truth = np.array([elo[names.index(name)] for name in fit.entrants])
        free = [i for i, name in enumerate(fit.entrants) if name != RANDOM]
        is_inside = np.abs(fit.ratings - truth) <= Z95 * fit.deviations
        covered += int(is_inside[free].sum())
        total += len(free)
        for i, j in itertools.combinations(free, 2):
            deviation = np.linalg.norm(fit.spread[i] - fit.spread[j])
            error = fit.ratings[i] - fit.ratings[j] - truth[i] + truth[j]
            covered_differences += bool(abs(error) <= Z95 * deviation)
            total_differences += 1
    assert (total, total_differences) == (1500, 3000)
    assert 0.93 <= covered / total <= 0.97
    assert 0.93 <= covered_differences / total_differences <= 0.97


@pytest.mark.slow
def test_lineage_intervals_hold_the_truth_where_children_are_drawn_from_the_prior() -> None:
    rng = np.random.default_rng(11)
    covered = total = 0
    for _ in range(300):
        elo = {RANDOM: 0.0, "p0": float(rng.normal(0.0, 300.0))}
        for k in range(1, 5):
            elo[f"p{k}"] = elo[f"p{k - 1}"] + float(rng.normal(0.0, 200.0))
        parents = {f"p{k}": f"p{k - 1}" for k in range(1, 5)}
        theta = {name: rating / ELO_PER_UNIT for name, rating in elo.items()}
        results = simulate(theta, matches=3, advantage=0.0, draws_of_equals=0.16, rng=rng)
        fit = BradleyTerry().fit(results, parents=parents, anchors=[RANDOM])
        for name, rating in elo.items():
            if name != RANDOM:
                low, high = fit.interval(name)
                covered += low <= rating <= high
                total += 1
    assert 0.92 <= covered / total <= 0.98


@given(
    st.lists(st.floats(min_value=1.0, max_value=2.0), min_size=1, max_size=20, unique=True),
    st.floats(min_value=LIMITS_OF_PRIORS[0], max_value=500.0),
)
def test_many_small_steps_of_a_line_are_as_wide_as_a_large_one(
    times: list[float], estimated: float
) -> None:
    line = [f"p{k}" for k in range(1 + len(times))]
    posterior = BradleyTerry().posterior(
        [result("p0", RANDOM, 1, 1, 1)],
        parents=dict(itertools.pairwise(reversed(line))),
        times={name: ("p", time) for name, time in zip(line, [1.0, *sorted(times)], strict=True)},
        anchors=[RANDOM],
    )
    components = replace(posterior.components, child_deviation=estimated)
    problem = replace(posterior, components=components).widened().problem
    variances = (
        ELO_PER_UNIT**2 / problem.precisions[posterior.design.children - len(problem.matches)]
    )
    # From first to last, however many are between.
    assert posterior.design.doublings.sum() == pytest.approx(np.log2(max(times)))
    # max(tau^2, 200^2 log2(t / t_0))
    steps = np.diff(np.log2([1.0, *sorted(times)]))
    assert np.sort(variances) == pytest.approx(
        np.sort(np.maximum(estimated**2, 200.0**2 * steps)), rel=1e-9, abs=1e-3
    )


def test_planted_ranks_are_found() -> None:
    rng = np.random.default_rng(3)
    correlations = []
    for _ in range(5):
        elo = {f"p{k:02d}": float(rating) for k, rating in enumerate(rng.normal(0, 200, size=30))}
        theta = {name: rating / ELO_PER_UNIT for name, rating in elo.items()}
        fit = BradleyTerry().fit(
            simulate(theta, matches=5, advantage=0.3, draws_of_equals=0.06, rng=rng)
        )
        truth = np.array([elo[name] for name in fit.entrants])
        ranks = [np.argsort(np.argsort(values)) for values in (fit.ratings, truth)]
        correlations.append(np.corrcoef(ranks[0], ranks[1])[0, 1])
    assert np.mean(correlations) > 0.95


COUNTS = st.integers(0, 10_000)
NAMES = st.sampled_from(["a", "b", "c", RANDOM])
RESULT = st.builds(
    result, NAMES, NAMES, COUNTS, COUNTS, COUNTS, st.sampled_from([(0, 1), (1, 0), (0, 2), (1, 2)])
).filter(lambda r: r.first != r.second)


@settings(deadline=None, max_examples=50)
@given(st.lists(RESULT, max_size=8), st.booleans(), st.booleans())
def test_every_fit_is_finite(
    results: list[Result[str]], has_lineage: bool, has_anchor: bool
) -> None:
    fit = BradleyTerry().fit(
        results,
        parents={"b": "a", "d": "b"} if has_lineage else {},
        anchors=[RANDOM] if has_anchor else [],
    )
    assert np.all(np.isfinite(fit.ratings))
    assert np.all(np.isfinite(fit.spread))
    assert np.isfinite([*fit.advantages.values()]).all()
    assert all(math.isfinite(value) for value in astuple(fit.components))
    assert 0.0 <= measured_cyclicity(fit, results) <= 1.0
    assert np.all(np.abs(fit.ratings) < 20_000.0)


@pytest.mark.parametrize("count", [-1.0, float("nan"), float("inf")])
def test_counts_must_be_finite_and_not_negative(count: float) -> None:
    with pytest.raises(ValueError, match="must be finite and at least 0"):
        BradleyTerry().fit([result("a", "b", count, 0, 0)])


def test_nobody_plays_itself() -> None:
    with pytest.raises(ValueError, match="an entrant cannot play itself, got 'a' twice"):
        BradleyTerry().fit([result("a", "a", 1, 0, 0)])


def test_parents_do_not_go_round_in_a_circle() -> None:
    with pytest.raises(ValueError, match="parents must not form a cycle"):
        BradleyTerry().fit([], parents={"a": "b", "b": "c", "c": "a"})


def test_reduced_bias_by_hand() -> None:
    # A free player with next to no prior decides its own log-odds alone: its leverage is 1, so one
    # match is added, half of it won (Firth): 3.5 wins of 4 + 1.
    result = Result(first=1, second=0, seats=(0, 0), wins=3, draws=0, losses=1)
    model = BradleyTerry(root_deviation=1e7, num_rounds=0, reduces_bias=True)
    fit = model.fit([result], anchors=[0])
    assert fit.rating(1) == pytest.approx(400.0 * math.log10(3.5 / 1.5), abs=0.1)


@pytest.mark.parametrize("reduces_bias", [False, True])
def test_groups_of_a_time_change_no_sparse_fit(reduces_bias: bool) -> None:
    rng = np.random.default_rng(7)
    results, parents, times = [], {}, {}
    for k in range(1, 120):
        parents[k], times[k] = k - 1, ("player", float(k // 3))
        for other in {max(k - 1, 0), max(k - 4, 0)}:
            wins = int(rng.binomial(10, 0.6))
            results.append(
                Result(first=k, second=other, seats=(0, 1), wins=wins, draws=0, losses=10 - wins)
            )
    exact, sparse = (
        BradleyTerry(max_exact=limit, num_rounds=0, reduces_bias=False).fit(
            results, parents=parents, times=times, anchors=[0]
        )
        for limit in (1000, 0)
    )
    assert sparse.ratings == pytest.approx(exact.ratings, abs=1e-6)
    if reduces_bias:  # rows' leverages are estimated from samples there
        exact, sparse = (
            BradleyTerry(max_exact=limit, num_rounds=0, reduces_bias=True).fit(
                results, parents=parents, times=times, anchors=[0]
            )
            for limit in (1000, 0)
        )
        assert np.abs(sparse.ratings - exact.ratings).max() < 0.2 * exact.deviations.max()


def test_a_link_is_a_normal_distribution_of_a_difference() -> None:
    # a is known to be 1 ahead of b by w = 4, and b to be 0.5 behind the anchor by w = 16; with next
    # to no prior: b = -0.5 at 1 / 16, a = 0.5 at 1 / 16 + 1 / 4.
    def link(first: str, second: str, *, weight: float, difference: float) -> Result[str]:
        half = 2.0 * weight
        points = half + weight * difference
        return replace(
            result(first, second, half, 0, half), score_sum=points, square_sum=0.5 * points
        )

    links = [
        link("a", "b", weight=4.0, difference=1.0),
        link(RANDOM, "b", weight=16.0, difference=0.5),
    ]
    for limit in (0, 1500):
        model = BradleyTerry(root_deviation=1e6, num_rounds=0, reduces_bias=True, max_exact=limit)
        fit = model.fit([], links=result_columns(links), anchors=[RANDOM])
        ratings = dict(zip(fit.entrants, fit.ratings / ELO_PER_UNIT, strict=True))
        assert ratings == pytest.approx({"a": 0.5, "b": -0.5, RANDOM: 0.0}, abs=1e-4)
        deviations = dict(zip(fit.entrants, fit.deviations / ELO_PER_UNIT, strict=True))
        expected = {"a": 0.3125**0.5, "b": 0.25, RANDOM: 0.0}
        # Drawn, where the exact solver is not used.
        assert deviations == pytest.approx(expected, rel=1e-4 if limit else 0.2, abs=1e-9)
    # Beside results: 8 of 16 won against the anchor.
    fit = BradleyTerry(root_deviation=1e6, num_rounds=0).fit(
        [result("b", RANDOM, 8, 0, 8, seats=(0, 0))],
        links=result_columns(links[1:]),
        anchors=[RANDOM],
    )
    # 16 (-0.5 - x) + 8 - 16 p(x) = 0
    at = float(fit.ratings[fit.entrants.index("b")]) / ELO_PER_UNIT
    assert 16.0 * (-0.5 - at) + 8.0 - 16.0 / (1.0 + np.exp(-at)) == pytest.approx(0.0, abs=1e-6)
