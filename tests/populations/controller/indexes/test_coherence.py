"""Every index over the journal's rows equals one that is made from the tables from scratch.

Rows come as the rules make them, and at random: any valid row may be put at any time, and indexes
may be asked, or not, between any two rows.
"""

from __future__ import annotations

import copy
from typing import Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.environment_spec import EnvironmentSpec
from arena.types import AssignmentId, Player, PlayerId, PolicyId, Seating, trainee_entrant
from arena.wire.messages import Pairing, Train
from populations.candidates import Candidate, Candidates
from populations.controller.evaluation.pairings import evaluation_pool
from populations.controller.evolution.members import members_of
from populations.controller.indexes.opponent_pool import OpponentPools
from populations.controller.indexes.rated_pins import RatedPins
from populations.controller.opponents import OpponentStatistics
from populations.controller.state.events import Now
from populations.controller.state.state import ControllerState, make_state
from populations.controller.state.transaction import Transaction
from populations.league.league import League
from populations.records.rows import AssignmentRow, EventRow, PolicyRow
from populations.storage.store import Retention
from tests.populations.controller.facts import assert_facts_are_what_events_tell
from tests.populations.controller.simulated import (
    AT_ONCE,
    DUEL,
    DUET,
    TAG,
    World,
    duet_spec,
    made_once,
    make_world,
    tag_spec,
)
from tests.populations.rows import (
    make_assignment,
    make_checkpoint,
    make_evaluate,
    make_generation,
    make_ghost,
    make_tally,
    make_tally_row,
    make_train,
    make_trainee,
)

EAGER: dict[str, object] = {
    **DUEL,
    "pbt": AT_ONCE,
    "checkpoints": {"keep": 1},
    "stop": {"agent_steps_per_policy": 20_000},
}


FEW = {"every_agent_steps": 500, "keep": 16}


def assert_indexes_follow_the_tables(world: World) -> None:
    kept = world.state
    anew = make_state(kept.settings.config, kept.settings.setup, kept.tables)
    anew.fits.last = kept.fits.last
    assert_same_queue(kept, anew)
    assert_same_opponents(kept)
    assert_same_strengths(kept, anew)
    assert_same_retention(kept)
    assert_same_league(kept)
    for policy in kept.tables.policies.values():
        one, other = (
            members_of(s.settings.config, s.indexes, policy.population, role=policy.role)
            for s in (kept, anew)
        )
        assert one == other
    events = [row for row in world.committed if isinstance(row, EventRow)]
    assert_facts_are_what_events_tell(kept.tables, events)
    assert kept.indexes.pending_matches.num_open == anew.indexes.pending_matches.num_open
    assert (
        kept.indexes.pending_matches.open_matches() == anew.indexes.pending_matches.open_matches()
    )


def assert_same_queue(kept: ControllerState, anew: ControllerState) -> None:
    policies = kept.tables.policies.values()
    first, second = kept.indexes.training_queue, anew.indexes.training_queue
    given = first.limit
    for population in (None, *kept.settings.setup.populations):
        for held_up in (set[PolicyId](), {next(iter(kept.tables.policies))}):
            for limit in (None, 1500):
                first.limit = second.limit = limit
                found = [
                    queue.next(
                        held_up=held_up,
                        may_train=lambda name, only=population: only in (None, name),  # type: ignore[misc]
                    )
                    for queue in (first, second)
                ]
                assert found[0] == found[1]
                free = [
                    [queue.is_free(policy, held_up=held_up) for policy in policies]
                    for queue in (first, second)
                ]
                assert free[0] == free[1]
    first.limit = given


def listed(candidates: Candidates) -> list[Candidate]:
    return [candidates[index] for index in range(len(candidates))]


def assert_same_opponents(kept: ControllerState) -> None:
    tables = kept.tables
    for population in kept.settings.setup.populations:
        pools = [
            pools.pool(population) for pools in (kept.indexes.opponent_pools, OpponentPools(tables))
        ]
        assert listed(pools[0].ghosts.candidates) == listed(pools[1].ghosts.candidates)
        for without in tables.policies:
            first, second = (pool.latest(without=without) for pool in pools)
            assert listed(first) == listed(second)
        for policy in tables.policies.values():
            records = [
                OpponentStatistics(
                    kept.fits,
                    pool,
                    policy,
                    population,
                    ghosts_every=kept.settings.config.ghosts.every_agent_steps,
                ).record(pool.ghosts.candidates)
                for pool in pools
            ]
            np.testing.assert_equal(records[0], records[1])
        row = tables.ratings.get(population)
        rated, expected = (
            [
                dict(zip(pool.ghosts.codes.entrants, column, strict=True))
                for column in pool.ghost_ratings(row, origins=kept.league.checkpoints)
            ]
            for pool in pools
        )
        for entrant in {ghost.entrant for ghost in listed(pools[0].ghosts.candidates)}:
            for one, other in zip(rated, expected, strict=True):
                np.testing.assert_equal(one[entrant], other[entrant])


def assert_same_strengths(kept: ControllerState, anew: ControllerState) -> None:
    first, second = (
        evaluation_pool(state.settings, state.indexes, state.blame.ledger, np.random.default_rng(1))
        for state in (kept, anew)
    )
    assert first.players == second.players
    assert np.array_equal(first.field.ratings, second.field.ratings)
    assert np.array_equal(first.field.own_variance, second.field.own_variance)


def assert_same_retention(kept: ControllerState) -> None:
    """What is marked next is the same; episodes in flight, which no row has, are pinned alike."""
    anew = Retention(kept.tables, kept.settings.config.checkpoints)
    for (kind, key), pinned in kept.indexes.retention._needs.items():
        if kind == "episodes":
            anew.pin(PolicyId(str(key)), pinned)
    pins = RatedPins()
    pins.refresh(anew, league=kept.league, contenders=kept.fits.contenders)

    def standing(policy: PolicyRow) -> str | None:
        digest = kept.league.standing_weights(policy)
        return None if digest is None else kept.league.checkpoints[digest].key

    ours = copy.deepcopy(kept.indexes.retention)
    copy.copy(kept.indexes.rated_pins).refresh(
        ours, league=kept.league, contenders=kept.fits.contenders
    )
    due = {key for key in anew.unneeded(kept.tables, standing=standing)}
    assert set(ours.unneeded(kept.tables, standing=standing)) == due
    assert ours._needed == anew._needed


def assert_same_league(kept: ControllerState) -> None:
    half_life = kept.settings.config.payoffs.half_life_matches
    anew = League(kept.tables, seats=kept.settings.setup.seats, half_life_matches=half_life)
    for policy in kept.tables.policies.values():
        standing = kept.league.standing_weights(policy)
        assert standing == anew.standing_weights(policy)
        matches = kept.league.matches_in_generation(policy)
        assert matches == anew.matches_in_generation(policy)


@pytest.mark.parametrize(
    ("document", "spec"),
    [
        (EAGER, None),
        ({**EAGER, "matchmaking": {"kind": "quality"}}, None),
        ({**EAGER, "ghosts": FEW}, None),
        (
            {**EAGER, **{key: DUET[key] for key in ("environment", "populations")}, "ghosts": FEW},
            duet_spec(),
        ),
        ({**EAGER, **{key: TAG[key] for key in ("environment", "populations")}}, tag_spec()),
        ({**EAGER, **{key: DUET[key] for key in ("environment", "populations")}}, duet_spec()),
    ],
    ids=["duel", "quality", "few ghosts", "few ghosts of teams", "two populations", "teams"],
)
@pytest.mark.slow
def test_indexes_follow_the_rows_of_the_rules(
    document: dict[str, object], spec: EnvironmentSpec | None
) -> None:
    world = make_world(document, spec, joined=2)
    for number in range(48):
        world.step()
        if number % 8 == 0:
            assert_indexes_follow_the_tables(world)
    assert world.events("exploited")
    assert world.state.tables.ghosts
    assert bool(world.events("ghosts_thinned")) == (document.get("ghosts") == FEW)


GONE: tuple[Literal["doomed", "deleted", "corrupt"], ...] = ("doomed", "deleted", "corrupt")


class RandomRows:
    """Puts valid rows, without the rules that would choose them."""

    def __init__(self, world: World, data: st.DataObject) -> None:
        self.world = world
        self.data = data
        self.number = 10_000

    def put(self) -> None:
        """Put the rows of one random change, as one transaction."""
        self.number += 1
        tx = self.world.state.begin(Now(monotonic_s=self.world.now_s, utc=""))
        changes = [
            self.policy, self.checkpoint, self.remove, self.ghost, self.change_ghost,
            self.forget_ghost,
            self.generation, self.train, self.evaluate, self.end, self.tally,
        ]  # fmt: skip
        self.data.draw(st.sampled_from(changes))(tx)
        self.world.committed.extend(tx.rows)

    def some_policy(self) -> PolicyRow:
        policies = list(self.world.state.tables.policies.values())
        return self.data.draw(st.sampled_from(policies))

    def policy(self, tx: Transaction) -> None:
        row = self.some_policy()
        kept = [c.key for c in tx.tables.checkpoints.values() if c.state == "present"]
        tx.put(
            replace(
                row,
                state=self.data.draw(st.sampled_from(["active", "quarantined"])),
                checkpoint=self.data.draw(st.sampled_from([row.checkpoint, *kept])),
                agent_steps=row.agent_steps + self.data.draw(st.sampled_from([0, 1, 700])),
                pending=self.data.draw(st.sampled_from([{}, {"kind": "explore"}])),
            )
        )

    def checkpoint(self, tx: Transaction) -> None:
        row = self.some_policy()
        parent = tx.tables.checkpoints.get(row.checkpoint or "")
        key = f"populations/{row.policy}/checkpoints/{self.number}"
        tx.put(
            make_checkpoint(
                key,
                digest=f"digest-{self.number}",
                weights_digest=f"weights-{self.number}",
                policy=row.policy,
                generation=row.generation,
                agent_steps=row.agent_steps,
                learner_updates=row.learner_updates,
                parent=None if parent is None else parent.weights_digest,
                assignment_id=self.number,
            )
        )
        tx.put(replace(row, checkpoint=key))

    def remove(self, tx: Transaction) -> None:
        current = {row.checkpoint for row in tx.tables.policies.values()}
        rows = [row for row in tx.tables.checkpoints.values() if row.key not in current]
        if rows:
            row = self.data.draw(st.sampled_from(rows))
            gone = self.data.draw(st.sampled_from(GONE))
            tx.put(replace(row, state=gone))

    def ghost(self, tx: Transaction) -> None:
        """Leave a ghost of a new checkpoint: older ones are never frozen after their children."""
        self.checkpoint(tx)
        checkpoint = next(reversed(tx.tables.checkpoints.values()))
        row = tx.tables.policies[checkpoint.policy]
        tx.put(
            make_ghost(
                row.policy,
                self.number,
                generation=row.generation,
                weights_digest=checkpoint.weights_digest,
                checkpoint=checkpoint.key,
            )
        )

    def change_ghost(self, tx: Transaction) -> None:
        ghosts = list(tx.tables.ghosts.values())
        if ghosts:
            row = self.data.draw(st.sampled_from(ghosts))
            changes: list[dict[str, object]] = [
                {"linked": True},
                {"corrupt": True},
                {"doomed": True},
                {"quality": row.quality - 1.0},
            ]
            tx.put(replace(row, **self.data.draw(st.sampled_from(changes))))

    def forget_ghost(self, tx: Transaction) -> None:
        doomed = [row for row in tx.tables.ghosts.values() if row.doomed]
        if doomed:
            tx.delete(self.data.draw(st.sampled_from(doomed)))

    def generation(self, tx: Transaction) -> None:
        row = self.some_policy()
        old = tx.tables.generations[trainee_entrant(row.policy, generation=row.generation)]
        tx.put(replace(old, agent_steps_end=row.agent_steps, rating_end=1.0))
        after = replace(row, generation=row.generation + 1, generation_at=row.agent_steps)
        tx.put(
            make_generation(
                row.policy,
                after.generation,
                cause=self.data.draw(st.sampled_from(["exploit", "explore"])),
                parent=old.entrant,
                hyperparameters=row.hyperparameters,
                agent_steps_begin=row.agent_steps,
            )
        )
        tx.put(after)

    def train(self, tx: Transaction) -> None:
        leased = {
            trainee.policy
            for open_row in tx.tables.assignments.values()
            if isinstance(open_row.message, Train)
            for trainee in open_row.message.trainees
        }
        row = self.some_policy()
        if row.policy in leased:
            return
        trainee = make_trainee(
            row.policy,
            generation=row.generation,
            agent_steps=row.agent_steps,
            learner_updates=row.learner_updates,
        )
        assignment_id = AssignmentId(self.number)
        message = make_train(trainee, assignment_id=assignment_id, may_stop_early=True)
        tx.put(
            AssignmentRow(assignment_id=assignment_id, kind="train", message=message, metrics={})
        )

    def evaluate(self, tx: Transaction) -> None:
        rows = [row for row in tx.tables.checkpoints.values() if row.state == "present"]
        if not rows:
            return
        drawn = [self.data.draw(st.sampled_from(rows)) for _ in tx.tables.policies]
        players = tuple(
            Player(player=PlayerId(row.policy), weights=row.weights)
            for row in drawn[: len(self.world.setup.seats)]
        )
        message = make_evaluate(
            assignment_id=self.number,
            pairings=(Pairing(seating=Seating(players=players), num_matches=16),),
        )
        tx.put(make_assignment(message))

    def end(self, tx: Transaction) -> None:
        rows = list(tx.tables.assignments.values())
        if rows:
            row = self.data.draw(st.sampled_from(rows))
            tx.put(replace(row, status=self.data.draw(st.sampled_from(["finished", "failed"]))))

    def tally(self, tx: Transaction) -> None:
        state = self.world.state
        digests = [row.weights_digest for row in tx.tables.checkpoints.values()]
        if len(set(digests)) < 2:
            return
        entrants = self.data.draw(
            st.lists(st.sampled_from(digests), min_size=2, max_size=2, unique=True)
        )
        wins = self.data.draw(st.integers(0, 16))
        row = make_tally_row(
            make_tally(
                tuple(entrants),
                (0, 1, wins, 0, 16 - wins),
                matches=16,
                return_sum=(float(wins), float(16 - wins)),
                return_sum_of_squares=(float(wins), float(16 - wins)),
                length_sum=160,
            ),
            tx.tables.num_tallies + 1,
            assignment_id=self.number,
        )
        tx.put(row)
        tx.follow(state.league.add_tally(row))


@made_once
def played(steps: int) -> World:
    """Return a world after some steps of the rules."""
    return make_world(EAGER, joined=2, steps=steps)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_indexes_follow_random_rows(data: st.DataObject) -> None:
    """After some steps of the rules, in which every index was made."""
    world = played(data.draw(st.sampled_from([0, 4, 12])))
    rows = RandomRows(world, data)
    assert_indexes_follow_the_tables(world)  # this makes the indexes that are built on first use
    for _ in range(data.draw(st.integers(1, 12))):
        rows.put()
    assert_indexes_follow_the_tables(world)


def test_an_index_that_is_not_fed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: without its rows the queue still has policies that were leased."""
    world = played(12)
    assert_indexes_follow_the_tables(world)
    monkeypatch.setattr(type(world.state.indexes.training_queue), "apply", lambda *_: None)
    policy = next(iter(world.state.tables.policies.values()))
    tx = world.state.begin(Now(monotonic_s=world.now_s, utc=""))
    for row in list(world.state.tables.policies.values()):
        later = row.agent_steps + (0 if row.policy == policy.policy else 5000)
        tx.put(replace(row, state="active", pending={}, agent_steps=later))
    with pytest.raises(AssertionError):
        assert_indexes_follow_the_tables(world)
