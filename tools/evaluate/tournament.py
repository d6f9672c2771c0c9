"""A tournament between players of any origin, for `arena evaluate` and the Python API.

Tests: `tests/tools/evaluate/test_command.py`, `tests/tools/api/test_runs.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING, Any

from populations.views.league import RESULT

from .meeting import resolve_players

if TYPE_CHECKING:
    from arena.matches.play import Progress
    from arena.matches.tournament import TournamentResult
    from arena.types import Tally
    from populations.ratings.model import Result


def play(
    players: Sequence[str],
    *,
    environment: str | None,
    num_matches: int,
    greedy: bool,
    seed: int,
    trust: bool = False,
    show: Callable[[str], AbstractContextManager[Progress]],
) -> tuple[dict[str, Any], str]:
    """Let every ordered pair of players meet, and rate them.

    Args:
        players: Players as the user wrote them.
        environment: Environment to play, needed if all players are bots.
        num_matches: Matches per ordered pair.
        greedy: Whether policies play their likeliest actions instead of sampling.
        seed: Seed of episodes and actions.
        trust: Whether code that the players' files name may be imported, wherever they are from.
        show: Maker of a display of progress, from a line that says what is done.

    Returns:
        Content of ``arena evaluate --json``, without its schema, and a sentence on games that were
        repeated; empty: none were.

    Raises:
        ConfigError: If there are too few players, or they cannot meet.
    """
    from arena.errors import ConfigError

    if len(players) < 2:
        raise ConfigError(f"a tournament needs two or more players, got {len(players)}")
    game, resolved = resolve_players(players, environment=environment, trust=trust)
    contenders = {one.name: one.make_actors(game, greedy=greedy) for one in resolved}
    # n (n - 1) ordered pairs
    num_envs = game.batch_size(len(players) * (len(players) - 1) * num_matches)
    with (
        closing(game.make_env(num_envs)) as env,
        show(f"{len(players)} players, {num_matches} matches a pair") as progress,
    ):
        result = game.play(env, contenders, num_matches=num_matches, seed=seed, progress=progress)
    # Names are read after bots have their canonical names, which tallies use.
    names = [player.name for player in resolved]
    # A policy that samples draws anew, so only greedy players can repeat a game.
    repeating = [player.name for player in resolved if greedy and player.can_repeat]
    # Equal games are independent samples if the environment is random.
    if repeating and game.has_chance():
        repeating = []
    keys = ("home", "away", "seats", *(column.key for column in RESULT))
    document = {
        "environment": game.spec.id,
        "players": names,
        "matches": num_matches,
        "greedy": greedy,
        "seed": seed,
        "pairs": [{key: getattr(pair, key) for key in keys} for pair in result.pairs],
        "ratings": ratings_of(result, players=names, repeating=repeating),
    }
    return document, _of_repeats(result, repeating)


def _of_repeats(result: TournamentResult, repeating: Collection[str]) -> str:
    """Say that games were repeated; empty: none were."""
    from arena.matches.comparisons import counted, is_repeating

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


def ratings_of(
    result: TournamentResult, *, players: Sequence[str], repeating: Collection[str] = ()
) -> list[dict[str, object]]:
    """Return Bradley-Terry ratings on one scale, best first.

    ``bot:random`` is at 0 if it took part, else the mean is. Scores are those over both seats, as
    in a run's league. Where not all who met had both, the worth of a seat is fitted, too, so that
    players who can only have different seats are compared through those they met.

    Args:
        result: Result of the tournament.
        players: All of them.
        repeating: Players who draw nothing, in a game without chance: equal games among them
            count once.
    """
    from arena.matches.comparisons import is_repeating
    from arena.types import RANDOM_BOT
    from populations.ratings.bradley_terry import BradleyTerry
    from populations.ratings.results import met_in_both_orders, over_seats, result_columns

    results = result_columns(
        [played for tally in result.tallies for played in _results(tally, repeating)]
    )
    if met_in_both_orders(results):
        results = over_seats(results)
    # Without random play the mean rating is 0.
    anchors = {str(RANDOM_BOT)} & set(players)
    fit = BradleyTerry().fit(results, entrants=players, anchors=anchors)
    lines: list[dict[str, object]] = []
    for player in sorted(players, key=fit.rating, reverse=True):
        low, high = fit.interval(player)
        met = [tally for tally in result.tallies if player in tally.entrants]
        # An interval has no meaning if each seating is one repeated game, because nothing is
        # random.
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
    from arena.matches.comparisons import counted, numbers_of, result_weights
    from populations.ratings.model import Result
    from populations.ratings.results import Counts

    weights = result_weights(numbers_of(tally), entrants=tally.entrants)
    # Repeated games shrink all counts alike: k distinct ones of n weigh k / n each.
    share = counted(tally, repeating) / tally.matches
    for pair in tally.pairs:
        weight = weights.get((pair.first, pair.second))
        # The weight is None where a player has played itself.
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
