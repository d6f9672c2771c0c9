"""Alerts that hold: raised and cleared by measurements in a row."""

from __future__ import annotations

from populations.controller.indexes.alert_kinds import KINDS
from populations.controller.indexes.raised_alerts import Alerts, document, resumed
from populations.hooks.findings import Finding
from populations.records.rows import AlertRow


def finding(what: str, *, kind: str = "kl_high", source: str = "p0") -> Finding:
    return Finding(kind, "player", source, what)


def test_it_holds_after_so_many_wrong_measurements_in_a_row_and_ends_after_so_many_good_ones() -> (
    None
):
    alerts = Alerts()
    kind = KINDS["kl_high"]
    said = [alerts.record(finding("high")) for _ in range(kind.raise_after + 2)]
    assert said == [None] * (kind.raise_after - 1) + [True, None, None]
    said = [alerts.record(finding("")) for _ in range(kind.clear_after + 1)]
    assert said == [None] * (kind.clear_after - 1) + [False, None]
    assert alerts.raised == {}


def test_one_good_measurement_starts_the_count_anew() -> None:
    alerts = Alerts()
    for _ in range(3):
        for _ in range(KINDS["kl_high"].raise_after - 1):
            assert alerts.record(finding("high")) is None
        assert alerts.record(finding("")) is None
    assert alerts.raised == {}


def test_it_holds_as_long_as_one_source_is_wrong() -> None:
    alerts = Alerts()
    for source in ("p0", "p1"):
        for _ in range(KINDS["kl_high"].raise_after):
            alerts.record(finding("high", source=source))
    assert alerts.raised == {("kl_high", "player"): {"p0": "high", "p1": "high"}}
    assert alerts.forget("kl_high", "player", "p0") is None
    assert alerts.forget("kl_high", "player", "p1") is False
    assert alerts.forget("kl_high", "player", "p1") is None
    assert alerts.documents() == []


def test_documents_have_what_to_do_and_at_most_three_texts() -> None:
    alerts = Alerts()
    for number in range(5):
        alerts.record(finding(f"text {number}", kind="learner_failing", source=f"slot-{number}"))
    (one,) = alerts.documents()
    assert isinstance(one, dict)
    assert one["what"] == "text 0; text 1; text 2"
    assert one["sources"] == [f"slot-{number}" for number in range(5)]
    assert one["advice"] == KINDS["learner_failing"].advice


def test_those_that_hold_follow_from_the_rows() -> None:
    row = AlertRow(name="kl_high", subject="player", what="high", advice="Lower it.", source="p0")
    (one,) = resumed([row]).documents()
    assert one == document("kl_high", "player", "high", sources=["p0"], advice="Lower it.")
