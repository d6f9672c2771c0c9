from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from msgspec import structs

from arena.codec import to_json
from arena.envs.registry import make_environment
from tools.bench import loop
from tools.bench.children import rate_of_children
from tools.bench.loop import Games, HandWrittenLoop, LoopSettings

NUM_GAMES = 200
TINY = LoopSettings(num_games=8, rollout_length=4, num_epochs=1, num_minibatches=2)


def as_pettingzoo(observation: np.ndarray) -> np.ndarray:
    """[84] as PettingZoo lays it out: rows from the top down, columns, whose stones."""
    planes = observation.reshape(2, loop.NUM_COLUMNS, loop.NUM_ROWS)
    return planes.transpose(2, 1, 0)[::-1]


@pytest.mark.slow
def test_the_game_is_pettingzoos() -> None:
    """Games one after the other in one environment, and all at once in the loop."""
    rng = np.random.default_rng(3)
    env = make_environment("classic/connect_four-v3", kwargs={}, api="aec", launch_directory="")
    num_won = num_decisions = 0
    for _ in range(NUM_GAMES):
        env.reset()
        games = Games(2)
        over = False
        while not over:
            seen = env.observe(env.agent_selection)
            legal = games.legal()
            assert legal[0].tolist() == seen["action_mask"].astype(bool).tolist()
            assert np.array_equal(as_pettingzoo(games.observation()[0]), seen["observation"])
            column = int(rng.choice(np.flatnonzero(legal[0])))
            mover = env.agent_selection
            env.step(column)
            # The second game gets the same moves: one game's moves must not affect the other.
            won, ended = games.step(np.array([column, column]))
            over = bool(ended[0])
            assert won[0] == won[1]
            assert over == bool(env.terminations[mover])
            assert won[0] == (env.rewards[mover] == 1)
            num_won += int(won[0])
            num_decisions += 1
        assert not games.stones.any()
    env.close()
    assert num_won > NUM_GAMES / 2
    assert num_decisions > 10 * NUM_GAMES


def test_a_full_board_is_a_draw_and_begins_anew() -> None:
    # The board is filled in pairs of columns, so that no line has four equal stones.
    moves = [
        *(0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1),
        *(2, 3, 2, 3, 3, 2, 3, 2, 2, 3, 2, 3),
        *(4, 5, 4, 5, 5, 4, 5, 4, 4, 5, 4, 5),
        *(6, 6, 6, 6, 6, 6),
    ]
    games = Games(1)
    for move in moves[:-1]:
        won, over = games.step(np.array([move]))
        assert not over[0]
    won, over = games.step(np.array([moves[-1]]))
    assert not won[0]
    assert over[0]
    assert games.legal().all()
    assert not games.observation().any()


def test_one_iteration_learns_from_every_decision() -> None:
    torch.manual_seed(0)
    learner = HandWrittenLoop(TINY)
    before = [parameter.clone() for parameter in learner._network.parameters()]
    assert learner.iterate() == 32
    after = list(learner._network.parameters())
    assert all(parameter.isfinite().all() for parameter in after)
    assert all(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_advantages_take_the_next_value_for_the_opponents() -> None:
    learner = HandWrittenLoop(LoopSettings(num_games=1, rollout_length=2))
    learner._value[:] = torch.tensor([[0.5], [0.25], [0.125]])
    learner._reward[:] = torch.tensor([[0.0], [1.0]])
    learner._goes_on[:] = torch.tensor([[1.0], [0.0]])
    # Step 1 wins: 1 - 0.25 = 0.75. Step 0: 0 - 0.99 * 0.25 - 0.5 - 0.95 * 0.99 * 0.75.
    expected = [-0.99 * 0.25 - 0.5 - 0.95 * 0.99 * 0.75, 0.75]
    assert learner._advantages()[:, 0].tolist() == pytest.approx(expected)


@pytest.mark.integration
@pytest.mark.slow
def test_two_processes_run_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    # An installed module has a name that each process can import.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    settings = [to_json(structs.replace(TINY, seed=seed)) for seed in (1, 2)]
    assert rate_of_children("tools.bench.loop", [["0.05", one] for one in settings]) > 0.0
