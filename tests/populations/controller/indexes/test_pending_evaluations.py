"""Evaluations that no fit covers: counted, and foreseen by the formula."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from arena.types import Digest, Entrant, Player, PlayerId, Seat, Seating, WeightsRef
from arena.wire.messages import Evaluate, Pairing
from populations.controller.indexes.player_strengths import PendingMatches
from populations.league.scheduling import noise_of
from populations.ratings.bradley_terry import ELO_PER_UNIT
from populations.ratings.results import Rated
from populations.records.rows import AssignmentRow, CheckpointRow
from populations.records.tables import CHECKPOINTS, Table
from tests.populations.controller.simulated import DUEL, World, make_world
from tests.populations.rows import make_assignment, make_checkpoint, make_evaluate

SEATS = (
    Seat(name="player_0", side="player_0", population="player", agents=("player_0",)),
    Seat(name="player_1", side="player_1", population="player", agents=("player_1",)),
)


def held_back(steps: int) -> World:
    """A run whose ratings are not fitted any more from some moment on."""
    world = make_world(
        {**DUEL, "populations": {"player": {"size": 24}}, "evaluation": {"share": 0.5}},
        joined=1,
        steps=120,
    )
    assert world.state.tables.ratings
    world.state.fits.running = True  # simulates a worker thread that takes its time
    world.steps(steps)
    return world


@pytest.mark.slow
def test_evaluations_between_two_fits_do_not_ask_the_same_again() -> None:
    world = held_back(0)
    before = world.state.tables.num_tallies
    world.committed.clear()
    for _ in range(50):  # by then all policies have weights to play with
        world.step()
    played: Counter[PlayerId] = Counter()
    num_evaluations = 0
    for row in world.committed:
        message = getattr(row, "message", None)
        if isinstance(message, Evaluate) and getattr(row, "status", "") == "finished":
            num_evaluations += 1
            for pairing in message.pairings:
                played.update({p.player for p in pairing.seating.players if p.weights})
    assert world.state.tables.num_tallies > before
    assert num_evaluations > 10
    policies = {player: n for player, n in played.items() if "@" not in player}
    assert len(policies) == 24, "everybody's turn comes"


def seated(name: str) -> Player:
    weights = None if name.startswith("bot:") else WeightsRef(digest=Digest(name), key=name)
    return Player(player=PlayerId(name), weights=weights)


def evaluation(number: int, first: str, second: str, *, matches: int) -> AssignmentRow:
    seatings = (
        Seating(players=(seated(first), seated(second))),
        Seating(players=(seated(second), seated(first))),
    )
    message = make_evaluate(
        assignment_id=number,
        pairings=tuple(Pairing(seating=one, num_matches=matches // 2) for one in seatings),
    )
    return make_assignment(message)


def test_each_pair_of_an_evaluation_is_foreseen_with_what_those_before_it_tell() -> None:
    """As if each had been asked for by an evaluation of its own."""
    variances = {"a": 40_000.0, "b": 10_000.0, "c": 30_000.0, "bot:x": 500.0}

    def belief(rated: Rated) -> tuple[float, float]:
        return 0.0, variances[rated[1]]

    pairs = [("a", "b"), ("a", "c"), ("c", "bot:x")]
    apart = PendingMatches(seats=SEATS, ranked=("player",), checkpoints=Table(CHECKPOINTS))
    for number, (first, second) in enumerate(pairs, start=1):
        row = evaluation(number, first, second, matches=16)
        apart.apply(row, num_tallies=0, estimate=belief)
    together = PendingMatches(seats=SEATS, ranked=("player",), checkpoints=Table(CHECKPOINTS))
    rows = [evaluation(1, first, second, matches=16) for first, second in pairs]
    messages = [row.message for row in rows if isinstance(row.message, Evaluate)]
    pairings = tuple(pairing for message in messages for pairing in message.pairings)
    whole = replace(rows[0], message=replace(messages[0], pairings=pairings))
    together.apply(whole, num_tallies=0, estimate=belief)
    shares = [together.share_of(("player", Entrant(name))) for name in variances]
    assert shares == [apart.share_of(("player", Entrant(name))) for name in variances]
    assert shares[0] < 1.0 - 40_000.0 / (ELO_PER_UNIT**2 / 4.0 + 50_000.0), "it meets two"


def test_what_matches_will_have_told_by_hand() -> None:
    # 16 matches of equals: 4 / 16 of the square of 400 / ln 10.
    noise = ELO_PER_UNIT**2 / 4.0
    assert noise_of(0.0, num_matches=16) == pytest.approx(noise)
    variances = {"a": 40_000.0, "b": 10_000.0, "bot:x": 0.0}

    def belief(rated: Rated) -> tuple[float, float]:
        return 0.0, variances[rated[1]]

    checkpoints: Table[str, CheckpointRow] = Table(
        CHECKPOINTS,
        [
            make_checkpoint(child, parent=parent)
            for child, parent in {"c": "a", "d": "e", "e": "d"}.items()
        ],
    )

    def left(matches: PendingMatches, entrant: str) -> float:
        return matches.share_of(("player", Entrant(entrant)))

    unfitted = PendingMatches(seats=SEATS, ranked=("player",), checkpoints=checkpoints)
    asked = [
        evaluation(number, first, second, matches=16)
        for number, (first, second) in enumerate([("a", "b"), ("bot:x", "a"), ("b", "b")], start=1)
    ]
    for row in [*asked, *asked]:
        unfitted.apply(row, num_tallies=0, estimate=belief)
    assert unfitted.num_open == 48
    assert unfitted.open_matches() == {
        ("player", "a"): 32, ("player", "b"): 16, ("player", "bot:x"): 16
    }  # fmt: skip
    for sequence, row in enumerate(asked, start=1):
        done = replace(row, status="finished")
        unfitted.apply(done, num_tallies=sequence, estimate=belief)
    unfitted.apply(done, num_tallies=99, estimate=belief)
    assert unfitted.num_open == 0
    of_a = 1.0 - 40_000.0 / (noise + 50_000.0)
    of_b = 1.0 - 10_000.0 / (noise + 50_000.0)
    assert left(unfitted, "b") == pytest.approx(of_b)
    assert left(unfitted, "bot:x") == 1.0
    assert left(unfitted, "a") == pytest.approx(
        of_a * (1.0 - 40_000.0 * of_a / (noise + 40_000.0 * of_a))
    )
    assert left(unfitted, "c") == left(unfitted, "a"), "it was trained from there"
    assert left(unfitted, "d") == 1.0, "a line that repeats itself has an end"
    unfitted.cover(1, estimate=belief)
    assert left(unfitted, "b") == 1.0
    assert left(unfitted, "a") == pytest.approx(1.0 - 40_000.0 / (noise + 40_000.0))
    unfitted.cover(3, estimate=belief)
    assert left(unfitted, "a") == 1.0
