"""How well players are known: kept between decisions, as if it were made anew for each."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from arena.types import PlayerId
from populations.controller.evaluation.pairings import evaluation_pool
from populations.controller.indexes.player_strengths import (
    MAX_BEST_GHOSTS,
    StrengthIndex,
    nearest_rated,
)
from populations.controller.state.state import ControllerState
from populations.ratings.model import Z95
from tests.populations.controller.indexes.test_pending_evaluations import held_back
from tests.populations.controller.simulated import DUEL, World, make_world


def assert_as_made_anew(world: World) -> None:
    state = world.state
    kept = evaluation_pool(
        state.settings, state.indexes, state.blame.ledger, np.random.default_rng(5)
    )
    known, state.indexes.strengths = state.indexes.strengths, StrengthIndex(state.league)
    anew = evaluation_pool(
        state.settings, state.indexes, state.blame.ledger, np.random.default_rng(5)
    )
    state.indexes.strengths = known
    assert kept.players == anew.players
    assert np.array_equal(kept.field.ratings, anew.field.ratings)
    assert np.array_equal(kept.field.spread, anew.field.spread)
    assert np.array_equal(kept.field.own_variance, anew.field.own_variance)


def test_ghosts_that_are_found_corrupt_are_not_looked_at() -> None:
    world = make_world(joined=1, steps=40)
    state = world.state
    ghost = next(iter(state.tables.ghosts.values()))
    assert ghost.player in {
        known.player.player
        for known in evaluation_pool(
            state.settings, state.indexes, state.blame.ledger, None
        ).players
    }
    broken = replace(ghost, corrupt=True)
    state.tables.ghosts[ghost.player] = broken
    state.indexes.strengths.apply(broken)
    assert ghost.player not in {
        known.player.player
        for known in evaluation_pool(
            state.settings, state.indexes, state.blame.ledger, None
        ).players
    }
    assert_as_made_anew(world)


def ghosts_looked_at(state: ControllerState) -> set[PlayerId]:
    pool = evaluation_pool(state.settings, state.indexes, state.blame.ledger, None)
    return {known.player.player for known in pool.players if known.kind == "ghost"}


@pytest.mark.slow
@pytest.mark.parametrize("num_rated", [0, 12, None])
def test_the_best_rated_ghosts_are_looked_at_and_the_newest_where_few_are_rated(
    num_rated: int | None,
) -> None:
    world = make_world({**DUEL, "stop": {"agent_steps_per_policy": 12_000}}, joined=1)
    while world.state.phase.name == "training":
        world.step()
    state = world.state
    # Only some players are rated, as after a resume with an old fit.
    row = state.tables.ratings["player"]
    fewer = replace(
        row,
        entrants=row.entrants[:num_rated],
        ratings=row.ratings[:num_rated],
        deviations=row.deviations[:num_rated],
    )
    state.tables.ratings["player"] = fewer
    state.indexes.strengths.forget_ratings()
    low = dict(
        zip(
            fewer.entrants,
            np.array(fewer.ratings) - Z95 * np.array(fewer.deviations),
            strict=True,
        )
    )
    ghosts = list(state.tables.ghosts.values())
    rated = [ghost for ghost in ghosts if ghost.weights_digest in low]
    unrated = [ghost for ghost in ghosts if ghost.weights_digest not in low]
    best = sorted(rated, key=lambda ghost: low[ghost.weights_digest])[-MAX_BEST_GHOSTS:]
    newest = unrated[len(unrated) - (MAX_BEST_GHOSTS - len(best)) :]
    # Weights that a policy has count as the policy.
    standing = {
        state.tables.checkpoints[policy.checkpoint].weights_digest
        for policy in state.tables.policies.values()
        if policy.checkpoint is not None
    }
    assert ghosts_looked_at(state) == {
        ghost.player for ghost in [*best, *newest] if ghost.weights_digest not in standing
    }
    assert len(best) < len(rated) if num_rated is None else len(best) <= num_rated < len(ghosts)


@pytest.mark.slow
def test_who_was_evaluated_after_the_last_fit_is_known_by_its_line() -> None:
    world = held_back(60)
    state = world.state
    ratings = state.fits.ratings("player")
    unfitted = [
        known
        for known in evaluation_pool(
            state.settings, state.indexes, state.blame.ledger, None
        ).players
        if known.kind == "policy"
        and state.league.is_evaluated("player", known.entrant)
        and ratings.index(known.entrant) is None
    ]
    assert unfitted
    assert ratings.row is not None
    for known in unfitted:
        assert known.position is not None
        assert known.rating == ratings.row.ratings[known.position]
        assert known.own_variance == ratings.row.child_deviation**2
        assert known.player.weights is not None
        assert nearest_rated(ratings, state.league, known.player.weights.digest) == known.position
