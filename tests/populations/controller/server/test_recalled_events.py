from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from populations.controller.indexes.pbt_decisions import MADE, MARKS, NOT_MADE, PbtDecisions
from populations.controller.indexes.raised_alerts import raised_by
from populations.controller.server.recalled_events import recall
from populations.records.rows import EventRow, Json

SUBJECTS = st.sampled_from(["player/p000", "player/p001", "other/p000"])


@st.composite
def an_event(draw: st.DrawFn) -> tuple[str, str, dict[str, Json]]:
    kind = draw(
        st.sampled_from(
            [
                *MADE,
                *NOT_MADE,
                "decision_postponed",
                "alert",
                "alert_cleared",
                "quarantined",
            ]
        )
    )
    subject = draw(SUBJECTS)
    if kind == "decision_postponed":
        return kind, subject, {"reason": draw(st.sampled_from(["few matches", "donor"]))}
    if kind in ("alert", "alert_cleared"):
        name = draw(st.sampled_from(["kl_high", "loss_high"]))
        return kind, subject, {"name": name, "what": "", "sources": []}
    return kind, subject, draw(st.sampled_from([{}, {MARKS: 1}, {MARKS: 3}]))


EVENTS = st.lists(an_event(), max_size=25).map(
    lambda drawn: [
        EventRow(sequence=number, time="", kind=kind, subject=subject, data=data)
        for number, (kind, subject, data) in enumerate(drawn, start=1)
    ]
)


def follows(events: list[EventRow]) -> object:
    """All that a resumed controller makes of events, orders included."""
    decisions = PbtDecisions.from_events(events)
    return (
        list(raised_by(events).items()),
        (decisions.made, decisions._answered, list(decisions.waiting.items())),
    )


@given(events=EVENTS, cuts=st.lists(st.integers(0, 25), max_size=3).map(sorted))
def test_the_same_follows_from_what_is_recalled(events: list[EventRow], cuts: list[int]) -> None:
    kept: list[EventRow] = []
    done = 0
    for cut in cuts:
        kept = recall([*kept, *events[done:cut]])
        done = max(done, cut)
    assert follows([*kept, *events[done:]]) == follows(events)
    # Two kinds of alerts of three subjects, a count, three that wait.
    assert len(kept) <= 6 + 1 + 3
