"""Family tree: who copied whom, when, and what was gained since.

A life is what a policy lives between two copies: its generations whose weights are its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from populations.views.parts import Document, Line, Room, Row, Section, Tree

MAX_LIVES = 30
"""Lives from which on only those that have living descendants are shown."""

Lives = dict[str, list[Row]]
"""Generations of each life, by the entrant of the first."""


def lives_of(generations: Sequence[Row]) -> tuple[Lives, dict[str, str]]:
    """Return the lives, and the life of each generation, by entrants.

    Args:
        generations: Generations in order of beginning.
    """
    lives: Lives = {}
    life_of: dict[str, str] = {}
    for row in generations:
        entrant, parent = str(row["entrant"]), row["parent"]
        # A policy goes on with its own weights where the parent is one of its generations.
        goes_on = parent is not None and str(parent).split("#")[0] == row["policy"]
        first = life_of.get(str(parent), entrant) if goes_on else entrant
        life_of[entrant] = first
        lives.setdefault(first, []).append(row)
    return lives, life_of


def lineage(document: Document, room: Room) -> Iterator[Section]:
    """Yield a tree per population, from the policies that copied nobody."""
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
        hidden = len(lives) - len(shown)
        more = Line(
            "{hidden} lives without living descendants hidden",
            {"hidden": hidden},
            hint="--wide shows all",
        )
        yield Section(body=tree, below=[more] if hidden else [])


def _living(lives: Lives, life_of: Mapping[str, str], now: Mapping[str, Row]) -> Lives:
    """Return the lives that go on, and those from which they descend."""
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
    """Return what a life has gained, from the weights that it began with to its newest rated ones.

    All ratings of one document's ``elo_begin`` and ``elo_end`` are of one fit, and only those can
    be subtracted.
    """
    begin = rows[0]["elo_begin"]
    # A generation without a gain has no other weights than those that it began with.
    ends = [row["elo_end"] for row in rows if row["elo_gain"] is not None]
    return ends[-1] - begin if ends and begin is not None else None


def _line(rows: Sequence[Row], now: Mapping[str, Row], *, times: Row) -> Line:
    """Return a life as one line."""
    first, last = rows[0], rows[-1]
    policy = now.get(str(last["policy"]), {})
    is_last = policy.get("generation") == last["generation"]
    end = last["agent_steps_end"]
    if end is None and is_last:
        end = policy.get("agent_steps")
    parts = ["{policy:player}", "gen {generation}" if len(rows) == 1 else "gen {generation}-{to}"]
    if first["parent"] is not None:
        is_timed = None not in times.values()
        parts.append(
            "copied {donor:player}@{parent_agent_steps:count}"
            + (" at {times:since}" if is_timed else "")
        )
    elif first["cause"] != "start":
        parts.append("{cause}")
    parts.append("{agent_steps_begin:count}-{end:count}")
    gained = _gained(rows)
    if gained is not None:
        parts.append("{gained:signed} Elo")
    if is_last:
        parts.append("now" if policy.get("state") == "active" else "{state}")
    values = {
        **first,
        "to": last["generation"],
        "donor": str(first["parent"]).split("#")[0],
        "times": times,
        "end": end,
        "gained": gained,
        "state": policy.get("state"),
    }
    return Line(", ".join(parts), values)
