"""Decisions of a league with a past are timed by kind, and policies share the days."""

from __future__ import annotations

import json

import pytest

from experiments.planted_league.week import main


def test_policies_share_the_days_and_each_kind_has_both_clocks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # 56,000 checkpoints a day: 112 of all policies.
    main(["--days", "0.002", "--policies", "4", "--events", "30"])
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert found["checkpoints"] == 112
    for kind in ("trained", "evaluated", "next train", "next evaluate"):
        assert found[kind]["number"] > 0
        assert found[kind]["median_ms"] <= found[kind]["p95_ms"]
        assert found[kind]["wall_median_ms"] > 0.0
    assert found["trained"]["number"] + found["evaluated"]["number"] <= 30
