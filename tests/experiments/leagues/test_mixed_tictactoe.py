"""Mixtures of tic-tac-toe policies against the solver of single ones, and by enumeration."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch

from arena.envs.batched.tictactoe import TicTacToe
from arena.game_theory.exploitability import Policy, values
from arena.game_theory.game_tree import grow_tree
from experiments.leagues import mixed_tictactoe
from experiments.learning import tictactoe

FloatArray = npt.NDArray[np.float64]


@pytest.fixture(scope="module")
def plays() -> FloatArray:
    """Three random policies, the last one nearly sure of what it does. [3, N, 9]."""
    rng = np.random.default_rng(1)
    legal = mixed_tictactoe.legal()
    logits = rng.normal(size=(3, *legal.shape)) * np.array([0.5, 2.0, 8.0])[:, None, None]
    chances = np.exp(logits) * legal
    return np.asarray(chances / chances.sum(axis=2, keepdims=True))


def solved(play: FloatArray) -> float:
    """The exploitability of one policy, from the other solver."""
    found = tictactoe.best_response(lambda observations, legal: play)
    return (found.first + found.second) / 2


@pytest.mark.slow
def test_one_policy_alone_is_no_mixture(plays: FloatArray) -> None:
    for number, share in enumerate(np.eye(3)):
        assert mixed_tictactoe.exploitability(plays, shares=share) == pytest.approx(
            solved(plays[number])
        )


def test_equal_policies_mix_to_the_same(plays: FloatArray) -> None:
    twice = np.stack([plays[1], plays[1]])
    mixed = mixed_tictactoe.exploitability(twice, shares=np.array([0.3, 0.7]))
    assert mixed == pytest.approx(solved(plays[1]))


def test_who_does_not_know_its_opponent_gets_less(plays: FloatArray) -> None:
    shares = np.array([0.2, 0.3, 0.5])
    mixed = mixed_tictactoe.exploitability(plays, shares=shares)
    known = sum(share * solved(play) for share, play in zip(shares, plays, strict=True))
    assert mixed < known - 1e-4


def test_a_first_move_that_tells_who_it_is_makes_mixing_useless() -> None:
    # Each the other turned around: one takes the first free cell, the other the last.
    legal = mixed_tictactoe.legal()
    lowest = np.eye(9)[legal.argmax(axis=1)]
    highest = np.eye(9)[8 - legal[:, ::-1].argmax(axis=1)]
    plays = np.stack([lowest, highest])
    alone = tictactoe.best_response(lambda observations, legal: lowest)
    mixed = mixed_tictactoe.response(plays, np.array([0.5, 0.5]), seat=1)
    assert mixed == pytest.approx(alone.first)


def test_values_are_those_on_the_game_tree(plays: FloatArray) -> None:
    index = {seen.tobytes(): n for n, seen in enumerate(mixed_tictactoe.observations())}

    def policy(play: FloatArray) -> Policy:
        def chances(observation: torch.Tensor, mask: torch.Tensor, agent: str) -> torch.Tensor:
            rows = observation.numpy().astype(np.int8).reshape(-1, 3, 3, 2)
            return torch.from_numpy(play[[index[row.tobytes()] for row in rows]])

        return chances

    expected = values(grow_tree(TicTacToe), [policy(play) for play in plays]).numpy()
    assert mixed_tictactoe.values(plays) == pytest.approx(expected, abs=1e-5)
