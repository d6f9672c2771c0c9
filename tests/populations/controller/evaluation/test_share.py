"""Evaluation has its share of learner seconds, from the first minute on and with many learners."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from arena.types import RANDOM_BOT, AssignmentId, PlayerId
from arena.wire.messages import Evaluate, Train
from populations.controller.evaluation.pairings import (
    VALIDATION_MATCHES,
    draw_pairings,
    evaluation_pool,
    missing_matches,
    validated_by,
)
from populations.controller.evaluation.share import (
    MAX_EVALUATION_S,
    earned_matches,
    match_s,
    reached,
    short_of,
)
from populations.controller.state.events import Now
from populations.controller.state.leases import MatchTimes
from populations.controller.state.state import make_state
from tests.populations.controller.simulated import DUEL, SimpleLearner, World, make_world
from tests.populations.rows import make_assignment, make_evaluate

MANY = {**DUEL, "populations": {"player": {"size": 12}}, "stop": {"agent_steps_per_policy": 3000}}


def open_evaluations(world: World) -> list[Evaluate]:
    rows = world.state.tables.assignments.values()
    return [row.message for row in rows if isinstance(row.message, Evaluate)]


def players(message: Evaluate) -> Iterator[PlayerId]:
    for pairing in message.pairings:
        yield from (player.player for player in pairing.seating.players)


@pytest.mark.slow
def test_with_many_learners_several_evaluations_are_open_and_the_share_is_had() -> None:
    world = make_world(MANY)
    for _ in range(8):
        world.join()
    most_open = 0
    while world.state.phase.name == "training":
        world.step()
        asked = [sorted(set(players(message))) for message in open_evaluations(world)]
        most_open = max(most_open, len(asked))
        newcomers = list(validated_by(world.state.league, iter(open_evaluations(world))))
        assert len(newcomers) == len(set(newcomers)), "one validation of each at a time"
    assert most_open > 2
    assert reached(world.state.measured) == pytest.approx(0.3, abs=0.04)


def test_evaluations_that_are_open_at_once_are_about_others() -> None:
    """Nothing is known of twelve policies: each evaluation is about some that lack matches."""
    world = make_world({**MANY, "evaluation": {"share": 0.02}}, joined=1)
    state = world.state
    while any(row.validated_generation < 0 for row in state.tables.policies.values()):
        world.step()
    assert not any(row.entrants for row in state.tables.ratings.values())
    tx = state.begin(Now(monotonic_s=world.now_s, utc=""))
    served: set[PlayerId] = set()
    for number in (9001, 9002):
        known = evaluation_pool(state.settings, state.indexes, state.blame.ledger, None)
        lacking = {
            known.players[index].player.player
            for index in missing_matches(
                state.settings.config, state.league, state.indexes.pending_matches, known
            )
        }
        message = make_evaluate(
            assignment_id=number, pairings=draw_pairings(state, tx, num_matches=64)
        )
        pairs = [{one.player for one in pairing.seating.players} for pairing in message.pairings]
        about = [pair & lacking for pair in pairs if RANDOM_BOT not in pair]
        assert all(about), "who has all matches meets somebody who has not"
        served |= set[PlayerId]().union(*about)
        row = make_assignment(message)
        state.indexes.pending_matches.apply(
            row, num_tallies=state.tables.num_tallies, estimate=state.fits.estimate
        )
    assert len(served) >= 8


@pytest.mark.slow
def test_where_matches_take_long_training_goes_on_from_the_beginning() -> None:
    """Matches of 2.5 s: the first validation of four newcomers was 40 s of one learner in two."""
    document = {"evaluation": {"share": 0.1}, "stop": {"agent_steps_per_policy": 50_000}}
    world = make_world({**DUEL, **document, "pbt": {"exploit": "none"}})
    assert isinstance(world.learner, SimpleLearner)
    world.learner.match_s = 2.5
    world.learner.agent_steps_per_s = 2.0  # an episode of five steps takes as long as a match
    world.join()
    world.join()
    target_s = world.state.settings.config.assignment.target_s
    seen: set[AssignmentId] = set()
    sizes = []
    while world.state.phase.name == "training":
        world.step()
        run = world.state.tables.run
        if world.state.phase.name != "training":
            break
        for message in open_evaluations(world):
            if message.assignment_id not in seen:
                seen.add(message.assignment_id)
                seconds = 2.5 * sum(pairing.num_matches for pairing in message.pairings)
                sizes.append(seconds)
                short_s = 0.1 * (run.training_s + run.evaluation_s) - run.evaluation_s
                assert seconds <= min(short_s + target_s, MAX_EVALUATION_S) + 2.5 * 3
    assert sizes[0] == 2.5 * VALIDATION_MATCHES, "as little as there is"
    assert len(sizes) >= 4


def test_the_time_of_a_match_is_known_from_training_then_from_the_last_matches() -> None:
    world = make_world()
    assert isinstance(world.learner, SimpleLearner)
    assert match_s(world.state.measured) is None, "nothing is known"
    world.learner.match_s = 0.01
    world.join()
    while not world.state.tables.run.training_assignments:
        world.step()
    assert match_s(world.state.measured) == pytest.approx(5 / 1000.0), "an episode of five steps"
    while world.state.tables.run.evaluation_assignments < 2:
        world.step()
    assert match_s(world.state.measured) == pytest.approx(0.01)
    world.learner.match_s = 0.04
    # Games are longer now, which only the latest of several evaluations show.
    while match_s(world.state.measured) != pytest.approx(0.04, rel=0.05):
        assert not world.over
        world.step()
    (learner,) = world.state.crew.learners.values()
    one_s = match_s(world.state.measured, learner)
    assert earned_matches(world.state.settings, one_s, 1000.0) == pytest.approx(
        MAX_EVALUATION_S / 0.04, rel=0.1
    )
    assert earned_matches(world.state.settings, one_s, 0.1) == pytest.approx(3.1 / 0.04, rel=0.1)


def test_a_run_that_goes_on_after_its_finals_has_no_debt() -> None:
    world = make_world(joined=1)
    world.run()
    tables = world.state.tables
    run = replace(tables.run, training_s=100.0, evaluation_s=90.0, state="running")
    tables.run = run
    resumed = make_state(world.state.settings.config, world.setup, tables)
    assert short_of(resumed.measured, resumed.indexes.pending_matches, resumed.crew) == 0.0
    tables.run = replace(run, training_s=110.0)
    assert short_of(
        resumed.measured, resumed.indexes.pending_matches, resumed.crew
    ) == pytest.approx(3.0)


def test_policies_that_pbt_waits_for_have_their_matches_first() -> None:
    world = make_world({**MANY, "evaluation": {"share": 0.05}}, joined=1, steps=80)
    state = world.state
    known = evaluation_pool(state.settings, state.indexes, state.blame.ledger, None)
    rows = {
        index: state.tables.policies[player.player.player]  # type: ignore[index]
        for index, player in enumerate(known.players)
        if player.kind == "policy"
    }
    missing = missing_matches(
        state.settings.config, state.league, state.indexes.pending_matches, known
    )
    assert missing
    marks = [rows[index].ready_at + 1000 - rows[index].agent_steps for index in missing]
    late = [max(mark, 0) for mark in marks]
    assert late == sorted(late), "the one that is due first comes first"
    for index, number in missing.items():
        assert number == 20 - state.league.matches_in_generation(rows[index])
    assert all(
        state.league.matches_in_generation(row) >= 20
        for index, row in rows.items()
        if index not in missing
    )
    tx = state.begin(Now(monotonic_s=world.now_s, utc=""))
    pairings = draw_pairings(state, tx, num_matches=128)
    if not any(len(set(pairing.seating.players)) == 1 for pairing in pairings):
        assert known.players[next(iter(missing))].player in pairings[0].seating.players


def test_evaluations_that_fail_are_no_longer_counted() -> None:
    world = make_world()
    learner = world.join()
    while not open_evaluations(world):
        world.step()
    (message,) = open_evaluations(world)
    num_open = sum(pairing.num_matches for pairing in message.pairings)
    assert world.state.indexes.pending_matches.num_open == num_open
    row = world.state.tables.assignments[message.assignment_id]
    failed = replace(row, status="failed")
    world.state.indexes.pending_matches.apply(
        failed, num_tallies=0, estimate=world.state.fits.estimate
    )
    assert world.state.indexes.pending_matches.num_open == 0
    assert world.given[learner]
    assert any(isinstance(one, Train | Evaluate) for one in world.given[learner])


def test_a_stopwatch_that_shows_nothing_asks_for_no_endless_evaluation() -> None:
    """128 matches in no time led to 300 million in the next evaluation."""
    world = make_world(MANY, joined=1, steps=4)
    state = world.state
    state.measured.match_times = MatchTimes(matches=128.0, seconds=0.0)
    assert match_s(state.measured) != 1e-9
    (learner,) = state.crew.learners.values()
    learner.match_times = MatchTimes()
    one_s = match_s(state.measured, learner)
    assert earned_matches(state.settings, one_s, 5.0) < 100_000
