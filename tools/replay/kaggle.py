"""A game as an episode of Kaggle's: what `kaggle-environments` shows and plays again.

The form is that of ``toJSON`` in its version 1.33, which has Connect Four and rock, paper, scissors
of its own, and leaves other board games to OpenSpiel. Left out is what is the same in all episodes
of a game, times, and what follows from ``info.actionHistory``: OpenSpiel's state as one text, and
each of its actions once more.

Tests: `tests/tools/replay/test_retelling.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add
from typing import Any

from arena.errors import ConfigError

Document = dict[str, Any]

OPENSPIEL = "open_spiel_"
"""Beginning of Kaggle's names of OpenSpiel's games."""

NO_ACTION = -1
"""OpenSpiel's action of a player who has none."""

SPARE_STEPS = 100
"""Steps by which Kaggle lets an episode of OpenSpiel outlast the game."""

ROWS, COLUMNS = 6, 7

MOST_SIGNS = 5
"""Signs of Kaggle's largest rock, paper, scissors."""

Moment = tuple[Mapping[int, Any], Mapping[int, int], Sequence[float | None]]
"""Actions that led to a moment of a game and actions that were chosen there, both by player, and
what each player has received. Players are in Kaggle's order; at the end nothing is chosen.
"""


def episode(document: Mapping[str, Any]) -> Document:
    """Return a game as an episode of Kaggle's.

    Args:
        document: Game, as `tools.replay.retelling.Retelling.tell` tells it.

    Raises:
        ConfigError: If Kaggle has no such game, or OpenSpiel is needed and not installed.
    """
    environment, steps = document["environment"], document["steps"]
    entry = GAMES.get(environment.partition("(")[0])
    if entry is None:
        raise ConfigError(
            f".json is for games that kaggle-environments knows, {', '.join(GAMES)}; got "
            f"{environment}"
        )
    agents = list(steps[-1]["rewards"])[:: -1 if entry.is_turned else 1]
    turns = [
        {agents.index(decision["agent"]): decision["action"] for decision in step["decisions"]}
        for step in steps
    ]
    paid = (tuple(step["rewards"].get(agent, 0.0) for agent in agents) for step in steps)
    returns = accumulate(paid, lambda before, more: tuple(map(add, before, more)))
    told = entry.tell(entry, document, zip([{}, *turns[:-1]], turns, returns, strict=True))
    for number, states in enumerate(told["steps"]):
        # Kaggle stores what all players share in the first player's entry only.
        states[0]["observation"]["step"] = number
    names = {agent: seat["player"] for seat in document["seats"] for agent in seat["agents"]}
    return {
        "id": document["game"],
        "name": entry.name,
        "schema_version": 1,
        **told,
        "info": {"TeamNames": [names[agent] for agent in agents], **told["info"]},
        "rewards": [state["reward"] for state in told["steps"][-1]],
        "statuses": [state["status"] for state in told["steps"][-1]],
    }


def _states(moment: Moment, seen: Sequence[Document]) -> list[Document]:
    """Return the states of all players at a moment, in the form of an episode."""
    actions, turn, returns = moment
    return [
        {
            "action": actions.get(player, 0),
            "reward": returns[player],
            "info": {},
            "observation": observation,
            "status": ("ACTIVE" if player in turn else "INACTIVE") if turn else "DONE",
        }
        for player, observation in enumerate(seen)
    ]


def _connectx(_: Entry, __: Mapping[str, Any], moments: Iterable[Moment]) -> Document:
    board = [0] * (ROWS * COLUMNS)
    steps = []
    for moment in moments:
        for player, column in moment[0].items():
            # Rows are numbered from the top, so the lowest free cell is the largest one.
            cells = range(column, ROWS * COLUMNS, COLUMNS)
            board[max(cell for cell in cells if not board[cell])] = player + 1
        seen: list[Document] = [{"board": list(board), "mark": 1}, {"mark": 2}]
        steps.append(_states(moment, seen))
    configuration = {"rows": ROWS, "columns": COLUMNS, "inarow": 4}
    return {"configuration": configuration, "info": {}, "steps": steps}


def _rps(_: Entry, document: Mapping[str, Any], moments: Iterable[Moment]) -> Document:
    signs = document["kwargs"].get("num_actions", 3)
    if signs > MOST_SIGNS:
        raise ConfigError(
            f".json of classic/rps-v2 needs num_actions of at most {MOST_SIGNS}, got {signs}"
        )
    steps = []
    for before, turn, returns in moments:
        seen: list[Document] = [{"reward": int(reward or 0)} for reward in returns]
        for player in before:
            seen[player]["lastOpponentAction"] = before[1 - player]
        steps.append(_states((before, turn, returns), seen))
    # Kaggle ends the game after this number of rounds; the threshold 1 accepts any lead as a win.
    configuration = {"episodeSteps": len(steps), "signs": signs, "tieRewardThreshold": 1}
    return {"configuration": configuration, "info": {}, "steps": steps}


def _openspiel(entry: Entry, document: Mapping[str, Any], moments: Iterable[Moment]) -> Document:
    from arena.envs.openspiel.game import PREFIX, load_game

    name, environment = entry.name.removeprefix(OPENSPIEL), document["environment"]
    is_own = environment.startswith(PREFIX)
    game = load_game(*((environment, document["kwargs"]) if is_own else (PREFIX + name, {}))).game
    state = game.new_initial_state()
    idle: dict[int, Document] = {player: {"submission": NO_ACTION} for player in (0, 1)}
    # Kaggle's first step shows nothing and has no action.
    steps = [_states((idle, {0: 0, 1: 0}, (0.0, 0.0)), ({}, {}))]
    texts = []
    for before, turn, returns in moments:
        done = dict(idle)
        for player, action in before.items():
            chosen = entry.action(state, action)
            if chosen not in state.legal_actions(player):
                raise ConfigError(
                    f".json of {environment} is for games by OpenSpiel's rules, by which {chosen} "
                    f"is no action after {state.history()}"
                )
            done[player] = {"submission": chosen, "actionString": state.action_to_string(chosen)}
            state.apply_action(chosen)
        texts.append(entry.text(state))
        shown = {
            "observationString": texts[-1],
            "currentPlayer": state.current_player(),
            "isTerminal": state.is_terminal(),
        }
        seen = [{**shown, "playerId": player} for player in (0, 1)]
        # Rewards are None until the game ends.
        steps.append(_states((done, turn, (None, None) if turn else returns), seen))
    configuration = {
        "episodeSteps": game.max_history_length() + SPARE_STEPS,
        "openSpielGameString": str(game),
        "openSpielGameName": name,
        "openSpielGameParameters": game.get_parameters(),
    }
    info = {"actionHistory": [str(action) for action in state.history()], "stateHistory": texts}
    return {"configuration": configuration, "info": info, "steps": steps}


def _row_by_row(_: object, action: int) -> int:
    # PettingZoo numbers the cells of tic-tac-toe column by column.
    return action % 3 * 3 + action // 3


def _chess_action(state: Any, action: int) -> int:  # noqa: ANN401
    import chess
    from pettingzoo.classic.chess import chess_utils

    board = chess.Board(str(state))
    # `action_to_move` reads a table that `legal_moves` fills.
    chess_utils.legal_moves(board)
    move = chess_utils.action_to_move(board, action, 0 if board.turn == chess.WHITE else 1)
    return int(state.parse_move_to_action(move.uci()))


def _connect_four_text(state: Any) -> str:  # noqa: ANN401
    """Return what Kaggle shows in place of OpenSpiel's board."""
    is_over = state.is_terminal()
    # Rows are numbered from the bottom.
    board = [list(row) for row in reversed(str(state).split())]
    player = "terminal" if is_over else "xo"[state.current_player()]
    winner = {1: "x", -1: "o", 0: "draw"}[state.returns()[0]] if is_over else None
    return json.dumps(
        {"board": board, "current_player": player, "is_terminal": is_over, "winner": winner}
    )


@dataclass(frozen=True, slots=True)
class Entry:
    """Game that Kaggle knows.

    Attributes:
        name: Kaggle's name of it.
        tell: Function that makes an episode's configuration, facts and steps.
        is_turned: Whether the last agent is Kaggle's first player.
        action: Function that makes an action of OpenSpiel's of a state and an action of the game.
        text: Function that makes the text that both players see of a state of OpenSpiel's.
    """

    name: str
    tell: Callable[[Entry, Mapping[str, Any], Iterable[Moment]], Document] = _openspiel
    is_turned: bool = False
    action: Callable[[Any, int], int] = lambda _, action: action
    text: Callable[[Any], str] = str


GAMES: Mapping[str, Entry] = {
    "classic/connect_four-v3": Entry("connectx", _connectx),
    "classic/rps-v2": Entry("rps", _rps),
    "classic/tictactoe-v3": Entry("open_spiel_tic_tac_toe", action=_row_by_row),
    # OpenSpiel's first player is black.
    "classic/chess-v6": Entry("open_spiel_chess", is_turned=True, action=_chess_action),
    "openspiel:connect_four": Entry("open_spiel_connect_four", text=_connect_four_text),
    **{
        f"openspiel:{name}": Entry(f"open_spiel_{name}") for name in ("chess", "hex", "tic_tac_toe")
    },
}
"""Games that Kaggle knows, by the environment's id without parameters.

Of OpenSpiel's there are those in turns, without chance and secrets, of which Kaggle shows the text
that OpenSpiel has, and Connect Four.
"""
