"""Measure whether rating intervals hold: bootstrap, champions, pair effects, draws, false alarms.

    python -m experiments.ratings.intervals bootstrap seats sides
    python -m experiments.ratings.intervals champions pairs draws alarms --leagues 200
    python -m experiments.ratings.intervals stop --leagues 50

Players with known strength play, without a controller but for ``stop``; the unit is the league, so
the figure behind "±" is half the 95% interval of the mean over leagues. Each part prints a table.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.harness import markdown, parser_of, say
from experiments.planted_league.coverage import CHANGES, MATCHES_PER_S, clustered
from experiments.ratings import many_sides
from populations.config.run_config import load_config
from populations.controller.rating_fit import optimism
from populations.gc_pause import collector_paused
from populations.ratings.bootstrap import bootstrap
from populations.ratings.bradley_terry import BradleyTerry, Time
from populations.ratings.fitting.misfit import MISFIT
from populations.ratings.fitting.posterior import FloatArray
from populations.ratings.model import Z95, Fit, Result
from populations.ratings.ranks import measured_cyclicity
from populations.simulation.environment import simulated_config, simulated_run
from populations.simulation.league import default_model
from populations.simulation.world import make_world, start
from populations.views.notices import CYCLIC

BY_MATCHES_ALONE = BradleyTerry(num_rounds=0)
"""Model without components of variance, as ratings were before."""

NUM_CONTENDERS = 4
TOURNAMENT_MATCHES = 128

Row = Mapping[str, float]


def expected(ahead: float) -> float:
    """Score of a player who is ahead by so many Elo."""
    return float(1.0 / (1.0 + 10.0 ** (-ahead / 400.0)))


def met(
    first: int,
    second: int,
    *,
    ahead: float,
    matches: int,
    rng: np.random.Generator,
    draws: float = 0.0,
    seats: tuple[int, int] = (0, 0),
) -> Result[int]:
    """Play a pair; ``draws``: share of draws between equals, taken from wins and losses alike."""
    p = expected(ahead)
    share = 2.0 * draws * min(p, 1.0 - p)
    shares = [p - 0.5 * share, share, max(1.0 - p - 0.5 * share, 0.0)]
    wins, drawn, losses = (float(count) for count in rng.multinomial(matches, shares))
    return Result(first=first, second=second, seats=seats, wins=wins, draws=drawn, losses=losses)


def held(fit: Fit[int], truth: FloatArray) -> float:
    """Return the share of players whose interval holds their strength, about the mean of all."""
    elo = (truth - truth.mean())[list(fit.entrants)]
    return float(np.mean(np.abs(fit.ratings - elo) <= Z95 * fit.deviations))


def bootstrap_league(matches: int, *, rng: np.random.Generator) -> Row:
    """Measure ten players with equal matches a pair: Wald's intervals and the bootstrap's."""
    elo = rng.normal(0.0, 200.0, size=10)
    pairs = itertools.combinations(range(10), 2)
    results = [met(i, j, ahead=elo[i] - elo[j], matches=matches, rng=rng) for i, j in pairs]
    drawn = bootstrap(BradleyTerry(), results, entrants=range(10), num_resamples=100, rng=rng)
    fit = BradleyTerry().fit(results, entrants=range(10))
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
    truth = (elo - elo.mean())[list(fit.entrants)]
    return {
        "Wald holds": held(fit, elo),
        "bootstrap holds": float(np.mean((low <= truth) & (truth <= high))),
        "bootstrap width": float(np.mean(high - low)),
    }


def seats_league(matches: int, *, rng: np.random.Generator) -> Row:
    """Measure six players and their anchor in both orders of seats; the first is worth 50 Elo."""
    elo = np.append(0.0, rng.normal(0.0, 200.0, size=6))
    results = [
        met(i, j, ahead=elo[i] - elo[j] + 50.0, matches=matches, rng=rng, draws=0.25, seats=(0, 1))
        for i, j in itertools.permutations(range(len(elo)), 2)
    ]
    fit = BradleyTerry().fit(results, anchors=[0])
    drawn = bootstrap(BradleyTerry(), results, anchors=[0], num_resamples=100, rng=rng)
    order = [fit.index(player) for player in range(len(elo))]
    ratings, spread, drawn = fit.ratings[order], fit.spread[order], drawn[:, order]
    one, two = np.triu_indices(len(elo), 1)
    gap = elo[two] - elo[one]
    half = Z95 * np.linalg.norm(spread[two] - spread[one], axis=1)
    wald = np.abs(ratings[two] - ratings[one] - gap) <= half
    low, high = np.percentile(drawn[:, two] - drawn[:, one], [2.5, 97.5], axis=0)
    resampled = (low <= gap) & (gap <= high)
    # A rating is the difference to the anchor.
    is_rating = one == 0
    return {
        "Wald: ratings": float(np.mean(wald[is_rating])),
        "Wald: differences": float(np.mean(wald[~is_rating])),
        "bootstrap: ratings": float(np.mean(resampled[is_rating])),
        "bootstrap: differences": float(np.mean(resampled[~is_rating])),
    }


def sides_league(layout: str, *, rng: np.random.Generator) -> Row:
    """Measure matches with many comparisons; above .95 where a team's members share a result."""
    evaluated, of_league = many_sides.held(layout, rng=rng)
    return {"arena evaluate": float(evaluated), "league": float(of_league)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """Players among whom a champion is looked for.

    Attributes:
        lines: Lines of descent; each begins with a player without a parent.
        generations: Players of each line.
        apart: Standard deviation of first players, and of each step from parent to child, Elo.
        matches: Matches of each player, about.
    """

    lines: int
    generations: int
    apart: float
    matches: int


FIELDS = {
    "8 players": Field(lines=8, generations=1, apart=60.0, matches=400),
    "32 players": Field(lines=32, generations=1, apart=60.0, matches=200),
    "200 players": Field(lines=200, generations=1, apart=40.0, matches=150),
    "200 ghosts of 8 lines": Field(lines=8, generations=25, apart=20.0, matches=150),
}
"""Fields of equal and of descending players, by name."""


def champion_league(name: str, *, rng: np.random.Generator) -> Row:
    """Rate, let the best four play each other, rate again, and look at the best."""
    field = FIELDS[name]
    size = field.lines * field.generations
    steps = rng.normal(0.0, field.apart, size=(field.lines, field.generations))
    elo = np.cumsum(steps, axis=1).ravel()
    parents = {k: k - 1 for k in range(size) if k % field.generations}
    times: dict[int, Time] = {k: ("player", float(k % field.generations)) for k in range(size)}
    results = []
    for k in range(size):
        for other in rng.choice(size - 1, size=8):
            j = int(other) + (int(other) >= k)
            num = int(field.matches * rng.uniform(0.5, 1.5) / 16)
            results.append(met(k, j, ahead=elo[k] - elo[j], matches=max(num, 1), rng=rng))
    model = BradleyTerry()
    fit = model.fit(results, parents=parents, times=times)
    low = fit.ratings - Z95 * fit.deviations
    best = [fit.entrants[i] for i in np.argsort(-low)[:NUM_CONTENDERS].tolist()]
    results += [
        met(i, j, ahead=elo[i] - elo[j], matches=TOURNAMENT_MATCHES, rng=rng)
        for i, j in itertools.combinations(best, 2)
    ]
    fit = model.fit(results, parents=parents, times=times)
    everybody = np.arange(size)
    champion = int(np.argmax(fit.ratings - Z95 * fit.deviations))
    truth = (elo - elo.mean())[fit.entrants[champion]]
    less = optimism(fit, candidates=everybody, centre=everybody.tolist())
    error, half = fit.ratings[champion] - truth, Z95 * fit.deviations[champion]
    return {
        "below, as rated": float(error > half),
        "below, as reported": float(error - less > half),
        "outside, as reported": float(abs(error - less) > half),
        "bias, as rated": float(error),
        "bias, as reported": float(error - less),
    }


def pairs_league(effect: float, *, rng: np.random.Generator) -> Row:
    """Measure 40 players who met about eight others 64 times; each pair has its own effect."""
    size = 40
    elo = rng.normal(0.0, 150.0, size=size)
    effects = np.triu(rng.normal(0.0, effect, size=(size, size)), 1)
    ahead = elo[:, None] - elo[None, :] + effects - effects.T
    # The rating must measure the strength against all players.
    everything = [
        Result(
            first=i,
            second=j,
            seats=(0, 0),
            wins=1e4 * expected(ahead[i, j]),
            draws=0.0,
            losses=1e4 * expected(ahead[j, i]),
        )
        for i, j in itertools.combinations(range(size), 2)
    ]
    whole = BY_MATCHES_ALONE.fit(everything)
    truth = np.empty(size)
    truth[list(whole.entrants)] = whole.ratings
    chosen = {
        (min(i, j), max(i, j))
        for i in range(size)
        for j in rng.choice([k for k in range(size) if k != i], 4, replace=False).tolist()
    }
    results = [met(i, j, ahead=ahead[i, j], matches=64, rng=rng) for i, j in sorted(chosen)]
    fit = BradleyTerry().fit(results, entrants=range(size))
    return {
        "by matches alone": held(BY_MATCHES_ALONE.fit(results, entrants=range(size)), truth),
        "holds": held(fit, truth),
        "width": 2.0 * Z95 * float(fit.deviations.mean()),
        "sigma": fit.components.pair_deviation,
        "misfit": fit.components.misfit,
        "misfit warned": float(fit.components.misfit >= MISFIT),
        "cyclicity": (cyclicity := measured_cyclicity(fit, results)),
        "cyclic warned": float(cyclicity >= CYCLIC),
    }


def draws_league(top: float, *, rng: np.random.Generator) -> Row:
    """Measure 12 players who draw more often the stronger they are; the weakest never do."""
    size = 12
    elo = np.sort(rng.normal(0.0, 250.0, size=size))
    rates = np.linspace(0.0, top, size)
    results = [
        met(i, j, ahead=elo[i] - elo[j], matches=40, rng=rng, draws=0.5 * (rates[i] + rates[j]))
        for i, j in itertools.combinations(range(size), 2)
    ]
    fit = BradleyTerry().fit(results)
    return {
        "holds": held(fit, elo),
        "error of the span": fit.rating(size - 1) - fit.rating(0) - float(elo[-1] - elo[0]),
        "phi": fit.components.dispersion,
        "misfit warned": float(fit.components.misfit >= MISFIT),
    }


def alarms_league(size: int, *, rng: np.random.Generator) -> Row:
    """Measure a league where ratings say all: every warning is a false one."""
    elo = rng.normal(0.0, 300.0, size=size)
    draws = float(rng.uniform(0.0, 0.9))
    results = [
        met(i, j, ahead=elo[i] - elo[j], matches=int(rng.integers(1, 65)), rng=rng, draws=draws)
        for i, j in itertools.combinations(range(size), 2)
        if rng.random() < 0.5
    ]
    fit = BradleyTerry().fit(results, entrants=range(size))
    cyclicity = measured_cyclicity(fit, results)
    return {
        "misfit warned": float(fit.components.misfit >= MISFIT),
        "greatest misfit": fit.components.misfit,
        "cyclic warned": float(cyclicity >= CYCLIC),
        "greatest cyclicity": cyclicity,
    }


@collector_paused()
def stop_league(target: float, *, rng: np.random.Generator) -> Row:
    """Measure a league of 8 that ends when a policy's rating is above a target at any time."""
    changes = [*CHANGES, f"seed={int(rng.integers(2**31))}", f"stop.rating={target}"]
    config = simulated_config(load_config("connect_four", changes), num_policies=8)
    world = make_world(simulated_run(config), default_model(config), matches_per_s=MATCHES_PER_S)
    start(world)
    while world.state.phase.name == "training" and world.advance():
        pass
    state = world.state
    bounds = []
    for row in state.tables.policies.values():
        weights = state.league.standing_weights(row)
        interval = state.fits.ratings(row.population).interval(weights)
        bounds.append((-np.inf if interval is None else interval[1], row))
    _, best = max(bounds, key=lambda entry: entry[0])
    weights = state.league.standing_weights(best)
    assert weights is not None, "a policy with a bound has weights"
    reached = state.phase.reason.startswith("stop.rating")
    skill = world.learner.weights[weights].skill
    return {
        "stopped": float(reached),
        "too early": float(reached and skill < target),
        "skill above the target": skill - target if reached else np.nan,
    }


PARTS: dict[str, tuple[Sequence[float | int | str], Callable[..., Row]]] = {
    "bootstrap": ((1, 2, 4), bootstrap_league),
    "seats": ((5, 20, 100), seats_league),
    "sides": (tuple(many_sides.LAYOUTS), sides_league),
    "champions": (tuple(FIELDS), champion_league),
    "pairs": ((0.0, 50.0, 100.0, 200.0), pairs_league),
    "draws": ((0.0, 0.5, 0.95), draws_league),
    "alarms": ((5, 10, 20, 40), alarms_league),
    "stop": ((600.0, 1000.0), stop_league),
}


def measure(part: str, setting: float | str, *, leagues: int, seed: int) -> dict[str, FloatArray]:
    """Measure each league of one part in one setting. float64 [leagues] each."""
    _, league = PARTS[part]
    rngs = [np.random.default_rng((seed, index)) for index in range(leagues)]
    rows = [league(setting, rng=rng) for rng in rngs]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("parts", nargs="+", choices=tuple(PARTS), help="tables to print")
    parser.add_argument("--leagues", type=int, default=100, help="leagues of each setting")
    parser.add_argument("--seed", type=int, default=1, help="seed of all leagues")
    options = parser.parse_args(argv)
    for part in options.parts:
        say("")
        for line in markdown(_rows(part, leagues=options.leagues, seed=options.seed)):
            say(line)


def _rows(part: str, *, leagues: int, seed: int) -> Iterator[Sequence[object]]:
    """Yield the names of a part's figures, and a row for each setting."""
    for index, setting in enumerate(PARTS[part][0]):
        found = measure(part, setting, leagues=leagues, seed=seed)
        if not index:
            yield part, "leagues", *found
        yield setting, leagues, *(_cell(name, values) for name, values in found.items())


def _cell(name: str, values: FloatArray) -> str:
    known = values[~np.isnan(values)]
    if not len(known):
        return "-"
    if name.startswith("greatest"):
        return f"{known.max():.2f}"
    mean, half = clustered(known.tolist())
    return f"{mean:.3g} ± {half:.2g}"


if __name__ == "__main__":
    main()
