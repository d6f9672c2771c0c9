from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from populations.records.rows import EventRow
from populations.views.questions.learners import accounts
from populations.views.texts import seconds
from tests.populations.rows import make_event


def at(second: int) -> str:
    return f"2026-01-01T00:00:{second:02d}.000+00:00"


def event(second: int, kind: str, subject: str, **data: Any) -> EventRow:
    return make_event(kind, subject, sequence=second, time=at(second), **data)


def done(learner: str, kind: str, duration_s: float, steps: int = 0, **other: Any) -> Any:
    about = {"status": "finished", "matches": 2, **other}
    return SimpleNamespace(
        learner=learner, kind=kind, duration_s=duration_s, agent_steps=steps, **about
    )


EVENTS = [
    event(0, "learner_joined", "one", host="h", pid=1, device="cpu"),
    event(1, "train_assigned", "7", learner="one", slot=0, policies=["player/p000"]),
    event(5, "assignment_failed", "7", failure="crash", reason="no memory"),
    event(20, "learner_lost", "one", reason="silent for 10 s"),
    event(21, "learner_joined", "two", host="h", pid=2, device="cpu"),
    event(22, "evaluation_assigned", "9", learner="two", slot=0, matches=4),
    event(30, "train_assigned", "10", learner="two", slot=0, policies=["player/p001"]),
]
ASSIGNMENTS = [
    done("one", "train", 8.0, 800),
    done("one", "evaluate", 2.0),
    done("one", "train", 99.0, 9_999, status="failed"),
    done("unknown", "train", 99.0, 9_999),
]
ENDED: dict[str, Any] = {"learners": [], "phase": None, "alerts": []}


def test_a_learner_that_has_gone_keeps_its_work_and_its_faults() -> None:
    one, two = cast(Any, accounts(EVENTS, ASSIGNMENTS, status=ENDED, until=at(41)))
    assert (one["learner"], one["state"], one["left_reason"]) == ("one", "gone", "silent for 10 s")
    assert (one["agent_steps"], one["matches"], one["assignments"]) == (800, 4, 2)
    assert one["mean_agent_steps_per_s"] == 100.0
    # The shares are 8 and 2 of 20 s.
    shares = [one[f"share_{what}"] for what in ("training", "evaluation", "waiting")]
    assert shares == pytest.approx([0.4, 0.1, 0.5])
    assert [fault["kind"] for fault in one["faults"]] == ["assignment_failed", "learner_lost"]
    assert one["faults"][0]["sentence"] == "Assignment 7 failed, of the kind crash: no memory"
    # It replaced the first learner, and the run's last event is at 41 s.
    assert (one["restarts"], two["restarts"], two["slot"]) == (0, 1, 0)
    assert two["present_s"] == 20.0
    assert two["agent_steps_per_s"] is None
    assert two["mean_agent_steps_per_s"] is None


def live(**about: Any) -> dict[str, Any]:
    return {**ENDED, "phase": "training", "learners": [{"learner": "two", "slot": 0, **about}]}


def test_a_live_learner_says_what_it_does_and_since_when() -> None:
    measured = {"speeds": {"player": 40.0}, "match_s": 0.1}
    status = live(state="working", assignment=10, progress=3, agent_steps_per_s=50.0, **measured)
    one, two = cast(Any, accounts(EVENTS, [], status=status, until=at(41)))
    assert (two["doing"], two["policies"], two["since"]) == ("train", ["player/p001"], at(30))
    assert (two["progress"], two["agent_steps_per_s"], two["waits_for"]) == (3, 50.0, None)
    assert {key: two[key] for key in measured} == measured
    assert {one[key] for key in measured} == {None}


@pytest.mark.parametrize(
    ("status", "waits_for"),
    [
        ({}, "work: all policies"),
        ({"phase": "evaluating"}, "the end of the run, which is evaluating"),
        ({"alerts": [{"name": "storage_full", "what": "no room"}]}, "the disk: no room"),
        ({"alerts": [{"name": "stalled", "what": "it raises"}]}, "the end of a pause: it raises"),
    ],
)
def test_an_idle_learner_says_what_it_waits_for(status: dict[str, Any], waits_for: str) -> None:
    idle = {**live(state="idle", assignment=None), **status}
    _, two = cast(Any, accounts(EVENTS, [], status=idle, until=at(41)))
    assert two["waits_for"].startswith(waits_for)
    assert two["doing"] is None


def test_times_that_are_none_have_no_distance() -> None:
    assert seconds(at(1), at(3)) == 2.0
    assert seconds("", at(3)) is None


def test_learners_of_equal_proofs_are_a_group_by_first_appearance() -> None:
    proofs = {"a": "f" * 64, "b": "0" * 64, "c": None, "d": "f" * 64, "old": ...}
    events = [
        event(number, "learner_joined", name, **({} if proof is ... else {"proof": proof}))
        for number, (name, proof) in enumerate(proofs.items())
    ]
    found = cast(Any, accounts(events, [], status=ENDED, until=at(41)))
    assert [one["group"] for one in found] == [1, 2, None, 1, None]
