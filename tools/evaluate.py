"""`arena evaluate`: a tournament between players of any origin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ._output import console, print_json
from ._tables import print_table

if TYPE_CHECKING:
    from arena.matches.tournament import PairResult, TournamentResult
    from arena.types import Tally
    from populations.core import Result

    from ._game import Game
    from ._players import ResolvedPlayer


def evaluate(
    players: Annotated[
        list[str], typer.Argument(metavar="PLAYER PLAYER...", help="Runs, policies, exports, bots.")
    ],
    matches: Annotated[int, typer.Option(min=1, help="Per ordered pair.")] = 100,
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Play the likeliest actions instead of sampling.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of episodes and actions.")] = 1,
    environment: Annotated[
        str | None, typer.Option(metavar="ID", help="What to play, where all are bots.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Let every ordered pair of players meet, and rate them.

    A PLAYER is a run directory (its champion), RUN:player/p003, RUN:player/p003@000000120000, a
    directory that arena export wrote, bot:random or bot:package.module:Class(depth=3). Players of
    one population among several sit in its seats only.
    """
    from arena.errors import ConfigError

    from ._meeting import resolve_players

    if len(players) < 2:
        raise ConfigError(f"a tournament needs two or more players, got {len(players)}")
    game, resolved = resolve_players(players, environment=environment)
    result = _play(game, resolved, num_matches=matches, greedy=greedy, seed=seed)
    names = [player.name for player in resolved]
    ratings = ratings_of(result, players=names)
    document: dict[str, object] = {
        "environment": game.spec.id,
        "players": names,
        "matches": matches,
        "greedy": greedy,
        "seed": seed,
        "pairs": [_pair_json(pair) for pair in result.pairs],
        "ratings": ratings,
    }
    if as_json:
        print_json(document)
    else:
        _print_tables(result.pairs, ratings)


def _play(
    game: Game,
    players: Sequence[ResolvedPlayer],
    *,
    num_matches: int,
    greedy: bool,
    seed: int,
) -> TournamentResult:
    import torch

    from arena.matches.seeds import seed_everything
    from arena.matches.tournament import Contender, play_tournament

    from ._progress import play_progress

    contenders = [
        Contender(name=player.name, actors=player.make_actors(game, greedy=greedy))
        for player in players
    ]
    env = game.make_env(game.batch_size(len(players) * (len(players) - 1) * num_matches))
    try:
        with play_progress(f"{len(players)} players, {num_matches} matches a pair") as progress:
            return play_tournament(
                env,
                contenders=contenders,
                num_matches=num_matches,
                seats=game.seats,
                sides=game.sides,
                seed=seed,
                generator=seed_everything(seed, device=torch.device("cpu")),
                progress=progress,
            )
    finally:
        env.close()


def _pair_json(pair: PairResult) -> dict[str, object]:
    return {
        "home": pair.home,
        "away": pair.away,
        "seats": dict(pair.seats),
        "matches": pair.matches,
        "wins": pair.wins,
        "draws": pair.draws,
        "losses": pair.losses,
        "score": pair.score,
        "mean_return": pair.mean_return,
    }


def ratings_of(result: TournamentResult, *, players: Sequence[str]) -> list[dict[str, object]]:
    """Bradley-Terry ratings on one scale, best first.

    ``bot:random`` is at 0 if it took part, else the mean is. What a seat is worth is fitted beside,
    so that players who can only have different seats are compared through those they met.
    """
    from arena.types import RANDOM_BOT
    from populations.ratings.bradley_terry import BradleyTerry

    results = [played for tally in result.tallies for played in _results(tally)]
    anchors = {str(RANDOM_BOT)} & set(players)
    fit = BradleyTerry().fit(results, entrants=players, anchors=anchors)
    lines: list[dict[str, object]] = []
    for player in sorted(players, key=fit.rating, reverse=True):
        low, high = fit.interval(player)
        lines.append(
            {
                "player": player,
                "rating": fit.rating(player),
                "rating_low": low,
                "rating_high": high,
            }
        )
    return lines


def _results(tally: Tally) -> Iterator[Result[str]]:
    """What ratings learn from a tally: one result for each player and match."""
    from arena.matches.seating import result_weights
    from populations.core import Result

    weights = result_weights(
        [(pair.first, pair.second) for pair in tally.pairs], entrants=tally.entrants
    )
    for pair in tally.pairs:
        weight = weights.get((pair.first, pair.second))
        if weight is not None:
            yield Result(
                first=str(tally.entrants[pair.first]),
                second=str(tally.entrants[pair.second]),
                seats=(pair.first, pair.second),
                wins=weight * pair.wins,
                draws=weight * pair.draws,
                losses=weight * pair.losses,
            )


def _print_tables(pairs: Sequence[PairResult], ratings: Sequence[dict[str, object]]) -> None:
    from rich.table import Table

    screen = console()
    table = Table(title="pairs", title_justify="left")
    for column in ("home", "away"):
        table.add_column(column, overflow="fold")
    for column in ("matches", "wins", "draws", "losses", "score", "mean return"):
        table.add_column(column, justify="right")
    for pair in pairs:
        numbers = (pair.matches, pair.wins, pair.draws, pair.losses)
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
        numbers_shown = (f"{line[key]:.0f}" for key in ("rating", "rating_low", "rating_high"))
        table.add_row(str(line["player"]), *numbers_shown)
    print_table(screen, table)
