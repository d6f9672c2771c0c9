"""Do 95% intervals of whole leagues with lineage hold the planted skill in 95% of cases?

    python -m experiments.planted_league.coverage
    python -m experiments.planted_league.coverage --policies 16 --leagues 400 --share 0.02
    python -m experiments.planted_league.coverage --draw-rate 0.1 --top-draw-rate 0.9
    python -m experiments.planted_league.coverage --preset simple_tag --policies 8
    python -m experiments.planted_league.coverage --out coverage.jsonl

Each league is a whole run: the real controller, scheduling, copies, ghosts, fits and finals, with
simulated learners. The unit is the league: its final policies share errors, so the interval beside
a share is that of the mean over leagues (clustered). One line per size; ``--json`` prints one
document per line. With ``--out`` each league is a line of that file as soon as it is over, and
leagues that the file has are not run again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from arena.types import RANDOM_BOT, Digest, Entrant, PlayerId, is_external
from experiments.harness import add_result, markdown, parser_of, read_results, say
from populations.config.run_config import load_config
from populations.gc_pause import collector_paused
from populations.league.ratings import Ratings
from populations.league.standings import Standing, champion, standings
from populations.ratings.fitting.bend import weights_of
from populations.ratings.model import Z95
from populations.ratings.results import Rated
from populations.simulation.environment import simulated_config, simulated_run
from populations.simulation.league import default_model
from populations.simulation.planted import PlantedModel, Weights
from populations.simulation.world import World, make_world, start

CHANGES = (
    "stop.agent_steps_per_policy=2000000",
    "ghosts.every_agent_steps=250000",
    "pbt.warm_up_agent_steps=200000",
    "pbt.ready_agent_steps=200000",
    "pbt.share=even",
)
MATCHES_PER_S = 1000.0
MAX_PAIRS = 8_000
"""Pairs that true strengths are made of; drawn where there are more."""

NEAR, FAR = 100.0, 400.0
"""Differences below and above which players are near and far apart, Elo."""

TRUTH = (
    *("draw_rate", "top_draw_rate", "pair_deviation", "cyclic_share", "seat_advantage"),
    *("lapse", "compression"),
)
"""Options that are constants of the planted truth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeagueError:
    """Errors of the ratings of one league, means over its populations.

    Attributes:
        ratings: Share of its final policies whose interval holds their skill.
        differences: Share of pairs of them whose interval holds the difference.
        direct: Share of its final policies whose interval holds what matches with the anchor show.
        near: Share of pairs of all its rated players, less than 100 Elo apart, whose interval holds
            what they do when they meet.
        far: The same of those more than 400 Elo apart.
        far_strengths: Share of these whose interval holds the difference of their true strengths.
        ranks: Share of its players whose true rank is among those that they may have.
        champion: Whether the champion's reported one does.
        champion_low: Whether the champion is worse than its reported interval.
        champion_skill: Planted skill of the champion, Elo.
        champion_bias: Reported rating minus skill of the champion, Elo.
        optimism: Elo taken from the champion's rating for having been chosen.
        bias: Mean of rating minus skill of the final policies, Elo.
        width: Mean width of their intervals, Elo.
        difference_width: Mean width of the intervals of differences, Elo.
        ghosts: Share of the rated ghosts whose interval holds their skill; nan: there are none.
        ghost_bias: Mean of rating minus skill of these, Elo.
        num_ghosts: Number of ghosts.
        num_links: Number of pairs that players which are gone tie together.
        pair_deviation: Pair deviation of the last fit, Elo.
        misfit: Misfit of the last fit.
        cyclicity: Cyclicity of the last fit.
    """

    ratings: float
    differences: float
    direct: float
    near: float
    far: float
    far_strengths: float
    ranks: float
    champion: float
    champion_low: float
    champion_skill: float
    champion_bias: float
    optimism: float
    bias: float
    width: float
    difference_width: float
    ghosts: float
    ghost_bias: float
    num_ghosts: float
    num_links: float
    pair_deviation: float
    misfit: float
    cyclicity: float


@collector_paused()
def league_error(
    num_policies: int,
    *,
    seed: int,
    share: float | None = None,
    plant: Callable[[PlantedModel], PlantedModel] = lambda model: model,
    preset: str = "connect_four",
    overrides: Sequence[str] = (),
) -> LeagueError:
    """Run one league and compare its last ratings with the truth.

    Args:
        num_policies: Size of each population.
        seed: Seed of the run.
        share: ``evaluation.share``; None: the preset's.
        plant: Changes the truth.
        preset: Preset of the league's settings.
        overrides: Further changes of these, KEY=VALUE.
    """
    changes = [*CHANGES, f"seed={seed}", *overrides]
    if share is not None:
        changes.append(f"evaluation.share={share}")
    config = simulated_config(load_config(preset, changes), num_policies=num_policies)
    model = plant(default_model(config))
    world = make_world(simulated_run(config), model, matches_per_s=MATCHES_PER_S)
    start(world)
    while world.advance():
        pass
    found = [
        asdict(_population_error(world, population))
        for population in world.state.tables.ratings
        if population in world.state.settings.setup.ranked_populations
    ]
    return LeagueError(**{name: float(np.mean([one[name] for one in found])) for name in found[0]})


def _population_error(world: World, population: str) -> LeagueError:
    """Compare a population's last ratings with the truth."""
    lines = standings(world.state.league)[population]
    final = [line for line in lines if line.kind == "policy" and line.rating is not None]
    ratings = world.state.fits.ratings(population)
    known = {line.player: ratings.interval(line.weights) for line in lines}
    truth = true_strengths(world)
    skill = {
        line.player: truth[population, Entrant(line.weights)]
        for line in lines
        if line.weights is not None and line.rating is not None
    }
    held, direct, errors, widths = [], [], [], []
    weights, model = world.learner.weights, world.learner.model
    bot = model.bot(RANDOM_BOT)
    for line in final:
        interval = known[line.player]
        assert interval is not None, "final policies are rated"
        rating, low, high = interval
        held.append(low <= skill[line.player] <= high)
        shown = model.difference(weights[Digest(str(line.weights))], bot)
        direct.append(low <= shown <= high)
        errors.append(rating - skill[line.player])
        # An interval without an upper bound has no width.
        if math.isfinite(high):
            widths.append(high - low)
    ghosts = [line for line in lines if line.kind == "ghost" and line.rating is not None]
    ghost_errors = [line.rating - skill[line.player] for line in ghosts if line.rating is not None]
    ghosts_held = [
        interval[1] <= skill[line.player] <= interval[2]
        for line in ghosts
        if (interval := known[line.player]) is not None
    ]
    gaps_held, gap_widths, _, _ = _differences(final, ratings, world, skill)
    every = _distinct([line for line in lines if line.kind != "bot" and line.rating is not None])
    all_held, _, gaps, sums_held = _differences(every, ratings, world, skill)
    is_near, is_far = np.abs(gaps) < NEAR, np.abs(gaps) > FAR
    row = world.state.tables.ratings[population]
    best = champion(lines)
    assert best is not None, "a player is rated"
    best_interval = known[best.player]
    assert best_interval is not None
    best_rating, best_low, best_high = best_interval
    return LeagueError(
        ratings=float(np.mean(held)),
        differences=float(np.mean(gaps_held)),
        direct=float(np.mean(direct)),
        near=float(np.mean(np.array(all_held)[is_near])) if is_near.any() else np.nan,
        far=float(np.mean(np.array(all_held)[is_far])) if is_far.any() else np.nan,
        far_strengths=float(np.mean(np.array(sums_held)[is_far])) if is_far.any() else np.nan,
        ranks=float(np.mean([*_ranks_held(every, skill)])),
        champion=float(best_low <= skill[best.player] <= best_high),
        champion_low=float(skill[best.player] < best_low),
        champion_skill=skill[best.player],
        champion_bias=best_rating - skill[best.player],
        optimism=row.optimism,
        bias=float(np.mean(errors)),
        width=float(np.mean(widths)) if widths else np.nan,
        difference_width=float(np.mean(gap_widths)),
        ghosts=float(np.mean(ghosts_held)) if ghosts else np.nan,
        ghost_bias=float(np.mean(ghost_errors)) if ghosts else np.nan,
        num_ghosts=float(len(world.state.tables.ghosts)),
        num_links=float(len(world.state.league.links)),
        pair_deviation=row.pair_deviation,
        misfit=row.misfit,
        cyclicity=row.cyclicity,
    )


def true_strengths(world: World) -> dict[Rated, float]:
    """Return the additive strengths nearest to the true log-odds of all that are rated, in Elo.

    Pairs are weighed as ratings weigh them. Where strengths add up, these are the skills.
    """
    weights, model = world.learner.weights, world.learner.model
    known: dict[Rated, Weights] = {}
    for population, last in world.state.tables.ratings.items():
        for entrant in last.entrants:
            is_bot = is_external(entrant)
            found = model.bot(entrant) if is_bot else weights[Digest(entrant)]
            known[population, entrant] = found
    is_alone = len(world.state.settings.setup.populations) == 1
    pairs = [(one, two) for one, two in combinations(known, 2) if is_alone or one[0] != two[0]]
    rng = np.random.default_rng(0)
    if len(pairs) > MAX_PAIRS:
        pairs = [pairs[i] for i in rng.choice(len(pairs), MAX_PAIRS, replace=False).tolist()]

    # Each strength has a column, except the anchors, which are fixed at 0.
    anchor = Entrant(RANDOM_BOT)
    places = {rated: k for k, rated in enumerate(one for one in known if one[1] != anchor)}
    signs = np.zeros((len(pairs), len(places) + 1))
    for row, (one, two) in enumerate(pairs):
        signs[row, places.get(one, -1)] += 1.0
        signs[row, places.get(two, -1)] -= 1.0
    ahead = [model.difference(known[one], known[two]) for one, two in pairs]
    weights_of_pairs = np.ones(len(pairs))
    # The weights depend on the strengths, so they are recomputed from the previous solution.
    for _ in range(4):
        root = np.sqrt(weights_of_pairs)
        solved, *_ = np.linalg.lstsq(root[:, None] * signs[:, :-1], root * np.array(ahead))
        strengths = np.append(solved, 0.0)
        strength_of = {rated: float(strengths[places.get(rated, -1)]) for rated in known}
        shares = _weights(strength_of)
        weights_of_pairs = np.array([shares[one] * shares[two] for one, two in pairs])
    return strength_of


def _weights(strengths: Mapping[Rated, float]) -> dict[Rated, float]:
    """Return the weight of each player among those of its population."""
    found: dict[Rated, float] = {}
    for population in {name for name, _ in strengths}:
        own = [rated for rated in strengths if rated[0] == population]
        own.sort(key=lambda rated: strengths[rated])
        places = np.array([strengths[rated] for rated in own])
        found.update(zip(own, weights_of(places).tolist(), strict=True))
    return found


def _differences(
    lines: Sequence[Standing], ratings: Ratings, world: World, skill: Mapping[PlayerId, float]
) -> tuple[list[bool], list[float], list[float], list[bool]]:
    """Return whether each pair's interval holds what it does when it meets, the interval's width,
    that, and whether it holds the difference of their true strengths.
    """
    held, widths, truths, sums_held = [], [], [], []
    weights, model = world.learner.weights, world.learner.model
    for first, second in combinations(lines, 2):
        gap = ratings.difference(str(first.weights), str(second.weights))
        assert gap is not None, "both are rated"
        true = model.difference(
            weights[Digest(str(first.weights))], weights[Digest(str(second.weights))]
        )
        # A pair may deviate from its ratings by the pair deviation that the fit estimated.
        deviation = math.hypot(gap[1], 0.0 if ratings.row is None else ratings.row.pair_deviation)
        held.append(abs(gap[0] - true) <= Z95 * deviation)
        widths.append(2.0 * Z95 * gap[1])
        truths.append(true)
        sums_held.append(abs(gap[0] - skill[first.player] + skill[second.player]) <= Z95 * gap[1])
    return held, widths, truths, sums_held


def _distinct(lines: Sequence[Standing]) -> list[Standing]:
    """Return one player of those with equal weights."""
    return list({line.weights: line for line in lines}.values())


def _ranks_held(lines: Sequence[Standing], skill: Mapping[PlayerId, float]) -> Iterator[bool]:
    """Yield whether each player's true rank is one that it may have."""
    truths = np.array([skill[line.player] for line in lines])
    for line, own in zip(lines, truths, strict=True):
        if line.rank_low is not None and line.rank_high is not None:
            yield line.rank_low <= 1 + int((truths > own).sum()) <= line.rank_high


def clustered(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean over leagues, and half the width of its 95% interval."""
    half = Z95 * float(np.std(values, ddof=1)) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return float(np.mean(values)), float(half)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--policies", type=int, nargs="+", default=[4, 8, 16, 64])
    parser.add_argument("--leagues", type=int, default=20, help="leagues of each size")
    parser.add_argument("--seed", type=int, default=1000, help="seed of the first league")
    parser.add_argument("--preset", default="connect_four", help="preset of the settings")
    parser.add_argument("--share", type=float, help="evaluation.share")
    parser.add_argument(
        "--draw-rate", type=float, default=0.0, help="share of draws between equals"
    )
    parser.add_argument("--top-draw-rate", type=float, help="the same at the ceiling of skill")
    parser.add_argument(
        "--pair-deviation", type=float, default=0.0, help="deviation of pair effects, Elo"
    )
    parser.add_argument(
        "--cyclic-share", type=float, default=0.0, help="cyclic share of the variance"
    )
    parser.add_argument(
        "--seat-advantage", type=float, default=0.0, help="advantage of the first seat, Elo"
    )
    parser.add_argument(
        "--lapse", type=float, default=0.0, help="share of matches that a lot decides"
    )
    parser.add_argument(
        "--compression", type=float, default=0.0, help="share by which 1,000 Elo are longer"
    )
    parser.add_argument(
        "--recency", type=float, default=0.0, help="lead over all that trained for less, Elo"
    )
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="changes of the configuration"
    )
    parser.add_argument("--json", action="store_true", help="print a document per line")
    parser.add_argument("--out", type=Path, help="file of leagues that are over, a line each")
    options = parser.parse_args(argv)
    truth = {name: getattr(options, name) for name in TRUTH}
    # Results of earlier versions have no such entry.
    truth |= {"recency": options.recency} if options.recency else {}
    over = _leagues_over(options.out)

    def league(size: int, seed: int) -> dict[str, float]:
        key = {"policies": size, "seed": seed, "share": options.share, **truth}
        # Results of earlier versions have no such entry.
        key |= {"set": options.set} if options.set else {}
        key |= {"preset": options.preset} if options.preset != "connect_four" else {}
        name = json.dumps(key)
        if name not in over:
            found = league_error(
                size,
                seed=seed,
                share=options.share,
                plant=lambda model: replace(model, **truth),
                preset=options.preset,
                overrides=options.set,
            )
            over[name] = asdict(found)
            add_result(options.out, {"key": key, "found": over[name]})
        return over[name]

    names = tuple(LeagueError.__dataclass_fields__)

    def rows() -> Iterator[dict[str, Any]]:
        for size in options.policies:
            seeds = range(options.seed, options.seed + options.leagues)
            leagues = [league(size, seed) for seed in seeds]
            found = {name: clustered([one[name] for one in leagues]) for name in names}
            yield {"policies": size, "leagues": len(leagues), **found}

    def cells() -> Iterator[Sequence[object]]:
        yield "policies", "leagues", *(name.replace("_", " ") for name in names)
        for row in rows():
            means = (f"{mean:.3g} ± {half:.2g}" for mean, half in (row[name] for name in names))
            yield row["policies"], row["leagues"], *means

    lines: Iterable[str] = map(json.dumps, rows()) if options.json else markdown(cells())
    for line in lines:
        say(line)


def _leagues_over(out: Path | None) -> dict[str, dict[str, float]]:
    """Read the leagues that a file has."""
    return {
        json.dumps(line["key"]): line["found"]
        for line in read_results(out)
        # Results of earlier versions that lack a figure are measured again.
        if line["found"].keys() >= LeagueError.__dataclass_fields__.keys()
    }


if __name__ == "__main__":
    main()
