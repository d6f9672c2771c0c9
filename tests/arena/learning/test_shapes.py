from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from arena.experience import Transitions
from arena.learning import ppo_loss
from arena.learning.advantages import (
    Decisions,
    check_equal_shapes,
    clamped_log_ratio,
    generalized_advantages,
    successors,
    vtrace,
    with_vtrace_targets,
)
from arena.learning.hyperparameters import PpoHyperparameters
from tests.arena.samples import make_rollout

ROWS, COLUMN = torch.ones(4), torch.ones(4, 1)


def test_the_message_has_every_shape() -> None:
    check_equal_shapes(1, ratio=ROWS, advantage=ROWS)
    with pytest.raises(ValueError, match=r"ratio \[4\], advantage \[4, 1\]"):
        check_equal_shapes(1, ratio=ROWS, advantage=COLUMN)
    with pytest.raises(ValueError, match=r"a shape of 1 dimensions, got ratio \[4, 1\]"):
        check_equal_shapes(1, ratio=COLUMN)
    with pytest.raises(ValueError, match=r"one shape of 1 dimensions"):
        check_equal_shapes(1, ratio=COLUMN, advantage=COLUMN)


LOSSES: tuple[tuple[Callable[..., object], int, dict[str, float]], ...] = (
    (clamped_log_ratio, 2, {}),
    (ppo_loss.clipped_surrogate, 2, {"clip_coef": 0.2}),
    (ppo_loss.squared_value_loss, 2, {}),
    (ppo_loss.clipped_value_loss, 3, {"value_clip": 0.2}),
    (ppo_loss.approximate_kl, 1, {}),
    (ppo_loss.clip_fraction, 1, {"clip_coef": 0.2}),
    (ppo_loss.explained_variance, 2, {}),
)


@pytest.mark.parametrize(
    ("function", "number", "settings"), LOSSES, ids=[case[0].__name__ for case in LOSSES]
)
def test_a_loss_refuses_a_column_beside_rows(
    function: Callable[..., object], number: int, settings: dict[str, float]
) -> None:
    function(*[ROWS] * number, **settings)
    for place in range(number):
        tensors = [ROWS] * number
        tensors[place] = COLUMN
        with pytest.raises(ValueError, match=r"\[4, 1\]"):
            function(*tensors, **settings)
        if number > 1:
            tensors[place] = torch.ones(1)
            with pytest.raises(ValueError, match=r"\[1\]"):
                function(*tensors, **settings)


def transitions(**changes: torch.Tensor) -> Transitions:
    tensors = {"reward": ROWS, "successor": torch.full((4,), -1), "next_value": ROWS}
    return Transitions(**{**tensors, **changes})


@pytest.mark.parametrize("name", ["reward", "successor", "next_value", "value", "ratio"])
def test_vtrace_refuses_a_column_beside_rows(name: str) -> None:
    def solve(**changes: torch.Tensor) -> object:
        value, ratio = changes.pop("value", ROWS), changes.pop("ratio", ROWS)
        return vtrace(transitions(**changes), value=value, ratio=ratio, gamma=0.9, gae_lambda=0.9)

    solve()
    column = torch.full((4, 1), -1) if name == "successor" else COLUMN
    with pytest.raises(ValueError, match=rf"{name} \[4, 1\]"):
        solve(**{name: column})


@pytest.mark.parametrize("name", ["value", "log_prob"])
def test_vtrace_targets_refuse_a_column_beside_rows(name: str) -> None:
    rollout = make_rollout(
        torch.zeros(4, 3),
        log_prob=ROWS,
        value=ROWS,
        advantage=ROWS,
        return_=ROWS,
        transitions=transitions(),
    )
    given = {"value": ROWS, "log_prob": ROWS}
    with_vtrace_targets(rollout, **given, hyperparameters=PpoHyperparameters())
    with pytest.raises(ValueError, match=rf"{name} \[4, 1\]"):
        with_vtrace_targets(
            rollout, **{**given, name: COLUMN}, hyperparameters=PpoHyperparameters()
        )


def decisions(**changes: torch.Tensor) -> Decisions:
    numbers, flags = torch.zeros(5, 2, 3), torch.zeros(5, 2, 3, dtype=torch.bool)
    tensors: dict[str, Any] = {
        "decided": flags,
        "trained": flags,
        "value": numbers,
        "reward": numbers,
        "ended": flags,
        "end_value": numbers,
        "next_decided": flags[0],
        "next_value": numbers[0],
    }
    return Decisions(**{**tensors, **changes})


@pytest.mark.parametrize(
    "function", [successors, lambda d: generalized_advantages(d, gamma=1.0, gae_lambda=1.0)]
)
def test_advantages_refuse_other_shapes(function: Callable[[Decisions], object]) -> None:
    function(decisions())
    for name in ("reward", "ended", "end_value", "decided", "trained"):
        wrong = getattr(decisions(), name)[:, :, :1]
        with pytest.raises(ValueError, match=rf"{name} \[5, 2, 1\]"):
            function(decisions(**{name: wrong}))
    for name in ("next_decided", "next_value"):
        wrong = getattr(decisions(), name)[:, :1]
        with pytest.raises(ValueError, match=rf"{name} \[2, 1\]"):
            function(decisions(**{name: wrong}))
