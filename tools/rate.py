"""`arena rate`: ratings of any results, from a CSV file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from ._output import console, print_json

if TYPE_CHECKING:
    from populations.core import Result

Model = Literal["bradley_terry", "elo"]
Score = tuple[str, str, float]
Line = dict[str, object]

COLUMNS = ("home", "away", "score")
SEATS = (0, 1)


def rate(
    matches: Annotated[
        Path,
        typer.Argument(metavar="MATCHES.csv", help="Columns home, away, score (of home, 0 to 1)."),
    ],
    model: Annotated[Model, typer.Option(help="How to rate.")] = "bradley_terry",
    anchor: Annotated[
        str | None, typer.Option(metavar="PLAYER", help="At 0; without it, the mean is 0.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Rate the players of a CSV file with one match per line.

    A score of 1 is a win of home, 0.5 a draw, 0 a loss. Any other score s counts as s of a win and
    1 - s of a loss.
    """
    scores = read_scores(matches)
    document = rate_scores(scores, model=model, anchor=anchor)
    if as_json:
        print_json(document)
    else:
        _print_table(document)


def read_scores(path: Path) -> list[Score]:
    """Read (home, away, score of home), one for each line.

    Raises:
        ConfigError: Names the line, the rule and the value.
    """
    import csv

    from arena.errors import ConfigError

    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            header = [name.strip() for name in reader.fieldnames or ()]
            missing = [name for name in COLUMNS if name not in header]
            if missing:
                raise ConfigError(
                    f"{path}: line 1 must name the columns home, away and score; "
                    f"{missing[0]!r} is missing, got {', '.join(header) or 'nothing'}"
                )
            reader.fieldnames = header
            scores = [_score(row, where=f"{path}: line {reader.line_num}") for row in reader]
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no CSV file in UTF-8: {error}") from error
    if not scores:
        raise ConfigError(f"{path}: must have at least one match")
    return scores


def _score(row: dict[str, str | None], *, where: str) -> Score:
    from arena.errors import ConfigError

    home, away, text = ((row[column] or "").strip() for column in COLUMNS)
    for column, name in (("home", home), ("away", away)):
        if not name:
            raise ConfigError(f"{where}: {column} must not be empty")
    if home == away:
        raise ConfigError(f"{where}: home and away must differ, got {home!r} twice")
    try:
        score = float(text)
    except ValueError:
        score = float("nan")
    if not 0.0 <= score <= 1.0:  # NaN is refused too
        raise ConfigError(f"{where}: score must be a number in [0, 1], got {text!r}")
    return home, away, score


def rate_scores(scores: list[Score], *, model: Model, anchor: str | None) -> dict[str, object]:
    """The document of ``arena rate --json``: best rating first.

    Raises:
        ConfigError: If the anchor has played no match.
    """
    from arena.errors import ConfigError
    from populations.documents import nearest
    from populations.ratings.ranks import cyclicity, pair_log_odds
    from populations.ratings.results import matches_by_entrant, merge_results

    players = sorted({name for home, away, _ in scores for name in (home, away)})
    if anchor is not None and anchor not in players:
        raise ConfigError(
            f"--anchor {anchor}: must be one of the players{nearest(anchor, players)}"
        )
    results = merge_results(_result(*score) for score in scores)
    matches = matches_by_entrant(results)
    rated = _bradley_terry(results, anchor) if model == "bradley_terry" else _elo(scores, anchor)
    advantages, weights = pair_log_odds(results, entrants=players)
    players.sort(key=lambda player: -cast("float", rated[player]["rating"]))
    return {
        "model": model,
        "ratings": [
            {"player": player, **rated[player], "matches": round(matches[player])}
            for player in players
        ],
        "cyclicity": cyclicity(advantages, weights=weights),
    }


def _result(home: str, away: str, score: float) -> Result[str]:
    from populations.core import Result

    is_draw = score == 0.5
    return Result(
        first=home,
        second=away,
        seats=SEATS,
        wins=0.0 if is_draw else score,
        draws=float(is_draw),
        losses=0.0 if is_draw else 1.0 - score,
    )


def _bradley_terry(results: tuple[Result[str], ...], anchor: str | None) -> dict[str, Line]:
    from populations.ratings.bradley_terry import BradleyTerry
    from populations.ratings.ranks import rank_intervals

    fit = BradleyTerry().fit(results, anchors=() if anchor is None else (anchor,))
    ranks = rank_intervals(fit.ratings, covariance=fit.covariance)
    rated: dict[str, Line] = {}
    for player, (best, worst) in zip(fit.entrants, ranks, strict=True):
        low, high = fit.interval(player)
        rated[player] = {
            "rating": fit.rating(player),
            "rating_low": low,
            "rating_high": high,
            "rank_low": best,
            "rank_high": worst,
        }
    return rated


def _elo(scores: list[Score], anchor: str | None) -> dict[str, Line]:
    """Elo has no intervals: they are null."""
    from populations.ratings.elo import Game, elo_ratings

    ratings = elo_ratings(Game.of_two(home, away, score=score) for home, away, score in scores)
    zero = sum(ratings.values()) / len(ratings) if anchor is None else ratings[anchor]
    unknown = dict.fromkeys(("rating_low", "rating_high", "rank_low", "rank_high"))
    return {player: {"rating": rating - zero, **unknown} for player, rating in ratings.items()}


def _print_table(document: dict[str, object]) -> None:
    from rich.table import Table

    table = Table("player", title=f"{document['model']}, cyclicity {document['cyclicity']:.3f}")
    for name in ("rating", "95%", "ranks", "matches"):
        table.add_column(name, justify="right")
    lines = document["ratings"]
    assert isinstance(lines, list)
    for line in lines:
        known = line["rating_low"] is not None
        table.add_row(
            line["player"],
            f"{line['rating']:.0f}",
            f"{line['rating_low']:.0f} to {line['rating_high']:.0f}" if known else "-",
            f"{line['rank_low']} to {line['rank_high']}" if known else "-",
            str(line["matches"]),
        )
    console().print(table)
