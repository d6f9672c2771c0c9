from __future__ import annotations

import pytest
import torch

from arena.experience import Transitions
from arena.learning.advantages import vtrace


def transitions(reward: list[float], successor: list[int], next_value: list[float]) -> Transitions:
    return Transitions(
        reward=torch.tensor(reward),
        successor=torch.tensor(successor),
        next_value=torch.tensor(next_value),
    )


def test_by_hand() -> None:
    # Decisions 0 -> 1 -> end, gamma 1/2, lambda 1. V = 1, 2; ratios 3 and 1/2.
    # Clipped at 1: rho, c = 1, 1/2. delta_1 = 1/2 (4 - 2) = 1, v_1 = 3.
    # delta_0 = 1 (1 + 1/2 * 2 - 1) = 1, v_0 = 1 + 1 + 1/2 * 1 * (3 - 2) = 2.5.
    # A_1 = 1/2 (4 - 2) = 1, A_0 = 1 (1 + 1/2 * 3 - 1) = 1.5.
    advantage, target = vtrace(
        transitions([1.0, 4.0], [1, -1], [2.0, 0.0]),
        value=torch.tensor([1.0, 2.0]),
        ratio=torch.tensor([3.0, 0.5]),
        gamma=0.5,
        gae_lambda=1.0,
    )
    assert target.tolist() == [2.5, 3.0]
    assert advantage.tolist() == [1.5, 1.0]


def test_bars_and_lambda_by_hand() -> None:
    # rho_bar 2, c_bar 1, lambda 1/2, gamma 1; ratios 3 and 1/2: rho = 2, 1/2; c = 1/2 and 1/4.
    # delta_1 = 1/2 (4 - 2) = 1, v_1 = 3; delta_0 = 2 (1 + 2 - 1) = 4, v_0 = 1 + 4 + 1/2 * 1 = 5.5.
    advantage, target = vtrace(
        transitions([1.0, 4.0], [1, -1], [2.0, 0.0]),
        value=torch.tensor([1.0, 2.0]),
        ratio=torch.tensor([3.0, 0.5]),
        gamma=1.0,
        gae_lambda=0.5,
        rho_bar=2.0,
    )
    assert target.tolist() == [5.5, 3.0]
    assert advantage.tolist() == [2.0 * (1.0 + 3.0 - 1.0), 1.0]


def test_values_of_now_are_used_where_there_is_a_row_and_those_collected_elsewhere() -> None:
    given = transitions([0.0, 0.0, 0.0], [2, -1, -1], [77.0, 5.0, 7.0])
    value = torch.tensor([0.0, 0.0, 10.0])
    assert given.next_of(value).tolist() == [10.0, 5.0, 7.0]
    _, target = vtrace(given, value=value, ratio=torch.ones(3), gamma=1.0, gae_lambda=0.0)
    assert target.tolist() == [10.0, 5.0, 7.0]


def step_by_step(
    given: Transitions,
    *,
    value: list[float],
    ratio: list[float],
    gamma: float,
    gae_lambda: float,
    rho_bar: float,
    c_bar: float,
) -> tuple[list[float], list[float]]:
    """Equation 1 of the paper as it stands: a sum over the rest of the trajectory."""
    reward, after, edge = (
        tensor.tolist() for tensor in (given.reward, given.successor, given.next_value)
    )

    def next_of(values: list[float], row: int) -> float:
        return values[int(after[row])] if after[row] >= 0 else float(edge[row])

    targets = []
    for start in range(len(value)):
        total, weight, row = value[start], 1.0, start
        while True:
            rho = min(rho_bar, ratio[row])
            total += weight * rho * (reward[row] + gamma * next_of(value, row) - value[row])
            weight *= gamma * gae_lambda * min(c_bar, ratio[row])
            if after[row] < 0:
                break
            row = after[row]
        targets.append(total)
    advantages = [
        min(rho_bar, ratio[row]) * (reward[row] + gamma * next_of(targets, row) - value[row])
        for row in range(len(value))
    ]
    return advantages, targets


def random_chains(num_rows: int, *, generator: torch.Generator) -> Transitions:
    """Trajectories of all lengths, interleaved: every row has one predecessor at most."""
    open_ends: list[int] = []
    successor = [-1] * num_rows
    for row in range(num_rows):
        draw = float(torch.rand(1, generator=generator))
        if open_ends and draw < 0.8:
            at = int(torch.randint(len(open_ends), (1,), generator=generator))
            successor[open_ends.pop(at)] = row
        open_ends.append(row)
    return Transitions(
        reward=torch.randn(num_rows, generator=generator),
        successor=torch.tensor(successor),
        next_value=torch.randn(num_rows, generator=generator),
    )


@pytest.mark.parametrize("num_rows", [1, 2, 7, 64, 65])
def test_step_by_step(num_rows: int) -> None:
    generator = torch.Generator().manual_seed(num_rows)
    given = random_chains(num_rows, generator=generator)
    value = torch.randn(num_rows, generator=generator)
    ratio = torch.randn(num_rows, generator=generator).exp()
    for rho_bar, c_bar in ((1.0, 1.0), (2.0, 0.5), (1e6, 1e6)):
        advantage, target = vtrace(
            given,
            value=value,
            ratio=ratio,
            gamma=0.9,
            gae_lambda=0.8,
            rho_bar=rho_bar,
            c_bar=c_bar,
        )
        expected_advantage, expected_target = step_by_step(
            given,
            value=value.tolist(),
            ratio=ratio.tolist(),
            gamma=0.9,
            gae_lambda=0.8,
            rho_bar=rho_bar,
            c_bar=c_bar,
        )
        torch.testing.assert_close(target, torch.tensor(expected_target), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(
            advantage, torch.tensor(expected_advantage), rtol=1e-4, atol=1e-4
        )


def test_without_a_future_only_ones_own_reward_counts() -> None:
    given = transitions([1.0, 2.0], [1, -1], [1e9, 1e9])
    value, ratio = torch.tensor([0.5, 1.0]), torch.tensor([1.0, 0.5])
    advantage, target = vtrace(given, value=value, ratio=ratio, gamma=0.0, gae_lambda=0.95)
    assert advantage.tolist() == [0.5, 0.5]
    assert target.tolist() == [1.0, 1.5]
