"""Compare the ratings of runs with direct games between their players and with the anchor.

    python -m experiments.ratings.direct_games RUN ... --players 12 --matches 2000

Players of every age and the anchor play a round robin, half of the matches in each seat. A pair's
direct difference is the log-odds of its score over both seats, in Elo. The league predicts it by
the difference of two ratings; of two populations, which have a side each, players of different ones
meet, and the worth of the sides is added. Pairs are near (less than 100 Elo apart), middle or
far (more than 400); those decided in all but a few matches, beyond --limit Elo, are left out.

Printed for each run: the root mean square of what is predicted wrong, less the direct games' own
error; the share of pairs and players whose interval and the direct games' own error cover the
distance; the mean width of the players' intervals; the scatter of pairs and misfit of the fit. The
games of a run are kept in direct.json beside its journal.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

import arena
from arena.types import RANDOM_BOT, Entrant
from experiments.harness import parser_of
from populations.controller.rating_fit import fit_ratings
from populations.controller.rating_input import fit_input, snapshot
from populations.league.pairs import seat_advantage
from populations.league.ratings import Ratings
from populations.league.standings import Standing
from populations.ratings.bradley_terry import ELO_PER_UNIT
from populations.ratings.model import Z95
from populations.ratings.results import Rated
from populations.views.questions.inspection import RATING, Inspection, folded

GAMES = "direct.json"
LEVELS = {"near": (0.0, 100.0), "middle": (100.0, 400.0), "far": (400.0, math.inf)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Direct:
    """Difference of two players by games between them.

    Attributes:
        elo: Log-odds of the score over both seats, in Elo.
        error: Its standard error, in Elo.
    """

    elo: float
    error: float


def play(run: Path, *, num_players: int, num_matches: int, seed: int) -> dict[str, object]:
    """Let players of every age meet each other and the anchor; as `arena.evaluate` returns it."""
    kept = run / GAMES
    if not kept.exists():
        inspection = Inspection.open(run)
        populations = inspection.standings().values()
        inspection.close()
        chosen: list[str] = []
        for lines in populations:
            rated = [line for line in lines if line.kind != "bot" and line.rating is not None]
            ghosts = sorted((one.agent_steps, one.player) for one in rated if one.kind == "ghost")
            places = np.linspace(0, len(ghosts) - 1, min(num_players, len(ghosts))).astype(int)
            chosen += [ghosts[place][1] for place in sorted(set(places.tolist()))]
            # A policy whose last weights were not evaluated is left out: its rating is of older
            # weights.
            chosen += [
                line.player
                for line in rated
                if line.kind == "policy" and line.evaluated_agent_steps == line.agent_steps
            ]
        players = [f"{run}:{player}" for player in chosen]
        found = arena.evaluate([*players, RANDOM_BOT], matches=num_matches, seed=seed)
        kept.write_text(json.dumps({**found, "names": [*chosen, RANDOM_BOT]}))
    document: dict[str, object] = json.loads(kept.read_text())
    return document


def direct_differences(games: dict[str, object]) -> dict[tuple[str, str], Direct]:
    """Return the difference of each pair of players by its games."""
    full: list[str] = games["players"]  # type: ignore[assignment]
    short: list[str] = games["names"]  # type: ignore[assignment]
    names = dict(zip(full, short, strict=True))
    won: Counter[tuple[str, str]] = Counter()
    for pair in games["pairs"]:  # type: ignore[attr-defined]
        one, two = names[pair["home"]], names[pair["away"]]
        won[one, two] += pair["score"] * pair["matches"]
        won[two, one] += (1.0 - pair["score"]) * pair["matches"]
    found = {}
    for one, two in combinations(short, 2):
        # Half a win is added to each side, so that log-odds stay finite where one player won all
        # games.
        own, other = won[one, two] + 0.5, won[two, one] + 0.5
        if own + other == 1.0:
            continue  # Players of one population on one side never meet.
        # Var(log-odds) = 1 / (n p q) = 1 / won + 1 / lost
        found[one, two] = Direct(
            elo=ELO_PER_UNIT * math.log(own / other),
            error=ELO_PER_UNIT * math.sqrt(1.0 / own + 1.0 / other),
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class League:
    """Knowledge that a run has of its players.

    Attributes:
        ratings: Ratings by population as the run shows them, with the spread of the same fit made
            again.
        lines: Standings; ``bot:random`` is one line in each population's.
        sides: Seats of each population, the first of them.
    """

    ratings: dict[str, Ratings]
    lines: dict[tuple[str, str], Standing]
    sides: dict[str, int]

    def rated(self, player: str, *, against: str) -> Rated:
        """Return a player's weights; those of the bot are of the population that it stands for."""
        homes = {name for name, found in self.lines if found == player}
        if player == RANDOM_BOT and len(homes) > 1:
            homes -= {name for name, found in self.lines if found == against}
        (population,) = homes
        return population, Entrant(self.lines[population, player].weights or player)

    def difference(self, first: Rated, second: Rated) -> tuple[float, float] | None:
        """Return by how much the first is predicted to be ahead, and its deviation, in Elo."""
        one, two = self.ratings[first[0]], self.ratings[second[0]]
        mean, other = one.rating(first[1]), two.rating(second[1])
        i, j = one.index(first[1]), two.index(second[1])
        if mean is None or other is None or i is None or j is None:
            return None
        assert one.row is not None
        assert one.spread is not None
        assert two.spread is not None
        seats = (self.sides[first[0]], self.sides[second[0]])
        worth = seat_advantage(one.row.advantages, seats) if first[0] != second[0] else 0.0
        return mean - other + worth, float(np.linalg.norm(one.spread[i] - two.spread[j]))


def league_of(run: Path) -> League:
    """Return what a run says."""
    inspection = Inspection.open(run)
    tables = inspection.reader.load(pairs=RATING)
    league = folded(tables, inspection.run_file, inspection.run_dir)
    again = fit_ratings(fit_input(snapshot(league, rated=tables.ratings)))
    ratings = {name: Ratings(row, again[name].spread) for name, row in tables.ratings.items()}
    standings = inspection.standings()
    inspection.close()
    return League(
        ratings=ratings,
        lines={(name, line.player): line for name, lines in standings.items() for line in lines},
        sides={seat.population: i for i, seat in reversed(list(enumerate(league.seats)))},
    )


def compare(run: Path, games: dict[str, object], *, limit: float) -> dict[str, float]:
    """Return the figures of a run."""
    league = league_of(run)
    rows = [one.row for one in league.ratings.values() if one.row is not None]
    scatter = max(row.pair_deviation for row in rows)
    errors: dict[str, list[float]] = {level: [] for level in LEVELS}
    held: dict[str, list[bool]] = {level: [] for level in LEVELS}
    players, widths, bias = [], [], []
    for (one, two), direct in direct_differences(games).items():
        if abs(direct.elo) > limit:
            continue
        first, second = league.rated(one, against=two), league.rated(two, against=one)
        found = league.difference(first, second)
        if found is None:
            continue
        if two == RANDOM_BOT:
            interval = league.ratings[first[0]].interval(first[1])
            assert interval is not None
            half = (interval[2] - interval[1]) / 2.0
            off = found[0] - direct.elo
            players.append(abs(off) <= math.hypot(half, Z95 * direct.error))
            widths.append(2.0 * half)
            bias.append(off)
        level = next(n for n, (low, high) in LEVELS.items() if low <= abs(direct.elo) < high)
        error = found[0] - direct.elo
        errors[level].append(error**2 - direct.error**2)
        # A pair may deviate from its ratings by the pair deviation that the fit estimated.
        deviation = math.hypot(found[1], scatter, direct.error)
        held[level].append(abs(error) <= Z95 * deviation)
    top = max(
        (line for line in league.lines.values() if line.kind != "bot" and line.champion),
        key=lambda line: line.kind == "policy",
    )
    return {
        **{level: math.sqrt(max(float(np.mean(v)), 0.0)) for level, v in errors.items() if v},
        **{f"held_{level}": float(np.mean(v)) for level, v in held.items() if v},
        "players": float(np.mean(players)),
        "bias": float(np.mean(bias)),
        "width": float(np.mean(widths)),
        "champion": float(top.rating or math.nan),
        "scatter": scatter,
        "anchor": max(row.anchor_deviation for row in rows),
        "misfit": max(row.misfit for row in rows),
        "entrants": float(sum(len(row.entrants) for row in rows)),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="Run directory")
    parser.add_argument("--players", type=int, default=12, help="Ghosts of every age (default 12)")
    parser.add_argument("--matches", type=int, default=2000, help="Matches a pair (default 2000)")
    parser.add_argument("--limit", type=float, default=900.0, help="Largest difference, Elo")
    parser.add_argument("--seed", type=int, default=5, help="Seed of the games (default 5)")
    options = parser.parse_args(arguments)
    for run in options.runs:
        games = play(
            run, num_players=options.players, num_matches=options.matches, seed=options.seed
        )
        figures = compare(run, games, limit=options.limit)
        told = " ".join(f"{name} {value:.3g}" for name, value in figures.items())
        sys.stdout.write(f"{run} {told}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
