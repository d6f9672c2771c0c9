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
"""Maximum number of cached solutions; a game recurs until ratings or ghosts change."""

SCORE_STEP = 1e-3
"""Step to which scores are rounded, far below their uncertainty, so that the cache is hit more."""

PRD_ITERATIONS = 150
PRD_STEP = 2.0
"""Step size of the dynamics. Steps this long come as near to an equilibrium as thousands of short
ones, in a few milliseconds."""


class PsroRule(Model):
    """Rule that weighs ghosts by a meta-strategy of the game that they play among themselves.

    ``rectified`` is the Nash equilibrium restricted to ghosts that the trainee beats or ties with.
    """

    meta_solver: MetaSolver = "nash"
    """``psro``: solution of the game between ghosts, by which opponents are drawn."""

    psro_players: int = Field(24, ge=2, le=128)
    """``psro``: maximum number of ghosts in that game, the best rated and the newest ones."""

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
            # A trainee that beats no ghost of the equilibrium trains against all of these ghosts.
            strategy = beaten if beaten.sum() > 0.0 else strategy
        weights = np.zeros(len(request.ghosts))
        weights[chosen] = normalized(strategy)
        return weights

    def _strategy(self, request: OpponentRequest, players: Candidates) -> FloatArray:
        if self.meta_solver in ("uniform", "uniform_biased", "latest"):
            # These solvers need only the number of players, so no scores are predicted.
            scores = np.full((len(players), len(players)), 0.5)
        else:
            scores = request.scores(players)
        # (S - S^T) / 2 = S - 1/2 is exactly antisymmetric. Its entries are at most +-500 steps, so
        # int16 is enough.
        steps = np.round((scores - scores.T) / (2.0 * SCORE_STEP)).astype(np.int16)
        return solved(self.meta_solver, steps.tobytes())


def players_of_game(
    agent_steps: IntArray, *, ratings: Callable[[], FloatArray], max_players: int
) -> IntArray:
    """Choose the players of a meta-game: all, or the best rated and the newest others, half each.

    Args:
        agent_steps: Agent steps of the candidates. int64 [N].
        ratings: Function that returns ratings in Elo, NaN if unrated; only called for more than
            ``max_players``. float64 [N].
        max_players: Maximum number of players.

    Returns:
        Positions of the chosen players, oldest first. int64 [min(N, max_players)].
    """
    if len(agent_steps) <= max_players:
        chosen = np.arange(len(agent_steps))
    else:
        # Unrated ghosts sort last by rating, but may still be among the newest.
        elo = np.nan_to_num(ratings(), nan=-np.inf)
        # A partition is faster than a sort, and each draw may have tens of thousands of ghosts.
        best = np.argpartition(-elo, max_players // 2)[: max_players // 2]
        is_other = np.ones(len(agent_steps), dtype=np.bool_)
        is_other[best] = False
        others = np.flatnonzero(is_other)
        newest_others = newest(agent_steps[others], num=max_players - len(best))
        chosen = np.union1d(best, others[newest_others])
    # `latest` and `uniform_biased` need the players in order of age.
    return chosen[np.argsort(agent_steps[chosen], kind="stable")]


@lru_cache(maxsize=MAX_SOLVED)
def solved(meta_solver: MetaSolver, steps: bytes) -> FloatArray:
    """Return the meta-strategy of a game; solutions are cached.

    Args:
        meta_solver: Name of the solver.
        steps: Expected score of row against column minus 1/2, in units of ``SCORE_STEP``, row-major
            int16; antisymmetric.

    Returns:
        Probabilities, read-only because callers share the array. float64 [K].
    """
    # The game is passed as bytes, because a key of the cache must be hashable.
    flat = np.frombuffer(steps, dtype=np.int16)
    size = round(len(flat) ** 0.5)
    if not flat.any() and meta_solver not in ("latest", "uniform_biased"):
        # If all scores are 1/2, the other solvers return the uniform strategy, and need no scipy.
        even = np.full(size, 1.0 / size)
        # The cache returns this object to every caller, so it must not change.
        even.flags.writeable = False
        return even
    # The import is late, so that the controller starts without scipy.
    from populations.ratings.meta_strategies import meta_strategy, projected_replicator_dynamics

    game = flat.reshape(size, size) * SCORE_STEP
    if meta_solver == "prd":
        strategy = projected_replicator_dynamics(
            game, num_iterations=PRD_ITERATIONS, step=PRD_STEP
        )[0]
    elif meta_solver == "rectified":
        # The restriction depends on the trainee, so `weights` applies it outside the cache.
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
