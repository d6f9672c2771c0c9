"""Short games as they are told, written by hand."""

from __future__ import annotations

from typing import Any


def told(
    environment: str,
    turns: list[dict[str, int]],
    paid: list[dict[str, float]],
    *,
    agents: tuple[str, ...] = ("player_0", "player_1"),
    kwargs: dict[str, object] | None = None,
) -> dict[str, Any]:
    """What `Retelling.tell` returns, but what nobody asks for here.

    Args:
        environment: Its id.
        turns: Actions of each step, by agent.
        paid: Rewards of the last steps, by agent; 0 before.
        agents: In order.
        kwargs: Of the environment.
    """
    free = len(turns) - len(paid)
    nothing: dict[str, float] = dict.fromkeys(agents, 0.0)
    rewards: list[dict[str, float]] = [{}, *[nothing] * free, *paid]
    return {
        "game": "7.1",
        "environment": environment,
        "kwargs": kwargs or {},
        "seed": 5,
        "seats": [{"agents": [agent], "player": f"player of {agent}"} for agent in agents],
        "steps": [
            {
                "step": number,
                "rewards": received,
                "decisions": [{"agent": agent, "action": action} for agent, action in turn.items()],
            }
            for number, (received, turn) in enumerate(zip(rewards, [*turns, {}], strict=True))
        ],
    }


def by_turns(actions: list[int], agents: tuple[str, str] = ("player_0", "player_1")) -> list[Any]:
    return [{agents[number % 2]: action} for number, action in enumerate(actions)]


FIRST_WINS: list[dict[str, float]] = [{"player_0": 1.0, "player_1": -1.0}]
SECOND_WINS: list[dict[str, float]] = [{"player_0": -1.0, "player_1": 1.0}]
CROSSES = ("player_1", "player_2")

BY_HAND: dict[str, dict[str, Any]] = {
    # The first player has four in the leftmost column.
    "connectx": told("classic/connect_four-v3", by_turns([0, 1, 0, 1, 0, 1, 0]), FIRST_WINS),
    # Paper beats rock, a draw, scissors beat paper twice: 2 to -2 for the second player.
    "rps": told(
        "classic/rps-v2",
        [
            {"player_0": 1, "player_1": 0},
            {"player_0": 2, "player_1": 2},
            *[{"player_0": 1, "player_1": 2}] * 3,
        ],
        [
            {"player_0": 1.0, "player_1": -1.0},
            {"player_0": 0.0, "player_1": 0.0},
            *[{"player_0": -1.0, "player_1": 1.0}] * 3,
        ],
        kwargs={"max_cycles": 5},
    ),
    # The first player has the left column; PettingZoo counts cells downwards.
    "tictactoe": told(
        "classic/tictactoe-v3",
        by_turns([0, 3, 1, 6, 2], CROSSES),
        [{"player_1": 1.0, "player_2": -1.0}],
        agents=CROSSES,
    ),
    # The game is the fool's mate.
    "chess": told("classic/chess-v6", by_turns([2997, 2421, 3589, 1783]), SECOND_WINS),
    "openspiel-tic_tac_toe": told("openspiel:tic_tac_toe", by_turns([0, 1, 3, 4, 6]), FIRST_WINS),
    # The first player has three in the lowest row of a small board.
    "openspiel-connect_four": told(
        "openspiel:connect_four(columns=4,rows=3,x_in_row=3)",
        by_turns([0, 0, 1, 1, 2]),
        FIRST_WINS,
    ),
    # The first player connects the first to the last row in the left column.
    "openspiel-hex": told(
        "openspiel:hex", by_turns([0, 1, 2]), FIRST_WINS, kwargs={"board_size": 2}
    ),
    # The same game is played, but here the first player is black, who moves second.
    "openspiel-chess": told(
        "openspiel:chess", by_turns([3009, 2426, 3594, 1799], ("player_1", "player_0")), FIRST_WINS
    ),
}
