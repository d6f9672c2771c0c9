"""The solver against published numbers, perfect play, and PettingZoo's own positions."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
from pettingzoo.classic.tictactoe.tictactoe import raw_env

from experiments.learning import tictactoe
from experiments.learning.tictactoe import (
    Board,
    after,
    best_response,
    is_over,
    legal_cells,
    mover,
    winner,
)

Observations = npt.NDArray[np.int8]
Legal = npt.NDArray[np.bool_]
Probabilities = npt.NDArray[np.float64]


@cache
def minimax(board: Board) -> int:
    """Value to who is on turn."""
    if is_over(board):
        return {0: 0, mover(board): 1, 3 - mover(board): -1}[winner(board)]
    return max(-minimax(after(board, cell)) for cell in legal_cells(board))


def board_of(observation: Observations) -> Board:
    own, other = observation.reshape(9, 2).T
    first, second = (own, other) if own.sum() == other.sum() else (other, own)
    return tuple((first + 2 * second).tolist())


def perfect(observation: Observations, legal: Legal) -> Probabilities:
    actions = []
    for row in observation:
        board = board_of(row)
        actions.append(max(legal_cells(board), key=lambda cell: -minimax(after(board, cell))))
    return np.eye(9)[actions]


def first_legal(observation: Observations, legal: Legal) -> Probabilities:
    return np.asarray(np.eye(9)[legal.argmax(axis=1)])


def uniform(observation: Observations, legal: Legal) -> Probabilities:
    return np.asarray(legal / legal.sum(axis=1, keepdims=True))


def test_the_tree_has_its_known_size() -> None:
    boards = tictactoe.positions()
    assert len(boards) == len(set(boards)) == 5478
    # Each of the two wins, or the board is full: 626 + 316 + 16 of the 958 ends.
    ends = [winner(board) for board in boards if is_over(board)]
    assert [ends.count(who) for who in (1, 2, 0)] == [626, 316, 16]


def test_perfect_play_cannot_be_beaten() -> None:
    assert minimax((0,) * 9) == 0
    value = best_response(perfect)
    assert (value.first, value.second) == (0.0, 0.0)


def test_the_first_legal_cell_loses_in_both_seats() -> None:
    value = best_response(first_legal)
    assert (value.first, value.second) == (1.0, 1.0)


def test_a_seat_is_solved_by_itself() -> None:
    """Perfect with an odd number of empty cells, that is as the first player only."""

    def perfect_as_first(observation: Observations, legal: Legal) -> Probabilities:
        first = legal.sum(axis=1, keepdims=True) % 2 == 1
        return np.where(first, perfect(observation, legal), first_legal(observation, legal))

    value = best_response(perfect_as_first)
    assert (value.first, value.second) == (0.0, 1.0)


def test_values_against_uniform_play_are_the_known_ones() -> None:
    value = best_response(uniform)
    # To the second player .932275 won, .007407 lost; to the first .994792 won, nothing lost.
    assert value.first == pytest.approx(0.932275 - 0.007407, abs=2e-6)
    assert value.second == pytest.approx(0.994792, abs=1e-6)


def test_positions_look_as_in_pettingzoo() -> None:
    rng = np.random.default_rng(1)
    env = raw_env()
    for _ in range(20):
        env.reset()
        board: Board = (0,) * 9
        while not is_over(board):
            assert not any(env.terminations.values())
            assert env.agent_selection == f"player_{mover(board)}"
            view = env.observe(env.agent_selection)
            np.testing.assert_array_equal(view["observation"], tictactoe.observe(board))
            assert np.flatnonzero(view["action_mask"]).tolist() == legal_cells(board)
            assert board_of(view["observation"]) == board
            cell = int(rng.choice(legal_cells(board)))
            env.step(cell)
            board = after(board, cell)
        assert all(env.terminations.values())
        who = winner(board)
        expected = {0: [0, 0], 1: [1, -1], 2: [-1, 1]}[who]
        assert [env.rewards[agent] for agent in env.possible_agents] == expected
