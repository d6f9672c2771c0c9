"""PFSP in whole leagues of planted skill, beside PFSP that knows every win rate."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest

from experiments.planted_league import opponents
from experiments.planted_league.opponents import Draw, Way, facts, main, measure

SHORT = {
    4: ["stop.agent_steps_per_policy=4000000"],
    16: ["stop.agent_steps_per_policy=1600000", "ghosts.every_agent_steps=200000", "learners=2"],
}


@pytest.mark.parametrize("num_policies", SHORT)
@pytest.mark.slow
def test_pfsp_meets_those_who_are_hard(num_policies: int) -> None:
    draws = measure(num_policies, overrides=SHORT[num_policies])
    found = facts(draws)
    distance, losing = found["distance"], found["losing"]
    assert isinstance(distance, dict)
    assert isinstance(losing, dict)
    # Results alone know nothing of most ghosts: PFSP on them is as far off as uniform play.
    assert distance["results"] > 0.4
    assert losing["results"] < 0.26
    assert distance["drawn"] <= 0.27
    assert losing["drawn"] >= 0.32
    assert distance["true"] == 0.0
    assert losing["true"] > losing["drawn"] > losing["uniform"]
    assert 0.0 < min(draw.unmet for draw in draws) < 1.0


def test_the_experiment_prints_what_it_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shares: dict[Way, float] = {"drawn": 0.25, "results": 0.5, "uniform": 0.75, "true": 0.0}
    draw = Draw(num_ghosts=30, unmet=0.5, unmet_weight=0.25, distance=shares, losing=shares)
    asked = []

    def measured(num_policies: int, *, overrides: Sequence[str], seed: int) -> list[Draw]:
        asked.append((num_policies, tuple(overrides), seed))
        return [draw, replace(draw, unmet=1.0)]

    monkeypatch.setattr(opponents, "measure", measured)
    for options in (["--json"], []):
        arguments = ["opponents", "learners=1", "--policies", "4", "--seeds", "1", "2", *options]
        monkeypatch.setattr(sys, "argv", arguments)
        main()
    assert asked == 2 * [(4, ("learners=1",), 1), (4, ("learners=1",), 2)]
    first, second, header, row = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["seed"] for line in (first, second)] == [1, 2]
    assert json.loads(first)["distance"] == shares
    assert json.loads(first)["unmet"] == 0.75
    assert header.split()[:3] == ["policies", "ghosts", "unmet"]
    assert row.split() == ["4", "30", "0.75", "0.25", "(0.25)", "0.50", "(0.50)",
                           "0.75", "(0.75)", "0.00", "(0.00)"]  # fmt: skip


def test_only_pfsp_has_a_true_distribution() -> None:
    for override in ("matchmaking.living_ratio=0.1", "matchmaking.kind=uniform"):
        with pytest.raises(ValueError, match="kind must be pfsp"):
            measure(4, overrides=[override])
