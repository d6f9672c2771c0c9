"""Bounds of message sizes: assignments and their results must fit a frame of the wire protocol.

An assignment is committed before it is sent, so it is reduced to fit a frame before the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from arena.checkpoints.manifest import ghost_key
from arena.codec import msgpack_bytes
from arena.config import LearnerSetup
from arena.errors import ConfigError
from arena.matches.comparisons import MAX_SEAT_PAIRS, is_by_seats
from arena.matches.seating import seats_in_turn
from arena.matches.teammates import Cast, training_seatings
from arena.types import (
    MAX_GAMES,
    MAX_GAMES_BYTES,
    AssignmentId,
    Digest,
    LearnerId,
    Player,
    PlayerId,
    PolicyId,
    Seat,
    WeightsRef,
    ghost_id,
)
from arena.wire.codec import MAX_FRAME_BYTES, encode
from arena.wire.messages import Evaluate, Header, Train
from populations.config.run_config import RunConfig

T = TypeVar("T")

# A frame of 1 MiB has 4 KiB for each of 256 seats, far more than a seat's names take.
SURELY_FITS = 256
"""Number of seats up to which an assignment always fits, so that its size is not computed."""

# The share is below 1, because seatings differ in size and some larger ones may be chosen.
FILLED = 0.95
"""Share of a frame that a reduced assignment fills."""

MAX_RESULT_BYTES = MAX_FRAME_BYTES // 4 * 3
"""Maximum bytes of a result's tallies; the rest of its frame has openings, metrics and
checkpoints.
"""

# These sizes assume the longest numbers, with the names of the fields; openings have a bound of
# their own (`arena.matches.openings.MAX_PER_MESSAGE`).
TALLY_BYTES, PLAYER_BYTES, PAIR_BYTES = 150, 110, 91
"""Maximum bytes of a tally, of each player's digest and returns, and of each pair's result."""

GAME_BYTES, GAME_SEAT_BYTES = 150, 30
"""Maximum bytes of a game without its actions and digests, and of each seat in it."""

INDEX_BYTES = 9
"""Maximum bytes of a seat in a tally, for its index in three lists."""

MAX_SEATS = 1 << 16
"""Maximum number of seats in the keys of results (`populations.ratings.result_table`)."""

_HEADER = Header(run="check", epoch=0, learner=LearnerId("check"), sequence=0)


def check_sendable(message: Train | Evaluate) -> None:
    """Refuse an assignment that is too large to be sent, or invalid.

    Raises:
        WireError: If it cannot be encoded.
    """
    encode(_HEADER, message)


def fitted(message: Train | Evaluate, *, setup: LearnerSetup) -> Train | Evaluate:
    """Reduce an assignment so that it and its result fit a frame each.

    Unfinished episodes are left out first, and then some of the seatings.
    """
    # Seatings are drawn, so that no seat is favoured, and with the assignment's seed, so that equal
    # assignments lose the same ones.
    rng = np.random.default_rng(message.seed)
    size = _result_bytes(message, setup)
    if isinstance(message, Train) and size > MAX_RESULT_BYTES:
        message = replace(message, carried=())
        size = _result_bytes(message, setup)
    if size > MAX_RESULT_BYTES:
        message = _without_some(message, FILLED * MAX_RESULT_BYTES / size, rng)
    a_game = GAME_BYTES + GAME_SEAT_BYTES * len(setup.seats)
    games_bytes = MAX_GAMES_BYTES + MAX_GAMES * a_game
    if isinstance(message, Evaluate) and (
        _result_bytes(message, setup) + games_bytes > MAX_RESULT_BYTES
    ):
        # Tallies are needed for ratings, while recorded games are optional.
        message = replace(message, games=0)
    # Counting seats is cheap and encoding is not, so most assignments are only counted.
    if _num_seats(message) <= SURELY_FITS or len(msgpack_bytes(message)) <= MAX_FRAME_BYTES:
        return message
    if isinstance(message, Train):
        message = replace(message, carried=())
    while (size := len(msgpack_bytes(message))) > MAX_FRAME_BYTES and _num_seats(message):
        # Sizes are not exactly proportional to seats, so several rounds may be needed.
        message = _without_some(message, FILLED * MAX_FRAME_BYTES / size, rng)
    return message


def _without_some(
    message: Train | Evaluate, share: float, rng: np.random.Generator
) -> Train | Evaluate:
    if isinstance(message, Train):
        return replace(message, opponents=_thinned(message.opponents, share, rng))
    return replace(message, pairings=_thinned(message.pairings, share, rng))


def _result_bytes(message: Train | Evaluate, setup: LearnerSetup) -> int:
    """Return the maximum bytes of the tallies in an assignment's result."""
    if isinstance(message, Evaluate):
        sizes = [tally_bytes(p.seating.players, setup.seats) for p in message.pairings]
        return sum(sizes)
    sizes = [
        tally_bytes(seating.players, setup.training_seats)
        for seating in (*message.opponents, *message.carried)
    ]
    # A learner plays at most as many seatings as it has environments, so count the largest.
    return sum(sorted(sizes)[-setup.num_envs - len(message.carried) :])


def tally_bytes(players: Sequence[Player], seats: Sequence[Seat]) -> int:
    """Return the maximum bytes of the tally of a seating in a message."""
    if is_by_seats(seats):
        seated = list(players)
        num_pairs = min(MAX_SEAT_PAIRS, len(seats) * (len(seats) - 1) // 2)
    else:
        # Distinguish players by identity, as equal players of a message are mostly one object; if
        # they are not, the result is an upper bound.
        different = {(s.population, id(p)): p for s, p in zip(seats, players, strict=True)}
        seated = list(different.values())
        num_pairs = len(seated) * (len(seated) - 1) // 2
    return (
        TALLY_BYTES
        + INDEX_BYTES * len(seats)
        + sum(PLAYER_BYTES if p.weights else PLAYER_BYTES + len(p.player) for p in seated)
        + PAIR_BYTES * num_pairs
    )


def check_messages(config: RunConfig, setup: LearnerSetup) -> None:
    """Refuse a configuration whose assignments, or whose results, do not fit a frame.

    Raises:
        ConfigError: Names the limit and the value.
    """
    wanted = config.matchmaking.opponents
    if len(setup.training_seats) > MAX_SEATS:
        raise ConfigError(
            f"an environment must have at most {MAX_SEATS} seats, got {len(setup.training_seats)}: "
            "results are filed by seat"
        )
    for population in setup.populations:
        message = _largest(setup, population, num_opponents=wanted)
        # The largest seating has a different player for each population.
        largest = max(
            (tally_bytes(s.players, setup.training_seats) for s in message.opponents), default=0
        )
        if largest > MAX_RESULT_BYTES:
            raise ConfigError(
                f"populations must be fewer than {len(setup.populations)} with "
                f"{len(setup.sides)} sides: the results of one seating take {largest} bytes, and "
                f"must fit {MAX_RESULT_BYTES}"
            )
        size = len(msgpack_bytes(message))
        fits = int(FILLED * wanted * MAX_FRAME_BYTES / size)
        # If `fits` is 0, no number of opponents would help, and `fitted` reduces each assignment.
        if size > MAX_FRAME_BYTES and fits > 0:
            raise ConfigError(
                f"matchmaking.opponents must be at most {fits} with {len(setup.training_seats)} "
                f"seats, got {wanted}: an assignment must fit {MAX_FRAME_BYTES} bytes"
            )


def _largest(setup: LearnerSetup, population: str, *, num_opponents: int) -> Train:
    """Return the largest possible training assignment of a population."""
    # Names and numbers have the maximum length that can occur in a run.
    digest = Digest("f" * 64)

    def ghost(name: str, index: int) -> Player:
        policy = PolicyId(f"{name}/p{999:03d}")
        key = ghost_key(policy, agent_steps=10**12 + index, digest=digest)
        player = ghost_id(policy, agent_steps=10**12 + index)
        return Player(player=player, weights=WeightsRef(digest=digest, key=key))

    is_cooperation, is_mixed = setup.is_cooperation, bool(setup.agent_seats)
    trainee = Player(player=PlayerId(f"{population}/p000"))
    names = dict.fromkeys(seat.population for seat in setup.seats)
    casts: list[Cast] = []
    if is_mixed:
        # One player per side gives as many seats as a different player for each agent.
        longest = (ghost(population, 0),)
        casts = [(longest, dict.fromkeys(names, longest))] * num_opponents
    # In cooperation an assignment has no opponents.
    elif not is_cooperation:
        casts = [
            ((trainee,), {name: (ghost(name, index),) for name in names})
            for index in range(num_opponents)
        ]
    seatings = training_seatings(
        casts,
        seats=setup.seats,
        population=population,
        is_mixed=is_mixed,
        turns=seats_in_turn(
            setup.seats,
            population=population,
            num_seatings=setup.num_envs,
            num_opponents=num_opponents,
            start=0,
        ),
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
    # Sort the indices, so that the remaining items keep their order.
    kept = rng.permutation(len(items))[: int(share * len(items))]
    return tuple(items[index] for index in sorted(kept.tolist()))
