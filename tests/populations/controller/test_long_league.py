"""Decisions of a league that has played for long look at no more than those of one that has not.

Counted, not timed: lines of the project's Python that the controller runs for an event, and entries
of its tables that are passed one by one. `experiments.planted_league.week` has the times.
"""

from __future__ import annotations

import collections
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest

from arena.types import RANDOM_BOT, Entrant
from experiments.planted_league.week import DAY, make_long_league
from populations.controller.evaluation import pairings
from populations.controller.evolution.members import common_scores
from populations.controller.indexes import player_strengths
from populations.controller.machine import handle
from populations.controller.rating_input import snapshot
from populations.controller.state.events import AssignmentFinished, Event, Now
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction
from populations.core import Score
from populations.pbt.statistics import on_common_opponents
from populations.ratings.result_table import ResultTable
from populations.records.rows import AssignmentRow
from populations.records.tables import Table
from populations.simulation.world import World, start
from tests.populations.controller.simulated import DUEL, TAG, make_world, tag_spec

COUNTED = ("checkpoints", "ghosts", "generations", "records", "pairs")
SMALL = replace(DAY, checkpoints=60, met=4, pairs=8)


class Counter:
    """Lines and entries so far."""

    def __init__(self) -> None:
        self.count = 0

    def trace(self, frame: FrameType, event: str, argument: object) -> Any:
        """Count the lines of the project."""
        del argument
        if "/populations/" not in frame.f_code.co_filename:
            return None
        self.count += event == "line"
        return self.trace


class CountedView:
    """A dictionary's view, whose entries are counted as they are passed."""

    def __init__(self, view: Any, counter: Counter) -> None:
        self._view, self._counter = view, counter

    def __len__(self) -> int:
        return len(self._view)

    def __iter__(self) -> Iterator[Any]:
        return self._counted(iter(self._view))

    def __reversed__(self) -> Iterator[Any]:
        return self._counted(reversed(self._view))

    def _counted(self, entries: Iterator[Any]) -> Iterator[Any]:
        for entry in entries:
            self._counter.count += 1
            yield entry


class CountedTable(Table[Any, Any]):
    """A table whose rows are counted as they are passed."""

    counter: Counter

    def __iter__(self) -> Iterator[Any]:
        return iter(CountedView(super().keys(), self.counter))

    def keys(self) -> Any:
        """Keys."""
        return CountedView(super().keys(), self.counter)

    def values(self) -> Any:
        """Rows."""
        return CountedView(super().values(), self.counter)

    def items(self) -> Any:
        """Keys and rows."""
        return CountedView(super().items(), self.counter)

    def copy(self) -> Any:
        """A copy passes all."""
        self.counter.count += len(self)
        return super().copy()


def watched(world: World, counter: Counter) -> None:
    """Count what is passed of a world's tables from now on."""
    tables = world.state.tables

    def counted(rows: Table[Any, Any]) -> CountedTable:
        watched = CountedTable(rows.kind)
        watched.counter = counter
        watched.update(rows)
        return watched

    for name in COUNTED:
        table = counted(getattr(tables, name))
        setattr(tables, name, table)
        # An index is kept from its first use on, which reads all rows.
        for key in table.kind.by:
            table.by(key)
        for key in table.kind.first:
            table.first(key)
    counter.count = 0


FEW = 5


def counts_by_decision(world: World, *, num_events: int) -> dict[str, float]:
    """Return the median count of ends of assignments, by what ended and what was decided then.

    Both kinds end so many times at least. Evaluation looks at more than training, so a mean over
    all would say how often each was decided. What was decided less than `FEW` times is left out: a
    median of one or two says which they were.
    """
    counter = Counter()
    found: defaultdict[str, list[int]] = defaultdict(list)
    ended: collections.Counter[str] = collections.Counter()

    def counted(state: ControllerState, event: Event, now: Now) -> Transaction:
        if not isinstance(event, AssignmentFinished):
            return handle(state, event, now)
        counter.count = 0
        sys.settrace(counter.trace)
        try:
            tx = handle(state, event, now)
        finally:
            sys.settrace(None)
        kind = "train" if event.manifests else "evaluate"
        ended[kind] += 1
        decided = [row.kind for row in tx.rows if isinstance(row, AssignmentRow) and is_new(row)]
        most = "evaluate" if "evaluate" in decided else "train" if decided else "nothing"
        found[f"{kind} -> {most}"].append(counter.count)
        return tx

    start(world)
    for _ in range(30):  # this rebuilds what a resume must rebuild
        world.advance()
    watched(world, counter)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("populations.simulation.world.handle", counted)
        while min(ended["train"], ended["evaluate"]) < num_events:
            assert world.advance()
    return {
        decision: statistics.median(counts)
        for decision, counts in found.items()
        if len(counts) >= FEW
    }


def is_new(row: AssignmentRow) -> bool:
    """Return whether it was decided in this transaction."""
    return row.status == "queued" and row.attempt == 1


@pytest.mark.slow
def test_decisions_do_not_grow_with_what_was_played(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ghosts, checkpoints, results and meetings times eight change nothing.

    Even the small league has more ghosts, and longer lines, than an evaluation looks at.
    """
    # A small cache makes few lines repeat; each walk up a line has the same bound.
    monkeypatch.setattr(player_strengths, "MAX_LINES", 1)
    changes = ("pbt.ready_agent_steps=40000", "pbt.exploit=welch")
    small, large = (
        counts_by_decision(
            make_long_league(replace(SMALL, checkpoints=size), num_policies=4, changes=changes),
            num_events=30,
        )
        for size in (160, 1280)
    )
    compared = small.keys() & large.keys()
    assert "train -> train" in compared
    assert "train -> evaluate" in compared
    for decision in compared:
        assert large[decision] < 1.15 * small[decision], decision


def test_a_fits_snapshot_looks_at_policies_alone() -> None:
    counter = Counter()
    world = make_long_league(SMALL, num_policies=4)
    watched(world, counter)
    known = snapshot(world.state.league)
    assert counter.count == 0
    assert known.results.chunks[0].counts is world.state.league.results.snapshot().chunks[0].counts


class NeverPassed(ResultTable[Any]):
    """Results that nobody may look through."""

    def rows(self) -> Iterator[Any]:
        raise AssertionError("a decision must not look at all results")


@pytest.mark.slow
def test_neither_anchors_nor_common_opponents_look_at_all_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("populations.league.league.ResultTable", NeverPassed)
    for document, spec in ((TAG, tag_spec()), (DUEL, None)):
        pbt = {**DUEL["pbt"], "exploit": "welch"}  # type: ignore[dict-item]
        world = make_world({**document, "pbt": pbt}, spec)
        assert isinstance(world.state.league.results, NeverPassed)
        world.join()
        world.join()
        world.steps(30)
        assert world.events("explored", "exploited")


def test_anchors_are_played_until_there_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the definition over all results."""
    monkeypatch.setattr(pairings, "ANCHOR_MATCHES", 60)
    world = make_world(TAG, tag_spec(), joined=2)
    seen = set()
    for _ in range(100):
        world.step()
        state = world.state
        pairs = list(
            pairwise((seat.population, Entrant(RANDOM_BOT)) for seat in state.settings.setup.seats)
        )
        played = sum(
            outcome.matches
            for (first, second, _), outcome in state.league.results.items()
            if (first, second) in pairs
        )
        is_enough = played >= pairings.ANCHOR_MATCHES
        seen.add(is_enough)
        assert bool(pairings._anchors(state.settings.setup, state.league)) == (not is_enough)
        if is_enough:
            break
    assert seen == {False, True}


def test_common_scores_are_those_of_all_results() -> None:
    world = make_world(DUEL, joined=1, steps=40)
    state = world.state
    common = common_scores(state.fits, "player")
    assert common is not None

    def scores(rated: object, without: object) -> dict[Any, Score]:
        found: dict[Any, Score] = {}
        for (first, second, (own, other)), counts in state.league.results.items():
            wins, draws, losses = counts[:3]
            matches = wins + draws + losses
            if first == rated and second != without:
                found[second, (own, other)] = Score(points=wins + draws / 2, matches=matches)
            elif second == rated and first != without:
                found[first, (other, own)] = Score(points=losses + draws / 2, matches=matches)
        return found

    num_compared = 0
    for one, other in pairwise(state.tables.policies.values()):
        digests = [state.league.standing_weights(row) for row in (one, other)]
        first, second = (("player", Entrant(digest or "")) for digest in digests)
        # A policy that has just copied the other's weights is not a different player.
        expected = (
            None
            if first == second
            else on_common_opponents(scores(first, second), scores(second, first))
        )
        found = common(one.policy, other.policy)
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            num_compared += 1
            for ours, theirs in zip(found, expected, strict=True):
                assert ours.points == pytest.approx(theirs.points)
                assert ours.matches == pytest.approx(theirs.matches)
    assert num_compared > 0
