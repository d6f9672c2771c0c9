"""Newcomers play themselves first; then the pairs that tell most, in every seat equally often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from arena.types import RANDOM_BOT, LearnerId, PolicyId, Seating
from arena.wire.messages import Evaluate, Train
from populations.controller.evaluation.pairings import (
    MATCHES_PER_SEATING,
    VALIDATION_MATCHES,
    newcomers,
    validated_by,
)
from populations.controller.state.events import AssignmentFailed
from populations.records.rows import AssignmentRow
from tests.populations.controller.simulated import DUEL, TAG, World, made_once, make_world, tag_spec
from tests.populations.rows import make_failed

ALONE = {**DUEL, "learners": 1}


def evaluations(world: World) -> list[Evaluate]:
    """Those that were decided, in order."""
    found = {message.assignment_id: message for message in world.messages(Evaluate)}
    return [found[key] for key in sorted(found)]


def ended(world: World) -> list[AssignmentRow]:
    """Finished assignments, in order."""
    rows = [row for row in world.committed if isinstance(row, AssignmentRow)]
    return [row for row in rows if row.status == "finished"]


def seated(message: Evaluate) -> Iterator[Seating]:
    for pairing in message.pairings:
        yield pairing.seating


@made_once
def after(steps: int, document: dict[str, object] = ALONE) -> World:
    return make_world(document, joined=1, steps=steps)


def test_the_first_evaluation_is_everybody_against_itself() -> None:
    first = evaluations(after(30))[0]
    policies = [f"player/p{index:03d}" for index in range(4)]
    assert [[p.player for p in seating.players] for seating in seated(first)] == [
        [policy, policy] for policy in policies
    ]
    assert {pairing.num_matches for pairing in first.pairings} == {VALIDATION_MATCHES}


def test_nobody_is_rated_by_matches_against_itself() -> None:
    world = make_world(ALONE, joined=1)
    while not any(row.kind == "evaluate" for row in ended(world)):
        world.step()
    assert [row.matches for row in ended(world) if row.kind == "evaluate"] == [16]
    assert not world.state.league.tables.records
    validated = [row.validated_generation for row in world.state.tables.policies.values()]
    # Weights of the present generation are validated, so further training needs no new validation.
    assert validated == [0, 0, 0, 0]


def test_everybody_has_every_seat_equally_often() -> None:
    counts: Counter[tuple[str, int]] = Counter()
    for message in evaluations(after(60)):
        for pairing in message.pairings:
            for seat, player in enumerate(pairing.seating.players):
                counts[player.player, seat] += pairing.num_matches
    players = {player for player, _ in counts}
    assert len(players) > 4
    assert all(counts[player, 0] == counts[player, 1] for player in players)


def test_each_evaluation_keeps_the_zero_of_the_scale() -> None:
    world = after(60)
    played = [
        m for m in evaluations(world) if not list(validated_by(world.state.league, iter([m])))
    ]
    assert len(played) > 3
    for message in played:
        assert any(RANDOM_BOT in [p.player for p in seating.players] for seating in seated(message))
        assert all(pairing.num_matches >= MATCHES_PER_SEATING // 2 for pairing in message.pairings)


def test_nobody_meets_weights_that_are_its_own() -> None:
    world = after(150)
    assert world.events("exploited"), "somebody has a donor's weights"
    for message in evaluations(world):
        if list(validated_by(world.state.league, iter([message]))):
            continue
        for seating in seated(message):
            digests = [p.weights.digest if p.weights else p.player for p in seating.players]
            assert len(set(digests)) == 2


@pytest.mark.slow
def test_predators_meet_prey() -> None:
    world = make_world(TAG, tag_spec())
    world.join(populations=("predator",))
    world.join(populations=("prey",))
    world.steps(80)
    played = [
        seating
        for message in evaluations(world)
        if not list(validated_by(world.state.league, iter([message])))
        for seating in seated(message)
    ]
    assert played
    for seating in played:
        first, second = (player.player for player in seating.players)
        assert first == RANDOM_BOT or first.startswith("predator/")
        assert second == RANDOM_BOT or second.startswith("prey/")


def fail(world: World, learner: LearnerId, message: Evaluate | Train) -> None:
    failed = make_failed(message, reason="its hook raised")
    world.handle(AssignmentFailed(learner=learner, failed=failed))


@pytest.mark.parametrize("culprit", ["player/p000", "player/p002"])
def test_who_breaks_alone_is_quarantined_and_the_run_goes_on(culprit: str) -> None:
    """One policy's weights cannot play: every evaluation with them fails."""
    world = make_world({**ALONE, "pbt": {"exploit": "none"}})
    learner = world.join()
    for _ in range(600):
        if len(world.events("quarantined")) == 2:
            break
        queue = world.given[learner]
        message = queue[0] if queue else None
        players = (
            {player.player for seating in seated(message) for player in seating.players}
            if isinstance(message, Evaluate)
            else set()
        )
        if message is not None and culprit in players:
            queue.pop(0)
            fail(world, learner, message)
        else:
            world.step()
    quarantined = [event.subject for event in world.events("quarantined")]
    # The second quarantine is final: without PBT a policy continues once with half the learning
    # rate.
    assert quarantined == [culprit, culprit]
    assert world.state.tables.policies[PolicyId(culprit)].state == "quarantined"
    assert not world.state.phase.failed
    assert (
        len(newcomers(world.state.settings.setup, world.state.league, world.state.blame.ledger))
        == 0
    )
