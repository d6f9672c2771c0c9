"""Views of training: lineage, hyperparameters, metrics, matches, openings.

In the lineage a *life* is the time of a policy between two copies: consecutive generations that
continue from the policy's own weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from arena.files import read_lines
from arena.matches.seating import num_episodes
from arena.metrics.jsonl import KEYS, files_of, point_of
from arena.metrics.sink import METRICS_FILE
from arena.types import Digest, PolicyId, population_of
from populations.views.charts import figures
from populations.views.charts.figures import Figure
from populations.views.parts import (
    MAX_CELL,
    Column,
    Document,
    Line,
    Room,
    Row,
    Section,
    Table,
    Tree,
    hidden,
    picked,
    player,
)
from populations.views.view import View, listed

if TYPE_CHECKING:
    from populations.views.questions.inspection import Inspection

MAX_LIVES = 30
"""Number of lives above which only those with living descendants are shown."""

Lives = dict[str, list[Row]]
"""Generations of each life, by the entrant of its first generation."""

LAST_CHANGES = 5
"""Number of changes of hyperparameters that are shown."""


def lineage_document(run: Inspection, population: str | None) -> Document:
    """Return the origin of each policy's weights: copies, and every generation of every policy.

    ``started`` is the time of the run's first event, and ``rating`` a policy's present rating.
    """
    from populations.views.questions.lives import generations_of

    ratings: dict[str, float | None] = {
        line.player: line.rating for lines in run.standings().values() for line in lines
    }
    policies = [
        {
            **picked(row, "policy", "generation", "parent", "agent_steps"),
            "rating": ratings.get(row.policy),
            "state": row.state,
        }
        for row in run.tables.policies.values()
        if population in (None, row.population)
    ]
    begin = run.reader.events(limit=1)
    return {
        "started": begin[0].time if begin else None,
        "policies": policies,
        "generations": generations_of(run, population),
        "exploits": run.events(population, kinds=("exploited",)),
        "immigrants": run.events(population, kinds=("immigrated",)),
    }


def lives_of(generations: Sequence[Row]) -> tuple[Lives, dict[str, str]]:
    """Return the lives, and the first entrant of each generation's life by entrant.

    Args:
        generations: Generations in order of beginning.
    """
    lives: Lives = {}
    life_of: dict[str, str] = {}
    for row in generations:
        entrant, parent = str(row["entrant"]), row["parent"]
        # A generation continues the policy's life if its parent is an earlier generation of the
        # same policy.
        goes_on = parent is not None and str(parent).split("#")[0] == row["policy"]
        first = life_of.get(str(parent), entrant) if goes_on else entrant
        life_of[entrant] = first
        lives.setdefault(first, []).append(row)
    return lives, life_of


def lineage(document: Document, room: Room) -> Iterator[Section]:
    """Yield a tree per population; its roots are the lives that began without a copy."""
    generations = document["generations"]
    now = {str(row["policy"]): row for row in document["policies"]}
    times = {
        (event["subject"], event.get("generation")): event["time"]
        for key in ("exploits", "immigrants")
        for event in document.get(key, ())
    }
    for name in dict.fromkeys(str(row["population"]) for row in generations):
        own = [row for row in generations if row["population"] == name]
        lives, life_of = lives_of(own)
        tree = Tree(
            Line("lineage of {name}: a branch is a copy; agent steps from-to", {"name": name})
        )
        shown = lives if room.is_wide or len(lives) <= MAX_LIVES else _living(lives, life_of, now)
        branches: dict[str, Tree] = {}
        for first, rows in shown.items():
            above = branches.get(life_of.get(str(rows[0]["parent"]), ""), tree)
            began = times.get((rows[0]["policy"], rows[0]["generation"]))
            line = _line(rows, now, times={"began": began, "started": document.get("started")})
            branches[first] = Tree(line)
            above.branches.append(branches[first])
        below = hidden(len(lives) - len(shown), "lives without living descendants")
        yield Section(body=tree, below=below)


def _living(lives: Lives, life_of: Mapping[str, str], now: Mapping[str, Row]) -> Lives:
    """Return the lives of policies that still train, and all of their ancestors."""
    kept: set[str] = set()
    for first, rows in lives.items():
        policy = now.get(str(rows[-1]["policy"]), {})
        if policy.get("generation") != rows[-1]["generation"]:
            continue
        ancestor: str | None = first
        while ancestor is not None and ancestor not in kept:
            kept.add(ancestor)
            ancestor = life_of.get(str(lives[ancestor][0]["parent"]))
    return {first: rows for first, rows in lives.items() if first in kept}


def _gained(rows: Sequence[Row]) -> float | None:
    """Return the Elo that a life has gained, from its first weights to its newest rated weights;
    None if either is not rated.

    All ``elo_begin`` and ``elo_end`` of a document come from one fit, so they can be subtracted.
    """
    begin = rows[0]["elo_begin"]
    # A generation without a gain has no rated weights other than those that it began with.
    ends = [row["elo_end"] for row in rows if row["elo_gain"] is not None]
    return ends[-1] - begin if ends and begin is not None else None


def _line(rows: Sequence[Row], now: Mapping[str, Row], *, times: Row) -> Line:
    """Return the line of a life in the tree."""
    first, last = rows[0], rows[-1]
    policy = now.get(str(last["policy"]), {})
    is_last = policy.get("generation") == last["generation"]
    end = last["agent_steps_end"]
    if end is None and is_last:
        end = policy.get("agent_steps")
    parts = ["{policy:player}", "gen {generation}" if len(rows) == 1 else "gen {generation}-{to}"]
    if first["parent"] is not None:
        is_timed = None not in times.values()
        copied = "copied {donor:player}@{parent_agent_steps:count}"
        parts.append(copied + (" at {times:since}" if is_timed else ""))
    elif first["cause"] != "start":
        parts.append("{cause}")
    parts.append("{agent_steps_begin:count}-{end:count}|, {gained:signed} Elo|")
    if is_last:
        parts.append("now" if policy.get("state") == "active" else "{state}")
    values = {
        **first,
        "to": last["generation"],
        "donor": str(first["parent"]).split("#")[0],
        "times": times,
        "end": end,
        "gained": _gained(rows),
        "state": policy.get("state"),
    }
    return Line(", ".join(parts), values)


def hyperparameters_document(run: Inspection, population: str | None) -> Document:
    """Return the current hyperparameters of each policy, and every change.

    ``factors`` has the factors of hyperparameters with a schedule, by policy; ``search_space`` has
    the hyperparameters that PBT may change, by population.
    """
    policies = [row for row in run.tables.policies.values() if population in (None, row.population)]
    kinds = (
        *("policy_created", "exploited", "explored", "immigrated", "replayed"),
        *("learning_rate_halved", "rewound", "hyperparameters_changed"),
    )
    return {
        "policies": {row.policy: dict(row.hyperparameters) for row in policies},
        "factors": {row.policy: dict(row.factors) for row in policies if row.factors},
        "search_space": {
            name: {key: dict(entry) for key, entry in run.space(name).items()}
            for name in run.run_file.config.populations
            if population in (None, name)
        },
        "generations": run.generations(population),
        "changes": run.events(population, kinds=kinds),
    }


def hyperparameter_rows(document: Document) -> list[Row]:
    """Return a row per policy with its hyperparameters and the factors of its schedules."""
    return [
        {"policy": name, **values, **{f"{key}_factor": f for key, f in own.items()}}
        for name, values in document["policies"].items()
        for own in [document.get("factors", {}).get(name, {})]
    ]


def hyperparameters(document: Document, room: Room) -> Iterator[Section]:
    """Yield a table of the current hyperparameters, and lines about the last changes."""
    rows = hyperparameter_rows(document)
    keys = dict.fromkeys(key for row in rows for key in row if key != "policy")
    columns = [
        player("policy"),
        # Without room for all, the last hyperparameters are left out first.
        *(Column(key, "parameter", drop=place) for place, key in enumerate(keys, 1)),
    ]
    yield Section(title=Line("hyperparameters now"), body=Table(columns, rows))
    changes = [
        event
        for event in document.get("changes", ())
        if event.get("new") is not None and event.get("old") is not None
    ]
    hint = "events --kind explored ..."
    earlier = hidden(len(changes) - LAST_CHANGES, "earlier changes", hint=hint)
    if changes:
        shown = [*map(_change, changes[-LAST_CHANGES:]), *earlier]
        yield Section(title=Line("last changes (times UTC)"), below=shown)


def _change(event: Row) -> Line:
    old, new = event["old"], event["new"]
    differences = [
        Line("{key} {old:parameter} → {new:parameter}", {"key": k, "old": old.get(k), "new": v})
        for k, v in new.items()
        if old.get(k) != v
    ]
    return Line(
        "{time:time} {subject:player} {kind}| {donor:player}| at {agent_steps:count}|: "
        "{differences:lines}",
        {**event, "differences": differences or [Line("nothing")]},
    )


def metrics_document(
    run: Inspection, population: str | None, *, names: Sequence[str] | None = None
) -> Document:
    """Return the lines of `metrics.jsonl`, oldest first; none if the run has no sink ``jsonl``.

    Damaged lines are left out, and ``left_out`` counts them.

    Args:
        run: Run to read.
        population: Population of the policies, without lines of the run as a whole; None for all.
        names: Metrics to return; lines with none of them are left out. None returns all.
    """
    lines: list[Row] = []
    num_bad = 0
    for line in _metric_lines(run.run_dir):
        if line is None:
            num_bad += 1
            continue
        if population not in (None, str(line["policy"]).split("/")[0]):
            continue
        if names is not None:
            line = {key: line[key] for key in (*KEYS, *names) if key in line}
        if len(line) > len(KEYS):
            lines.append(line)
    return {
        "names": None if names is None else list(names),
        "metrics": lines,
        **({"left_out": num_bad} if num_bad else {}),
    }


def _metric_lines(run_dir: Path) -> Iterator[Document | None]:
    """Yield the lines of a run's metrics, oldest first; None for a damaged line."""
    for part in files_of(run_dir / METRICS_FILE):
        try:
            for text in read_lines(part):
                # Skip a last line that is incomplete, as the run may be writing it, or was killed.
                if text is None or text.endswith(b"\n"):
                    yield None if text is None else point_of(text)
        except FileNotFoundError:
            # The run has no such sink, or the file has just been renamed.
            continue
        except OSError:
            # If the path is not a readable file, count it as one damaged line.
            yield None


METRICS = (
    player("policy"),
    Column("agent_steps", drop=1),
    Column("metric", "word", drop=1),
    Column("value", drop=1),
)


def metric_rows(document: Document) -> list[Row]:
    """Return a row for each value of a metric."""
    return [
        {**{key: line[key] for key in KEYS}, "metric": name, "value": value}
        for line in document["metrics"]
        for name, value in line.items()
        if name not in KEYS
    ]


def matches_document(run: Inspection, population: str | None) -> Document:
    """Return every committed tally with its players, assignment and results."""
    seats = run.league.seats
    seats_of_kind = {"evaluate": seats, "train": run.league.training_seats}
    rows = [
        {
            "sequence": row.sequence,
            "assignment": row.assignment_id,
            "kind": row.kind,
            "seats": {
                # The entrants of a tally are in the order of the seats.
                seat.name: _entrant(run, entrant)
                for seat, entrant in zip(seats_of_kind[row.kind], row.tally.entrants, strict=True)
            },
            **picked(row.tally, "matches", "distinct"),
            "pairs": [structs.asdict(pair) for pair in row.tally.pairs],
            "mean_return": [total / row.tally.matches for total in row.tally.return_sum],
            # Divide by episodes, because in cooperation a match may have two episodes.
            "mean_length": row.tally.length_sum / num_episodes(row.tally, seats=seats),
        }
        for row in run.reader.all_tallies()
        # Every match uses all seats, so this condition selects all tallies or none.
        if population is None or population in {seat.population for seat in seats}
    ]
    return {"tallies": rows}


def _entrant(run: Inspection, entrant: str) -> str:
    """Return a readable name for a tally's entrant: policy@agent_steps for a weights digest."""
    origin = run.league.checkpoints.get(Digest(entrant))
    if origin is None:
        return entrant
    return f"{origin.policy}@{origin.agent_steps:012d}"


MATCHES = (
    Column("sequence", title="#", is_label=True),
    Column("assignment", drop=2, is_label=True),
    Column("kind", "word"),
    Column("players", "versus", is_label=True, most=2 * MAX_CELL),
    Column("matches", is_label=True),
    Column("wins-draws-losses", title="w-d-l", is_label=True),
    Column("mean_length", title="length", drop=1, is_label=True),
    Column("first_return", title="first's return", drop=3),
    Column("distinct", drop=4),
)


def match_rows(document: Document) -> list[Row]:
    """Return a row for each tally, with the columns that are shown."""
    return [
        {
            **row,
            "players": [*row["seats"].values()],
            "wins-draws-losses": _record(row["pairs"]),
            "first_return": row["mean_return"][0],
        }
        for row in document["tallies"]
    ]


def _record(pairs: Sequence[Row]) -> str | None:
    """Return wins, draws and losses of a game of two; None if it has more pairs of seats."""
    if len(pairs) != 1:
        return None
    return "-".join(f"{pairs[0][key]:g}" for key in ("wins", "draws", "losses"))


def openings_document(run: Inspection, population: str | None) -> Document:
    """Return the first decisions in evaluation matches, over agent steps, and their scores.

    ``openings`` has a row per window of agent steps and action of each seat: for all policies
    (``player`` is null), and for the champion's policy. ``summary`` has a row for each of these.
    """
    from arena.matches.comparisons import is_by_seats
    from populations.views.questions import openings as of

    seats, specs = run.league.seats, run.run_file.spec.agent_specs
    steps = dict.fromkeys((seat.population for seat in seats), 0)
    for row in run.league.checkpoints.values():
        name = population_of(row.policy)
        steps[name] = max(steps.get(name, 0), row.agent_steps)
    width = {name: of.window_width(most) for name, most in steps.items()}
    played = of.windows_of(run.reader.all_tallies(), league=run.league, width=width)
    best = run.champions(population)
    rows: list[Row] = []
    summaries: list[Row] = []
    by_seats = is_by_seats(seats)
    # With random openings, the first decisions are not those of the players.
    are_own = run.run_file.config.evaluation.random_openings.share == 0.0
    said: set[str] = set()
    for index, seat in enumerate(seats):
        # In games of many seats results are not counted by seat, so one seat stands for its
        # population.
        is_said = not by_seats and seat.population in said
        if population not in (None, seat.population) or is_said:
            continue
        said.add(seat.population)
        spec = specs[seat.agents[0]]
        label, is_counted = of.label_of(spec), by_seats and are_own and of.is_countable(spec)
        leader = best.get(seat.population)
        # The id of a ghost begins with that of its policy, and an "@".
        own = None if leader is None else PolicyId(leader.player.split("@")[0])
        for policy in dict.fromkeys((None, own)):
            windows = played.get((index, policy), {})
            about: Row = {"population": seat.population, "seat": seat.name, "player": policy}
            found = of.rows_of(windows, width=width[seat.population], label=label)
            rows += [{**about, **line} for line in found]
            summary = (
                of.summary_of(windows, width=width[seat.population], label=label) if windows else {}
            )
            summaries.append({**about, "is_counted": is_counted, **summary})
    return {"summary": summaries, "openings": rows}


OPENINGS = (
    Column("seat", "word", is_label=True),
    player("player"),
    Column("agent_steps_from", "count", "from"),
    Column("matches", "count"),
    Column("label", "word", "first", is_label=True),
    Column("share", "share"),
    Column("share_low", "share", "low", drop=2),
    Column("share_high", "share", "high", drop=2),
    Column("score", "share"),
    Column("score_low", "share", "low", drop=1),
    Column("score_high", "share", "high", drop=1),
)


VIEWS: dict[str, View] = {
    "lineage": View(
        document=lineage_document,
        has_page=True,
        flat=itemgetter("policies"),
        sections=lineage,
        figure=Figure(draw=figures.lineage, documents=("lineage",)),
        lists=("generations",),
        is_fitted=True,
    ),
    "hyperparameters": View(
        document=hyperparameters_document,
        has_page=True,
        flat=hyperparameter_rows,
        sections=hyperparameters,
        takes={"--optuna": ""},
        limits="policies",
        figure=Figure(
            draw=figures.hyperparameters, documents=("hyperparameters", "standings"), columns=2
        ),
    ),
    "metrics": View(
        document=metrics_document,
        has_page=True,
        flat=metric_rows,
        sections=listed("metrics", METRICS, metric_rows),
        takes={"--metric": "names"},
        limits="metrics",
        keeps_last=True,
        figure=Figure(draw=figures.metrics, documents=("metrics", "standings"), columns=2),
    ),
    "matches": View(
        document=matches_document,
        sections=listed("matches: newest first, players in seats' order", MATCHES, match_rows),
        limits="tallies",
        order=lambda rows, document: [*reversed(rows)],
        is_whole=False,
    ),
    "openings": View(
        document=openings_document,
        has_page=True,
        sections=listed(
            "openings: first decisions over agent steps; no player: all policies",
            OPENINGS,
            itemgetter("openings"),
        ),
        limits="openings",
        keeps_last=True,
        figure=Figure(draw=figures.openings, documents=("openings",), columns=2, shared="color"),
    ),
}
