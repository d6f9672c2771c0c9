"""`arena rate`: ratings of any results, from a CSV file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from populations.views.notices import CYCLIC
from populations.views.parts import Column, Kind, Line, Table, player

from .show.text import print_framed
from .terminal.options import AsJson
from .terminal.output import console, log_console, print_json
from .terminal.progress import count_progress

if TYPE_CHECKING:
    from populations.ratings.table import MatchTable, RatedTable, Settings

Model = Literal["bradley_terry", "elo", "weng_lin", "nash_averaging", "alpha_rank"]
Score = tuple[str, str, float]

COLUMNS = ("home", "away", "score")
# With even players home wins 8 matches by chance with probability 2^-8 = 1/256.
FEW = 8
"""Number of matches below which it can be chance that home won all of them."""

NEARLY_ALL = 0.95
"""Share of the wins from which on one column seems to be the winners'."""

TOLD_APART = 0.5
"""`share_told_apart` below which an advantage of home is mostly skill by another name."""

SMALL = 10.0
"""Elo of an advantage that changes little, whatever it is."""

SEATLESS = "if these columns are no seats (winner or challenger first), say --no-seats"


def rate(
    matches: Annotated[
        Path,
        typer.Argument(metavar="MATCHES.csv", help="Columns home, away, score (of home, 0 to 1)."),
    ],
    model: Annotated[Model, typer.Option(help="Rating model; see above.")] = "bradley_terry",
    anchor: Annotated[
        str | None,
        typer.Option(
            metavar="PLAYER",
            help="Player whose rating is fixed at 0. Default: the mean rating is 0, for "
            "nash_averaging that of the Nash mixture.",
        ),
    ] = None,
    k_factor: Annotated[float, typer.Option(min=0.0, help="K factor of elo.")] = 32.0,
    bootstrap: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="Resamples of the matches for the intervals. Default: 200 for nash_averaging and "
            "alpha_rank; 0 for bradley_terry, which has Wald's intervals, and for elo, which has "
            "none. weng_lin has its own.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resampling.")] = 0,
    no_seats: Annotated[
        bool,
        typer.Option(
            "--no-seats",
            help="List whose first column is no seat (the winner first, or the challenger): "
            "bradley_terry fits no advantage of home.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Rate the players of a CSV file with one match per line.

    A score of 1 is a win of home, 0.5 a draw, 0 a loss. Any other score s counts as s of a win and
    1 - s of a loss; for weng_lin, as a win above 0.5 and a loss below.

    Meaning of a rating, by model:

    - bradley_terry: Elo points (400 are odds of 10:1), all matches at once, beside an advantage
    of being home. Lists whose columns are no seats need --no-seats.

    - elo, weng_lin: Elo points, match after match in the order of the file.

    - nash_averaging: Elo points against the Nash mixture of all players, from the log-odds of each
    pair; copies of a player change nothing. Pairs that never met count as even.

    - alpha_rank: share of time that evolution spends at the player, between 0 and 1.
    """
    from populations.ratings.table import MatchTable, Settings

    _check(k_factor=k_factor, bootstrap=bootstrap)
    # Mistakes in the file are reported before any fit.
    table = MatchTable.from_matches(read_scores(matches))
    settings = Settings(
        anchor=anchor,
        k_factor=k_factor,
        num_resamples=bootstrap,
        seed=seed,
        has_seats=not no_seats,
    )
    rated = _rate(table, model=model, settings=settings)
    # Notes go to standard error, so that the document stays alone on standard output.
    for note in _notes(table, rated, model=model, settings=settings):
        log_console().print(note)
    if as_json:
        print_json(_document(table, rated, model=model))
    else:
        _print_table(table, rated, model=model)


def _check(*, k_factor: float, bootstrap: int | None) -> None:
    from arena.errors import ConfigError

    if not math.isfinite(k_factor):
        raise ConfigError(f"--k-factor must be finite, got {k_factor!r}")
    # A single resample has no spread.
    if bootstrap == 1:
        raise ConfigError("--bootstrap must be 0 or at least 2, got 1")


def read_scores(path: Path) -> Iterator[Score]:
    """Yield (home, away, score of home), one for each line that is not blank, at least one.

    Raises:
        ConfigError: Names the line, the rule and the value.
    """
    import csv

    from arena.errors import ConfigError

    try:
        # utf-8-sig drops the byte order mark of spreadsheets, which would join the first column's
        # name.
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            # Names are stripped, because blanks after commas are common.
            header = [name.strip() for name in next(reader, ())]
            for name in COLUMNS:
                if header.count(name) != 1:
                    found = "is there more than once" if name in header else "is missing"
                    raise ConfigError(
                        f"{path}: line 1 must name the columns home, away and score; {name!r} "
                        f"{found}, got {', '.join(header) or 'nothing'}"
                    )
            columns = [header.index(name) for name in COLUMNS]
            num_scores = 0
            for row in reader:
                # Spreadsheets leave lines that have only commas.
                if any(map(str.strip, row)):
                    cells = [row[column] if column < len(row) else "" for column in columns]
                    yield _score(cells, path=path, line=reader.line_num)
                    num_scores += 1
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no CSV file in UTF-8: {error}") from error
    if not num_scores:
        raise ConfigError(f"{path}: must have at least one match")


def _score(cells: list[str], *, path: Path, line: int) -> Score:
    home, away, text = map(str.strip, cells)
    try:
        score = float(text)
    except ValueError:
        # NaN is refused below, with the same message as numbers out of range.
        score = math.nan
    # The comparison is False for NaN, so NaN is refused, too.
    if home and away and home != away and 0.0 <= score <= 1.0:
        return home, away, score
    from arena.errors import ConfigError

    where = f"{path}: line {line}"
    for column, name in (("home", home), ("away", away)):
        if not name:
            raise ConfigError(f"{where}: {column} must not be empty")
    if home == away:
        raise ConfigError(f"{where}: home and away must differ, got {home!r} twice")
    raise ConfigError(f"{where}: score must be a number in [0, 1], got {text!r}")


def _rate(table: MatchTable, *, model: Model, settings: Settings) -> RatedTable:
    from arena.errors import ConfigError
    from arena.rules import nearest
    from populations.ratings.table import rate_table

    anchor = settings.anchor
    # The anchor is checked before the fit, which may take minutes.
    if anchor is not None and anchor not in table.players:
        raise ConfigError(
            f"--anchor {anchor}: must be one of the players{nearest(anchor, table.players)}"
        )
    with count_progress(model) as progress:
        return rate_table(
            table, model=model, settings=settings, progress=progress or (lambda done, total: None)
        )


def _rows(table: MatchTable, rated: RatedTable) -> list[dict[str, object]]:
    matches = table.num_matches()
    lines: list[dict[str, object]] = []
    for i in _best_first(rated):
        line: dict[str, object] = {"player": rated.players[i], "rating": float(rated.ratings[i])}
        if rated.intervals is None:
            line |= dict.fromkeys(("rating_low", "rating_high", "rank_low", "rank_high"))
        else:
            best, worst = rated.intervals.ranks[i]
            line |= {
                "rating_low": float(rated.intervals.lows[i]),
                "rating_high": float(rated.intervals.highs[i]),
                "rank_low": best,
                "rank_high": worst,
            }
        lines.append(line | {"matches": int(matches[i])})
    return lines


def _document(table: MatchTable, rated: RatedTable, *, model: Model) -> dict[str, object]:
    document: dict[str, object] = {
        "model": model,
        "ratings": _rows(table, rated),
        "cyclicity": rated.cyclicity,
        "advantage": rated.advantage,
    }
    if rated.mixture is not None:
        document["mixture"] = _mixture(rated.players, rated.mixture.tolist())
    return document


def _best_first(rated: RatedTable) -> list[int]:
    # Players of equal ratings are sorted by name, not by the order of the file.
    return sorted(range(len(rated.players)), key=lambda i: (-rated.ratings[i], rated.players[i]))


def _mixture(players: tuple[str, ...], masses: list[float]) -> dict[str, float]:
    shares = zip(players, masses, strict=True)
    return dict(sorted(((p, mass) for p, mass in shares if mass > 0.0), key=lambda x: -x[1]))


def _notes(table: MatchTable, rated: RatedTable, *, model: Model, settings: Settings) -> list[str]:
    """Return notes about ratings that could be misread."""
    from populations.ratings.table import share_of_pairs_met

    notes = [] if rated.advantage is None else list(_about_seats(table, rated.advantage))
    if model != "bradley_terry" and not settings.has_seats:
        notes.append(f"{model} knows no seats: --no-seats changes nothing")
    if model == "alpha_rank" and settings.anchor is not None:
        notes.append("alpha_rank's ratings are shares: --anchor changes nothing")
    if model in ("nash_averaging", "alpha_rank"):
        met = share_of_pairs_met(table)
        if met < 1.0:
            notes.append(f"{1.0 - met:.0%} of the pairs never met: {model} takes them for even")
    return notes


def _about_seats(table: MatchTable, advantage: float) -> Iterator[str]:
    """Yield what speaks for columns that are no seats: the fit explains skill by an advantage."""
    from populations.ratings.table import share_told_apart

    won, lost = int((table.scores > 0.5).sum()), int((table.scores < 0.5).sum())
    fitted = f"bradley_terry takes for an advantage of being home, of {advantage:+.0f} Elo"
    if won + lost >= FEW and max(won, lost) >= NEARLY_ALL * (won + lost):
        did, number = ("won", won) if won > lost else ("lost", lost)
        yield (
            f"home {did} {number:,} of the {won + lost:,} matches that somebody won, which "
            f"{fitted}: {SEATLESS}"
        )
    elif abs(advantage) >= SMALL and share_told_apart(table) < TOLD_APART:
        yield (
            "home is nearly always the next one in one order of the players, so that skill is hard "
            f"to tell from what {fitted}: {SEATLESS}; else list matches of equal pairs in both "
            "orders, too"
        )


def _print_table(table: MatchTable, rated: RatedTable, *, model: Model) -> None:
    kind: Kind = "share" if model == "alpha_rank" else "elo"
    title = f"{model}, cyclicity {rated.cyclicity:.3f}"
    if rated.advantage is not None:
        # Adding 0.0 turns -0.0 into 0.0.
        title += f", being home is worth {round(rated.advantage) + 0.0:+.0f}"
    rows = _rows(table, rated)
    if rated.intervals is not None:
        between = f"{{rating_low:{kind}}} to {{rating_high:{kind}}}"
        ranks = "{rank_low} to {rank_high}"
        rows = [
            {**row, "between": [Line(between, row)], "ranks": [Line(ranks, row)]} for row in rows
        ]
    columns = (
        *(player("player"), Column("rating", kind), Column("between", "lines", "95%")),
        *(Column("ranks", "lines"), Column("matches")),
    )
    print_framed(Table(columns, rows), title=title, title_justify="center", overflow="ellipsis")
    _print_mixture(table, rated)


def _print_mixture(table: MatchTable, rated: RatedTable) -> None:
    from populations.ratings.table import nash_mixture

    is_cyclic = rated.cyclicity > CYCLIC
    if is_cyclic:
        console().print(
            f"Warning: cyclicity is {rated.cyclicity:.2f}, above {CYCLIC}: who beats whom "
            "matters more than any rating says."
        )
    if is_cyclic or rated.mixture is not None:
        # Only nash_averaging has already computed the mixture.
        masses = nash_mixture(table) if rated.mixture is None else rated.mixture
        players = _mixture(rated.players, masses.tolist())
        shares = ", ".join(f"{player} {mass:.3f}" for player, mass in players.items())
        console().print(f"Nash mixture: {shares}")
