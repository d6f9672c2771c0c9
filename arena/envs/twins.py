"""Environments with a native twin: the same game as a `BatchedGame`, by the original's id.

Torch-free, so that a list of environments can use it.

Tests: `tests/arena/envs/batched/test_twins.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from arena.environment_spec import AgentSpec

# Names, not classes: importing a game would import torch.
TWINS: Mapping[str, str] = {
    "classic/connect_four-v3": "arena.envs.batched.connect_four:ConnectFour",
    "classic/rps-v2": "arena.envs.batched.rock_paper_scissors:RockPaperScissors",
    "classic/tictactoe-v3": "arena.envs.batched.tictactoe:TicTacToe",
    "openspiel:kuhn_poker": "arena.envs.batched.kuhn_poker:KuhnPoker",
    "openspiel:leduc_poker": "arena.envs.batched.leduc_poker:LeducPoker",
}
"""Twin of an original's canonical id, as ``package.module:Class``."""


def openspiel_agent_spec(observation_shape: tuple[int, ...], num_actions: int) -> AgentSpec:
    """Return the spec of an agent of an OpenSpiel game.

    Args:
        observation_shape: Shape of its observations; information states are flat, (F,).
        num_actions: n.
    """
    return AgentSpec(
        observation={
            "kind": "Box",
            "shape": list(observation_shape),
            "dtype": "float32",
            # OpenSpiel declares no bounds of its tensors.
            "low": "-inf",
            "high": "inf",
        },
        action={"kind": "Discrete", "n": num_actions, "start": 0},
        mask="observation",
    )
