"""Lines that several commands print about a run, at their thresholds."""

from __future__ import annotations

from pathlib import Path

import pytest

from populations.ratings.fitting.misfit import MISFIT
from populations.views.notices import (
    CYCLIC,
    alert_lines,
    alerts_of,
    cyclic_warnings,
    misfit_warnings,
    unproven_lines,
)

RUN = Path("runs/a")


@pytest.mark.parametrize(
    ("share", "warns"), [(None, False), (0.0, False), (CYCLIC, False), (CYCLIC + 0.01, True)]
)
def test_only_cyclic_populations_are_warned_of(share: float | None, warns: bool) -> None:
    lines = list(cyclic_warnings({"player": share}, run=RUN))
    assert len(lines) == warns
    assert all("arena export runs/a --mixture" in line for line in lines)


@pytest.mark.parametrize(("misfit", "warns"), [(MISFIT - 0.01, False), (MISFIT, True)])
def test_only_misfits_are_warned_of(misfit: float, warns: bool) -> None:
    fits = {"player": {"misfit": misfit, "pair_deviation": 35.2, "anchor_deviation": 0.0}}
    lines = list(misfit_warnings(fits, run=RUN))
    assert len(lines) == warns
    assert all("35 Elo a pair off its ratings" in line for line in lines)


@pytest.mark.parametrize(
    ("pair", "anchor", "said"),
    [
        (0.4, 35.2, "results of player are 35 Elo against bot:random off its ratings"),
        (5.6, 35.2, "are 6 Elo a pair and 35 Elo against bot:random off its ratings"),
        (0.4, 0.0, "between players far apart are not what its ratings promise"),
    ],
)
def test_a_misfit_says_where_it_was_found(pair: float, anchor: float, said: str) -> None:
    fits = {"player": {"misfit": 9.0, "pair_deviation": pair, "anchor_deviation": anchor}}
    (line,) = misfit_warnings(fits, run=RUN)
    assert said in line


def test_alerts_that_are_no_list_are_none() -> None:
    assert alerts_of({}) == alerts_of({"alerts": None}) == []
    one = {"name": "kl_high", "what": "kl is 0.2", "advice": "Lower the rate"}
    assert alert_lines({"alerts": [one, "no alert"]}) == [
        "alert: kl_high: kl is 0.2. Lower the rate"
    ]


def test_only_who_is_no_better_than_untrained_is_told_with_reasons() -> None:
    known = {"what": "nobody is better", "reasons": ["this", "that"]}
    assert list(unproven_lines([None, known])) == [
        "nobody is better; the most likely reasons:",
        "  this,",
        "  or that",
    ]
