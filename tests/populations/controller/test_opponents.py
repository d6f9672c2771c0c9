"""Figures for matchmaking: results, ratings and scores, against the payoffs and the last fit."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from arena.types import AssignmentId, Digest, Entrant, PlayerId, Tally, trainee_entrant
from populations.candidates import FloatArray
from populations.controller.evolution.generations import begin_generation, explored_on
from populations.controller.opponents import make_request
from populations.controller.state.state import make_state
from populations.core import PRIOR_MATCHES
from populations.league.lineage import line_of
from populations.league.scores import rating_by_results
from populations.records.rows import Cause, PolicyRow, TallyRow
from tests.populations.controller.simulated import (
    CROWD,
    DUEL,
    TAG,
    World,
    crowd_spec,
    crowd_tally,
    make_world,
)
from tests.populations.controller.test_lineups import (
    SHORT,
    any_policy,
    played,
    training_tally,
    transaction,
)
from tests.populations.payoffs import record


def test_before_anything_is_known_all_is_even() -> None:
    world = make_world()
    policy = next(iter(world.state.tables.policies.values()))
    request = make_request(world.state.settings, world.state.indexes, policy, "player")
    assert len(request.ghosts) == len(request.latest) == 0
    assert np.isnan(request.trainee_rating)
    # Three other policies have a first checkpoint that was neither played nor rated.
    world = played(SHORT, steps=3)
    policy = next(iter(world.state.tables.policies.values()))
    request = make_request(world.state.settings, world.state.indexes, policy, "player")
    assert len(request.latest) > 0
    assert np.isnan(request.ratings(request.latest)).all()
    assert (request.predicted(request.latest) == 0.5).all()
    assert (request.scores(request.latest) == 0.5).all()


def test_scores_are_kept_until_the_next_evaluation() -> None:
    world = played(SHORT, steps=20)
    policy = any_policy(world.state.tables)
    pool = world.state.indexes.opponent_pools.pool("player")
    first = make_request(world.state.settings, world.state.indexes, policy, "player")
    scores = first.scores(first.ghosts)
    again = make_request(world.state.settings, world.state.indexes, policy, "player")
    assert again.scores(again.ghosts) is scores
    # Scores follow their candidates.
    some = first.ghosts.take(np.array([1, 0]))
    assert first.scores(some) == pytest.approx(scores[:2, :2][::-1, ::-1])
    world.state.league.tables.last_evaluation_sequence += 1
    renewed = make_request(world.state.settings, world.state.indexes, policy, "player")
    assert renewed.scores(renewed.ghosts) is not scores
    assert len(pool.scores) == 1


def test_results_are_those_of_the_payoffs() -> None:
    world = played(SHORT)
    state = world.state
    met = 0
    for policy in state.tables.policies.values():
        request = make_request(state.settings, state.indexes, policy, "player")
        line = line_of(state.tables.generations, state.league.payoff, request.entrant)
        records = [
            [record(state.league.payoff, generation, entrant) for generation in line]
            for entrant in request.ghosts.entrants
        ]
        # The half-life is 5000 matches, so these few do not fade visibly.
        wins = [sum(r.wins + r.draws / 2 for r in found) for found in records]
        losses = [sum(r.losses + r.draws / 2 for r in found) for found in records]
        assert request.record(request.ghosts)[0] == pytest.approx(wins, rel=0.1)
        assert request.record(request.ghosts)[1] == pytest.approx(losses, rel=0.1)
        rates = request.win_rates(request.ghosts)
        turned = request.ghosts.take(np.arange(len(rates))[::-1])
        assert request.win_rates(turned) == pytest.approx(rates[::-1], abs=1e-12)
        some = request.ghosts.take(np.array([2, 0]))
        assert request.win_rates(some) == pytest.approx([rates[2], rates[0]])
        met += int(np.count_nonzero(wins))
    assert met > 0


def records_of(world: World, policy: PolicyRow) -> FloatArray:
    """Wins and losses against all ghosts; of a resumed controller they are the same to the bit."""
    state = world.state
    resumed = make_state(state.settings.config, world.setup, state.tables)
    found = []
    for controller in (state, resumed):
        request = make_request(controller.settings, controller.indexes, policy, "player")
        found.append(np.array(request.record(request.ghosts)))
        # A second call must return the same, so nothing may be cached that the first one changed.
        assert np.array_equal(found[-1], request.record(request.ghosts))
    assert np.array_equal(found[0], found[1])
    return found[0]


def test_results_stay_with_a_policy_that_explores_and_fade_with_later_ones() -> None:
    world = played({**SHORT, "payoffs": {"half_life_matches": 10}})
    state = world.state
    policy = any_policy(state.tables)
    before = records_of(world, policy)
    met = int(before.sum(axis=0).argmax())
    assert before[:, met].sum() > 0.0
    for cause in ("explore", "quarantine"):
        policy = explored_on(state.fits, transaction(world), policy, cause=cause)
        assert np.array_equal(records_of(world, policy), before)
    ghost = make_request(state.settings, state.indexes, policy, "player").ghosts[met]
    own = trainee_entrant(policy.policy, generation=policy.generation)
    tally = training_tally(own, ghost.entrant, wins=8, losses=2)
    put_tally(world, tally)
    # The half-life is ten matches.
    expected = before.copy()
    expected[:, met] = 0.5 * before[:, met] + [8.0, 2.0]
    assert records_of(world, policy) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("cause", ["exploit", "reset", "immigrate"])
def test_results_begin_anew_with_other_weights(cause: Cause) -> None:
    world = played(SHORT)
    state = world.state
    policy = any_policy(state.tables)
    assert records_of(world, policy).sum() > 0.0
    policy = begin_generation(state.fits, transaction(world), policy, cause=cause, parent=None)
    assert records_of(world, policy).sum() == 0.0
    policy = explored_on(state.fits, transaction(world), policy, cause="explore")
    assert records_of(world, policy).sum() == 0.0


def test_of_many_sides_scores_are_those_of_the_results() -> None:
    world = make_world(CROWD, crowd_spec(), joined=1, steps=8)
    state = world.state
    request = make_request(state.settings, state.indexes, any_policy(state.tables), "player")
    one, other = request.ghosts.entrants[:2]
    assert request.scores(request.ghosts)[0, 1] == 0.5
    # Both orders occur, because a row has its players sorted by name.
    for sequence, (first, second, wins, points) in enumerate(
        ((one, other, 6, 6.0), (other, one, 1, 13.0)), start=1
    ):
        row = crowd_tally(
            Entrant(first),
            Entrant(second),
            wins=wins * 36,
            losses=(8 - wins) * 36,
            sequence=state.tables.num_tallies + sequence,
        )
        state.tables.put(row)
        state.league.add_tally(row)
        request = make_request(state.settings, state.indexes, any_policy(state.tables), "player")
        score = (points + 0.5 * PRIOR_MATCHES) / (8.0 * sequence + PRIOR_MATCHES)
        assert request.scores(request.ghosts)[0, 1] == pytest.approx(score)
        assert request.scores(request.ghosts)[1, 0] == pytest.approx(1.0 - score)


def put_tally(world: World, tally: Tally) -> None:
    """Commit a training tally."""
    tx = transaction(world)
    sequence = world.state.tables.num_tallies + 1
    row = TallyRow(sequence=sequence, assignment_id=AssignmentId(1), kind="train", tally=tally)
    tx.put(row)
    tx.follow(world.state.league.add_tally(row))


def test_a_new_ghost_is_found_among_those_it_has_met() -> None:
    world = played(SHORT)
    state = world.state
    policy, rival = list(state.tables.policies.values())[:2]
    request = make_request(state.settings, state.indexes, policy, "player")
    request.record(request.ghosts)
    own = trainee_entrant(policy.policy, generation=policy.generation)
    put_tally(world, training_tally(own, "f" * 64, wins=3, losses=1))
    assert request.entrant == own
    num_ghosts = len(records_of(world, policy)[0])
    ghost = next(iter(state.tables.ghosts.values()))
    transaction(world).put(
        replace(
            ghost,
            player=PlayerId(f"{rival.policy}@000000999999"),
            policy=rival.policy,
            weights_digest=Digest("f" * 64),
        )
    )
    found = records_of(world, policy)
    assert found.shape == (2, num_ghosts + 1)
    assert found[:, -1].tolist() == [3.0, 1.0]


@pytest.mark.slow
def test_predictions_are_by_ratings() -> None:
    world = played(DUEL, steps=120)
    state = world.state
    policy = any_policy(state.tables)
    row = state.tables.ratings["player"]
    ghosts = {Entrant(ghost.weights_digest) for ghost in state.tables.ghosts.values()}
    # Every second ghost is removed from the fit.
    known_now = [e not in ghosts or i % 2 == 0 for i, e in enumerate(row.entrants)]
    transaction(world).put(
        replace(
            row,
            entrants=tuple(e for e, keep in zip(row.entrants, known_now, strict=True) if keep),
            ratings=tuple(r for r, keep in zip(row.ratings, known_now, strict=True) if keep),
            deviations=tuple(d for d, keep in zip(row.deviations, known_now, strict=True) if keep),
        )
    )
    request = make_request(state.settings, state.indexes, policy, "player")
    ratings = request.ratings(request.ghosts)
    known = dict(zip(request.ghosts.entrants, ratings, strict=True))
    expected, num_inherited = [], 0
    for entrant in request.ghosts.entrants:
        # An unrated ghost counts as its nearest rated ancestor.
        line = [entrant, *state.league.ancestors(Digest(entrant))]
        rated = [known[name] for name in line if not np.isnan(known.get(name, np.nan))]
        num_inherited += np.isnan(known[entrant]) and bool(rated)
        gap = rated[0] - request.trainee_rating if rated else 0.0
        expected.append(1.0 / (1.0 + 10.0 ** (gap / 400.0)))
    assert num_inherited > 0
    assert request.predicted(request.ghosts) == pytest.approx(expected, abs=1e-9)
    for latest, predicted in zip(
        request.ratings(request.latest), request.predicted(request.latest), strict=True
    ):
        gap = 0.0 if np.isnan(latest) else latest - request.trainee_rating
        assert predicted == pytest.approx(1.0 / (1.0 + 10.0 ** (gap / 400.0)))


@pytest.mark.slow
def test_what_no_fit_knows_yet_is_rated_as_what_it_came_from() -> None:
    world = played(DUEL, steps=120)
    state = world.state
    policy = any_policy(state.tables)
    row = state.tables.ratings["player"]
    standing = state.league.standing_weights(policy)
    assert standing is not None
    rated = Entrant(standing)
    assert rated in row.entrants
    known = [entrant != rated for entrant in row.entrants]
    without = replace(
        row,
        entrants=tuple(e for e, keep in zip(row.entrants, known, strict=True) if keep),
        ratings=tuple(r for r, keep in zip(row.ratings, known, strict=True) if keep),
        deviations=tuple(d for d, keep in zip(row.deviations, known, strict=True) if keep),
    )
    transaction(world).put(without)
    left = dict(zip(without.entrants, without.ratings, strict=True))
    ancestors = map(Entrant, state.league.ancestors(standing))
    request = make_request(state.settings, state.indexes, policy, "player")
    assert request.trainee_rating == next(left[a] for a in ancestors if a in left)
    assert len(set(request.predicted(request.ghosts))) > 2


@pytest.mark.slow
def test_against_another_population_results_say_what_a_side_is_worth() -> None:
    world = played(TAG, steps=60)
    state = world.state
    policy = next(
        row
        for row in state.tables.policies.values()
        if row.population == "predator"
        and np.isfinite(make_request(state.settings, state.indexes, row, "prey").trainee_rating)
    )
    request = make_request(state.settings, state.indexes, policy, "prey")
    ratings = request.ratings(request.ghosts)
    wins, losses = request.record(request.ghosts)
    counts = np.isfinite(ratings) & (wins + losses > 0)
    assert counts.any()
    moved = rating_by_results(
        request.trainee_rating, ratings[counts], wins=wins[counts], losses=losses[counts]
    )
    assert moved != request.trainee_rating
    rated = request.ghosts.take(np.flatnonzero(np.isfinite(ratings)))
    gaps = request.ratings(rated) - moved
    assert request.predicted(rated) == pytest.approx(1.0 / (1.0 + 10.0 ** (gaps / 400.0)))


def test_against_the_latest_recent_checkpoints_of_the_same_generation_count() -> None:
    world = played(SHORT)
    state = world.state
    trainee, rival = list(state.tables.policies.values())[:2]
    rival = replace(rival, generation=5, agent_steps=10_000)
    state.tables.policies[rival.policy] = rival
    some = next(iter(state.tables.checkpoints.values()))
    own = trainee_entrant(trainee.policy, generation=9)
    # With a ghost every 1000 steps, ghosts from 9000 on are recent.
    for name, agent_steps, generation, wins, losses in (
        ("newest", 10_000, 5, 3, 1),
        ("recent", 9_000, 5, 2, 0),
        ("old", 8_999, 5, 7, 0),
        ("of another generation", 9_500, 4, 11, 0),
    ):
        state.tables.checkpoints[name] = replace(
            some,
            key=name,
            weights_digest=Digest(name),
            policy=rival.policy,
            agent_steps=agent_steps,
            generation=generation,
        )
        state.league.payoff.add(training_tally(own, name, wins=wins, losses=losses))
    request = make_request(state.settings, state.indexes, replace(trainee, generation=9), "player")
    wins_of, losses_of = request.record(request.latest)
    found = dict(zip(request.latest.policies, zip(wins_of, losses_of, strict=True), strict=True))
    assert found.pop(rival.policy) == (5.0, 1.0)
    assert set(found.values()) == {(0.0, 0.0)}


@pytest.mark.slow
def test_results_of_rivals_that_learned_beside_are_summed_in_one_order() -> None:
    """A resumed run has met them in the order of its rows."""
    found = []
    for order in (range(3, 9), range(8, 2, -1), (5, 3, 8, 6, 4, 7)):
        world = played({**SHORT, "payoffs": {"half_life_matches": 7}})
        state = world.state
        trainee, rival = list(state.tables.policies.values())[:2]
        row = next(iter(state.tables.generations.values()))
        line = {n: trainee_entrant(rival.policy, generation=n) for n in range(3, 9)}
        for number, entrant in line.items():
            state.tables.generations[entrant] = replace(
                row,
                entrant=entrant,
                policy=rival.policy,
                generation=number,
                cause="exploit" if number == 3 else "explore",
                parent=line.get(number - 1),
            )
        state.tables.policies[rival.policy] = replace(rival, generation=8)
        own = trainee_entrant(trainee.policy, generation=9)
        for number in order:
            # The results come several times, so that earlier ones have faded to fractions.
            for wins in (number**2, number, 2):
                tally = training_tally(own, line[number], wins=wins, losses=number)
                state.league.payoff.add(tally)
        request = make_request(
            state.settings, state.indexes, replace(trainee, generation=9), "player"
        )
        wins_of, losses_of = request.record(request.latest)
        at = list(request.latest.policies).index(rival.policy)
        found.append((float(wins_of[at]), float(losses_of[at])))
    assert len(set(found)) == 1
    assert found[0][0] > 12.0, "of all six"


@pytest.mark.slow
def test_ratings_and_scores_are_those_of_the_last_fit_and_the_evaluations() -> None:
    world = played(DUEL, steps=120)
    state = world.state
    policy = any_policy(state.tables)
    request = make_request(state.settings, state.indexes, policy, "player")
    ratings = state.fits.ratings("player")
    for number, found in zip(request.ghosts.entrants, request.ratings(request.ghosts), strict=True):
        index = ratings.index(number)
        if index is None or ratings.row is None:
            assert np.isnan(found)
        else:
            assert found == ratings.row.ratings[index]
    assert np.isfinite(request.ratings(request.ghosts)).any()
    standing = state.league.standing_weights(policy)
    index = ratings.index(standing)
    assert index is not None
    assert ratings.row is not None
    assert request.trainee_rating == ratings.row.ratings[index]

    scores = request.scores(request.ghosts)
    assert scores == pytest.approx(1.0 - scores.T)
    played_pairs = 0
    entrants = list(request.ghosts.entrants)
    rated = request.ratings(request.ghosts)
    for i, first in enumerate(entrants):
        for j, second in enumerate(entrants):
            if i == j or first == second:
                continue
            gap = rated[j] - rated[i]
            predicted = 0.5 if np.isnan(gap) else 1.0 / (1.0 + 10.0 ** (gap / 400.0))
            wins = matches = 0.0
            for (a, b, _), (won, drawn, lost, *_) in state.league.results.items():
                if (a[1], b[1]) == (first, second):
                    wins, matches = wins + won + drawn / 2, matches + won + drawn + lost
                elif (b[1], a[1]) == (first, second):
                    wins, matches = wins + lost + drawn / 2, matches + won + drawn + lost
            expected = (wins + PRIOR_MATCHES * predicted) / (matches + PRIOR_MATCHES)
            assert scores[i, j] == pytest.approx(expected, abs=1e-12)
            played_pairs += matches > 0
    assert played_pairs > 0
