"""Requests with planted results, and how often a matchmaker draws whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from arena.types import Entrant, PlayerId, PolicyId
from populations.candidates import (
    Candidate,
    Candidates,
    FloatArray,
)
from populations.core import Matchmaker, OpponentRequest
from populations.matchmaking.drawing import Distribution, Rule, normalized
from populations.matchmaking.rating_proximate import expected_scores
from populations.matchmaking.window import LATEST
from tests.populations.columns import make_candidates

TRAINEE = PolicyId("player/p000")
SELF_PLAY = LATEST.make(LATEST.settings())
SURE = 1e9
"""Matches after which a win rate is what was planted."""


def ghost(
    number: int, *, policy: int | None = None, role: str = "main", quality: float = 0.0
) -> Candidate:
    """The ghost of a policy at ``number`` agent steps."""
    name = f"player/p{number % 3 if policy is None else policy:03d}"
    return Candidate(
        player=PlayerId(f"{name}@{number:012d}"),
        policy=PolicyId(name),
        role=role,
        entrant=Entrant(f"{name}{number:060d}"),
        agent_steps=number,
        quality=quality,
    )


def latest(number: int, *, population: str = "player", role: str = "main") -> Candidate:
    """The latest checkpoint of a policy."""
    name = f"{population}/p{number:03d}"
    return Candidate(
        player=PlayerId(name),
        policy=PolicyId(name),
        role=role,
        entrant=Entrant(f"{name}-latest"),
        agent_steps=1000,
    )


def request(
    *,
    ghosts: Sequence[Candidate] | int = 6,
    others: Sequence[Candidate] = (),
    num_opponents: int = 8,
    role: str = "main",
    is_own: bool = True,
    rates: Mapping[str, float] | None = None,
    matches: float = SURE,
    ratings: Mapping[str, float] | None = None,
    trainee_rating: float = float("nan"),
    scores: FloatArray | None = None,
) -> OpponentRequest:
    """A request.

    Args:
        ghosts: Them, or how many.
        others: The latest.
        num_opponents: To draw.
        role: The trainee's.
        is_own: Whether the opponents are of its own population.
        rates: Its win rate against players after ``matches``; others it never met.
        matches: See ``rates``.
        ratings: Of players; others are unrated.
        trainee_rating: NaN: unrated.
        scores: Of ghosts against each other, in their order.
    """
    if isinstance(ghosts, int):
        ghosts = [ghost(number) for number in range(ghosts)]
    columns = make_candidates(ghosts)
    known, rated = rates or {}, ratings or {}

    def record(candidates: Candidates) -> tuple[FloatArray, FloatArray]:
        played = np.array([matches if p in known else 0.0 for p in candidates.players])
        rate = np.array([known.get(p, 0.5) for p in candidates.players])
        return rate * played, (1.0 - rate) * played

    def scored(candidates: Candidates) -> FloatArray:
        if scores is None:
            return np.full((len(candidates), len(candidates)), 0.5)
        where = [list(columns.players).index(player) for player in candidates.players]
        return scores[np.ix_(where, where)]

    return OpponentRequest(
        trainee=TRAINEE,
        role=role,
        entrant=Entrant("player/p000#0"),
        agent_steps=1000,
        num_opponents=num_opponents,
        is_own_population=is_own,
        ghosts=columns,
        latest=make_candidates(others),
        record=record,
        predicted=lambda candidates: expected_scores(
            trainee_rating, np.array([rated.get(player, np.nan) for player in candidates.players])
        ),
        ratings=lambda candidates: np.array(
            [rated.get(player, np.nan) for player in candidates.players]
        ),
        trainee_rating=trainee_rating,
        scores=scored,
    )


def by_player(asked: OpponentRequest, distribution: Distribution) -> dict[str, float]:
    """Probabilities that are not as good as 0, by player; the trainee itself is ``mirror``."""
    found = {"mirror": distribution.mirror}
    found |= dict(zip(asked.latest.players, distribution.latest.tolist(), strict=True))
    found |= dict(zip(asked.ghosts.players, distribution.ghosts.tolist(), strict=True))
    return {player: share for player, share in found.items() if share > 1e-9}


def shares(matchmaker: Matchmaker, asked: OpponentRequest, *, num_draws: int) -> dict[str, float]:
    """How often each player was drawn, of all opponents."""
    rng = np.random.default_rng(7)
    drawn: Counter[str] = Counter()
    for _ in range(num_draws):
        opponents = matchmaker.draw(asked, rng=rng)
        drawn.update(player.player for player in opponents.players)
        drawn["mirror"] += opponents.num_mirrors
    total = drawn.total()
    return {player: count / total for player, count in drawn.items() if count}


def probabilities(rule: Rule, asked: OpponentRequest) -> list[float]:
    """The probability of each ghost by a rule."""
    found: list[float] = normalized(rule.weights(asked, rng=np.random.default_rng(0))).tolist()
    return found
