"""Assignments that fit a frame of the wire, and configurations whose assignments do.

Nothing is journaled that cannot be sent, so each assignment is made to fit before it is one.
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

# 1 MiB / 256 = 4 KiB for each, far more than a seat's names take.
SURELY_FITS = 256
"""Seats that an assignment may name without a look at its size."""

# The share is below 1, because some seatings are larger than others.
FILLED = 0.95
"""Share of a frame that is filled where not all fits."""

MAX_RESULT_BYTES = MAX_FRAME_BYTES // 4 * 3
"""Bytes of a result's tallies: the rest of a frame is for openings, metrics and checkpoints."""

# The sizes are those of the names of the fields and the longest numbers; openings have a bound of
# their own (`arena.matches.openings.MAX_PER_MESSAGE`).
TALLY_BYTES, PLAYER_BYTES, PAIR_BYTES = 150, 110, 91
"""Most bytes of a tally, of each player's digest and returns in it, and of each result of two."""

GAME_BYTES, GAME_SEAT_BYTES = 150, 30
"""Most bytes of a game beside its actions and digests, and of each seat in it."""

INDEX_BYTES = 9
"""Most bytes of a seat: its place in three lists."""

MAX_SEATS = 1 << 16
"""Seats that results can be filed under (`populations.ratings.result_table`)."""

_HEADER = Header(run="check", epoch=0, learner=LearnerId("check"), sequence=0)


def check_sendable(message: Train | Evaluate) -> None:
    """Refuse an assignment that cannot be sent.

    Raises:
        WireError: Saying why.
    """
    encode(_HEADER, message)


def fitted(message: Train | Evaluate, *, setup: LearnerSetup) -> Train | Evaluate:
    """Leave out what does not fit a frame: episodes in flight first, then some of the seatings.

    Nor is more asked for than the result can say.
    """
    # Drawn, so that no seat is favoured; from the seed, so that equal assignments lose the same
    # ones.
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
        # Ratings need the tallies, and nobody needs a game.
        message = replace(message, games=0)
    # Counting is cheap, encoding is not: most assignments never come to it.
    if _num_seats(message) <= SURELY_FITS or len(msgpack_bytes(message)) <= MAX_FRAME_BYTES:
        return message
    if isinstance(message, Train):
        message = replace(message, carried=())
    while (size := len(msgpack_bytes(message))) > MAX_FRAME_BYTES and _num_seats(message):
        # Sizes are not exactly proportional to seats, so it may take another round.
        message = _without_some(message, FILLED * MAX_FRAME_BYTES / size, rng)
    return message


def _without_some(
    message: Train | Evaluate, share: float, rng: np.random.Generator
) -> Train | Evaluate:
    if isinstance(message, Train):
        return replace(message, opponents=_thinned(message.opponents, share, rng))
    return replace(message, pairings=_thinned(message.pairings, share, rng))


def _result_bytes(message: Train | Evaluate, setup: LearnerSetup) -> int:
    """Return the most bytes of the tallies of an assignment."""
    if isinstance(message, Evaluate):
        sizes = [tally_bytes(p.seating.players, setup.seats) for p in message.pairings]
        return sum(sizes)
    sizes = [
        tally_bytes(seating.players, setup.training_seats)
        for seating in (*message.opponents, *message.carried)
    ]
    # A learner leaves some seatings out if there are more than environments.
    return sum(sorted(sizes)[-setup.num_envs - len(message.carried) :])


def tally_bytes(players: Sequence[Player], seats: Sequence[Seat]) -> int:
    """Return the most bytes that the tally of a seating takes in a message."""
    if is_by_seats(seats):
        seated = list(players)
        num_pairs = min(MAX_SEAT_PAIRS, len(seats) * (len(seats) - 1) // 2)
    else:
        # Players are told apart by identity: equal ones of a message are most often one object.
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
        ConfigError: With the limit and the value.
    """
    wanted = config.matchmaking.opponents
    if len(setup.training_seats) > MAX_SEATS:
        raise ConfigError(
            f"an environment must have at most {MAX_SEATS} seats, got {len(setup.training_seats)}: "
            "results are filed by seat"
        )
    for population in setup.populations:
        message = _largest(setup, population, num_opponents=wanted)
        # Each population has a player of its own in the largest seating.
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
        # No number of opponents would help if fits is 0: `fitted` draws the seats of each
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

    is_cooperation, is_mixed = setup.is_cooperation, bool(setup.agent_seats)
    trainee = Player(player=PlayerId(f"{population}/p000"))
    names = dict.fromkeys(seat.population for seat in setup.seats)
    casts: list[Cast] = []
    if is_mixed:
        # One player for each side: as many names as where each agent has another.
        longest = (ghost(population, 0),)
        casts = [(longest, dict.fromkeys(names, longest))] * num_opponents
    # There are no opponents to send in cooperation.
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
    # Indices are sorted back, so that the rest keeps its order.
    kept = rng.permutation(len(items))[: int(share * len(items))]
    return tuple(items[index] for index in sorted(kept.tolist()))
