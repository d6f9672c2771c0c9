"""After training: until everybody is known, then the championship."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from msgspec.structs import replace

from arena.checkpoints.manifest import Manifest
from arena.environment_spec import EnvironmentSpec
from arena.types import RANDOM_BOT, AssignmentId, Entrant, Tally, trainee_entrant
from arena.wire.messages import Evaluate, Finished, Train
from populations.controller.evaluation.finals import (
    ANCHOR_MATCHES,
    CONTENDER_PROBABILITY,
    FINAL_DEVIATION,
    FINAL_MATCHES,
    MAX_CONTENDERS,
    TOURNAMENT_MATCHES,
    final_pairings,
    is_decided,
    is_time_over,
    longest_s,
)
from populations.controller.evaluation.pairings import (
    MATCHES_PER_SEATING,
    draw_pairings,
    evaluation_pool,
)
from populations.controller.evaluation.share import MAX_EVALUATION_S, MIN_MATCHES
from populations.controller.evaluation.share import match_s as match_time
from populations.controller.state.events import Now
from populations.controller.state.ledger import Outcome
from populations.controller.state.state import make_state
from populations.league.standings import champion, standings
from populations.ratings.model import probability_positive
from populations.records.rows import AssignmentRow
from tests.populations.controller.simulated import (
    DUEL,
    TAG,
    SimpleLearner,
    World,
    make_world,
    tag_spec,
)
from tests.populations.rows import make_spec


def trio_spec() -> EnvironmentSpec:
    """Three agents in turn with equal spaces."""
    return make_spec("tests.trio:env", ("first", "second", "third"))


def finished(document: dict[str, object] | None = None, gain: float | None = None) -> World:
    world = make_world({**DUEL, **(document or {})})
    if gain is not None:
        world.learning = lambda trainee: gain
    world.join()
    world.join()
    world.run()
    assert world.state.tables.run.state == "finished"
    return world


@pytest.mark.slow
def test_at_the_end_every_last_checkpoint_is_known() -> None:
    world = finished()
    known = evaluation_pool(
        world.state.settings, world.state.indexes, world.state.blame.ledger, None
    )
    deviations = known.deviations()
    policies = [i for i, player in enumerate(known.players) if player.kind == "policy"]
    assert len(policies) >= 3
    for index in policies:
        player = known.players[index]
        played = world.state.league.record("player", player.entrant).matches
        assert deviations[index] <= FINAL_DEVIATION or played >= FINAL_MATCHES
    assert is_decided(world.state)


def test_where_matches_take_long_evaluations_are_short_and_finals_end() -> None:
    """Four seconds each: all that finals want would be hours."""
    world = make_world(DUEL)
    assert isinstance(world.learner, SimpleLearner)
    world.learner.match_s = match_s = 4.0
    world.join()
    world.join()
    world.run()
    state = world.state
    assert state.tables.run.state == "finished"
    (stopped,) = world.events("finals_stopped")
    assert is_time_over(state.indexes.pending_matches, state.measured)
    assert state.phase.finals is not None
    assert state.phase.finals.duration_s <= longest_s(
        training_s=state.tables.run.training_s, num_learners=2
    )
    assert stopped.data["over_s"] == max(-state.phase.finals.left_s, 0.0)
    sizes = [
        sum(pairing.num_matches for pairing in message.pairings) for message in evaluations(world)
    ]
    # Only the duration of the first matches, of new players, is unknown.
    assert max(sizes[1:]) * match_s <= MAX_EVALUATION_S + 8 * match_s
    assert match_time(state.measured) == pytest.approx(match_s)
    resumed = make_state(state.settings.config, state.settings.setup, state.tables)
    assert (match_time(resumed.measured) or 0.0) >= match_s


def test_a_newcomer_that_failed_plays_where_there_is_nothing_else_to_be_played() -> None:
    """The other policy is quarantined, and no ghost is left."""
    world = make_world(
        {**DUEL, "populations": {"player": {"size": 2}}, "learners": 1}, joined=1, steps=6
    )
    state, tx = world.state, world.state.begin(Now(monotonic_s=world.now_s, utc=""))
    newcomer, other = state.tables.policies.values()
    for row in list(state.tables.assignments.values()):
        tx.put(replace(row, status="failed"))
    for ghost in list(state.tables.ghosts.values()):
        tx.put(replace(ghost, corrupt=True))
    tx.put(replace(other, state="quarantined", validated_generation=other.generation))
    tx.put(replace(newcomer, validated_generation=-1))
    state.blame.ledger.add(
        Outcome(
            assignment_id=AssignmentId(1000),
            kind="code",
            is_evaluation=True,
            suspects=(trainee_entrant(newcomer.policy, generation=newcomer.generation),),
            place="slot 0",
            learner=next(iter(state.crew.learners)),
        )
    )
    state.phase.name = "evaluating"
    for pairings in (
        final_pairings(state, tx, num_matches=4),
        draw_pairings(state, tx, num_matches=4),
    ):
        (pairing,) = pairings
        assert {str(player.player) for player in pairing.seating.players} == {newcomer.policy}


@pytest.mark.slow
def test_seconds_decide_nothing_in_deterministic_mode() -> None:
    world = make_world({**DUEL, "deterministic": True, "learners": 1})
    assert isinstance(world.learner, SimpleLearner)
    world.learner.match_s = 4.0
    world.join()
    world.run()
    assert world.state.tables.run.state == "finished"
    assert not world.events("finals_stopped")
    # The remainder fills no whole seating; 60 s would be 15 matches.
    num_matches = max(sum(p.num_matches for p in m.pairings) for m in evaluations(world))
    assert num_matches > MIN_MATCHES - MATCHES_PER_SEATING


def evaluations(world: World) -> list[Evaluate]:
    """Each that was given out, once, in order."""
    return list({message.assignment_id: message for message in world.messages(Evaluate)}.values())


def met(world: World, first: Entrant, second: Entrant) -> int:
    """Matches of two by going through all results."""
    return sum(
        round(outcome.matches)
        for (home, away, _), outcome in world.state.league.results.items()
        if {home[1], away[1]} == {first, second}
    )


def test_the_champion_has_met_everybody_who_may_be_better() -> None:
    world = finished()
    lines = standings(world.state.league)["player"]
    best = champion(lines)
    assert best is not None
    ratings = world.state.fits.ratings("player")
    rivals = 0
    for line in lines:
        if line.kind == "bot" or line.weights in (None, best.weights) or line.rating is None:
            continue
        difference = ratings.difference(str(line.weights), str(best.weights))
        assert difference is not None
        if probability_positive(*difference) >= CONTENDER_PROBABILITY:
            rivals += 1
            if rivals < MAX_CONTENDERS:
                assert met(world, Entrant(str(line.weights)), Entrant(str(best.weights))) >= (
                    TOURNAMENT_MATCHES - 8
                )


@pytest.mark.parametrize("gain", [None, 0.0])
@pytest.mark.parametrize("seed", [7, 11])
def test_the_champion_has_met_the_anchor_that_its_rating_is_about(
    seed: int, gain: float | None
) -> None:
    """Ratings of ghosts of ghosts are a long chain; the sum is checked by what it is about."""
    # Among equals the policy with the most training is champion, whatever its bound is.
    world = finished({"seed": seed, "populations": {"player": {"size": 3}}}, gain)
    best = champion(standings(world.state.league)["player"])
    assert best is not None
    assert met(world, Entrant(str(best.weights)), Entrant(RANDOM_BOT)) >= ANCHOR_MATCHES - 8


@pytest.mark.slow
def test_the_tournament_is_said_with_its_contenders() -> None:
    """Skills that hardly differ: several may be the best."""
    world = make_world(DUEL, joined=1, learning=lambda trainee: 1.0)
    world.run()
    said = world.events("tournament_assigned")
    assert said
    contenders = said[0].data["contenders"]
    assert isinstance(contenders, list)
    assert len(contenders) >= 2
    assert said[0].data["matches_per_pair"] == TOURNAMENT_MATCHES


@dataclass(slots=True, kw_only=True)
class GreedyLearner(SimpleLearner):
    """Without chance, who wins once in some seats wins there always."""

    def carry_out(self, message: Train | Evaluate) -> tuple[Finished, dict[str, Manifest]]:
        finished, manifests = SimpleLearner.carry_out(self, message)
        if isinstance(message, Train):
            return finished, manifests
        return replace(finished, tallies=tuple(map(self._repeated, finished.tallies))), manifests

    def _repeated(self, tally: Tally) -> Tally:
        if Entrant(RANDOM_BOT) in tally.entrants or not tally.pairs:
            return tally
        wins = tally.matches if tally.entrants[0] < tally.entrants[1] else 0
        pair = replace(tally.pairs[0], wins=wins, draws=0, losses=tally.matches - wins)
        return replace(tally, pairs=(pair,), distinct=1)


def test_games_that_repeat_are_not_waited_for() -> None:
    """In deterministic mode no time ends finals that wait for 128 games where there are two."""
    document = {
        **DUEL,
        "deterministic": True,
        "learners": 1,
        "stop": {"agent_steps_per_policy": 2000},
        "evaluation": {"share": 0.3, "greedy": True},
    }
    world = make_world(document)
    assert world.state.settings.setup.repeats_games
    world.learner = GreedyLearner(
        setup=world.setup,
        model=world.learner.model,
        landscapes={},
        episode_length=5,
        matches_per_seating=4,
        learning=lambda trainee: 1.0,
    )
    world.join()
    world.run()
    assert world.state.tables.run.state == "finished"
    # Each fit may find other contenders, but a pair plays only once.
    assert 1 <= len(world.events("tournament_assigned")) <= 4


def test_who_stands_alone_plays_no_tournament() -> None:
    """One policy far ahead of its own past needs no confirmation against nobody."""
    world = make_world(
        {**DUEL, "populations": {"player": {"size": 1}}}, joined=1, learning=lambda trainee: 400.0
    )
    world.run()
    assert world.state.tables.run.state == "finished"
    known = evaluation_pool(
        world.state.settings, world.state.indexes, world.state.blame.ledger, None
    )
    assert np.isfinite(known.deviations()).all()
    assert not world.events("tournament_assigned")


@pytest.mark.slow
def test_two_populations_come_to_an_end() -> None:
    world = make_world(TAG, tag_spec())
    world.join(populations=("predator",))
    world.join(populations=("prey",))
    world.run()
    assert world.state.tables.run.state == "finished"
    assert is_decided(world.state)


def test_whether_all_is_played_follows_from_the_rows() -> None:
    """So a resumed run plays what is missing and no more."""
    world = make_world(DUEL, joined=1)
    while not world.state.tables.ratings:
        world.step()
    assert not is_decided(world.state)
    world.run()
    state = world.state
    again = make_state(state.settings.config, state.settings.setup, state.tables)
    again.fits.last = state.fits.last
    assert is_decided(again)


def test_the_final_matches_are_far_from_everybody_against_everybody() -> None:
    world = finished()
    (stopped,) = world.events("training_stopped")
    in_finals = sum(
        row.matches
        for row in world.committed[world.committed.index(stopped) :]
        if isinstance(row, AssignmentRow)
        and isinstance(row.message, Evaluate)
        and row.status == "finished"
    )
    num_players = len(
        evaluation_pool(
            world.state.settings, world.state.indexes, world.state.blame.ledger, None
        ).players
    )
    everybody = num_players * (num_players - 1) // 2 * TOURNAMENT_MATCHES
    assert 0 < in_finals < everybody / 5


def test_populations_of_one_side_are_not_waited_for() -> None:
    """They never meet; in deterministic mode no time ends the finals either."""
    document: dict[str, object] = {
        **DUEL,
        "environment": {
            "id": "tests.trio:env",
            "num_envs": 8,
            "sides": {"x": ["first", "second"], "y": ["third"]},
        },
        "populations": {
            "a": {"agents": ["first"], "size": 2},
            "b": {"agents": ["second"], "size": 2},
            "c": {"agents": ["third"], "size": 2},
        },
        "deterministic": True,
        "learners": 1,
        "stop": {"agent_steps_per_policy": 2000},
    }
    world = make_world(document, trio_spec(), joined=1)
    world.run(max_steps=600)
    assert world.state.tables.run.state == "finished"
