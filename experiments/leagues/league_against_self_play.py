"""Compare what a league ends on with what plain self-play ends on, at equal agent steps.

    python -m experiments.leagues.league_against_self_play --out results.jsonl
    python -m experiments.leagues.league_against_self_play --out results.jsonl --table
    python -m experiments.leagues.league_against_self_play --games kuhn --seconds 30 [KEY=VALUE]

One policy trains against itself and its ghosts with the default matchmaking (`league`) for so many
seconds, then another one against itself alone (`self_play`) for as many agent steps as that has
made, with the settings of `experiments.leagues.mixtures`. A line of JSON for each run, in the file
of --out; runs that have their line there are not done again, so it can be stopped and started at
any time. Then a table: mean and standard deviation over seeds. Lower is better, but for
`tactical_*`.

    last, uniform, nash   of the last policy, of the uniform and of the Nash mixture of what was
                          left behind (at most 64 players, evenly spaced). Kuhn and Leduc poker,
                          tic-tac-toe: exact exploitability, by best response
    exploiter_last,       score of a fresh policy after --exploiter-steps against nothing but that
    exploiter_mixture     player (the games of --exploited)
    tactical_last,        Connect Four: score against a player that looks one move ahead
    tactical_mixture
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import cast

from experiments.commands import TACTICAL
from experiments.harness import add_result, columns, parser_of, read_results, say
from experiments.leagues.exploiters import LAST, exploit, exported_mixture, meet
from experiments.leagues.mixtures import configuration, facts, train

NUM_SEEDS: Mapping[str, int] = {
    "kuhn": 5,
    "leduc": 5,
    "tictactoe": 5,
    "connect_four": 3,
}
"""Seeds of each game without --seeds."""

KINDS: Mapping[str, str] = {"league": "pfsp", "self_play": "latest"}
"""Kinds of matchmaking. The league comes first: it sets the number of agent steps."""

MEASURES = (
    "agent_steps",
    "last",
    "uniform",
    "nash",
    "exploiter_last",
    "exploiter_mixture",
    "tactical_last",
    "tactical_mixture",
)

MAX_PLAYERS = 64

Line = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Plan of the measurements: games, seeds, sizes.

    Attributes:
        seconds: Seconds of the league's training.
        exploited: Games in which fresh policies learn to beat what a run ends on.
        exploiter_steps: Agent steps of each of them.
        matches: Matches of two players, in each seat.
        overrides: ``KEY=VALUE``, of both ways of training.
    """

    seconds: float
    exploited: Sequence[str]
    exploiter_steps: int
    matches: int
    overrides: Sequence[str]

    def settings(self) -> dict[str, object]:
        """Return what makes two lines comparable, as plain data."""
        return {
            "seconds": self.seconds,
            "exploiter_steps": self.exploiter_steps,
            "matches": self.matches,
            "overrides": list(self.overrides),
        }


def main() -> None:
    """Run what is missing, and print the table."""
    options = _parser().parse_intermixed_args()
    plan = Plan(
        seconds=options.seconds,
        exploited=options.exploited,
        exploiter_steps=options.exploiter_steps,
        matches=options.matches,
        overrides=options.overrides,
    )
    if not options.table:
        for game in options.games:
            for seed in options.seeds or range(1, NUM_SEEDS[game] + 1):
                for way in KINDS:
                    fill_in(options.out, plan, game=game, way=way, seed=seed)
    say("\n".join(columns(table(comparable(options.out, plan)))))


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(__doc__)
    games = sorted(NUM_SEEDS)
    parser.add_argument("--out", type=Path, default=Path("league_against_self_play.jsonl"))
    parser.add_argument("--games", nargs="+", choices=games, default=list(NUM_SEEDS))
    parser.add_argument("--seeds", type=int, nargs="+", help="seeds; default: 5, Connect Four 3")
    parser.add_argument(
        "--seconds", type=float, default=120.0, help="seconds of a league's training"
    )
    exploited = ["tictactoe", "connect_four"]
    parser.add_argument("--exploited", nargs="*", choices=games, default=exploited)
    parser.add_argument("--exploiter-steps", type=int, default=300_000)
    parser.add_argument("--matches", type=int, default=500, help="matches of two players, per seat")
    parser.add_argument("--table", action="store_true", help="only print the table")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="configuration changes")
    return parser


def fill_in(out: Path, plan: Plan, *, game: str, way: str, seed: int) -> None:
    """Do a run and append its line, unless it is there.

    Raises:
        ValueError: If plain self-play comes before the league whose agent steps it is to make.
    """
    done = {(line["game"], line["way"], line["seed"]): line for line in comparable(out, plan)}
    if (game, way, seed) in done:
        return
    if way == "league":
        stop = [f"stop.duration_s={plan.seconds}", "stop.agent_steps_per_policy=null"]
    else:
        league = done.get((game, "league", seed))
        if league is None:
            raise ValueError(f"there is no line of the league in {game} with seed {seed} in {out}")
        stop = [f"stop.agent_steps_per_policy={league['agent_steps']}"]
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        overrides = [*plan.overrides, *stop]
        config = configuration(game, kind=KINDS[way], seed=seed, overrides=overrides)
        train(config, run)
        found = measured(game, run, plan, scratch=Path(scratch))
    line = {"game": game, "way": way, "seed": seed, **plan.settings(), **found}
    add_result(out, line)
    say(line)


def measured(game: str, run: Path, plan: Plan, *, scratch: Path) -> dict[str, object]:
    """Measure what a finished run left.

    Args:
        game: Its name.
        run: Its directory.
        plan: Games, seeds and sizes to measure.
        scratch: A directory for what is made on the way.
    """
    found = facts(game, run, max_players=MAX_PLAYERS)
    if game in plan.exploited:
        for target in ("last", "mixture"):
            directory = scratch / f"exploiter-{target}"
            directory.mkdir()
            score = exploit(
                run,
                target,
                agent_steps=plan.exploiter_steps,
                matches=plan.matches,
                scratch=directory,
            )
            found[f"exploiter_{target}"] = round(score, 3)
    if game == "connect_four":
        players = {
            "last": f"{run}:{LAST}",
            "mixture": str(exported_mixture(run, scratch / "mixture")),
        }
        for name, player in players.items():
            score = meet((player, TACTICAL), matches=plan.matches)
            found[f"tactical_{name}"] = round(score, 4)
    return found


def comparable(out: Path, plan: Plan) -> list[Line]:
    """Return the lines that were measured by a plan."""
    settings = plan.settings()
    return [
        line
        for line in read_results(out)
        if all(line.get(name) == value for name, value in settings.items())
    ]


def table(lines: Sequence[Line]) -> list[Sequence[str]]:
    """Set the mean and the standard deviation of each measure beside each other."""
    rows: list[Sequence[str]] = [("game", "measure", *(f"{way} (seeds)" for way in KINDS))]
    for game in NUM_SEEDS:
        for measure in MEASURES:
            cells = [
                _cell(
                    [
                        cast(float, line[measure])
                        for line in lines
                        if (line["game"], line["way"]) == (game, way) and measure in line
                    ]
                )
                for way in KINDS
            ]
            if any(cells):
                rows.append((game, measure, *cells))
    return rows


def _cell(values: Sequence[float]) -> str:
    if not values:
        return ""
    deviation = f" +- {stdev(values):.3f}" if len(values) > 1 else ""
    return f"{mean(values):.3f}{deviation} ({len(values)})"


if __name__ == "__main__":
    main()
