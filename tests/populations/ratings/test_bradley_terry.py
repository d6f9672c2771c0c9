from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace

import choix
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from populations.ratings.bradley_terry import ELO_PER_UNIT, BradleyTerry
from populations.ratings.fitting.components import LIMITS_OF_PRIORS
from populations.ratings.fitting.posterior import FloatArray
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
    # With nearly flat priors, no draws and no order of seats the rating is the log-odds of 30 to 10
    # times 400 / ln 10.
    model = BradleyTerry(root_deviation=1e6)
    fit = model.fit([result("a", RANDOM, 30, 0, 10, seats=(0, 0))], anchors=[RANDOM])
    assert fit.rating("a") == pytest.approx(400 * math.log10(3), abs=0.5)
    # Without draws the Fisher information of d is 40 * p (1 - p) = 7.5.
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
    # 400 matches have even scores and 300 draws: a match has the variance 1/16, so phi is 1/4; 4 of
    # prior information pull to the same 1/4. Information of d: 400 / 4 / (1/4) = 400.
    model = BradleyTerry(root_deviation=1e6)
    fit = model.fit([result("a", RANDOM, 50, 300, 50, seats=(0, 0))], anchors=[RANDOM])
    assert fit.rating("a") == pytest.approx(0.0, abs=1e-9)
    assert fit.components.dispersion == pytest.approx(0.25)
    assert fit.deviation("a") == pytest.approx(ELO_PER_UNIT / math.sqrt(400.0), rel=1e-3)


def test_the_first_seat_is_worth_its_advantage_and_not_a_rating() -> None:
    # The player in the first seat wins 10:1, whichever it is.
    both = [result("a", "b", 1000, 0, 100), result("b", "a", 1000, 0, 100)]
    fit = BradleyTerry().fit(both, anchors=["b"])
    assert fit.rating("a") == pytest.approx(0.0, abs=1e-6)
    assert fit.advantages[0, 1] == pytest.approx(400.0, abs=2.0)


def test_two_populations_have_one_fit_and_two_anchors() -> None:
    # The game favours predators 10:1, so prey 1 is 400 points better than random prey.
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
    # a and b played often, and the anchor is far from both.
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
    # The truth is five players from a normal distribution with mean 150 and deviation 200 Elo, so
    # that the priors (deviation 1000 around 0) are wrong but have hardly any weight.
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
    # The sum runs from the first to the last time, however many are between.
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
    # A free player with nearly no prior is determined by its own log-odds: its leverage is 1, so
    # one match is added, half of it won (Firth): 3.5 wins of 4 + 1.
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
    # a is 1 ahead of b by a link with w = 4, and b is 0.5 behind the anchor by w = 16; with nearly
    # no prior: b = -0.5 at 1 / 16, a = 0.5 at 1 / 16 + 1 / 4.
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
        # Deviations are sampled if the exact solver is not used.
        assert deviations == pytest.approx(expected, rel=1e-4 if limit else 0.2, abs=1e-9)
    # A link is combined with results: 8 of 16 won against the anchor.
    fit = BradleyTerry(root_deviation=1e6, num_rounds=0).fit(
        [result("b", RANDOM, 8, 0, 8, seats=(0, 0))],
        links=result_columns(links[1:]),
        anchors=[RANDOM],
    )
    # 16 (-0.5 - x) + 8 - 16 p(x) = 0
    at = float(fit.ratings[fit.entrants.index("b")]) / ELO_PER_UNIT
    assert 16.0 * (-0.5 - at) + 8.0 - 16.0 / (1.0 + np.exp(-at)) == pytest.approx(0.0, abs=1e-6)


BOT = "bot:random"


def league(
    num_players: int,
    *,
    matches: int,
    rng: np.random.Generator,
    draws_of_equals: float,
    advantage: float,
) -> list[Result[str]]:
    names = [BOT, *(f"p{k:03d}" for k in range(1, num_players))]
    theta = dict(zip(names, rng.normal(0.0, 1.2, size=num_players), strict=True))
    return simulate(
        theta, matches=matches, advantage=advantage, draws_of_equals=draws_of_equals, rng=rng
    )


def optimum(
    results: Sequence[Result[str]],
    *,
    entrants: Sequence[str],
    parents: Mapping[str, str],
    model: BradleyTerry,
) -> tuple[dict[str, float], FloatArray]:
    """Where the gradient of the written-out log posterior is 0, and the covariance there, in Elo.

    The gradient is a complex step's: exact to rounding without a formula for it.
    """
    free = [entrant for entrant in entrants if entrant != BOT]
    pairs = sorted({r.seats for r in results})

    def log_posterior(x: npt.NDArray[np.complex128]) -> complex:
        theta = {BOT: 0.0 + 0.0j} | dict(zip(free, x[: len(free)], strict=True))
        g = dict(zip(pairs, x[len(free) :], strict=True))
        total = 0.0 + 0.0j
        for r in results:
            d = theta[r.first] - theta[r.second] + g[r.seats]
            score = r.wins + 0.5 * r.draws
            total += score * d - (r.wins + r.draws + r.losses) * np.log(1.0 + np.exp(d))
        for entrant in free:
            if entrant in parents:
                step, deviation = theta[entrant] - theta[parents[entrant]], model.child_deviation
            else:
                step, deviation = theta[entrant], model.root_deviation
            total -= 0.5 * (step * ELO_PER_UNIT / deviation) ** 2
        for value in g.values():
            total -= 0.5 * (value * ELO_PER_UNIT / model.advantage_deviation) ** 2
        return complex(total)

    size = len(free) + len(pairs)

    def negative_gradient(x: FloatArray) -> FloatArray:
        steps = x + 1e-30j * np.eye(size)
        return np.array([-log_posterior(step).imag / 1e-30 for step in steps])

    rough = optimize.minimize(
        lambda x: -log_posterior(x.astype(np.complex128)).real,
        np.zeros(size),
        jac=negative_gradient,
        method="BFGS",
        options={"gtol": 1e-3},
    ).x
    found = optimize.root(negative_gradient, rough, tol=1e-13).x
    steps = 1e-4 * np.eye(size)
    hessian = [(negative_gradient(found + s) - negative_gradient(found - s)) / 2e-4 for s in steps]
    covariance = np.linalg.inv(np.array(hessian))[: len(free), : len(free)] * ELO_PER_UNIT**2
    return dict(zip(free, found[: len(free)] * ELO_PER_UNIT, strict=True)), covariance


@pytest.mark.parametrize("max_exact", [0, 1000])
def test_finds_the_optimum_of_the_written_out_posterior(max_exact: int) -> None:
    rng = np.random.default_rng(1)
    model = BradleyTerry(max_exact=max_exact, num_rounds=0)
    for matches in (1, 10):
        results = league(5, matches=matches, rng=rng, draws_of_equals=0.16, advantage=0.4)
        parents = {"p002": "p001", "p004": "p003", "unplayed": "p002"}
        fit = model.fit(results, parents=parents, anchors=[BOT])
        expected, covariance = optimum(results, entrants=fit.entrants, parents=parents, model=model)
        assert {e: fit.rating(e) for e in expected} == pytest.approx(expected, abs=1e-6)
        free = [fit.entrants.index(entrant) for entrant in expected]
        if max_exact:
            assert fit.covariance[np.ix_(free, free)] == pytest.approx(covariance, rel=1e-3)


def test_without_draws_and_seats_it_is_the_model_of_choix() -> None:
    # Seats (0, 0) have no advantage, and P(win) is the logistic function of d. choix: a penalty of
    # alpha theta^2.
    rng = np.random.default_rng(2)
    size, alpha = 8, 0.05
    theta = rng.normal(0.0, 1.0, size=size)
    won: list[tuple[int, int]] = []
    for i, j in itertools.combinations(range(size), 2):
        for _ in range(5):
            i_wins = rng.random() < 1.0 / (1.0 + np.exp(theta[j] - theta[i]))
            won.append((i, j) if i_wins else (j, i))
    results = [
        Result(first=winner, second=loser, seats=(0, 0), wins=1, draws=0, losses=0)
        for winner, loser in won
    ]

    penalized = BradleyTerry(root_deviation=ELO_PER_UNIT / np.sqrt(2.0 * alpha), num_rounds=0).fit(
        results
    )
    expected = choix.opt_pairwise(size, won, alpha=alpha, method="Newton-CG", tol=1e-12)
    ours = penalized.ratings / ELO_PER_UNIT
    assert ours == pytest.approx(expected - expected.mean(), abs=1e-6)

    flat = BradleyTerry(root_deviation=1e6, num_rounds=0).fit(results)
    likeliest = choix.ilsr_pairwise(size, won, tol=1e-13, max_iter=1000)
    assert flat.ratings / ELO_PER_UNIT == pytest.approx(likeliest - likeliest.mean(), abs=1e-6)


def test_both_paths_agree() -> None:
    rng = np.random.default_rng(3)
    results = league(40, matches=3, rng=rng, draws_of_equals=0.1, advantage=0.3)
    # The cases are a player that only won, a line without matches, and a group that never played
    # the others.
    results += [
        Result(first="winner", second="p001", seats=(0, 1), wins=30, draws=0, losses=0),
        Result(first="x", second="y", seats=(1, 2), wins=3, draws=0, losses=9),
    ]
    parents = {f"p{k:03d}": f"p{k - 1:03d}" for k in range(2, 40)} | {"q": "p039", "r": "q"}
    for anchors in ([BOT], []):
        exact, sparse = (
            BradleyTerry(max_exact=max_exact, num_rounds=0).fit(
                results, parents=parents, anchors=anchors
            )
            for max_exact in (1000, 0)
        )
        assert sparse.entrants == exact.entrants
        assert sparse.ratings == pytest.approx(exact.ratings, abs=1e-6)
        assert sparse.advantages == pytest.approx(exact.advantages, abs=1e-6)
        assert sparse.spread.shape == (len(exact.entrants), 128)
        free = exact.deviations > 0.0
        assert np.array_equal(free, sparse.deviations > 0.0)
        # 128 samples give a relative error of 1 / sqrt(256) = 6.25%; the bound is 4.5 of those.
        ratio = sparse.deviations[free] / exact.deviations[free]
        assert np.abs(ratio - 1.0).max() < 0.28
        assert np.sqrt(np.mean((ratio - 1.0) ** 2)) < 0.075
        pairs = list(itertools.combinations(np.flatnonzero(free), 2))
        differences = np.array(
            [
                [np.linalg.norm(fit.spread[i] - fit.spread[j]) for fit in (sparse, exact)]
                for i, j in pairs
            ]
        )
        ratio = differences[:, 0] / differences[:, 1]
        assert np.abs(ratio.mean() - 1.0) < 0.05
        assert np.std(ratio) < 0.08


def test_the_sparse_path_gives_the_same_to_the_bit() -> None:
    results = league(
        12, matches=4, rng=np.random.default_rng(4), draws_of_equals=0.16, advantage=0.2
    )
    model = BradleyTerry(max_exact=0)
    first = model.fit(results, anchors=[BOT])
    again = model.fit(results[::-1], anchors=[BOT])
    assert np.array_equal(first.ratings, again.ratings)
    assert np.array_equal(first.spread, again.spread)


@pytest.mark.parametrize("max_exact", [0, 1000])
def test_hard_problems_end(max_exact: int) -> None:
    # In a chain of 60 each player always beat the next, 10^6 times.
    results = [
        Result(first=k, second=k + 1, seats=(0, 0), wins=10**6, draws=0, losses=0)
        for k in range(60)
    ]
    fit = BradleyTerry(max_exact=max_exact).fit(results, anchors=[60])
    assert np.isfinite(fit.ratings).all()
    assert np.isfinite(fit.spread).all()
    order = [fit.rating(k) for k in range(61)]
    assert order == sorted(order, reverse=True)


def test_thousands_of_entrants_take_the_sparse_path() -> None:
    rng = np.random.default_rng(5)
    size = 2_000
    elo = rng.normal(0.0, 200.0, size=size)
    results = []
    for first, second in rng.integers(0, size, size=(12_000, 2)).tolist():
        if first != second:
            odds = 1.0 / (1.0 + 10.0 ** ((elo[second] - elo[first]) / 400.0))
            wins = int(rng.binomial(10, odds))
            results.append(
                Result(
                    first=first, second=second, seats=(0, 0), wins=wins, draws=0, losses=10 - wins
                )
            )
    fit = BradleyTerry(root_deviation=300.0).fit(results)
    assert fit.spread.shape[1] == 128
    truth = elo[list(fit.entrants)]
    z = (fit.ratings - (truth - truth.mean())) / fit.deviations
    assert 0.9 < np.std(z) < 1.1
