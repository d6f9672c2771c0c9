"""`make soak` in small: real Connect Four under SIGKILL, and both sides of every conversation."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.learners.loop import make_ack_log, tally_digest
from arena.types import AssignmentId, LearnerId, Tally
from arena.wire.messages import Acknowledge, Evaluate, Finished
from experiments.faults.ack_logs import Comparison, compare
from experiments.faults.soak import soak
from populations.records.rows import AssignmentRow, TallyRow
from tests.populations.rows import (
    make_assignment,
    make_evaluate,
    make_finished,
    make_tally,
    make_tally_row,
)

LEARNER = LearnerId("learner-1")
TALLY = make_tally(
    ("a", "b"),
    (0, 1, 2, 1, 0),
    return_sum=(2.0, -2.0),
    return_sum_of_squares=(2.0, 2.0),
    length_sum=30,
)


@pytest.mark.xdist_group("killed connect four")
@pytest.mark.parametrize("with_ranks", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_nothing_is_lost_invented_or_left_behind_by_random_kills(
    tmp_path: Path, with_ranks: bool
) -> None:
    figures = soak(tmp_path, kills=6, minutes=0.4, seed=2, with_ranks=with_ranks)
    # The message has the full text, because pytest shortens it.
    assert figures.is_sound, str(asdict(figures))
    assert figures.kills == 6
    assert figures.epochs == figures.resumes + 1
    assert figures.tallies.acknowledged == figures.tallies.in_journal > 0
    assert figures.checkpoints_verified > 0
    assert figures.gone_after_s < 2.0
    roles = {role for role, slope in figures.slopes.items() if slope.most_descriptors}
    assert roles == {"controller", "learner", *(["helper"] if with_ranks else [])}


def finished(number: int, *, attempt: int = 1, tally: Tally = TALLY) -> Finished:
    return make_finished(asked(number, attempt=attempt), tallies=(tally,))


def asked(number: int, *, attempt: int) -> Evaluate:
    return make_evaluate(assignment_id=AssignmentId(number), attempt=attempt, pairings=())


def row(number: int, *, attempt: int = 1) -> AssignmentRow:
    message = asked(number, attempt=attempt)
    return make_assignment(message, attempt=attempt, status="finished")


def tallies(*numbers: int) -> list[TallyRow]:
    return [
        make_tally_row(TALLY, at, assignment_id=AssignmentId(number))
        for at, number in enumerate(numbers, start=1)
    ]


def heard(tmp_path: Path, *sent: Finished, acknowledged: tuple[tuple[int, int], ...]) -> Path:
    """What a learner would have written down."""
    environment = {"ARENA_TESTING": "1", "ARENA_ACK_LOG": str(tmp_path)}
    log = make_ack_log(LEARNER, environment=environment)
    assert log is not None
    for message in sent:
        log.sent(message)
        log.sent(message)  # results may be sent again
    for number, attempt in acknowledged:
        log.acknowledged(Acknowledge(assignment_id=AssignmentId(number), attempt=attempt))
    return tmp_path


def test_both_sides_agree_about_what_was_acknowledged(tmp_path: Path) -> None:
    sent = (finished(1), finished(2), finished(3))
    directory = heard(tmp_path, *sent, acknowledged=((1, 1), (2, 1)))
    compared = compare(directory, [row(1), row(2), row(3)], tallies(1, 2, 3))
    assert compared == Comparison(
        acknowledged=2, in_journal=2, unheard=1, superseded=0, lost=0, invented=0
    )
    assert compared.is_sound


def test_what_was_acknowledged_and_is_not_there_is_lost(tmp_path: Path) -> None:
    directory = heard(tmp_path, finished(1), finished(2), acknowledged=((1, 1), (2, 1)))
    assert compare(directory, [row(1)], tallies(1)).lost == 1


def test_what_is_there_twice_or_was_never_sent_is_invented(tmp_path: Path) -> None:
    directory = heard(tmp_path, finished(1), acknowledged=((1, 1),))
    twice = compare(directory, [row(1)], tallies(1, 1))
    assert (twice.lost, twice.invented, twice.is_sound) == (1, 1, False)
    assert compare(directory, [row(1), row(2)], tallies(1, 2)).invented == 1


def test_an_older_attempt_that_was_acknowledged_late_is_no_loss(tmp_path: Path) -> None:
    old = finished(1, tally=replace(TALLY, length_sum=29))
    new = finished(1, attempt=2)
    directory = heard(tmp_path, old, new, acknowledged=((1, 1), (1, 2)))
    compared = compare(directory, [row(1, attempt=2)], tallies(1))
    assert (compared.acknowledged, compared.superseded, compared.is_sound) == (1, 1, True)


def test_no_real_run_has_an_ack_log() -> None:
    assert make_ack_log(LEARNER, environment={"ARENA_ACK_LOG": "/nowhere"}) is None
    assert make_ack_log(LEARNER, environment={"ARENA_TESTING": "1"}) is None


def test_equal_tallies_have_equal_digests_and_others_do_not() -> None:
    assert tally_digest(TALLY) == tally_digest(replace(TALLY, return_sum=(2, -2)))
    for changes in ({"matches": 4}, {"length_sum": 31}, {"return_sum": (2.5, -2.0)}, {"pairs": ()}):
        assert tally_digest(replace(TALLY, **changes)) != tally_digest(TALLY)
