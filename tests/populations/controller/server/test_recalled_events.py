from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from populations.controller.indexes.raised_alerts import raised_by
from populations.controller.server.recalled_events import recall
from populations.records.rows import EventRow, Json

SUBJECTS = st.sampled_from(["player/p000", "player/p001", "other/p000"])


@st.composite
def an_event(draw: st.DrawFn) -> tuple[str, str, dict[str, Json]]:
    kind = draw(st.sampled_from(["alert", "alert_cleared", "quarantined"]))
    name = draw(st.sampled_from(["kl_high", "loss_high"]))
    return kind, draw(SUBJECTS), {"name": name, "what": "", "sources": []}


EVENTS = st.lists(an_event(), max_size=25).map(
    lambda drawn: [
        EventRow(sequence=number, time="", kind=kind, subject=subject, data=data)
        for number, (kind, subject, data) in enumerate(drawn, start=1)
    ]
)


@given(events=EVENTS, cuts=st.lists(st.integers(0, 25), max_size=3).map(sorted))
def test_the_same_follows_from_what_is_recalled(events: list[EventRow], cuts: list[int]) -> None:
    kept: list[EventRow] = []
    done = 0
    for cut in cuts:
        kept = recall([*kept, *events[done:cut]])
        done = max(done, cut)
    raised = [list(raised_by(rows).items()) for rows in ([*kept, *events[done:]], events)]
    assert raised[0] == raised[1]
    # Two kinds of alerts of three subjects.
    assert len(kept) <= 2 * 3
