"""Regret of whole populations: the truth, the landscapes, and what the experiment prints."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from experiments.planted_league import compute
from experiments.planted_league.compute import (
    FIRST_STEPS,
    GROWTH,
    SHAPES,
    Figures,
    GrowingModel,
    Task,
    main,
    play,
)
from populations.simulation.planted import Weights


def trained(skill: float, *, agent_steps: int, speed: float = 1.0, potential: float = 0.0) -> float:
    """Mean skill after training."""
    model, rng = GrowingModel(), np.random.default_rng(1)
    weights = Weights(skill=skill, potential=potential, kind=0)
    ends = [
        model.trained(weights, agent_steps=agent_steps, speed=speed, opponents=(), rng=rng).skill
        for _ in range(400)
    ]
    return float(np.mean(ends))


def test_twice_the_steps_give_as_much_at_any_age_and_speed_multiplies_them() -> None:
    # At s the steps are E0 (e^(s / g) - 1). As many again add g ln(2 - e^(-s / g)).
    for skill, more in ((500.0, 113.3), (900.0, 117.4)):
        steps = int(FIRST_STEPS * math.expm1(skill / GROWTH))
        assert trained(skill, agent_steps=steps) - skill == pytest.approx(more, abs=1.5)
        half = trained(skill, agent_steps=2 * steps, speed=0.5)
        assert half - skill == pytest.approx(more, abs=1.5)
    # Luck of z Elo is a factor e^(z / g) of the speed: z more in the end.
    end = trained(0.0, agent_steps=10_000_000, potential=50.0)
    assert end - trained(0.0, agent_steps=10_000_000) == pytest.approx(50.0, abs=4.0)


def test_landscapes_by_hand() -> None:
    assert SHAPES["hill"](0.8, 0.2, 0.7, 0.0) == 1.0
    assert SHAPES["hill"](0.6, 0.2, 0.7, 0.0) == pytest.approx(math.exp(-0.5))
    assert SHAPES["cliff"](0.75, 0.0, 0.0, 0.0) == 1.0
    assert SHAPES["cliff"](0.76, 0.0, 0.0, 0.0) == 0.02
    assert SHAPES["ridge"](0.8, 0.4, 0.0, 0.0) == pytest.approx(1.0)
    assert SHAPES["ridge"](0.8, 0.48, 0.0, 0.0) < 0.61
    # 0.95 - 0.9 / 2
    assert SHAPES["moving"](0.5, 0.0, 0.0, 0.5) == 1.0
    assert SHAPES["moving"](0.5, 0.0, 0.0, 1.0) < 0.02


@pytest.mark.slow
def test_two_policies_with_a_learner_each_are_ahead_of_four_with_half_of_one() -> None:
    regrets = {
        rule: np.mean(
            [
                play(
                    Task(
                        rule=rule,
                        landscape="good_start",
                        seed=seed,
                        num_policies=4,
                        num_learners=2,
                        agent_steps=12_000_000,
                    )
                ).regret
                for seed in range(3)
            ]
        )
        for rule in ("before", "halving_sampled")
    }
    assert regrets["halving_sampled"] < regrets["before"] - 30.0


def test_leagues_that_are_in_the_file_are_not_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    played = []

    def fake(task: Task) -> Figures:
        played.append(task)
        # Differences of 10 and 30: mean 20, standard error 10.
        regret = 100.0 + task.seed * 20.0 if task.rule == "even" else 90.0
        return Figures(regret=regret, longest=1, copies=0, retired=0)

    monkeypatch.setattr(compute, "play", fake)
    file = tmp_path / "regret.jsonl"
    options = ["--rules", "even,halving", "--landscapes", "hill", "--to", str(file)]
    main([*options, "--seeds", "1"])
    main([*options, "--seeds", "2"])
    assert [(task.rule, task.seed) for task in played] == [
        ("even", 0), ("halving", 0), ("even", 1), ("halving", 1),
    ]  # fmt: skip
    assert len([json.loads(line) for line in file.read_text().splitlines()]) == 4
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == "| even | 110 +- 10 | 110 +- 10 |"
    assert lines[-1] == "| halving | 90 +- 0 (-20 +- 10) | 90 +- 0 (-20 +- 10) |"
