"""What a generation gained, against the planted truth of whole simulated leagues."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np
import pytest

from arena.types import Digest, trainee_entrant
from populations.config.run_config import load_config
from populations.controller.evolution.generations import ended_generation
from populations.controller.evolution.members import members_of
from populations.league.ratings import Ratings
from populations.pbt.generations import MILLION
from populations.records.rows import GenerationRow
from populations.simulation.environment import simulated_config, simulated_run
from populations.simulation.league import default_model
from populations.simulation.world import World as PlantedWorld
from populations.simulation.world import make_world as make_planted
from populations.simulation.world import start
from tests.populations.controller.simulated import DUEL, make_world
from tests.populations.rows import make_ratings


@dataclass(frozen=True)
class Measured:
    """A generation that ended, and the truth: Elo per million agent steps.

    Attributes:
        row: As it was recorded.
        true_rate: Of the whole generation.
        true_rate_between: Between the rated weights that its gain is about.
    """

    row: GenerationRow
    true_rate: float
    true_rate_between: float


def weights_of(world: PlantedWorld, policy: str) -> Digest | None:
    row = world.state.tables.policies[policy]  # type: ignore[index]
    return (
        None
        if row.checkpoint is None
        else world.state.tables.checkpoints[row.checkpoint].weights_digest
    )


def rated(world: PlantedWorld, digest: Digest) -> Digest:
    """Nearest rated weights in a line; the weights themselves if none are."""
    ratings = world.state.fits.ratings("player")
    line = chain((digest,), world.state.league.ancestors(digest))
    return next((weights for weights in line if ratings.index(weights) is not None), digest)


def measured_league(*, num_policies: int, seed: int) -> list[Measured]:
    """Generations of a league whose evaluation has its default share."""
    changes = [
        "stop.agent_steps_per_policy=2000000",
        "ghosts.every_agent_steps=250000",
        "pbt.warm_up_agent_steps=200000",
        "pbt.ready_agent_steps=100000",
        "pbt.share=even",
        f"seed={seed}",
    ]
    config = simulated_config(load_config("connect_four", changes), num_policies=num_policies)
    world = make_planted(
        simulated_run(config), default_model(config), agent_steps_per_s=1e5, matches_per_s=1000.0
    )
    began: dict[str, Digest | None] = {}
    ended: list[Measured] = []

    def watch(rows: object) -> None:
        # Generation rows come after the policy has its new checkpoint.
        for row in rows:  # type: ignore[attr-defined]
            if isinstance(row, GenerationRow) and row.agent_steps_end is None:
                began[row.entrant] = weights_of(world, row.policy)
            elif isinstance(row, GenerationRow):
                first, last = began.get(row.entrant), current[row.policy]
                if first is not None and last is not None:
                    skill = world.learner.weights
                    gain = skill[last].skill - skill[first].skill
                    num_steps = row.agent_steps_end - row.agent_steps_begin  # type: ignore[operator]
                    between = skill[rated(world, last)].skill - skill[rated(world, first)].skill
                    ended.append(
                        Measured(
                            row,
                            true_rate=gain * 1e6 / num_steps,
                            true_rate_between=between * 1e6 / (row.gain_agent_steps or 1),
                        )
                    )
        current.update(
            {policy: weights_of(world, policy) for policy in world.state.tables.policies}
        )

    current: dict[str, Digest | None] = {}
    world.watch = watch
    start(world)
    while world.advance() and world.state.phase.name == "training":
        pass
    return ended


@pytest.mark.slow
def test_gains_are_those_of_the_planted_truth() -> None:
    """Ratings of two fits, one for each end, had a correlation of .04 with the truth."""
    league = [one for seed in range(6) for one in measured_league(num_policies=8, seed=seed)]
    known = [
        (
            (one.row.rating_end - one.row.rating_begin) * MILLION / one.row.gain_agent_steps,
            one.row.gain_deviation * MILLION / one.row.gain_agent_steps,
            one.true_rate,
            one.true_rate_between,
        )
        for one in league
        if one.row.rating_begin is not None
        and one.row.rating_end is not None
        and one.row.gain_deviation is not None
        and one.row.gain_agent_steps is not None
    ]
    assert len(known) > 0.6 * len(league) > 6
    measured, deviations, true, true_between = np.array(known).T
    assert np.corrcoef(measured, true)[0, 1] > 0.7
    # The reported deviations must match the actual errors.
    errors = (measured - true_between) / deviations
    assert 0.5 < np.sqrt(np.mean(errors**2)) < 1.6
    assert abs(np.mean(errors)) < 0.8


@pytest.mark.slow
def test_both_ratings_are_from_one_fit_and_steps_are_those_between_their_weights() -> None:
    world = make_world(DUEL, joined=1)
    num_known = 0
    for _ in range(120):
        world.step()
        state = world.state
        for policy in state.tables.policies.values():
            row = ended_generation(state.fits, policy.policy)
            assert row is not None
            ratings = state.fits.ratings("player")
            if row.gain_agent_steps is None:
                assert row.gain_deviation is None
                continue
            num_known += 1
            # `line` has the weights, newest first, each with its step count along the line.
            line: list[tuple[Digest, int]] = []
            offset = 0
            made = state.tables.checkpoints[policy.checkpoint or ""]
            while made is not None:
                line.append((made.weights_digest, made.agent_steps + offset))
                parent = None if made.parent is None else state.league.checkpoints[made.parent]
                if parent is not None and parent.policy != made.policy:
                    own = trainee_entrant(made.policy, generation=made.generation)
                    began_at = state.tables.generations[own].agent_steps_begin
                    offset += began_at - parent.agent_steps
                made = parent  # type: ignore[assignment]
            rated = [(digest, at) for digest, at in line if ratings.index(digest) is not None]
            last, last_at = rated[0]
            first, first_at = next(
                (digest, at) for digest, at in rated if at <= row.agent_steps_begin
            )
            assert row.gain_agent_steps == last_at - first_at > 0
            assert (row.rating_begin, row.rating_end) == (
                ratings.rating(first),
                ratings.rating(last),
            )
            difference = ratings.difference(last, first)
            assert difference is not None
            assert row.gain_deviation == difference[1]
            assert 2 * max(row.agent_steps_begin - first_at, 0) < row.gain_agent_steps
    assert num_known > 50
    ended = [row for row in world.state.tables.generations.values() if row.gain_agent_steps]
    assert ended


def test_a_generation_that_nobody_evaluated_gained_nothing_that_is_known() -> None:
    world = make_world({**DUEL, "evaluation": {"share": 0.0}}, joined=1, steps=8)
    for policy in world.state.tables.policies.values():
        row = ended_generation(world.state.fits, policy.policy)
        assert row is not None
        assert row.agent_steps_end == policy.agent_steps > 0
        assert (row.rating_begin, row.rating_end) == (None, None)
        assert (row.gain_deviation, row.gain_agent_steps) == (None, None)


def test_a_members_deviation_is_without_what_all_share() -> None:
    """Of two policies far from the anchor, whose own matches against each other tell all."""
    row = make_ratings(
        entrants=("bot:random", "a", "b"),
        ratings=(0.0, 500.0, 520.0),
        deviations=(0.0, 100.0, 101.0),
        num_tallies=1,
    )
    # The columns are the shared error, a's own and b's own.
    spread = np.array([[0.0, 0.0, 0.0], [99.5, 10.0, 0.0], [99.5, 0.0, 17.0]])
    ratings = Ratings(row, spread, spread[1:].mean(axis=0))
    assert ratings.deviation("a") == pytest.approx(np.hypot(5.0, 8.5))
    assert ratings.deviation("b") == pytest.approx(np.hypot(5.0, 8.5))
    assert Ratings(row).deviation("a") == 100.0
    assert ratings.deviation("nobody") == 0.0


def test_members_deviations_are_those_of_their_fit() -> None:
    world = make_world(DUEL, joined=1, steps=60)
    state = world.state
    ratings = state.fits.ratings("player")
    assert ratings.row is not None
    assert ratings.spread is not None
    # By brute force: all strengths are relative to the newest evaluated weights of each policy.
    newest = {
        origin.policy: ratings.index(entrant)
        for _, entrant in state.league.tables.records
        if (origin := state.league.checkpoints.get(Digest(entrant))) is not None
        and ratings.index(entrant) is not None
    }
    rows = [index for index in newest.values() if index is not None]
    centre = ratings.spread[rows].mean(axis=0)
    rated = [
        m
        for m in members_of(state.settings.config, state.indexes, "player", role="main")
        if m.rating is not None
    ]
    assert len(rated) > 2
    for member in rated:
        digest = state.league.standing_weights(state.tables.policies[member.policy])
        i = ratings.index(digest)
        assert i is not None
        assert member.deviation == pytest.approx(np.linalg.norm(ratings.spread[i] - centre))
        assert member.deviation < ratings.row.deviations[i]
