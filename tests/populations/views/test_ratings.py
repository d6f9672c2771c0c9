"""Ratings of all checkpoints by one fit, against a fit of the same results made by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from arena.matches.seating import make_seats
from arena.types import RANDOM_BOT, AssignmentId, Digest, Entrant, PolicyId
from populations.audit.tally_checks import refold
from populations.controller.rating_fit import fit_ratings
from populations.controller.rating_input import fit_input, snapshot
from populations.league.league import League
from populations.ratings.bradley_terry import BradleyTerry
from populations.ratings.model import Z95, Result
from populations.ratings.results import over_seats, result_columns
from populations.records.rows import CheckpointRow, PolicyRow, TallyRow
from populations.records.tables import Tables
from populations.views.questions.champions import champions_of
from populations.views.questions.inspection import CheckpointFit, rating_points
from tests.populations.rows import (
    make_checkpoint,
    make_event,
    make_generation,
    make_policy,
    make_tally,
    make_tally_row,
    tables_with,
)

SEATS = make_seats(
    agents=("a", "b"), sides={"a": ("a",), "b": ("b",)}, populations={"player": ("a", "b")}
)
POLICY, OTHER = PolicyId("player/p000"), PolicyId("player/p001")
BOT = Entrant(RANDOM_BOT)
FIRST, SECOND, COPY, GONE = (Digest(letter * 64) for letter in "abcd")


def checkpoint(
    policy: PolicyId, digest: Digest, *, agent_steps: int, parent: Digest | None, **more: Any
) -> CheckpointRow:
    return make_checkpoint(
        digest,
        key=f"{policy}/{digest}",
        policy=policy,
        agent_steps=agent_steps,
        parent=parent,
        **{"generation": 0, "assignment_id": AssignmentId(agent_steps // 100), **more},
    )


def policy_row(policy: PolicyId, index: int, key: str) -> PolicyRow:
    return make_policy(policy, index=index, checkpoint=key)


def tally(sequence: int, first: str, second: str, wins: int, losses: int) -> TallyRow:
    return make_tally_row(
        make_tally(
            (first, second),
            (0, 1, wins, 0, losses),
            return_sum=(float(wins), float(losses)),
            return_sum_of_squares=(float(wins), float(losses)),
            length_sum=9,
        ),
        sequence,
    )


TALLIES = [
    tally(1, FIRST, BOT, 12, 8),
    tally(2, SECOND, FIRST, 30, 10),
    tally(3, COPY, SECOND, 25, 15),
    tally(4, BOT, COPY, 2, 18),
    # These weights have no row, so their results are in no fit.
    tally(5, GONE, FIRST, 40, 0),
]


def tables() -> Tables:
    rows = [
        checkpoint(POLICY, FIRST, agent_steps=100, parent=None),
        checkpoint(POLICY, SECOND, agent_steps=300, parent=FIRST),
        # The weights are copied from the other policy; its own step count is lower.
        checkpoint(OTHER, COPY, agent_steps=200, parent=SECOND, generation=1),
        # This checkpoint was never evaluated.
        checkpoint(OTHER, Digest("e" * 64), agent_steps=250, parent=COPY, generation=1),
    ]
    generation = make_generation(OTHER, 1, cause="exploit", agent_steps_begin=150)
    folded = refold(TALLIES, seats=SEATS, half_life_matches=1000.0)
    return tables_with(
        policies={
            POLICY: policy_row(POLICY, 0, rows[1].key),
            OTHER: policy_row(OTHER, 1, rows[3].key),
        },
        checkpoints={row.key: row for row in rows},
        generations={generation.entrant: generation},
        records={row.key: row for row in folded.records.values()},
        pairs={row.key: row for row in folded.pairs.values()},
    )


def league(known: Tables) -> League:
    return League(known, seats=SEATS, half_life_matches=1000.0)


def fitted(known: Tables) -> CheckpointFit:
    """The rows with a fit of them, as a controller puts it."""
    own = league(known)
    fits = fit_ratings(fit_input(snapshot(own)))
    known.ratings.update((name, one.row) for name, one in fits.items() if one.row is not None)
    return CheckpointFit(own)


def test_the_fit_is_that_of_the_results_between_recorded_players() -> None:
    known = tables()
    shown = fitted(known)
    found = shown.intervals()
    results = [
        Result(
            first=("player", row.tally.entrants[0]),
            second=("player", row.tally.entrants[1]),
            seats=(0, 1),
            wins=row.tally.pairs[0].wins,
            draws=0,
            losses=row.tally.pairs[0].losses,
        )
        for row in TALLIES[:4]
    ]
    fit = BradleyTerry(reduces_bias=True, bends=True).fit(
        # Each result is counted over both seats.
        over_seats(result_columns(results)),
        parents={
            ("player", Entrant(SECOND)): ("player", Entrant(FIRST)),
            ("player", Entrant(COPY)): ("player", Entrant(SECOND)),
        },
        # Steps are counted along the line, so the copy has those of its donor.
        times={
            ("player", Entrant(FIRST)): ("player", 100.0),
            ("player", Entrant(SECOND)): ("player", 300.0),
            ("player", Entrant(COPY)): ("player", 350.0),
        },
        anchors=[("player", BOT)],
    )
    assert set(found) == {("player", Entrant(one)) for one in (FIRST, SECOND, COPY, BOT)}
    for rated, interval in found.items():
        at = fit.index(rated)
        off = np.hypot(fit.deviations[at], fit.anchor_errors[at])
        assert interval.rating == pytest.approx(fit.ratings[at], abs=1e-6)
        assert interval.low == pytest.approx(fit.ratings[at] - Z95 * off, abs=1e-6)
        assert interval.high == pytest.approx(fit.ratings[at] + Z95 * off, abs=1e-6)
    assert found["player", BOT].rating == 0.0
    # The error that both share cancels in the difference.
    gap = shown.difference(("player", Entrant(COPY)), ("player", Entrant(SECOND)))
    assert gap is not None
    at, to = (fit.index(("player", Entrant(one))) for one in (COPY, SECOND))
    assert gap.rating == pytest.approx(fit.ratings[at] - fit.ratings[to], abs=1e-6)
    apart = np.linalg.norm(fit.spread[at] - fit.spread[to])
    assert gap.high - gap.rating == pytest.approx(Z95 * apart, abs=1e-6)
    assert shown.difference(("player", BOT), ("other", BOT)) is None
    assert shown.difference(("player", BOT), ("player", Entrant("missing"))) is None
    ordered = [found["player", Entrant(one)].rating for one in (FIRST, SECOND, COPY)]
    assert ordered == sorted(ordered)


def test_points_are_a_policys_evaluated_checkpoints_in_order() -> None:
    known = tables()
    events = [
        make_event("train_assigned", "3", time="noon"),
        # The assignment is given out again after a failure.
        make_event("train_assigned", "3", sequence=2, time="later"),
    ]
    found: Any = rating_points(fitted(known), assigned=events)
    own, other = (line["points"] for line in found["player"])
    assert [point["agent_steps"] for point in own] == [100, 300]
    assert [point["time"] for point in own] == [None, "later"]
    assert [point["cause"] for point in own] == [None, None]
    (copied,) = other
    assert (copied["generation"], copied["cause"]) == (1, "exploit")
    assert copied["rating_low"] < copied["rating"] < copied["rating_high"]


def test_what_is_shown_is_the_last_fit_whatever_was_played_since() -> None:
    known = tables()
    before = fitted(known).intervals()
    later = refold([*TALLIES, tally(6, COPY, BOT, 0, 90)], seats=SEATS, half_life_matches=1000.0)
    known.records.update((row.key, row) for row in later.records.values())
    known.pairs.update((row.key, row) for row in later.pairs.values())
    shown = CheckpointFit(league(known))
    assert shown.intervals() == before
    gap = shown.difference(("player", Entrant(COPY)), ("player", BOT))
    assert gap is not None
    assert gap.rating == before["player", Entrant(COPY)].rating


def test_without_evaluation_there_are_no_ratings() -> None:
    known = tables()
    known.records.clear()
    known.pairs.clear()
    assert fitted(known).intervals() == {}


def test_a_champion_leads_until_the_next_of_its_population() -> None:
    changes = [("red", "red/p000"), ("blue", "blue/p001"), ("red", "red/p002"), ("red", "red/p000")]
    events = [
        make_event("champion", player, sequence=at, time=f"t{at}", population=name)
        for at, (name, player) in enumerate(changes)
    ]
    run: Any = SimpleNamespace(reader=SimpleNamespace(events=lambda kinds: events))
    found = champions_of(run, None)
    spans = [(span["player"], span["since"], span["until"]) for span in found]
    assert spans == [
        ("red/p000", "t0", "t2"),
        ("blue/p001", "t1", None),
        ("red/p002", "t2", "t3"),
        ("red/p000", "t3", None),
    ]
