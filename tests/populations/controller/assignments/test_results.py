"""The end of an assignment: all that follows is in one transaction."""

from __future__ import annotations

from msgspec import structs

from arena.types import LearnerId
from arena.wire.messages import Evaluate, Train
from populations.controller.assignments.results import mark_unneeded
from populations.controller.state.events import RemoveCheckpoints, SendMessage
from populations.records.aggregates import PairRow, RecordRow
from populations.records.rows import AssignmentRow, CheckpointRow, TallyRow
from tests.populations.controller.eager import transaction
from tests.populations.controller.simulated import DUEL, World, make_world


def worked(world: World, learner: LearnerId, kind: type[Train | Evaluate]) -> None:
    """Go on until a learner's next assignment is of a kind, and trains if that is training."""
    for _ in range(200):
        message = world.given[learner][0]
        if isinstance(message, kind) and (isinstance(message, Evaluate) or message.agent_steps):
            return
        event = world.work(learner)
        assert event is not None
        world.handle(event)
        world.fit()
        world.explore()
    raise AssertionError(f"no {kind.__name__} was given")


def test_training_commits_checkpoint_tallies_counters_and_its_own_end() -> None:
    world = make_world()
    learner = world.join()
    worked(world, learner, Train)
    before = world.state.tables.run
    event = world.work(learner)
    assert event is not None
    tx = world.handle(event)
    finished = event.finished
    (row,) = (row for row in tx.rows if isinstance(row, AssignmentRow) and row.status == "finished")
    made = [row for row in tx.rows if isinstance(row, CheckpointRow) and row.state == "present"]
    assert [one.key for one in made] == [one.checkpoint.key for one in finished.checkpoints]
    assert sum(isinstance(one, TallyRow) for one in tx.rows) == len(finished.tallies)
    run = world.state.tables.run
    assert run.agent_steps - before.agent_steps == row.agent_steps > 0
    assert run.matches - before.matches == row.matches == sum(t.matches for t in finished.tallies)
    assert run.training_assignments - before.training_assignments == 1
    policy = world.state.tables.policies[made[0].policy]
    assert policy.agent_steps == made[0].agent_steps


def test_the_acknowledgement_is_the_first_command() -> None:
    world = make_world()
    learner = world.join()
    event = world.work(learner)
    assert event is not None
    first = world.handle(event).commands[0]
    assert isinstance(first, SendMessage)
    assert (first.learner, first.message) == (learner, world.acknowledged[-1])


def test_a_result_that_does_not_fit_its_assignment_is_a_failure_and_changes_no_policy() -> None:
    world = make_world()
    learner = world.join()
    worked(world, learner, Train)
    event = world.work(learner)
    assert event is not None
    (key,) = event.manifests
    manifest = event.manifests[key]
    # The result has more steps than the assignment.
    jumped = structs.replace(manifest, agent_steps=manifest.agent_steps + 10**6)
    before, played = dict(world.state.tables.policies), world.state.tables.run.matches
    tx = world.handle(structs.replace(event, manifests={key: jumped}))
    assert not any(isinstance(row, CheckpointRow | TallyRow) for row in tx.rows)
    assert dict(world.state.tables.policies) == before
    assert world.state.tables.run.matches == played
    (failed,) = world.events("assignment_failed")
    assert failed.subject == str(event.finished.assignment_id)
    assert "does not fit its assignment" in str(failed.data["reason"])


def test_an_evaluation_commits_each_row_that_its_tallies_change_once() -> None:
    world = make_world()
    learner = world.join()
    world.steps(10)
    worked(world, learner, Evaluate)
    event = world.work(learner)
    assert event is not None
    tx = world.handle(event)
    folded = [row.key for row in tx.rows if isinstance(row, RecordRow | PairRow)]
    assert folded
    assert len(set(folded)) == len(folded)
    played = {entrant for tally in event.finished.tallies for entrant in tally.entrants}
    assert {key[1] for key in folded if len(key) == 2} <= played


def test_what_nothing_needs_is_marked_once_and_removed_after_the_commit() -> None:
    world = make_world({**DUEL, "checkpoints": {"keep": 1}, "ghosts": {"every_agent_steps": 10**6}})
    learner = world.join()
    removed: list[str] = []
    for _ in range(60):
        event = world.work(learner)
        if event is None:
            break
        tx = world.handle(event)
        removed += [
            k for one in tx.commands if isinstance(one, RemoveCheckpoints) for k in one.keys
        ]
        world.fit()
        world.explore()
    assert removed
    assert len(set(removed)) == len(removed)
    again = transaction(world)
    mark_unneeded(world.state.indexes, again)
    assert again.rows == []
