"""Results of pairs: a map where there is room, else a list with the worst score first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from arena.types import is_external
from populations.league.names import short_name

from .look import Document, Look, Row, share, steps, whole
from .tables import Column, label, table

if TYPE_CHECKING:
    from rich.console import RenderableType

MAP_WIDTH = 120
"""Columns of a screen from which on results are a map."""

MAP_PLAYERS = 12
"""Most players of a map."""

Player = tuple[str, str]


def rank_of(document: Document) -> dict[Player, int]:
    """Return the places of players by rating, by population and name."""
    players = cast("Sequence[Row]", document.get("players", ()))
    return {
        (str(one["population"]), str(one["player"])): place for place, one in enumerate(players)
    }


def worst_first(rows: Sequence[Row], document: Document) -> list[Row]:
    """Return cells by the player's rating, for one player the worst score first."""
    ranks = rank_of(document)

    def key(row: Row) -> tuple[int, float]:
        player = str(row["population"]), str(row["player"])
        score = cast("float | None", row["score"])
        return ranks.get(player, len(ranks)), 2.0 if score is None else score

    return sorted(rows, key=key)


def payoff(document: Document, look: Look) -> Iterator[RenderableType]:
    """Yield a map of at most `MAP_PLAYERS` players, or a list."""
    if is_map(document, look):
        yield from _map(document, look)
    else:
        yield from _list(document, look)


def is_map(document: Document, look: Look) -> bool:
    """Return whether the results are shown as a map: there is room for all policies and bots."""
    # A place per seat would be a map per pair of seats; a limit counts rows of a list.
    rows = cast("Sequence[Row]", document["payoff"])
    if look.limit is not None or look.is_wide or any("seat" in row for row in rows):
        return False
    # By the players, of which a limit cuts off none.
    return look.width >= MAP_WIDTH and 1 < len(_living(rank_of(document))) <= MAP_PLAYERS


def _living(players: Iterable[Player]) -> list[Player]:
    """Return the players that are no ghosts."""
    return [player for player in players if "@" not in player[1]]


def _list(document: Document, look: Look) -> Iterator[RenderableType]:
    from rich.text import Text

    rows = worst_first(cast("Sequence[Row]", document["payoff"]), document)
    if rows:
        yield Text("payoff: best rated player first, for each its worst score first")
    ratings = _ratings(document)
    columns = [
        label("player", look),
        Column(key="rating", show=whole),
        Column(key="seat", is_label=True, is_right=False),
        label("opponent", look),
        Column(key="opponent_rating", title="rating", show=whole),
        Column(key="opponent_seat", title="its seat", is_label=True, is_right=False),
        Column(key="matches", show=steps),
        Column(key="score", show=share),
        Column(key="wins", show=steps, drop=1),
        Column(key="draws", show=steps, drop=2),
        Column(key="losses", show=steps, drop=3),
        Column(key="mean_return", title="return", show=share, drop=4),
    ]
    shown = [
        {
            **row,
            "player": _name(row["population"], row["player"], look),
            "opponent": _name(row.get("opponent_population"), row["opponent"], look),
            "rating": ratings.get((str(row["population"]), str(row["player"]))),
            "opponent_rating": ratings.get(
                (str(row.get("opponent_population")), str(row["opponent"]))
            ),
        }
        for row in rows
    ]
    yield from table(shown, columns, look)


def _ratings(document: Document) -> dict[Player, object]:
    players = cast("Sequence[Row]", document.get("players", ()))
    return {(str(one["population"]), str(one["player"])): one.get("rating") for one in players}


def _name(population: object, player: object, look: Look) -> object:
    """Return a player's name, with its population where several have a bot of this name."""
    is_shared = len(look.populations) > 1 and is_external(str(player))
    name = short_name(str(player), populations=look.populations)
    return f"{population}/{name}" if is_shared else player


def _map(document: Document, look: Look) -> Iterator[RenderableType]:
    from rich.text import Text

    rows = cast("Sequence[Row]", document["payoff"])
    ranks = rank_of(document)

    def rank(player: Player) -> int:
        return ranks.get(player, len(ranks))

    everybody = {(str(row["population"]), str(row["player"])) for row in rows}
    living = _living(sorted(everybody))
    # What room is left is for the best ghosts.
    ghosts = sorted(everybody - set(living), key=rank)[: MAP_PLAYERS - len(living)]
    players = sorted([*living, *ghosts], key=rank)
    scores = {
        (
            (str(row["population"]), str(row["player"])),
            (str(row["opponent_population"]), str(row["opponent"])),
        ): row["score"]
        for row in rows
    }
    ratings = _ratings(document)
    yield Text("payoff: score of the line's player against the column's, in percent; best first")
    # Columns bear the numbers of the lines: names would be too wide.
    columns = [
        Column(key="number", title="#", is_label=True),
        label("player", look),
        Column(key="rating", show=whole, is_label=True),
        *(
            Column(key=str(place), title=f"#{place}", show=_percent, is_label=True)
            for place in range(1, len(players) + 1)
        ),
    ]
    lines: list[Mapping[str, object]] = [
        {
            "number": f"#{place}",
            "player": _name(*player, look),
            "rating": ratings.get(player),
            **{
                str(other): scores.get((player, opponent))
                for other, opponent in enumerate(players, 1)
            },
        }
        for place, player in enumerate(players, 1)
    ]
    yield from table(lines, columns, look)
    if hidden := len(everybody) - len(players):
        yield Text(f"{hidden} ghosts hidden (--wide lists every pair)")


def _percent(value: object) -> str:
    return f"{value:.0%}" if isinstance(value, int | float) else "-"
