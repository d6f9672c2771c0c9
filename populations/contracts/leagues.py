"""Example leagues for checks of a matchmaker: all situations that may occur in a run.

Shapes: N candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np

from arena.types import Entrant, PlayerId, PolicyId
from populations.candidates import Candidate, CandidateColumns, Candidates
from populations.core import FloatArray, OpponentRequest

TRAINEE = PolicyId("player/p000")


def request_of(
    *,
    num_ghosts: int = 6,
    num_latest: int = 3,
    num_opponents: int = 8,
    is_own: bool = True,
    win_rate: float | None = 0.5,
    is_rated: bool = True,
    role: str = "main",
) -> OpponentRequest:
    """Return a request of a league. Its columns are writable, so that a check finds changes.

    Args:
        num_ghosts: Number of ghosts.
        num_latest: Number of other policies' latest checkpoints.
        num_opponents: Number of opponents to draw.
        is_own: Whether the opponents are of the trainee's own population.
        win_rate: Trainee's score against all candidates; None: it has played none of them.
        is_rated: Whether players have ratings.
        role: Role of the trainee.
    """
    name = "player" if is_own else "other"
    ghosts = [_ghost(number, population=name) for number in range(num_ghosts)]
    latest = [_latest(number + 1, population=name) for number in range(num_latest)]

    def record(candidates: Candidates) -> tuple[FloatArray, FloatArray]:
        matches = np.full(len(candidates), 0.0 if win_rate is None else 20.0)
        return matches * (win_rate or 0.0), matches * (1.0 - (win_rate or 0.0))

    def ratings(candidates: Candidates) -> FloatArray:
        known = candidates.agent_steps / 10.0 if is_rated else np.nan
        return np.full(len(candidates), 1.0) * known

    def predicted(candidates: Candidates) -> FloatArray:
        return np.nan_to_num(_expected(-ratings(candidates)), nan=0.5)

    def scores(candidates: Candidates) -> FloatArray:
        rated = np.nan_to_num(ratings(candidates))
        return _expected(rated[:, np.newaxis] - rated)

    return OpponentRequest(
        trainee=TRAINEE,
        role=role,
        entrant=Entrant(f"{TRAINEE}#0"),
        agent_steps=10_000,
        num_opponents=num_opponents,
        is_own_population=is_own,
        ghosts=_columns(ghosts),
        latest=_columns(latest),
        record=record,
        predicted=predicted,
        ratings=ratings,
        trainee_rating=0.0 if is_rated else float("nan"),
        scores=scores,
    )


NOBODY = partial(request_of, num_ghosts=0, num_latest=0, is_own=False)

UNRATED = partial(request_of, win_rate=None, is_rated=False)
OTHERS = partial(request_of, is_own=False)

LEAGUES: Mapping[str, Callable[[], OpponentRequest]] = {
    "a league without a ghost (every run begins so)": partial(UNRATED, num_ghosts=0),
    "a league of one policy without a ghost": partial(request_of, num_ghosts=0, num_latest=0),
    "a league of one policy with one ghost": partial(request_of, num_ghosts=1, num_latest=0),
    "a league with six ghosts": request_of,
    "a league without ratings": UNRATED,
    "a league whose ghosts are all beaten": partial(request_of, win_rate=1.0),
    "a league whose ghosts always win": partial(request_of, win_rate=0.0),
    "an assignment with one opponent": partial(request_of, num_opponents=1),
    "an assignment with 64 opponents": partial(request_of, num_opponents=64),
    "opponents of another population": OTHERS,
    "opponents of another population without a ghost": partial(
        OTHERS, num_ghosts=0, is_rated=False
    ),
    "opponents of another population without active policies": partial(OTHERS, num_latest=0),
    "a main exploiter's assignment": partial(request_of, role="main_exploiter"),
    "a league with 300 ghosts": partial(request_of, num_ghosts=300, num_latest=7),
}


def columns_of(request: OpponentRequest) -> Iterator[tuple[str, object]]:
    """Yield the arrays of a request's candidates by name, as lists, which can be compared."""
    for owner in ("ghosts", "latest"):
        candidates: Candidates = getattr(request, owner)
        for one in fields(candidates):
            column = getattr(candidates, one.name)
            if isinstance(column, np.ndarray):
                yield f"{owner}.{one.name}", column.tolist()


def _expected(difference: FloatArray) -> FloatArray:
    # The expected score of Elo is 1 / (1 + 10^(-d / 400)).
    return np.asarray(1.0 / (1.0 + 10.0 ** (-difference / 400.0)))


def _columns(candidates: Sequence[Candidate]) -> Candidates:
    columns = CandidateColumns()
    for candidate in candidates:
        columns.append(candidate)
    shown = columns.candidates
    copies: dict[str, Any] = {
        one.name: column.copy()
        for one in fields(shown)
        if isinstance(column := getattr(shown, one.name), np.ndarray)
    }
    return replace(shown, **copies)


def _ghost(number: int, *, population: str) -> Candidate:
    policy, steps = f"{population}/p{number % 3:03d}", 100 * (number + 1)
    roles = ("main", "main_exploiter", "league_exploiter")
    return Candidate(
        player=PlayerId(f"{policy}@{steps:012d}"),
        policy=PolicyId(policy),
        role=roles[number % 3],
        entrant=Entrant(f"{number:064x}"),
        agent_steps=steps,
        quality=-0.01 * number,
    )


def _latest(number: int, *, population: str) -> Candidate:
    policy = f"{population}/p{number:03d}"
    return Candidate(
        player=PlayerId(policy),
        policy=PolicyId(policy),
        entrant=Entrant(f"{10**6 + number:064x}"),
        agent_steps=10_000,
    )
