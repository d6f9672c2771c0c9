"""Assignments that fit a frame of the wire, and configurations whose assignments do.

Nothing is journaled that cannot be sent, so each assignment is made to fit before it is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from arena.checkpoints.manifest import ghost_key
from arena.config import LearnerSetup
from arena.errors import ConfigError
from arena.matches.seating import seatings_for
from arena.matches.teammates import Lineup, mixed_seatings
from arena.types import (
    AssignmentId,
    Digest,
    LearnerId,
    Player,
    PlayerId,
    PolicyId,
    Seating,
    WeightsRef,
    ghost_id,
)
from arena.wire.codec import MAX_FRAME_BYTES, body_bytes, encode
from arena.wire.messages import Evaluate, Header, Train
from populations.config.run_config import RunConfig

T = TypeVar("T")

# 1 MiB / 256 = 4 KiB for each, far more than a seat's names take.
SURELY_FITS = 256
"""Seats that an assignment may name without a look at its size."""

# Below 1, because some seatings are larger than others.
FILLED = 0.95
"""Share of a frame that is filled where not all fits."""

_HEADER = Header(run="check", epoch=0, learner=LearnerId("check"), sequence=0)


def check_sendable(message: Train | Evaluate) -> None:
    """Refuse an assignment that cannot be sent.

    Raises:
        WireError: Saying why.
    """
    encode(_HEADER, message)


def fitted(message: Train | Evaluate) -> Train | Evaluate:
    """Leave out what does not fit a frame: episodes in flight first, then some of the seatings."""
    # Counting is cheap, encoding is not: most assignments never come to it.
    if _num_seats(message) <= SURELY_FITS or body_bytes(message) <= MAX_FRAME_BYTES:
        return message
    if isinstance(message, Train):
        message = replace(message, carried=())
    # Drawn, so that no seat is favoured; from the seed, so that equal assignments lose the same
    # ones.
    rng = np.random.default_rng(message.seed)
    while (size := body_bytes(message)) > MAX_FRAME_BYTES and _num_seats(message):
        # Sizes are not exactly proportional to seats, so it may take another round.
        share = FILLED * MAX_FRAME_BYTES / size
        if isinstance(message, Train):
            message = replace(message, opponents=_thinned(message.opponents, share, rng))
        else:
            message = replace(message, pairings=_thinned(message.pairings, share, rng))
    return message


def check_messages(config: RunConfig, setup: LearnerSetup) -> None:
    """Refuse a configuration whose training assignments do not fit a frame.

    Raises:
        ConfigError: With the most opponents that fit.
    """
    wanted = config.matchmaking.opponents
    for population in setup.populations:
        size = body_bytes(_largest(setup, population, num_opponents=wanted))
        fits = int(FILLED * wanted * MAX_FRAME_BYTES / size)
        # With fits = 0 no number of opponents would help: `fitted` draws the seats of each
        # assignment.
        if size > MAX_FRAME_BYTES and fits > 0:
            raise ConfigError(
                f"matchmaking.opponents must be at most {fits} with {len(setup.training_seats)} "
                f"seats, got {wanted}: an assignment must fit {MAX_FRAME_BYTES} bytes"
            )


def _largest(setup: LearnerSetup, population: str, *, num_opponents: int) -> Train:
    """Make an assignment as large as a policy of a population may get."""
    # The longest names and numbers that a run can come to.
    digest = Digest("f" * 64)

    def ghost(name: str, index: int) -> Player:
        policy = PolicyId(f"{name}/p{999:03d}")
        key = ghost_key(policy, agent_steps=10**12 + index, digest=digest)
        player = ghost_id(policy, agent_steps=10**12 + index)
        return Player(player=player, weights=WeightsRef(digest=digest, key=key))

    own = [seat for seat in setup.seats if seat.population == population]
    opponents = {
        name: tuple(ghost(name, index) for index in range(num_opponents))
        for name in dict.fromkeys(seat.population for seat in setup.seats)
        # A population meets itself only if it has several seats.
        if name != population or len(own) > 1
    }
    is_cooperation = len(setup.sides) == 1
    trainee = Player(player=PlayerId(f"{population}/p000"))
    seatings: tuple[Seating, ...] = ()
    if setup.agent_seats:
        longest = ghost(population, 0)
        # One player for each side: as many names as where each agent has another.
        lineup = Lineup(beside=(), against={name: (longest,) for name in setup.populations})
        seatings = mixed_seatings(
            longest, seats=setup.seats, population=population, lineups=[lineup] * num_opponents
        )
    # In cooperation there are no opponents to send.
    elif not is_cooperation:
        seatings = seatings_for(
            trainee, seats=setup.seats, population=population, opponents=opponents
        )
    return Train(
        assignment_id=AssignmentId(2**62),
        attempt=1,
        trainees=(),
        opponents=seatings,
        agent_steps=2**62,
        seed=2**62,
        may_stop_early=True,
    )


def _num_seats(message: Train | Evaluate) -> int:
    if isinstance(message, Train):
        return sum(len(s.players) for s in (*message.opponents, *message.carried))
    return sum(len(pairing.seating.players) for pairing in message.pairings)


def _thinned(items: Sequence[T], share: float, rng: np.random.Generator) -> tuple[T, ...]:
    # Sorted back, so that the rest keeps its order.
    kept = rng.permutation(len(items))[: int(share * len(items))]
    return tuple(items[index] for index in sorted(kept.tolist()))
