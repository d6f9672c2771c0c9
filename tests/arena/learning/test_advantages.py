from __future__ import annotations

import pytest
import torch

from arena.learning.advantages import Decisions, generalized_advantages


def column(*numbers: float) -> torch.Tensor:
    """One environment, one agent: [T, 1, 1]."""
    return torch.tensor(numbers)[:, None, None]


def flags(text: str) -> torch.Tensor:
    """``x`` is True. bool [T, 1, 1]."""
    return torch.tensor([letter == "x" for letter in text])[:, None, None]


def decisions(
    *,
    decided: str,
    trained: str,
    ended: str,
    value: torch.Tensor,
    reward: torch.Tensor,
    end_value: torch.Tensor | None = None,
    next_value: float | None = None,
) -> Decisions:
    return Decisions(
        decided=flags(decided),
        trained=flags(trained),
        value=value,
        reward=reward,
        ended=flags(ended),
        end_value=torch.zeros_like(value) if end_value is None else end_value,
        next_decided=torch.tensor([[next_value is not None]]),
        next_value=torch.tensor([[0.0 if next_value is None else next_value]]),
    )


def solve(given: Decisions) -> tuple[list[float], str]:
    advantage, defined = generalized_advantages(given, gamma=0.5, gae_lambda=0.8)
    marks = "".join("x" if flag else "-" for flag in defined.flatten().tolist())
    return advantage.flatten().tolist(), marks


def test_plain_gae_by_hand() -> None:
    # delta = r + .5 V' - V: 1 + 1 - 1 = 1, 0 + 1.5 - 2 = -.5, 2 + 2 - 3 = 1; gamma lambda = .4
    # A2 = 1, A1 = -.5 + .4 = -.1, A0 = 1 - .04 = .96
    advantage, defined = solve(
        decisions(
            decided="xxx",
            trained="xxx",
            ended="---",
            value=column(1.0, 2.0, 3.0),
            reward=column(1.0, 0.0, 2.0),
            next_value=4.0,
        )
    )
    assert advantage == pytest.approx([0.96, -0.1, 1.0])
    assert defined == "xxx"


def test_rewards_between_own_decisions_belong_to_the_earlier_one() -> None:
    # Decisions at 0 and 3. R0 = 1 + 2 + 4 = 7, delta0 = 7 + .5 * 10 - 6 = 6; R3 = 8 + 16 = 24 up
    # to the end, delta3 = 24 - 10 = 14; A0 = 6 + .4 * 14 = 11.6
    advantage, defined = solve(
        decisions(
            decided="x--x-",
            trained="x--x-",
            ended="----x",
            value=column(6.0, 0.0, 0.0, 10.0, 0.0),
            reward=column(1.0, 2.0, 4.0, 8.0, 16.0),
        )
    )
    assert advantage == pytest.approx([11.6, 0.0, 0.0, 14.0, 0.0])
    assert defined == "x--x-"


def test_an_end_separates_episodes_and_truncation_bootstraps() -> None:
    # Ends in calls 0 (cut off, V(final) = 6) and 1 (for good): A0 = 1 + 3 - 2, A1 = 5 - 1.
    advantage, defined = solve(
        decisions(
            decided="xx",
            trained="xx",
            ended="xx",
            value=column(2.0, 1.0),
            reward=column(1.0, 5.0),
            end_value=column(6.0, 0.0),
            next_value=100.0,
        )
    )
    assert advantage == pytest.approx([2.0, 4.0])
    assert defined == "xx"


def test_the_last_decision_without_successor_only_bootstraps_the_one_before() -> None:
    # Decisions at 0 and 2, not on turn at the end: A0 = (1 + 2) + .5 * 8 - 4 = 3.
    advantage, defined = solve(
        decisions(
            decided="x-x-",
            trained="x-x-",
            ended="----",
            value=column(4.0, 0.0, 8.0, 0.0),
            reward=column(1.0, 2.0, 50.0, 50.0),
        )
    )
    assert advantage == pytest.approx([3.0, 0.0, 0.0, 0.0])
    assert defined == "x---"


def test_rewards_after_an_opening_are_dropped() -> None:
    # A random decision at 0 whose value is garbage; the trained one at 2: A = 3 + 0 - 1.
    advantage, defined = solve(
        decisions(
            decided="x-x-",
            trained="--x-",
            ended="---x",
            value=column(float("nan"), 0.0, 1.0, 0.0),
            reward=column(70.0, 70.0, 1.0, 2.0),
        )
    )
    assert advantage == pytest.approx([0.0, 0.0, 2.0, 0.0])
    assert defined == "--x-"


def test_nothing_leaks_through_an_untrained_decision() -> None:
    # The successor of the decision at 1 is untrained: its value is unknown, so 1 is not trained on
    # either, but bootstraps the one at 0: A0 = 1 + .5 * 4 - 2 = 1.
    advantage, defined = solve(
        decisions(
            decided="xxx",
            trained="xx-",
            ended="--x",
            value=column(2.0, 4.0, float("nan")),
            reward=column(1.0, 9.0, 70.0),
        )
    )
    assert advantage == pytest.approx([1.0, 0.0, 0.0])
    assert defined == "x--"


def test_without_a_future_only_ones_own_reward_counts() -> None:
    """``gamma`` 0 is allowed, and PBT may come near it: nothing is divided by it."""
    given = decisions(
        decided="x-xx",
        trained="x-xx",
        ended="--x-",
        value=column(1.0, 0.0, 2.0, 3.0),
        reward=column(1.0, 0.5, 2.0, 7.0),
        end_value=column(0.0, 0.0, 1e9, 0.0),
        next_value=1e9,
    )
    advantage, defined = generalized_advantages(given, gamma=0.0, gae_lambda=0.95)
    # The first decision's reward came in two calls: 1.5 - 1; then 2 - 2 and 7 - 3.
    assert advantage.flatten().tolist() == [0.5, 0.0, 0.0, 4.0]
    assert defined.flatten().tolist() == [True, False, True, True]
