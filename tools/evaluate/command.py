"""`arena evaluate`: a tournament between players of any origin, or more evaluation of a run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..terminal.options import AsJson
from ..terminal.output import console, print_json
from ..terminal.tables import print_table
from .into_run import evaluate_run

if TYPE_CHECKING:
    from arena.matches.tournament import PairResult, TournamentResult
    from arena.types import Tally
    from populations.ratings.model import Result


_OF_TOURNAMENTS = ("matches", "greedy", "seed", "environment")
"""Options that a run decides itself."""


def evaluate(
    context: typer.Context,
    players: Annotated[
        list[str],
        typer.Argument(
            metavar="PLAYER PLAYER...",
            help="Runs, policies, exports, bots; with --into the run alone.",
        ),
    ],
    matches: Annotated[int, typer.Option(min=1, help="Matches per ordered pair.")] = 100,
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Play the likeliest actions instead of sampling.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of episodes and actions.")] = 1,
    environment: Annotated[
        str | None, typer.Option(metavar="ID", help="Environment to play, if all players are bots.")
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Run that is evaluated and keeps the results."),
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="Time of --into: 90s, 2m, 1h30m."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Let every ordered pair of players meet, and rate them.

    A PLAYER is a run directory (its champion), RUN:player/p003, RUN:player/p003@120000 (a kept
    checkpoint or a ghost) or its directory, a directory that arena export wrote, bot:random or
    bot:package.module:Class(depth=3). Players of one population among several sit in its seats
    only.

    RUN --into RUN --for 2m goes on with a finished or stopped run in evaluation only. Its own
    scheduler chooses the matches, its ratings are fitted anew, and nothing is trained.
    """
    if into is not None or duration is not None:
        given = [name for name in _OF_TOURNAMENTS if _is_given(context, name)]
        evaluate_run(players, into, duration, not_for_it=given, json_=as_json)
        return
    _tournament(
        players,
        environment=environment,
        num_matches=matches,
        greedy=greedy,
        seed=seed,
        as_json=as_json,
    )


def _tournament(
    players: Sequence[str],
    *,
    environment: str | None,
    num_matches: int,
    greedy: bool,
    seed: int,
    as_json: bool,
) -> None:
    """Play a tournament, and print its results.

    Raises:
        ConfigError: If there are too few players, or they cannot meet.
    """
    from arena.errors import ConfigError
    from arena.matches.tournament import Contender

    from ..terminal.progress import play_progress
    from .meeting import resolve_players

    if len(players) < 2:
        raise ConfigError(f"a tournament needs two or more players, got {len(players)}")
    game, resolved = resolve_players(players, environment=environment)
    contenders = [
        Contender(name=player.name, actors=player.make_actors(game, greedy=greedy))
        for player in resolved
    ]
    # n (n - 1) ordered pairs
    num_envs = game.batch_size(len(players) * (len(players) - 1) * num_matches)
    with (
        closing(game.make_env(num_envs)) as env,
        play_progress(f"{len(players)} players, {num_matches} matches a pair") as progress,
    ):
        result = game.play(env, contenders, num_matches=num_matches, seed=seed, progress=progress)
    # After bots have got their canonical names, by which tallies know them.
    names = [player.name for player in resolved]
    # Only greedy players can: a policy that samples draws anew.
    repeating = [player.name for player in resolved if greedy and player.can_repeat]
    # With chance equal games are samples, too.
    if repeating and game.has_chance():
        repeating = []
    ratings = ratings_of(result, players=names, repeating=repeating)
    document: dict[str, object] = {
        "environment": game.spec.id,
        "players": names,
        "matches": num_matches,
        "greedy": greedy,
        "seed": seed,
        "pairs": [_pair_json(pair) for pair in result.pairs],
        "ratings": ratings,
    }
    if as_json:
        print_json(document)
    else:
        _print_tables(result.pairs, ratings)
        if sentence := _of_repeats(result, repeating):
            console().print(sentence, soft_wrap=True, highlight=False)


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _of_repeats(result: TournamentResult, repeating: Collection[str]) -> str:
    """Say that games were repeated; empty: none were."""
    repeated = [tally for tally in result.tallies if is_repeating(tally, repeating)]
    played = sum(tally.matches for tally in repeated)
    distinct = sum(counted(tally, repeating) for tally in repeated)
    if played == distinct:
        return ""
    return (
        f"{played} games of players who draw nothing, without chance, were {distinct} different "
        "ones: each counts once in the ratings, and where there is one for each seating a rating "
        "has no interval. Without --greedy policies sample."
    )


def is_repeating(tally: Tally, repeating: Collection[str]) -> bool:
    """Return whether the same game again says nothing new.

    That is so only where neither players nor the environment draw anything. Where they do, a game
    that comes twice is two samples: in rock-paper-scissors every game comes often.
    """
    return tally.distinct is not None and all(name in repeating for name in tally.entrants)


def counted(tally: Tally, repeating: Collection[str]) -> int:
    """Count the games of a tally, repeated ones once."""
    # `distinct` is not None there.
    return tally.distinct or 0 if is_repeating(tally, repeating) else tally.matches


def _pair_json(pair: PairResult) -> dict[str, object]:
    return {
        "home": pair.home,
        "away": pair.away,
        "seats": dict(pair.seats),
        "matches": pair.matches,
        "distinct": pair.distinct,
        "wins": pair.wins,
        "draws": pair.draws,
        "losses": pair.losses,
        "score": pair.score,
        "mean_return": pair.mean_return,
    }


def ratings_of(
    result: TournamentResult, *, players: Sequence[str], repeating: Collection[str] = ()
) -> list[dict[str, object]]:
    """Return Bradley-Terry ratings on one scale, best first.

    ``bot:random`` is at 0 if it took part, else the mean is. The worth of a seat is fitted, too, so
    that players who can only have different seats are compared through those they met.

    Args:
        result: Result of the tournament.
        players: All of them.
        repeating: Players who draw nothing, in a game without chance: equal games among them
            count once.
    """
    from arena.types import RANDOM_BOT
    from populations.ratings.bradley_terry import BradleyTerry

    results = [played for tally in result.tallies for played in _results(tally, repeating)]
    # Without it the mean is 0.
    anchors = {str(RANDOM_BOT)} & set(players)
    fit = BradleyTerry().fit(results, entrants=players, anchors=anchors)
    lines: list[dict[str, object]] = []
    for player in sorted(players, key=fit.rating, reverse=True):
        low, high = fit.interval(player)
        met = [tally for tally in result.tallies if player in tally.entrants]
        # With one game per seating nothing was drawn that an interval could be about.
        is_sampled = player in anchors or not all(
            is_repeating(tally, repeating) and tally.distinct == 1 for tally in met
        )
        lines.append(
            {
                "player": player,
                "rating": fit.rating(player),
                "rating_low": low if is_sampled else None,
                "rating_high": high if is_sampled else None,
            }
        )
    return lines


def _results(tally: Tally, repeating: Collection[str]) -> Iterator[Result[str]]:
    """Yield a tally's results for ratings: one for each pair and match that counts."""
    from arena.matches.seating import result_weights
    from populations.ratings.model import Result
    from populations.ratings.results import Counts

    weights = result_weights(
        [(pair.first, pair.second) for pair in tally.pairs], entrants=tally.entrants
    )
    # Repeated games shrink all counts alike: k different ones of n weigh k / n each.
    share = counted(tally, repeating) / tally.matches
    for pair in tally.pairs:
        weight = weights.get((pair.first, pair.second))
        # Without a weight a player has met itself.
        if weight is not None:
            counts = Counts.from_results(pair, weight=share * weight)
            yield Result(
                first=str(tally.entrants[pair.first]),
                second=str(tally.entrants[pair.second]),
                seats=(pair.first, pair.second),
                wins=counts.wins,
                draws=counts.draws,
                losses=counts.losses,
                score_sum=counts.points,
                square_sum=counts.squares,
            )


def _print_tables(pairs: Sequence[PairResult], ratings: Sequence[dict[str, object]]) -> None:
    from rich.table import Table

    screen = console()
    table = Table(title="pairs", title_justify="left")
    for column in ("home", "away"):
        table.add_column(column, overflow="fold")
    for column in ("matches", "distinct", "wins", "draws", "losses", "score", "mean return"):
        table.add_column(column, justify="right")
    for pair in pairs:
        numbers = (pair.matches, pair.distinct, pair.wins, pair.draws, pair.losses)
        table.add_row(
            pair.home,
            pair.away,
            *(str(number) for number in numbers),
            f"{pair.score:.3f}",
            f"{pair.mean_return:.3f}",
        )
    print_table(screen, table)
    table = Table(title="ratings", title_justify="left")
    table.add_column("player", overflow="fold")
    for column in ("rating", "low", "high"):
        table.add_column(column, justify="right")
    for line in ratings:
        numbers_shown = (line[key] for key in ("rating", "rating_low", "rating_high"))
        table.add_row(
            # "-" where there is no interval
            str(line["player"]),
            *("-" if n is None else f"{n:.0f}" for n in numbers_shown),
        )
    print_table(screen, table)
