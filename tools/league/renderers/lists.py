"""Other views with a row each: matches, checkpoints, cross-play, calibration, openings, mixture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from .look import (
    MAX_CELL,
    Document,
    Look,
    Row,
    clock,
    interval,
    share,
    steps,
    text_of,
    whole,
)
from .tables import Column, label, table

if TYPE_CHECKING:
    from rich.console import RenderableType

Columns = Callable[[Look], list[Column]]


def checkpoints(document: Document, look: Look) -> Iterator[RenderableType]:
    """Yield the checkpoints, those that are kept first, then the newest."""
    rows = [
        {
            **row,
            "pins": " ".join(cast("Sequence[str]", row["pins"])) or None,
            # Commands take a name; the digest tells apart what has none.
            "digest": str(row["digest"])[:8],
        }
        for row in cast("Sequence[Row]", document["checkpoints"])
    ]
    columns = [
        label("policy", look),
        Column(key="agent_steps", title="steps", is_label=True),
        Column(key="generation", title="gen"),
        Column(key="learner_updates", title="updates"),
        Column(key="state", is_right=False),
        Column(key="pins", is_right=False, drop=1),
        Column(key="digest", is_label=True, is_right=False),
    ]
    yield from table(rows, columns, look, title="checkpoints: kept ones first, then the newest")


def newest_checkpoints(rows: Sequence[Row], document: Document) -> list[Row]:
    """Return checkpoints in the order in which they are shown."""
    newest = sorted(rows, key=lambda row: -cast("int", row["assignment_id"]))
    return sorted(newest, key=lambda row: row["state"] != "present")


def newest(rows: Sequence[Row], document: Document) -> list[Row]:
    """Return rows that are stored oldest first with the newest first."""
    return list(reversed(rows))


def matches(document: Document, look: Look) -> Iterator[RenderableType]:
    """Yield the results of assignments, the newest first."""
    rows = [
        {
            **row,
            "players": " v ".join(
                look.name(name) for name in cast("Mapping[str, str]", row["seats"]).values()
            ),
            "wins-draws-losses": _record(cast("Sequence[Row]", row["pairs"])),
            "first_return": cast("Sequence[float]", row["mean_return"])[0],
        }
        for row in cast("Sequence[Row]", document["tallies"])
    ]
    columns = [
        Column(key="sequence", title="#", is_label=True),
        Column(key="assignment", drop=2, is_label=True),
        Column(key="kind", is_right=False),
        Column(key="players", is_label=True, is_right=False, most=2 * MAX_CELL),
        Column(key="matches", is_label=True),
        Column(key="wins-draws-losses", title="w-d-l", is_label=True),
        Column(key="mean_length", title="length", drop=1, is_label=True),
        Column(key="first_return", title="first's return", drop=3),
        Column(key="distinct", drop=4),
    ]
    yield from table(rows, columns, look, title="matches: newest first, players in seats' order")


def _record(pairs: Sequence[Row]) -> str | None:
    """Return the result of a game of two; None: there are more."""
    if len(pairs) != 1:
        return None
    return "-".join(f"{cast('float', pairs[0][key]):g}" for key in ("wins", "draws", "losses"))


def cross_play(document: Document, look: Look) -> Iterator[RenderableType]:
    """Yield each policy's results beside each partner."""
    columns = [
        label("player", look),
        label("partner", look),
        Column(key="matches", show=steps),
        Column(key="score", show=share),
        Column(key="mean_return", title="return", show=share),
    ]
    rows = cast("Sequence[Row]", document["cross_play"])
    yield from table(rows, columns, look, title="cross-play")


def calibration(document: Document, look: Look) -> Iterator[RenderableType]:
    """Yield predicted beside observed scores, the worst first."""
    columns = [
        label("player", look),
        label("opponent", look),
        Column(key="matches", show=steps),
        Column(key="score", show=share),
        Column(key="predicted", show=share),
        Column(key="deviations"),
    ]
    rows = cast("Sequence[Row]", document["calibration"])
    title = "calibration: scores beside those that ratings promise, worst first"
    yield from table(rows, columns, look, title=title)


def openings(document: Document, look: Look) -> Iterator[RenderableType]:
    """Yield the shares and scores of first decisions, the newest window last."""
    columns = [
        Column(key="seat", is_label=True, is_right=False),
        label("player", look),
        Column(key="agent_steps_from", title="from", show=steps),
        Column(key="matches", show=steps),
        Column(key="label", title="first", is_label=True, is_right=False),
        Column(key="share", show=share),
        Column(key="share_low", title="low", show=share, drop=2),
        Column(key="share_high", title="high", show=share, drop=2),
        Column(key="score", show=share),
        Column(key="score_low", title="low", show=share, drop=1),
        Column(key="score_high", title="high", show=share, drop=1),
    ]
    rows = cast("Sequence[Row]", document["openings"])
    title = "openings: first decisions over agent steps; no player: all policies"
    yield from table(rows, columns, look, title=title)


def mixture(document: Document, look: Look) -> Iterator[RenderableType]:
    """Yield the members of each Nash mixture, and how good it is."""
    from rich.text import Text

    columns = [
        label("player", look),
        Column(key="probability", show=share, is_label=True),
        Column(key="rating", show=whole),
        Column(key="95%", drop=1),
        Column(key="agent_steps", title="steps", show=steps, drop=2),
    ]
    rows = cast("Sequence[Row]", document["mixture"])
    for name, line in cast("Mapping[str, Row]", document["populations"]).items():
        own = [{**row, "95%": interval(row)} for row in rows if row["population"] == name]
        if own:
            title = f"Nash mixture of {line['num_players']} players of {name}"
            yield from table(own, columns, look, title=title)
            score = share(line["worst_score"])
            yield Text(f"expected score against the strongest of them: {score}")
        yield Text(f"cyclicity of {name}: {share(line['cyclicity'])}")
    if document["reason"] is not None:
        yield Text(look.names(text_of(document["reason"])))


def any_rows(
    rows: Sequence[Row], columns: Sequence[str], look: Look, *, title: str
) -> Iterator[RenderableType]:
    """Yield rows of a view that has no renderer of its own."""
    keys = columns or tuple(dict.fromkeys(key for row in rows for key in row))
    named = ("player", "policy", "opponent", "partner", "subject", "parent")
    yield from table(
        rows, [_column(key, rows, look, named=named) for key in keys], look, title=title
    )


def _column(key: str, rows: Sequence[Row], look: Look, *, named: Sequence[str]) -> Column:
    if key in named:
        return label(key, look)
    if key in ("time", "since", "until"):
        return Column(key=key, show=clock, is_label=True)
    if key in ("sentence", "text", "what"):
        return Column(key=key, is_text=True)
    is_number = all(isinstance(row.get(key), int | float | None) for row in rows)
    # Without an order of importance the columns at the right go first.
    return Column(key=key, is_right=is_number, drop=1)
