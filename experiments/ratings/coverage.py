"""Do 95% intervals of ratings hold the truth in 95% of cases? Simulated leagues with known skills.

    python -m experiments.ratings.coverage                # 1000 leagues; bootstrap: 250 of them
    python -m experiments.ratings.coverage --leagues 200 --resampled 200 --matches 20

A league has ``bot:random`` at 0 and six players with normal skills (deviation 200 Elo). All meet
all in both orders of seats; the first seat is worth 50 Elo, and equals draw a quarter of their
matches. Printed for each number of matches per ordered pair: the share of ratings, and of
differences of two players, inside their intervals, by Wald (Laplace's approximation) and by the
percentile bootstrap with 200 resamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, combinations, permutations

import numpy as np

from arena.types import RANDOM_BOT
from experiments.harness import markdown, parser_of, say
from populations.ratings.bootstrap import bootstrap
from populations.ratings.bradley_terry import ELO_PER_UNIT, BradleyTerry
from populations.ratings.fitting.posterior import FloatArray, IntArray
from populations.ratings.model import Z95, Result

NUM_PLAYERS = 6
SPREAD = 200.0
SEAT_ADVANTAGE = 50.0
DRAWS = 0.25
"""Share of their matches that equals draw; 4 DRAWS p (1 - p) where one's expected score is p."""

NUM_RESAMPLES = 200


@dataclass(slots=True)
class Share:
    """Share of intervals that hold the truth."""

    inside: int = 0
    total: int = 0

    def add(self, truths: FloatArray, lows: FloatArray, highs: FloatArray) -> None:
        """Count intervals. Shape [N] each."""
        self.inside += int(((lows <= truths) & (truths <= highs)).sum())
        self.total += len(truths)

    def __str__(self) -> str:
        """Write the share in percent, with the standard error of independent intervals."""
        if not self.total:
            return "-"
        share = self.inside / self.total
        return f"{share:.1%} ± {np.sqrt(share * (1.0 - share) / self.total):.1%}"


def played(skills: FloatArray, *, matches: int, rng: np.random.Generator) -> list[Result[str]]:
    """Play matches of all ordered pairs of a league. Skills in Elo, those of `names`: [N]."""
    results = []
    players = names(len(skills))
    for i, j in permutations(range(len(skills)), 2):
        ahead = (skills[i] - skills[j] + SEAT_ADVANTAGE) / ELO_PER_UNIT
        score = 1.0 / (1.0 + np.exp(-ahead))
        drawn = 4.0 * DRAWS * score * (1.0 - score)
        shares = [score - 0.5 * drawn, drawn, 1.0 - score - 0.5 * drawn]
        wins, draws, losses = rng.multinomial(matches, shares).tolist()
        results.append(
            Result(
                first=players[i],
                second=players[j],
                seats=(0, 1),
                wins=wins,
                draws=draws,
                losses=losses,
            )
        )
    return results


def names(size: int) -> list[str]:
    """Return the anchor, then the players."""
    return [RANDOM_BOT, *(f"p{index}" for index in range(1, size))]


def measure(
    *, matches: int, leagues: int, resampled: int, seed: int
) -> tuple[Share, Share, Share, Share]:
    """Simulate leagues.

    Returns:
        Of Wald's intervals: ratings, differences; of the bootstrap's: ratings, differences.
    """
    shares = (Share(), Share(), Share(), Share())
    for league in range(leagues):
        rng = np.random.default_rng([seed, matches, league])
        skills = np.concatenate([[0.0], rng.normal(0.0, SPREAD, NUM_PLAYERS)])
        results = played(skills, matches=matches, rng=rng)
        fit = BradleyTerry().fit(results, anchors=[RANDOM_BOT])
        order = [fit.index(name) for name in names(len(skills))]
        pairs = np.array(list(combinations(range(1, len(skills)), 2)))
        ratings, spread = fit.ratings[order], fit.spread[order]
        _count(shares[0], shares[1], skills, pairs, ratings=ratings, spread=spread)
        if league < resampled:
            drawn = bootstrap(
                BradleyTerry(),
                results,
                anchors=[RANDOM_BOT],
                num_resamples=NUM_RESAMPLES,
                rng=rng,
            )[:, order]
            shares[2].add(skills[1:], *_percentiles(drawn[:, 1:]))
            gaps = drawn[:, pairs[:, 0]] - drawn[:, pairs[:, 1]]
            shares[3].add(skills[pairs[:, 0]] - skills[pairs[:, 1]], *_percentiles(gaps))
    return shares


def _count(
    of_ratings: Share,
    of_differences: Share,
    skills: FloatArray,
    pairs: IntArray,
    *,
    ratings: FloatArray,
    spread: FloatArray,
) -> None:
    """Count Wald's intervals of one league."""
    half = Z95 * np.linalg.norm(spread[1:], axis=1)
    of_ratings.add(skills[1:], ratings[1:] - half, ratings[1:] + half)
    first, second = pairs[:, 0], pairs[:, 1]
    gap = ratings[first] - ratings[second]
    half = Z95 * np.linalg.norm(spread[first] - spread[second], axis=1)
    of_differences.add(skills[first] - skills[second], gap - half, gap + half)


def _percentiles(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    low, high = np.percentile(rows, [2.5, 97.5], axis=0)
    return low, high


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--matches", type=int, nargs="+", default=[5, 20, 100])
    parser.add_argument("--leagues", type=int, default=1000)
    parser.add_argument("--resampled", type=int, default=250, help="leagues with a bootstrap, too")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    head = ("matches per ordered pair", "Wald: ratings", "differences", "bootstrap: ratings")
    measured = (
        (
            matches,
            *measure(
                matches=matches,
                leagues=options.leagues,
                resampled=options.resampled,
                seed=options.seed,
            ),
        )
        for matches in options.matches
    )
    for line in markdown(chain([(*head, "differences")], measured)):
        say(line)


if __name__ == "__main__":
    main()
