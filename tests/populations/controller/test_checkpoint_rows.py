"""Rows of checkpoints go, and nothing that follows from the others changes by that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from arena.types import Digest, Entrant
from populations.audit.verify import Sums
from populations.controller import result_merging
from populations.controller.evolution.generations import _rated
from populations.controller.rating_input import fit_input, snapshot
from populations.controller.state.events import Now
from populations.controller.state.fits import Fits
from populations.controller.state.goals import StopGoals
from populations.controller.state.state import ControllerState, make_state
from populations.controller.state.transaction import Transaction
from populations.league.league import League
from populations.league.lineage import CHECKPOINTS_REMOVED, History, steps_since_parent
from populations.records.rows import AssignmentRow, CheckpointRow, Deletion, EventRow
from tests.populations.controller.simulated import DUEL, World, by_rate, fold, make_world
from tests.populations.controller.test_result_merging import ENTRANTS, FEW, GAMES, merge_from, run

# Several tests share whole runs, so they stay in one worker.
pytestmark = pytest.mark.xdist_group("removed checkpoints")


def known(fits: Fits) -> object:
    """What ratings, gains and standings read of lines of weights."""
    league, tables = fits.league, fits.league.tables
    fit = fit_input(snapshot(league))
    policies = list(tables.policies.values())
    return (
        (fit.parents, fit.times, fit.entrants, fit.newest),
        [league.standing_weights(policy) for policy in policies],
        [league.first_weights(policy) for policy in policies],
        [
            _rated(fits.league, fits.ratings(policy.population), weights)
            for policy in policies
            for weights in (
                league.first_weights(policy),
                Digest(tables.checkpoints[policy.checkpoint].weights_digest)
                if policy.checkpoint
                else None,
            )
        ],
        [fits.line_rating(policy) for policy in policies],
        [league.matches_in_generation(policy) for policy in policies],
    )


def anew(state: ControllerState) -> ControllerState:
    resumed = make_state(state.settings.config, state.settings.setup, state.tables)
    resumed.fits.last = state.fits.last
    return resumed


@dataclass
class Watched:
    """A world whose removals are looked at, each one before and after."""

    world: World
    removals: list[tuple[int, int]] = field(default_factory=list)


def watched(world: World, patch: pytest.MonkeyPatch) -> Watched:
    found = Watched(world)
    remove = result_merging.remove_checkpoints

    def look(
        league: League, stop_goals: StopGoals, tx: Transaction, populations: list[str]
    ) -> None:
        state = world.state
        before, num_before = known(state.fits), len(state.tables.checkpoints)
        lately = set(state.league.checkpoints)
        remove(league, stop_goals, tx, populations)
        assert known(state.fits) == before
        assert known(anew(state).fits) == before
        # Cached lines must equal recomputed ones.
        pending = state.indexes.pending_matches
        for digest, line in list(pending._lines.items()):
            assert pending._line(Digest(digest)) == line
        rows = state.tables.checkpoints
        assert all(row.key in rows for row in rows.first("generation").values())
        met = {Digest(entrant) for entrant in state.league.payoff.entrants()}
        assert met & lately <= state.league.checkpoints.keys()
        found.removals.append((num_before, len(state.tables.checkpoints)))

    patch.setattr(result_merging, "remove_checkpoints", look)
    patch.setattr(result_merging, "BATCH", 4)
    merge_from(patch, ENTRANTS)
    return found


LONG: dict[str, object] = {
    **FEW,
    # Copies and explorations begin generations, whose first checkpoints have other step counts.
    "pbt": {"ready_agent_steps": 2500, "warm_up_agent_steps": 2500, "min_matches": 10},
}


@pytest.fixture(
    scope="module",
    params=[
        name if name == "duel" else pytest.param(name, marks=pytest.mark.slow) for name in GAMES
    ],
)
def removed(request: pytest.FixtureRequest) -> Iterator[Watched]:
    with pytest.MonkeyPatch.context() as patch:
        document, spec = GAMES[request.param]
        world = make_world({**document, **LONG}, spec=spec(), joined=2, learning=by_rate)
        found = watched(world, patch)
        run(world)
        yield found


@pytest.mark.slow
def test_nothing_that_follows_from_rows_changes(removed: Watched) -> None:
    assert sum(before - after for before, after in removed.removals) > 40
    assert len(removed.removals) > 3


def test_rows_grow_no_more(removed: Watched) -> None:
    tables, league = removed.world.state.tables, removed.world.state.league
    sizes = [after for _, after in removed.removals]
    made = {row.key for row in removed.world.committed if isinstance(row, CheckpointRow)}
    assert len(made) > 2 * sizes[-1]
    # A pool reaches its full size long before the end.
    assert sizes[-1] <= 1.3 * sizes[len(sizes) // 2]
    digests = {Digest(entrant) for _, entrant in league.tables.records}
    digests |= {Digest(entrant) for entrant in league.payoff.entrants()}
    sources = {ghost.checkpoint for ghost in tables.ghosts.values()}
    spare = [
        row
        for row in tables.checkpoints.values()
        if row.state == "deleted" and row.weights_digest not in digests and row.key not in sources
    ]
    # The remaining rows are newer than the last removal, or begin a generation.
    assert len(spare) <= 12 * len(tables.policies)


def test_the_journal_has_what_memory_has(removed: Watched) -> None:
    world = removed.world
    assert any(
        isinstance(row, Deletion) and isinstance(row.row, CheckpointRow) for row in world.committed
    )
    assert fold(world.committed) == world.state.tables
    # The league forgets the rows that the tables remove.
    rows = world.state.tables.checkpoints.values()
    assert world.state.league.checkpoints.keys() == {row.weights_digest for row in rows}


def test_what_was_trained_adds_up_with_the_events(removed: Watched) -> None:
    world = removed.world
    rows = {row.assignment_id: row for row in world.committed if isinstance(row, AssignmentRow)}
    sums, without = Sums(), Sums()
    sums.add_events(row for row in world.committed if isinstance(row, EventRow))
    checkpoints = world.state.tables.checkpoints
    assert len(sums.removed) == sum(before - after for before, after in removed.removals)
    sums.add_assignments(rows.values(), checkpoints)
    for policy in world.state.tables.policies.values():
        assert sums.trained[policy.policy] == policy.agent_steps
    several = any(len(getattr(row.message, "trainees", ())) > 1 for row in rows.values())
    without.add_assignments(rows.values(), checkpoints)
    assert (without.trained != sums.trained) == several


def test_events_tell_of_schedules_what_rows_told() -> None:
    """A replay reads since when each value was in use."""
    world, tx = world_to_thin()
    state = world.state
    for generation in list(state.tables.generations.values()):
        tx.put(replace(generation, factors={"learning_rate": 1.1}))
    before, num_before = History.of(state.tables), len(state.tables.checkpoints)
    result_merging.remove_checkpoints(state.league, state.indexes.goals, tx, ["player"])
    assert len(state.tables.checkpoints) < num_before
    events = [row for row in tx.rows if isinstance(row, EventRow)]
    assert History.of(state.tables, events) == before
    assert History.of(state.tables) != before


def test_rows_stay_whose_matches_a_resume_counts() -> None:
    world, tx = world_to_thin()
    state = world.state
    state.indexes.goals.player = "bot:random"
    present = {policy.policy: policy.generation for policy in state.tables.policies.values()}
    before = {
        row.key
        for row in state.tables.checkpoints.values()
        if present[row.policy] == row.generation
    }
    result_merging.remove_checkpoints(state.league, state.indexes.goals, tx, ["player"])
    assert before <= state.tables.checkpoints.keys()


def world_to_thin() -> tuple[World, Transaction]:
    """A world with many rows that nothing refers to."""
    world = make_world({**DUEL, **FEW, "evaluation": {"share": 0.01}}, joined=1, steps=120)
    tx = world.state.begin(Now(monotonic_s=world.now_s, utc=""))
    # No player meets these weights any more.
    world.state.league.payoff.forget(list(world.state.league.payoff.entrants()))
    return world, tx


def test_the_oldest_go_first_and_no_more_than_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_merging, "MAX_CHECKPOINTS", 7)
    world, tx = world_to_thin()
    state = world.state
    before = dict(state.tables.checkpoints)
    line = {
        policy.policy: total_steps(state, policy.checkpoint)
        for policy in state.tables.policies.values()
    }
    for _ in range(3):
        result_merging.remove_checkpoints(state.league, state.indexes.goals, tx, ["player"])
    gone = [row for key, row in before.items() if key not in state.tables.checkpoints]
    assert len(gone) == 21
    events = [
        row for row in tx.rows if isinstance(row, EventRow) and row.kind == CHECKPOINTS_REMOVED
    ]
    assert [len(event.data["checkpoints"]) for event in events] == [7, 7, 7]  # type: ignore[arg-type]
    newest = max(row.assignment_id for row in gone)
    stayed = [row for row in state.tables.checkpoints.values() if row.assignment_id < newest]
    referred = result_merging._weights_referred_to(state.league, state.indexes.goals)
    assert all(row.weights_digest in referred or row.state != "deleted" for row in stayed)
    for policy in state.tables.policies.values():
        assert total_steps(state, policy.checkpoint) == line[policy.policy]


def total_steps(state: ControllerState, key: str | None) -> int:
    """All agent steps behind a checkpoint, along its line."""
    assert key is not None
    league, total = state.league, 0
    row: CheckpointRow | None = state.tables.checkpoints[key]
    while row is not None:
        total += steps_since_parent(
            row, origins=league.checkpoints, generations=state.tables.generations
        )
        row = None if row.parent is None else league.checkpoints[row.parent]
    return total


def test_populations_that_are_not_full_keep_theirs() -> None:
    world, tx = world_to_thin()
    before = dict(world.state.tables.checkpoints)
    result_merging.remove_checkpoints(world.state.league, world.state.indexes.goals, tx, [])
    assert world.state.tables.checkpoints == before


@pytest.mark.parametrize("by", ["nothing", "ratings", "decision", "ghost", "equal weights"])
def test_what_is_referred_to_stays(by: str) -> None:
    world, tx = world_to_thin()
    state = world.state
    tables = state.tables
    (victim, *_) = result_merging._checkpoints_to_go(
        state.league, state.indexes.goals, ["player"]
    ).values()
    if by == "ratings":
        ratings = tables.ratings["player"]
        tx.put(replace(ratings, former_best=(Entrant(victim.weights_digest),)))
    elif by == "decision":
        policy = tables.policies[victim.policy]
        tx.put(replace(policy, pending={"kind": "exploit", "checkpoint": victim.key}))
    elif by == "ghost":
        ghost = next(iter(tables.ghosts.values()))
        tables.ghosts[ghost.player] = replace(ghost, checkpoint=victim.key)
    elif by == "equal weights":
        tx.put(replace(victim, key=victim.key + "0", agent_steps=victim.agent_steps + 1))
    result_merging.remove_checkpoints(state.league, state.indexes.goals, tx, ["player"])
    assert (victim.key in tables.checkpoints) == (by != "nothing")
