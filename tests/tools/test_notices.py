"""Lines that several commands print about a run, at their thresholds."""

from __future__ import annotations

from pathlib import Path

import pytest

from populations.ratings.fitting.components import MISFIT
from tools.notices import CYCLIC, alert_lines, alerts_of, cyclic_warnings, misfit_warnings

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
    fits = {"player": {"misfit": misfit, "pair_deviation": 35.2}}
    lines = list(misfit_warnings(fits, run=RUN))
    assert len(lines) == warns
    assert all("35 Elo a pair" in line for line in lines)


def test_alerts_that_are_no_list_are_none() -> None:
    assert alerts_of({}) == alerts_of({"alerts": None}) == []
    one = {"name": "kl_high", "what": "kl is 0.2", "advice": "Lower the rate"}
    assert alert_lines({"alerts": [one, "no alert"]}) == [
        "alert: kl_high: kl is 0.2. Lower the rate"
    ]
