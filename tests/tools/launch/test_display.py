"""Alerts as people see them: while a run goes on, and in its status."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from populations.config.run_config import validate_config
from populations.records.rows import Json
from tests.populations.rows import make_event

display = importlib.import_module("populations.commands.launch.display")
notices = importlib.import_module("populations.views.notices")

ALERT: Mapping[str, Json] = {
    "name": "kl_high",
    "subject": "player",
    "what": "player/p003: its updates move it by a KL divergence of 0.9",
    "advice": "Lower learning_rate.",
    "sources": ["player/p003"],
}
STORAGE: Mapping[str, Json] = {"name": "storage_full", "what": "no room", "advice": "Make room."}


def test_a_wait_at_the_end_has_a_name_and_a_bound() -> None:
    assert display.waiting("exports", 598.2) == (
        "all is saved; waiting for exports, for at most 599 s (logs/exports.log)"
    )


def test_finals_are_told_with_their_longest_time() -> None:
    def line(**keys: object) -> str:
        config = validate_config({"environment": {"id": "a"}, **keys})
        return str(display.finals_line(config, num_learners=2))

    assert "at most 50% of the time that training took, here 50 s" in line(stop={"duration_s": 100})
    assert "or 30 s if that is more" in line()
    assert "no limit in seconds" in line(deterministic=True)


def test_an_alert_is_told_with_what_to_do_and_that_it_is_over() -> None:
    about: dict[str, Any] = {key: one for key, one in ALERT.items() if key != "subject"}
    rows = [
        make_event("alert", "player", **about),
        make_event("alert_cleared", "player", name="kl_high"),
        make_event("alert_cleared", "", name="no_steps"),
        make_event("kept", "player/p000"),
        make_event("retired", "player/p002", reason="it is in the worse half", places=2),
    ]
    assert [display.explain(row) for row in display.told(rows)] == [
        "alert: kl_high (player): player/p003: its updates move it by a KL divergence of 0.9. "
        "Lower learning_rate.",
        "alert is over: kl_high (player)",
        "alert is over: no_steps",
        "player/p002 was retired: it is in the worse half",
    ]


def test_events_are_told_in_sentences_of_one_line() -> None:
    rows = [
        make_event("training_stopped", "", reason="stop.duration_s: training has taken 12 of 12 s"),
        make_event("exploited", "player/p003", donor="player/p001", gap=797.0, changes={}),
        make_event("assignment_failed", "7", reason="ValueError: no\n  File 'x.py'"),
    ]
    assert [display.explain(row, name=lambda name: name[-4:]) for row in rows] == [
        "Training stopped: stop.duration_s: training has taken 12 of 12 s",
        "p003 copied p001",
        "Assignment 7 failed: ValueError: no",
    ]


def test_alerts_stand_beside_the_figures_and_a_pause_in_their_place() -> None:
    status: dict[str, Json] = {"alerts": [ALERT, ALERT]}
    assert display.alert(status) == "", "figures go on"
    assert display.alert_names(status) == "  alerts: kl_high"
    assert notices.alert_lines(status)[0] == (
        "alert: kl_high: player/p003: its updates move it by a KL divergence of 0.9. "
        "Lower learning_rate."
    )
    assert display.alert({"alerts": [ALERT, STORAGE]}) == "storage: no room"
    stalled = {**STORAGE, "name": "stalled", "what": "code of your own raises"}
    assert display.alert({"alerts": [stalled, ALERT]}) == "paused: code of your own raises"
    assert display.alert_names({}) == display.alert_names({"alerts": []}) == ""
    assert notices.alert_lines({}) == notices.alert_lines({"alerts": []}) == []
