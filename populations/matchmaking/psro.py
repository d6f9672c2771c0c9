"""Policy-space response oracles (PSRO): train against a solution of the league's own game.

Source: Lanctot et al., "A unified game-theoretic approach to multiagent reinforcement learning"
(NeurIPS 2017); the meta-solvers are those of `populations.ratings.meta_strategies`.

Shapes: N ghosts, K of them in the game.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np
from pydantic import Field

from arena.config import Model
from populations.candidates import Candidates, FloatArray, IntArray
from populations.core import OpponentRequest
from populations.matchmaking.drawing import normalized
from populations.matchmaking.window import newest
from populations.rule_kinds import RuleKind, itself

MetaSolver = Literal[
    "uniform", "uniform_biased", "nash", "prd", "alpha_rank", "rectified", "latest"
]

MAX_SOLVED = 256
"""Solutions that are remembered: one is asked for again until ratings or ghosts change."""

SCORE_STEP = 1e-3
"""Scores are rounded to this, far below what they are known to, so that fewer games differ."""

PRD_ITERATIONS = 150
PRD_STEP = 2.0
"""Long steps: as near to an equilibrium as thousands of short ones, in a few milliseconds."""


class PsroRule(Model):
    """Ghosts by their share in a meta-strategy of the game that they play among themselves.

    ``rectified`` is Nash's, but only of ghosts that the trainee beats or ties with.
    """

    meta_solver: MetaSolver = "nash"
    """``psro``: solution of the game between ghosts that is played against."""

    psro_players: int = Field(24, ge=2, le=128)
    """``psro``: ghosts in that game, the best rated and the newest ones."""

    def weights(self, request: OpponentRequest, *, rng: np.random.Generator) -> FloatArray:
        """Return the meta-strategy; 0 for ghosts that are not in the game. float64 [N]."""
        del rng
        ghosts = request.ghosts
        chosen = players_of_game(
            ghosts.agent_steps,
            ratings=lambda: request.ratings(ghosts),
            max_players=self.psro_players,
        )
        players = request.ghosts.take(chosen)
        strategy = self._strategy(request, players)
        if self.meta_solver == "rectified":
            beaten = np.where(request.win_rates(players) >= 0.5, strategy, 0.0)
            # A trainee that beats none of the support trains against all of it.
            strategy = beaten if beaten.sum() > 0.0 else strategy
        weights = np.zeros(len(request.ghosts))
        weights[chosen] = normalized(strategy)
        return weights

    def _strategy(self, request: OpponentRequest, players: Candidates) -> FloatArray:
        if self.meta_solver in ("uniform", "uniform_biased", "latest"):
            # These need only the number of players, so no scores are predicted.
            scores = np.full((len(players), len(players)), 0.5)
        else:
            scores = request.scores(players)
        # (S - S^T) / 2 = S - 1/2, antisymmetric to the bit; at most +-500 steps, so int16 holds
        # them.
        steps = np.round((scores - scores.T) / (2.0 * SCORE_STEP)).astype(np.int16)
        return solved(self.meta_solver, steps.tobytes())


def players_of_game(
    agent_steps: IntArray, *, ratings: Callable[[], FloatArray], max_players: int
) -> IntArray:
    """Choose the players of a meta-game: all, or the best rated half and the newest others.

    Args:
        agent_steps: int64 [N].
        ratings: Asked where there are too many. Elo, NaN if unrated. float64 [N].
        max_players: More than these are too many.

    Returns:
        Positions, oldest first. int64 [min(N, max_players)].
    """
    if len(agent_steps) <= max_players:
        chosen = np.arange(len(agent_steps))
    else:
        # Unrated ghosts are last among the best, but may be among the newest.
        elo = np.nan_to_num(ratings(), nan=-np.inf)
        # A partition, not a sort: tens of thousands of ghosts, at each draw.
        best = np.argpartition(-elo, max_players // 2)[: max_players // 2]
        is_other = np.ones(len(agent_steps), dtype=np.bool_)
        is_other[best] = False
        others = np.flatnonzero(is_other)
        newest_others = newest(agent_steps[others], num=max_players - len(best))
        chosen = np.union1d(best, others[newest_others])
    # `latest` and `uniform_biased` read the order of players as that of joining.
    return chosen[np.argsort(agent_steps[chosen], kind="stable")]


@lru_cache(maxsize=MAX_SOLVED)
def solved(meta_solver: MetaSolver, steps: bytes) -> FloatArray:
    """Return the meta-strategy of a game; equal games share one answer, which is kept.

    Args:
        meta_solver: Name of the solver.
        steps: Expected score of row against column minus 1/2, in units of ``SCORE_STEP``, row-major
            int16; antisymmetric.

    Returns:
        Probabilities, read-only since callers share them. float64 [K].
    """
    # Bytes, because the cache needs a key that can be hashed.
    flat = np.frombuffer(steps, dtype=np.int16)
    size = round(len(flat) ** 0.5)
    if not flat.any() and meta_solver not in ("latest", "uniform_biased"):
        # All scores are even: uniform solves the game under each of the others, without scipy.
        even = np.full(size, 1.0 / size)
        # The cache hands this object to every caller.
        even.flags.writeable = False
        return even
    # These are imported late because they import scipy, without which the controller starts.
    from populations.ratings.meta_strategies import meta_strategy, projected_replicator_dynamics

    game = flat.reshape(size, size) * SCORE_STEP
    if meta_solver == "prd":
        strategy = projected_replicator_dynamics(
            game, num_iterations=PRD_ITERATIONS, step=PRD_STEP
        )[0]
    elif meta_solver == "rectified":
        # The rectifying depends on the trainee, so `weights` does it outside the cache.
        strategy = meta_strategy("nash", game)
    else:
        strategy = meta_strategy(meta_solver, game)
    strategy = normalized(np.maximum(strategy, 0.0))
    strategy.flags.writeable = False
    return strategy


KIND = RuleKind(
    name="psro",
    settings=PsroRule,
    make=itself,
)
