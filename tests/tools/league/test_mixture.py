"""The view `mixture`, of runs whose equilibrium is known by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tools.league.documents import view_document


def test_rock_paper_and_scissors_are_mixed_evenly(cyclic_run: Path) -> None:
    document: Any = view_document(cyclic_run, "mixture")
    members = document["mixture"]
    assert sorted(one["player"] for one in members) == [
        f"player/p00{number}@000000001000" for number in range(3)
    ]
    # Each always beats one of the others and always loses to the other: a third each, worth 1/2.
    assert [one["probability"] for one in members] == pytest.approx([1 / 3] * 3, abs=1e-6)
    (summary,) = document["populations"].values()
    assert summary["worst_score"] == pytest.approx(0.5, abs=1e-6)
    # The players are the ghosts of four policies, which have the same weights.
    assert summary["num_players"] == 4
    assert summary["cyclicity"] == 0.9
    assert document["reason"] is None


def test_a_team_has_no_mixture_and_is_told_why(team_run: Path) -> None:
    document: Any = view_document(team_run, "mixture")
    assert document["mixture"] == []
    assert "in cooperation there is one side" in document["reason"]
    assert document["populations"]["agent"] == {
        "cyclicity": 0.0,
        "num_players": None,
        "worst_score": None,
    }
