"""Tree of a small two-player game of OpenSpiel, grown breadth-first, or of a batched game.

Simultaneous decisions are made one after the other, and the second player does not see the first
one's choice: the same game. An agent knows OpenSpiel's information state, whatever its policy
observes. Histories that lead to one position are merged in games with turns and without hidden
information.

Shapes: as in `arena.game_theory.game_tree`.

Tests: `tests/arena/game_theory/test_openspiel_tree.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

from arena.environment_spec import EnvironmentSpec
from arena.envs.batched.find import find_game
from arena.envs.batched.game import BatchedGame, BatchedGameClass
from arena.envs.openspiel.game import OpenSpielGame, is_openspiel, load_game
from arena.envs.registry import TWINS
from arena.game_theory.game_tree import (
    MAX_HISTORIES,
    NUM_AGENTS,
    REWARD_TOLERANCE,
    DealtGame,
    GameTree,
    InformationSets,
    Level,
    NoGameTree,
    check_size,
    grow_tree,
)

MAX_ACTIONS = 500_000
"""Most actions tried in all. A game may have few positions and still come back to them often."""


CPU = torch.device("cpu")


def grow_openspiel_tree(game: OpenSpielGame) -> GameTree:
    """Play every history of a game.

    Raises:
        NoGameTree: If it is not a small two-player zero-sum game, or has no information states, or
            these do not tell how many decisions came before.
    """
    _check_kind(game)
    grower = _Grower(game)
    frontier, start = grower.first()
    levels: list[Level] = []
    while frontier:
        level, frontier = grower.expand(frontier, depth=len(levels))
        levels.append(level)
    return GameTree(
        agents=game.agents, knowledge=grower.knowledge(), start=start, levels=tuple(levels)
    )


def _check_kind(game: OpenSpielGame) -> None:
    kind = game.game.get_type()
    if game.game.num_players() != NUM_AGENTS:
        raise NoGameTree(f"the game must have two players, got {game.game.num_players()}")
    if kind.utility.name != "ZERO_SUM":
        raise NoGameTree(f"the game must be zero-sum, {kind.short_name} is {kind.utility.name}")
    is_told = kind.provides_information_state_string
    if not (is_told or kind.information.name == "PERFECT_INFORMATION"):
        raise NoGameTree(f"{kind.short_name} must tell what its players know, as a string")


@dataclass(frozen=True, slots=True, kw_only=True)
class _History:
    """History that ends in a decision.

    Attributes:
        state: State of OpenSpiel, not to be changed.
        deciding: Players that decide here, one after the other.
        chosen: Choices of those before this decision.
        returns: Returns so far.
        position: Key that is equal where states look the same to all players. None: positions are
            not compared.
    """

    state: Any
    deciding: list[int]
    chosen: tuple[int, ...]
    returns: list[float]
    position: Hashable

    @property
    def player(self) -> int:
        """Player that decides."""
        return self.deciding[len(self.chosen)]


@dataclass(frozen=True, slots=True)
class _Edge:
    """Action after a history, with the chance event that follows."""

    parent: int
    action: int
    chance: float
    reward: tuple[float, float]
    child: int


class _Grower:
    """Builder of a tree, level by level, that collects what each agent can know."""

    def __init__(self, game: OpenSpielGame) -> None:
        self._game = game
        kind = game.game.get_type()
        is_open = kind.information.name == "PERFECT_INFORMATION"
        # Histories of equal positions are merged.
        self._merges = is_open and (
            kind.dynamics.name == "SEQUENTIAL" or not kind.provides_information_state_string
        )
        # Information states by agent, with the number and depth of each set.
        self._sets: tuple[dict[Hashable, tuple[int, int]], ...] = ({}, {})
        self._observations: tuple[list[npt.NDArray[np.float32]], ...] = ([], [])
        self._legal: tuple[list[list[int]], ...] = ([], [])
        self._num_tried = 0

    def first(self) -> tuple[list[_History], torch.Tensor]:
        """Return the first decisions and the probability that chance leads to each. float64 [H]."""
        places = _Places(self)
        start: list[float] = []
        nothing = [0.0] * NUM_AGENTS
        for state, probability in self._settled(self._game.game.new_initial_state(), 1.0):
            if state.is_terminal():
                raise NoGameTree("the game must have a decision, chance alone may end it")
            at = places.place(self._begun(state, nothing))
            # Deals that lead to one position add up; a new position gets the next place.
            start += [0.0] * (at + 1 - len(start))
            start[at] += probability
        return places.histories, torch.tensor(start, dtype=torch.float64)

    def expand(self, frontier: list[_History], *, depth: int) -> tuple[Level, list[_History]]:
        """Try every legal action after every history."""
        places = _Places(self)
        known: list[int] = []
        edges: list[_Edge] = []
        for parent, history in enumerate(frontier):
            known.append(self._enter(history, depth=depth))
            for action in history.state.legal_actions(history.player):
                edges += self._edges(history, parent=parent, action=action, places=places)
        level = Level(
            agent=torch.tensor([history.player for history in frontier]),
            known=torch.tensor(known),
            parent=torch.tensor([edge.parent for edge in edges]),
            action=torch.tensor([edge.action for edge in edges]),
            chance=torch.tensor([edge.chance for edge in edges], dtype=torch.float64),
            reward=torch.tensor([edge.reward for edge in edges], dtype=torch.float64),
            child=torch.tensor([edge.child for edge in edges]),
        )
        return level, places.histories

    def knowledge(self) -> tuple[InformationSets, ...]:
        """Return all information sets found, by agent."""
        return tuple(
            InformationSets(
                observation=torch.from_numpy(np.stack(rows)) if rows else torch.zeros(0, 0),
                legal=torch.tensor(legal, dtype=torch.bool).view(len(legal), -1),
            )
            for rows, legal in zip(self._observations, self._legal, strict=True)
        )

    def identity(self, history: _History) -> Hashable:
        """Return a key that is equal for histories of one position. None: each history is
        its own.
        """
        if not self._merges:
            return None
        return history.position, history.chosen, tuple(history.returns)

    def num_sets(self) -> int:
        """Return the number of information sets found so far, of both agents."""
        return sum(len(legal) for legal in self._legal)

    def _edges(
        self, history: _History, *, parent: int, action: int, places: _Places
    ) -> Iterator[_Edge]:
        # Actions are counted separately from histories, because merged ones take time, too.
        self._num_tried += 1
        if self._num_tried > MAX_ACTIONS:
            raise NoGameTree(f"the game must have at most {MAX_ACTIONS:,} actions in its tree")
        chosen = (*history.chosen, action)
        # The next player decides in the same state, without seeing the choice.
        if len(chosen) < len(history.deciding):
            following = _History(
                state=history.state,
                deciding=history.deciding,
                chosen=chosen,
                returns=history.returns,
                position=history.position,
            )
            yield _Edge(parent, action, 1.0, (0.0, 0.0), places.place(following))
            return
        # The state is cloned, because the history has further actions to try.
        state = history.state.clone()
        self._game.apply(state, dict(zip(history.deciding, chosen, strict=True)))
        for after, chance in self._settled(state, 1.0):
            returns = after.returns()
            # r_i = G_i(after) - G_i(before), as in `OpenSpielStepper`
            first, second = (
                now - before for now, before in zip(returns, history.returns, strict=True)
            )
            if abs(first + second) > REWARD_TOLERANCE:
                raise NoGameTree("the game must be zero-sum: the rewards of each step sum to 0")
            child = -1 if after.is_terminal() else places.place(self._begun(after, returns))
            yield _Edge(parent, action, chance, (first, second), child)

    def _begun(self, state: Any, returns: list[float]) -> _History:  # noqa: ANN401
        deciding = self._game.deciding(state)
        position = None
        if self._merges:
            # Observations are hashed, because board observations are long and each history has
            # one.
            seen = blake2b(self._game.see(state, deciding[0]).tobytes(), digest_size=16)
            position = (deciding[0], str(state), seen.digest())
        return _History(
            state=state, deciding=deciding, chosen=(), returns=returns, position=position
        )

    def _settled(self, state: Any, probability: float) -> Iterator[tuple[Any, float]]:  # noqa: ANN401
        """Yield the states that chance may lead to before the next decision or the end, with
        probabilities.
        """
        if state.is_terminal():
            yield state, probability
        elif state.is_chance_node():
            for outcome, likely in state.chance_outcomes():
                if likely > 0.0:
                    # p(after) = product of the probabilities of the events on the way
                    yield from self._settled(state.child(outcome), probability * likely)
        elif self._game.deciding(state):
            yield state, probability
        else:
            self._game.apply(state, {})
            yield from self._settled(state, probability)

    def _enter(self, history: _History, *, depth: int) -> int:
        """Record an information state, and return its set."""
        state, player = history.state, history.player
        sets = self._sets[player]
        if self._merges:
            # The depth is part of the key, because a position may recur with merged histories of
            # another length.
            key: Hashable = (depth, history.position)
        else:
            key = state.information_state_string(player)
        number, at_depth = sets.setdefault(key, (len(sets), depth))
        if at_depth != depth:
            raise NoGameTree(
                "what players know must tell them how many decisions came before, of the other too"
            )
        if number == len(self._legal[player]):
            # The size is checked before the set is stored, so that a too large game does not fill
            # the memory.
            check_size(self.num_sets() + 1)
            self._observations[player].append(self._game.see(state, player).reshape(-1))
            self._legal[player].append(state.legal_actions_mask(player))
        return number


class _Places:
    """Histories of one level."""

    def __init__(self, grower: _Grower) -> None:
        self._grower = grower
        self._num_sets = grower.num_sets()
        self._found: dict[Hashable, int] = {}
        self.histories: list[_History] = []

    def place(self, history: _History) -> int:
        """Return the place of a history: a new one, or that of an equal history."""
        identity = self._grower.identity(history)
        if identity is not None and identity in self._found:
            return self._found[identity]
        at = len(self.histories)
        if at == MAX_HISTORIES:
            raise NoGameTree(
                f"the game must have at most {MAX_HISTORIES:,} histories of one length"
            )
        self.histories.append(history)
        if identity is not None:
            self._found[identity] = at
            if not history.chosen:
                # Each position becomes an information set.
                check_size(self._num_sets + len(self._found))
        return at


def find_tree(spec: EnvironmentSpec, *, launch_directory: str) -> GameTree:
    """Grow the tree of a game of OpenSpiel, of a game with a native twin, or of a `DealtGame`.

    Args:
        spec: Environment's spec.
        launch_directory: Directory put first on ``sys.path``.

    Raises:
        NoGameTree: If the environment is none of these, or is not small, two-player and zero-sum;
            the message says why.
        ConfigError: If it cannot be made.
    """
    if len(spec.agents) != NUM_AGENTS:
        raise NoGameTree(f"{spec.id} must have two agents, got {len(spec.agents)}")
    # A twin equals the original only with default parameters.
    if is_openspiel(spec.id) and (spec.id not in TWINS or spec.kwargs):
        return grow_openspiel_tree(load_game(spec.id, spec.kwargs))
    game_class = find_game(spec.id, launch_directory=launch_directory)
    if game_class is None:
        raise NoGameTree(
            f"{spec.id} must be a game of OpenSpiel, have a native twin or be a batched game: of "
            "others not all histories can be played"
        )
    made: BatchedGameClass = partial(cast("Callable[..., BatchedGame]", game_class), **spec.kwargs)
    # A twin's chance events are known, but a user's game must declare them.
    if spec.id not in TWINS and not isinstance(made(1, device=CPU), DealtGame):
        raise NoGameTree(f"{spec.id} must be a DealtGame, which says what is left to chance")
    return grow_tree(made)
