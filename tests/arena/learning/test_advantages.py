from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.experience import Sequences, Transitions
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
from arena.learning.sequences import cut_into_sequences, pack
from tests.arena.samples import make_rollout

Numbers = Sequence[float]


def column(*numbers: float) -> torch.Tensor:
    """One environment, one agent: [T, 1, 1]."""
    return torch.tensor(numbers)[:, None, None]


def flags(text: str) -> torch.Tensor:
    """``x`` is True. bool [T, 1, 1]."""
    return torch.tensor([letter == "x" for letter in text])[:, None, None]


def decisions(
    decided: str, trained: str, ended: str, value: Numbers, reward: Numbers, **more: Any
) -> Decisions:
    """Of one agent in one environment; ``more``: ``end_value`` and ``next_value``."""
    next_value = more.get("next_value")
    return Decisions(
        decided=flags(decided),
        trained=flags(trained),
        value=column(*value),
        reward=column(*reward),
        ended=flags(ended),
        end_value=column(*more.get("end_value", [0.0] * len(value))),
        next_decided=torch.tensor([[next_value is not None]]),
        next_value=torch.tensor([[next_value or 0.0]]),
    )


@pytest.mark.parametrize(
    ("given", "advantages", "expected"),
    [
        # gae: delta = r + .5 V' - V: 1 + 1 - 1 = 1, 0 + 1.5 - 2 = -.5, 2 + 2 - 3 = 1; gamma lambda
        # = .4. A2 = 1, A1 = -.5 + .4 = -.1, A0 = 1 - .04 = .96
        pytest.param(
            decisions("xxx", "xxx", "---", [1.0, 2.0, 3.0], [1.0, 0.0, 2.0], next_value=4.0),
            [0.96, -0.1, 1.0],
            "xxx",
            id="plain",
        ),
        # Decisions are at 0 and 3. R0 = 1 + 2 + 4 = 7, delta0 = 7 + .5 * 10 - 6 = 6; R3 = 8 + 16 =
        # 24 up to the end, delta3 = 24 - 10 = 14; A0 = 6 + .4 * 14 = 11.6
        pytest.param(
            decisions("x--x-", "x--x-", "----x", [6.0, 0, 0, 10.0, 0], [1.0, 2.0, 4.0, 8.0, 16.0]),
            [11.6, 0.0, 0.0, 14.0, 0.0],
            "x--x-",
            id="rewards between own decisions belong to the earlier one",
        ),
        # Episodes end in calls 0 (truncated, V(final) = 6) and 1 (terminated): A0 = 1 + 3 - 2, A1 =
        # 5 - 1.
        pytest.param(
            decisions(
                "xx", "xx", "xx", [2.0, 1.0], [1.0, 5.0], end_value=[6.0, 0.0], next_value=100.0
            ),
            [2.0, 4.0],
            "xx",
            id="an end separates episodes, and truncation bootstraps",
        ),
        # Decisions are at 0 and 2, and the agent is not on turn at the end: A0 = (1 + 2) + .5 * 8 -
        # 4 = 3.
        pytest.param(
            decisions("x-x-", "x-x-", "----", [4.0, 0.0, 8.0, 0.0], [1.0, 2.0, 50.0, 50.0]),
            [3.0, 0.0, 0.0, 0.0],
            "x---",
            id="the last decision without a successor only bootstraps the one before",
        ),
        # The random decision at 0 has no value; the trained one is at 2: A = 3 + 0 - 1.
        pytest.param(
            decisions("x-x-", "--x-", "---x", [math.nan, 0.0, 1.0, 0.0], [70.0, 70.0, 1.0, 2.0]),
            [0.0, 0.0, 2.0, 0.0],
            "--x-",
            id="rewards after an opening are dropped",
        ),
        # The successor of the decision at 1 is untrained: its value is unknown, so 1 is not
        # trained on either, but bootstraps the one at 0: A0 = 1 + .5 * 4 - 2 = 1.
        pytest.param(
            decisions("xxx", "xx-", "--x", [2.0, 4.0, math.nan], [1.0, 9.0, 70.0]),
            [1.0, 0.0, 0.0],
            "x--",
            id="nothing leaks through an untrained decision",
        ),
    ],
)
def test_advantages_by_hand(given: Decisions, advantages: list[float], expected: str) -> None:
    advantage, defined = generalized_advantages(given, gamma=0.5, gae_lambda=0.8)
    assert advantage.flatten().tolist() == pytest.approx(advantages)
    assert torch.equal(defined, flags(expected))


def test_without_a_future_only_ones_own_reward_counts() -> None:
    """``gamma`` 0 is allowed, and PBT may come near it: nothing is divided by it."""
    given = decisions(
        "x-xx",
        "x-xx",
        "--x-",
        [1.0, 0.0, 2.0, 3.0],
        [1.0, 0.5, 2.0, 7.0],
        end_value=[0.0, 0.0, 1e9, 0.0],
        next_value=1e9,
    )
    advantage, defined = generalized_advantages(given, gamma=0.0, gae_lambda=0.95)
    # The first decision's reward comes in two calls: 1.5 - 1; then 2 - 2 and 7 - 3.
    assert advantage.flatten().tolist() == [0.5, 0.0, 0.0, 4.0]
    assert defined.flatten().tolist() == [True, False, True, True]


def transitions(reward: list[float], successor: list[int], next_value: list[float]) -> Transitions:
    return Transitions(
        reward=torch.tensor(reward),
        successor=torch.tensor(successor),
        next_value=torch.tensor(next_value),
    )


@pytest.mark.parametrize(
    ("gamma", "gae_lambda", "rho_bar", "targets", "advantages"),
    [
        # Decisions 0 -> 1 -> end, gamma 1/2, lambda 1. V = 1, 2; ratios 3 and 1/2.
        # Clipped at 1: rho, c = 1, 1/2. delta_1 = 1/2 (4 - 2) = 1, v_1 = 3.
        # delta_0 = 1 (1 + 1/2 * 2 - 1) = 1, v_0 = 1 + 1 + 1/2 * 1 * (3 - 2) = 2.5.
        # A_1 = 1/2 (4 - 2) = 1, A_0 = 1 (1 + 1/2 * 3 - 1) = 1.5.
        (0.5, 1.0, 1.0, [2.5, 3.0], [1.5, 1.0]),
        # rho_bar 2, c_bar 1, lambda 1/2, gamma 1: rho = 2, 1/2; c = 1/2 and 1/4.
        # delta_1 = 1/2 (4 - 2) = 1, v_1 = 3; delta_0 = 2 (1 + 2 - 1) = 4,
        # v_0 = 1 + 4 + 1/2 * 1 = 5.5. A_0 = 2 (1 + 3 - 1).
        (1.0, 0.5, 2.0, [5.5, 3.0], [6.0, 1.0]),
    ],
)
def test_vtrace_and_its_bars_by_hand(
    gamma: float, gae_lambda: float, rho_bar: float, targets: list[float], advantages: list[float]
) -> None:
    advantage, target = vtrace(
        transitions([1.0, 4.0], [1, -1], [2.0, 0.0]),
        value=torch.tensor([1.0, 2.0]),
        ratio=torch.tensor([3.0, 0.5]),
        gamma=gamma,
        gae_lambda=gae_lambda,
        rho_bar=rho_bar,
    )
    assert target.tolist() == targets
    assert advantage.tolist() == advantages


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


def test_targets_without_a_future_are_ones_own_reward() -> None:
    given = transitions([1.0, 2.0], [1, -1], [1e9, 1e9])
    value, ratio = torch.tensor([0.5, 1.0]), torch.tensor([1.0, 0.5])
    advantage, target = vtrace(given, value=value, ratio=ratio, gamma=0.0, gae_lambda=0.95)
    assert advantage.tolist() == [0.5, 0.5]
    assert target.tolist() == [1.0, 1.5]


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


def shaped_transitions(**changes: torch.Tensor) -> Transitions:
    tensors = {"reward": ROWS, "successor": torch.full((4,), -1), "next_value": ROWS}
    return Transitions(**{**tensors, **changes})


@pytest.mark.parametrize("name", ["reward", "successor", "next_value", "value", "ratio"])
def test_vtrace_refuses_a_column_beside_rows(name: str) -> None:
    def solve(**changes: torch.Tensor) -> object:
        value, ratio = changes.pop("value", ROWS), changes.pop("ratio", ROWS)
        return vtrace(
            shaped_transitions(**changes), value=value, ratio=ratio, gamma=0.9, gae_lambda=0.9
        )

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
        transitions=shaped_transitions(),
    )
    given = {"value": ROWS, "log_prob": ROWS}
    with_vtrace_targets(rollout, **given, hyperparameters=PpoHyperparameters())
    with pytest.raises(ValueError, match=rf"{name} \[4, 1\]"):
        with_vtrace_targets(
            rollout, **{**given, name: COLUMN}, hyperparameters=PpoHyperparameters()
        )


def shaped_decisions(**changes: torch.Tensor) -> Decisions:
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
    function(shaped_decisions())
    for name in ("reward", "ended", "end_value", "decided", "trained"):
        wrong = getattr(shaped_decisions(), name)[:, :, :1]
        with pytest.raises(ValueError, match=rf"{name} \[5, 2, 1\]"):
            function(shaped_decisions(**{name: wrong}))
    for name in ("next_decided", "next_value"):
        wrong = getattr(shaped_decisions(), name)[:, :1]
        with pytest.raises(ValueError, match=rf"{name} \[2, 1\]"):
            function(shaped_decisions(**{name: wrong}))


def test_chains_are_cut_where_they_end_and_where_they_are_long() -> None:
    # 0 -> 2 -> 3 -> 6 and 1 -> 4; 5 is alone.
    successor = torch.tensor([2, 4, 3, 6, -1, -1, -1])
    assert cut_into_sequences(successor, max_length=None).tolist() == [
        [0, 2, 3, 6],
        [1, 4, -1, -1],
        [5, -1, -1, -1],
    ]
    pieces = cut_into_sequences(successor, max_length=3).tolist()
    assert pieces == [[0, 2, 3], [6, -1, -1], [1, 4, -1], [5, -1, -1]]
    assert cut_into_sequences(successor, max_length=1).flatten().tolist() == [0, 2, 3, 6, 1, 4, 5]


@pytest.mark.parametrize("max_length", [None, 3])
def test_no_decisions_are_no_sequences(max_length: int | None) -> None:
    assert len(cut_into_sequences(torch.zeros(0, dtype=torch.int64), max_length=max_length)) == 0


@settings(deadline=None, max_examples=50)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    max_length=st.one_of(st.none(), st.integers(1, 10)),
    seed=st.integers(0, 100),
)
def test_every_decision_is_in_one_sequence_after_its_predecessor(
    lengths: list[int], max_length: int | None, seed: int
) -> None:
    rng = torch.Generator().manual_seed(seed)
    total = sum(lengths)
    # Chains share rows at random, each in the order of time.
    owner = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    owner = owner[torch.randperm(total, generator=rng)]
    successor = torch.full((total,), -1)
    for chain in range(len(lengths)):
        rows = (owner == chain).nonzero().squeeze(1)
        successor[rows[:-1]] = rows[1:]
    sequences = cut_into_sequences(successor, max_length=max_length)
    assert sorted(sequences[sequences >= 0].tolist()) == list(range(total))
    cut = max_length or max(lengths)
    assert len(sequences) == sum(-(-length // cut) for length in lengths)
    for sequence in sequences.tolist():
        rows_in = [row for row in sequence if row >= 0]
        assert sequence == rows_in + [-1] * (len(sequence) - len(rows_in))
        assert len(rows_in) <= cut
        assert [int(successor[row]) for row in rows_in[:-1]] == rows_in[1:]


def test_packed_rows_are_first_decisions_then_second_ones() -> None:
    rows = torch.tensor([[0, 3, -1], [1, 4, 5], [2, -1, -1]])
    sequences = Sequences(rows=rows, state=torch.arange(3.0)[:, None])
    packed = pack(sequences)
    assert packed.rows.tolist() == [1, 0, 2, 4, 3, 5]
    assert packed.batch_sizes.tolist() == [3, 2, 1]
    assert packed.state.flatten().tolist() == [1.0, 0.0, 2.0]
    some = pack(sequences, torch.tensor([2, 0]))
    assert (some.rows.tolist(), some.batch_sizes.tolist()) == ([0, 2, 3], [2, 1])
    assert some.state.flatten().tolist() == [0.0, 2.0]
