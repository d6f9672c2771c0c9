"""Views of a league, one entry each: their rows, their columns, and how people read them.

A new view is an entry in `VIEWS`, which names the function that makes its document.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, cast

from ..notices import alert_lines
from ..terminal.text import plain

if TYPE_CHECKING:
    from populations.records.rows import Json

MAX_TEXT = 160
"""Characters of one datum of an event, as people see it."""

Cell = object
Row = Mapping[str, Cell]
Document = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Shape of one view as tables.

    Attributes:
        document: Function of `populations.inspection.views` that makes the view's document from an
            inspection and a population (None: all). By name, for its module takes long to import.
        rows: Function that takes the flat rows out of the view's document.
        columns: Columns of the table; empty: every key of the rows.
        shown: Function that makes a row readable.
        is_grouped: One table per population.
        warns: Warnings about ratings below the table.
        drops_missing: Columns that no row has are left out.
    """

    document: str
    rows: Callable[[Document], list[Row]]
    columns: tuple[str, ...] = ()
    shown: Callable[[Row], Row] = dict
    is_grouped: bool = False
    warns: bool = False
    drops_missing: bool = False


def text_of(value: Cell) -> str:
    """Return a cell as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, float):
        # From 100 on decimals of Elo and returns are noise.
        return f"{value:.3f}".rstrip("0").rstrip(".") if abs(value) < 100 else f"{value:.0f}"
    # Names may come from another machine: no control characters.
    return plain(str(value))


def _listed(key: str) -> Callable[[Document], list[Row]]:
    """Return a function that takes a document's list of rows by its key."""
    return cast("Callable[[Document], list[Row]]", itemgetter(key))


def _standings_rows(document: Document) -> list[Row]:
    populations = cast("Mapping[str, list[Row]]", document["populations"])
    return [{"population": name, **line} for name, lines in populations.items() for line in lines]


def _rating_rows(document: Document) -> list[Row]:
    populations = cast("Mapping[str, list[Mapping[str, object]]]", document["populations"])
    return [
        {"population": name, "player": line["player"], **point}
        for name, lines in populations.items()
        for line in lines
        for point in cast("list[Row]", line["points"])
    ]


def _hyperparameter_rows(document: Document) -> list[Row]:
    policies = cast("Mapping[str, Row]", document["policies"])
    factors = cast("Mapping[str, Row]", document.get("factors", {}))
    return [
        {
            "policy": name,
            **values,
            **{f"{key}_factor": factor for key, factor in factors.get(name, {}).items()},
        }
        for name, values in policies.items()
    ]


def _opponent_rows(document: Document) -> list[Row]:
    """Return what each champion scores against its opponents."""
    return [
        {"population": one["population"], "player": one["player"], **row}
        for one in cast("list[Row]", document["champions"])
        for row in cast("list[Row]", one["opponents"])
    ]


def _status_rows(document: Document) -> list[Row]:
    lines = alert_lines(cast("Mapping[str, Json]", document))
    shown = {**document, "alerts": "  ".join(lines) or None}
    return [{"key": key, "value": value} for key, value in shown.items() if key != "schema"]


def _with_interval(row: Row) -> Row:
    low, high = row["rating_low"], row["rating_high"]
    return {**row, "95%": f"{low:.0f}..{high:.0f}" if isinstance(low, float) else None}


def _shown_standing(row: Row) -> Row:
    return {**_with_interval(row), "return": row["mean_return"], "gen": row["generation"]}


def _shown_checkpoint(row: Row) -> Row:
    return {**row, "pins": " ".join(cast("list[str]", row["pins"]))}


def _shown_event(row: Row) -> Row:
    fixed = ("sequence", "time", "kind", "subject")
    data = [key for key in row if key not in (*fixed, "sentence")]
    why = "  ".join(f"{key}={_shortened(text_of(row[key]))}" for key in data)
    # Each kind of event has data of its own, so these share one column.
    return {**{key: row[key] for key in fixed}, "why": why}


def _shortened(text: str) -> str:
    # Lists of players can be pages long; --json and --csv have all of it.
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."


VIEWS: dict[str, View] = {
    "standings": View(
        document="standings_view",
        rows=_standings_rows,
        columns=(
            *("player", "role", "rating", "95%", "matches", "wins", "draws", "losses"),
            *("return", "exploitability", "gen", "agent_steps", "parent", "state"),
        ),
        shown=_shown_standing,
        is_grouped=True,
        warns=True,
    ),
    "ratings": View(
        document="ratings_view",
        rows=_rating_rows,
        columns=("player", "agent_steps", "rating", "95%", "generation", "cause", "time"),
        shown=_with_interval,
        is_grouped=True,
    ),
    "payoff": View(
        document="payoff_view",
        rows=_listed("payoff"),
        columns=(
            *("player", "seat", "opponent", "opponent_seat", "matches", "wins", "draws"),
            *("losses", "score", "mean_return"),
        ),
        # Only --seats has columns of seats.
        drops_missing=True,
    ),
    "cross-play": View(
        document="cross_play_view",
        rows=_listed("cross_play"),
        columns=("player", "partner", "matches", "score", "mean_return"),
    ),
    "calibration": View(
        document="calibration_view",
        rows=_listed("calibration"),
        columns=("player", "opponent", "matches", "score", "predicted", "deviations"),
        warns=True,
    ),
    "lineage": View(document="lineage_view", rows=_listed("policies")),
    "hyperparameters": View(document="hyperparameters_view", rows=_hyperparameter_rows),
    "matches": View(
        document="matches_view",
        rows=_listed("tallies"),
        columns=(
            *("sequence", "assignment", "kind", "seats", "matches", "distinct"),
            *("mean_return", "mean_length"),
        ),
    ),
    "checkpoints": View(
        document="checkpoints_view",
        rows=_listed("checkpoints"),
        columns=("policy", "agent_steps", "generation", "learner_updates", "state", "pins", "key"),
        shown=_shown_checkpoint,
    ),
    "events": View(
        document="events_view",
        rows=_listed("events"),
        columns=("sequence", "time", "kind", "subject", "why"),
        shown=_shown_event,
    ),
    "status": View(document="status_view", rows=_status_rows),
    "learners": View(
        document="learners_view",
        rows=_listed("learners"),
        columns=(
            *("learner", "state", "doing", "policies", "agent_steps_per_s"),
            *("mean_agent_steps_per_s", "share_training", "share_evaluation", "share_waiting"),
            *("restarts", "waits_for"),
        ),
    ),
    "champion": View(
        document="champion_view",
        rows=_opponent_rows,
        columns=("player", "opponent", "matches", "score", "score_low", "score_high"),
        is_grouped=True,
    ),
    "why": View(
        document="why_view",
        rows=_listed("entries"),
        columns=("time", "agent_steps", "generation", "kind", "sentence"),
    ),
}
