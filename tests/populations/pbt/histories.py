"""Generations for tests of rules that learn from them."""

from __future__ import annotations

from arena.types import Hyperparameters, PolicyId
from populations.core import Member, RatingDifference
from populations.records.rows import GenerationRow
from tests.populations.rows import make_generation


def generation(
    hyperparameters: Hyperparameters,
    *,
    rate: float | None,
    index: int = 0,
    number: int = 0,
    begin: int = 0,
    num_steps: int = 100_000,
    rating: float = 0.0,
    deviation: float | None = 1e-3,
) -> GenerationRow:
    """One that gained ``rate`` Elo per million steps; None: it still lasts.

    ``deviation`` is that of the gain, in Elo.
    """
    policy = PolicyId(f"player/p{index:03d}")
    return make_generation(
        policy,
        number,
        hyperparameters=dict(hyperparameters),
        agent_steps_begin=begin,
        agent_steps_end=None if rate is None else begin + num_steps,
        rating_begin=rating,
        rating_end=None if rate is None else rating + rate * num_steps / 1e6,
        gain_deviation=None if rate is None else deviation,
        gain_agent_steps=None if rate is None else num_steps,
    )


def differences(members: list[Member], *, deviation: float = 10.0) -> RatingDifference:
    """Return the differences of the members' ratings, all with one deviation."""
    ratings = {member.policy: member.rating for member in members}

    def difference(first: PolicyId, second: PolicyId) -> tuple[float, float] | None:
        a, b = ratings[first], ratings[second]
        return None if a is None or b is None else (a - b, deviation)

    return difference
