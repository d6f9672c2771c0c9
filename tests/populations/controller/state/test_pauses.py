"""The pause while a disk refuses: its waits, its tries and its end."""

from __future__ import annotations

from arena.types import PlayerId
from populations.controller.state import pauses
from populations.controller.state.commands import LinkGhosts
from populations.controller.state.events import GhostsLinked
from populations.controller.state.transaction import Transaction
from tests.populations.controller.eager import transaction
from tests.populations.controller.simulated import World, make_world


def refused(world: World, **ghosts: tuple[PlayerId, ...]) -> Transaction:
    tx = transaction(world)
    pauses.refuse(world.state.blame, tx, reason="no space", **ghosts)
    return tx


def retried(world: World, *, after_s: float) -> Transaction:
    world.now_s += after_s
    tx = transaction(world)
    pauses.retry(world.state.blame.pause, tx)
    return tx


def test_waits_double_from_try_to_try_up_to_a_minute() -> None:
    world = make_world()
    waits = []
    refused(world)
    for _ in range(8):
        assert world.state.blame.pause is not None
        waits.append(world.state.blame.pause.wait_s)
        retried(world, after_s=world.state.blame.pause.wait_s)
        refused(world)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


def test_refusals_while_it_waits_change_no_wait() -> None:
    world = make_world()
    refused(world)
    world.now_s += 0.5
    refused(world)
    pause = world.state.blame.pause
    assert pause is not None
    assert (pause.num_refusals, pause.wait_s, pause.is_trying) == (2, 1.0, False)
    retried(world, after_s=0.4)
    assert not pause.is_trying
    retried(world, after_s=0.1)
    assert pause.is_trying


def test_nothing_is_given_out_until_the_try_and_one_assignment_then() -> None:
    world = make_world()
    learner = world.join()
    assert pauses.may_give(world.state.crew.learners, world.state.blame.pause)
    refused(world)
    assert not pauses.may_give(world.state.crew.learners, world.state.blame.pause)
    retried(world, after_s=1.0)
    assert pauses.may_give(world.state.crew.learners, world.state.blame.pause)
    world.state.crew.learners[learner].held[0].given_s = world.now_s
    assert not pauses.may_give(world.state.crew.learners, world.state.blame.pause)


def test_a_try_that_succeeds_ends_it_and_one_before_it_does_not() -> None:
    world = make_world()
    refused(world)
    pauses.accept(world.state.blame, transaction(world))
    assert world.state.blame.pause is not None
    retried(world, after_s=1.0)
    tx = transaction(world)
    pauses.accept(world.state.blame, tx)
    assert world.state.blame.pause is None
    assert [row.kind for row in tx.rows if hasattr(row, "kind")] == ["storage_recovered"]


def test_ghosts_that_were_refused_are_linked_again_first() -> None:
    world = make_world(joined=1, steps=10)
    ghost = next(iter(world.state.tables.ghosts.values()))
    refused(world, ghosts=(ghost.player,))
    assert pauses.is_unlinked(world.state.tables, world.state.blame.pause, ghost.key)
    assert not pauses.is_unlinked(world.state.tables, world.state.blame.pause, "elsewhere")
    tx = retried(world, after_s=1.0)
    assert [one.ghosts for one in tx.commands if isinstance(one, LinkGhosts)] == [(ghost,)]
    assert not pauses.may_give(world.state.crew.learners, world.state.blame.pause), (
        "ghosts come first"
    )
    linked = GhostsLinked(players=(ghost.player,), refused=(), reason="")
    pauses.take_links(world.state.blame, transaction(world), linked)
    assert world.state.blame.pause is None
