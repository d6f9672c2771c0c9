"""Bradley-Terry against others: the written-out posterior, `choix`, and its own other path."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import choix
import numpy as np
import numpy.typing as npt
import pytest
from scipy import optimize

from populations.ratings.bradley_terry import ELO_PER_UNIT, BradleyTerry
from populations.ratings.fitting.posterior import FloatArray
from populations.ratings.model import Result
from tests.populations.ratings.test_bradley_terry import simulate

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
    # Somebody who only won, an unplayed line of descent, and a group that never met the others.
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
        # 128 samples: a relative error of 1 / sqrt(256) = 6.25% each; 4.5 of those at most.
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
    # A chain of 60 in which everybody always beat the next, 10^6 times.
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
