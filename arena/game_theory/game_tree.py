"""All of a small two-player game, and how it grows breadth-first on a batched game itself.

For each length of history there is one batch, in which every game replays one history and an action
more. Histories are therefore as many as memory holds, and no game needs to be copied. Games of
OpenSpiel grow in `arena.game_theory.openspiel_tree`.

Shapes: B games of one batch, H histories of one length (in decisions) after which somebody decides,
E legal actions after them and what chance does next, I information sets of an agent (what it can
know when it decides), D deals of c cards, F features of an observation, n actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch

from arena.envs.base import Group
from arena.envs.batched.game import BatchedGame, BatchedGameClass, StepResult
from arena.envs.spaces.observations import num_actions

CPU = torch.device("cpu")
NUM_AGENTS = 2

MAX_HISTORIES = 100_000
"""Of one length. A game with more is not small."""

MAX_INFORMATION_SETS = 100_000
"""Of both agents together. A game with more is not small."""

REWARD_TOLERANCE = 1e-4
"""How far the two rewards of a step may be from a sum of 0."""

NUM_PROBES = 64
"""How many keys are tried, to find chance that is not in the deals."""


class NoGameTree(ValueError):
    """A game is not small, not of two players whose gains are losses of the other, or its chance
    cannot be told.
    """


@runtime_checkable
class DealtGame(BatchedGame, Protocol):
    """A game whose chance is a deal of cards when an episode begins.

    Without chance, but with actions that stay hidden: one deal of no cards, ``zeros(1, 0)``.
    """

    def deals(self) -> torch.Tensor:
        """All deals, equally likely. int64 [D, c]."""
        ...

    def deal(self, cards: torch.Tensor) -> None:
        """Begin all episodes anew, with these cards.

        Args:
            cards: int64 [B, c].
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class InformationSets:
    """All that one agent can know when it decides.

    Attributes:
        observation: float32 [I, F].
        legal: bool [I, n].
    """

    observation: torch.Tensor
    legal: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """All histories of one length after which somebody decides, and what may be done then.

    Attributes:
        agent: Who decides. int64 [H].
        known: Its information set, counted through all levels. int64 [H].
        parent: The history before an action, of H. int64 [E].
        action: int64 [E].
        chance: How likely chance goes on in this way after the action. float64 [E].
        reward: That the action and the chance after it bring both agents. float64 [E, 2].
        child: The history after it, of the next level's H; -1 where it ended the game. int64 [E].
    """

    agent: torch.Tensor
    known: torch.Tensor
    parent: torch.Tensor
    action: torch.Tensor
    chance: torch.Tensor
    reward: torch.Tensor
    child: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class GameTree:
    """A whole game.

    Attributes:
        agents: Their names.
        knowledge: By agent.
        start: How likely chance begins with each history of the first level. float64 [H].
        levels: By length of history.
    """

    agents: tuple[str, ...]
    knowledge: tuple[InformationSets, ...]
    start: torch.Tensor
    levels: tuple[Level, ...]


def grow_tree(game_class: BatchedGameClass) -> GameTree:
    """Play every history of a game.

    Histories that look the same are one where a game is no `DealtGame`: all is known then.

    Raises:
        NoGameTree: If it is not a small two-player zero-sum game with turns, perfect recall, and
            no chance but its deals.
    """
    one = game_class(1, device=CPU)
    if one.api != "aec" or len(one.agents) != NUM_AGENTS:
        raise NoGameTree(
            f"the game must have two agents who take turns, got {len(one.agents)}, {one.api}"
        )
    grower = _Grower(game_class, game=one)
    frontier = grower.first()
    num_starts = len(frontier.agent)
    levels: list[Level] = []
    while len(frontier.agent):
        level, frontier = grower.expand(frontier)
        levels.append(level)
    return GameTree(
        agents=one.agents,
        knowledge=grower.knowledge(),
        start=torch.full((num_starts,), 1 / num_starts, dtype=torch.float64),
        levels=tuple(levels),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frontier:
    """Histories to go on from: their cards [H, c], their actions [H, length], and who decides."""

    cards: torch.Tensor
    actions: torch.Tensor
    agent: torch.Tensor
    known: torch.Tensor
    legal: torch.Tensor


class _Grower:
    """Grows a tree level by level, and gathers what each agent can know."""

    def __init__(self, game_class: BatchedGameClass, *, game: BatchedGame) -> None:
        self._game_class = game_class
        self._num_actions = tuple(
            num_actions(game.agent_specs[agent].action) for agent in game.agents
        )
        # By agent, the rows of each level: an observation and its mask. [I of the level, F + n]
        self._rows: tuple[list[torch.Tensor], ...] = ([], [])
        self._cards = torch.zeros(1, 0, dtype=torch.int64)
        self._dealt = isinstance(game, DealtGame)
        if isinstance(game, DealtGame):
            self._cards = game.deals()
        else:
            self._refuse_chance()

    def first(self) -> _Frontier:
        """What is asked before anything was done."""
        actions = torch.zeros(len(self._cards), 0, dtype=torch.int64)
        game, _ = self._play(self._cards, actions)
        asked = torch.ones(len(self._cards), dtype=torch.bool)
        return self._look(game, cards=self._cards, actions=actions, asked=asked)[0]

    def expand(self, frontier: _Frontier) -> tuple[Level, _Frontier]:
        """Try every legal action after every history."""
        parent, action = frontier.legal.nonzero().unbind(dim=1)
        if len(parent) > MAX_HISTORIES:
            raise NoGameTree(
                f"the game must have at most {MAX_HISTORIES} histories of one length, "
                f"got {len(parent)}"
            )
        cards = frontier.cards[parent]
        actions = torch.cat((frontier.actions[parent], action[:, None]), dim=1)
        game, last = self._play(cards, actions)
        if bool((last.reward.sum(dim=1).abs() > REWARD_TOLERANCE).any()):
            raise NoGameTree("the game must be zero-sum: the rewards of each step sum to 0")
        gone = last.terminated if last.truncated is None else last.terminated | last.truncated
        after, child = self._look(game, cards=cards, actions=actions, asked=~gone.all(dim=1))
        level = Level(
            agent=frontier.agent,
            known=frontier.known,
            parent=parent,
            action=action,
            chance=torch.ones(len(action), dtype=torch.float64),
            reward=last.reward.double(),
            child=child,
        )
        return level, after

    def knowledge(self) -> tuple[InformationSets, ...]:
        """All information sets found, by agent.

        Raises:
            ValueError: If one has histories of different lengths.
        """
        gathered = []
        for rows, n in zip(self._rows, self._num_actions, strict=True):
            all_rows = torch.cat(rows) if rows else torch.zeros(0, n)
            if len(_distinct(all_rows)[0]) < len(all_rows):
                raise NoGameTree(
                    "the game must have perfect recall: an observation tells how many actions "
                    "came before"
                )
            legal = all_rows[:, all_rows.shape[1] - n :] > 0
            observation = all_rows[:, : all_rows.shape[1] - n]
            gathered.append(InformationSets(observation=observation, legal=legal))
        return tuple(gathered)

    def _play(self, cards: torch.Tensor, actions: torch.Tensor) -> tuple[BatchedGame, StepResult]:
        """Begin a game with each row's cards and carry out its actions. [B, c], [B, length]."""
        num_games = len(cards)
        game = self._game_class(num_games, device=CPU)
        everywhere = torch.ones(num_games, dtype=torch.bool)
        game.reset(everywhere, key=torch.zeros(num_games, dtype=torch.int64))
        if isinstance(game, DealtGame):
            game.deal(cards)
        last = StepResult(reward=torch.zeros(num_games, NUM_AGENTS), terminated=~everywhere)
        for at in range(actions.shape[1]):
            action = actions[:, at : at + 1]
            asked = [group.agent_index >= 0 for group in game.decisions()]
            last = game.step([torch.where(mine, action, 0) for mine in asked])
        return game, last

    def _look(
        self,
        game: BatchedGame,
        *,
        cards: torch.Tensor,
        actions: torch.Tensor,
        asked: torch.Tensor,
    ) -> tuple[_Frontier, torch.Tensor]:
        """Who decides where somebody is ``asked``, bool [B], and what it knows.

        Returns:
            The histories to go on from, and each game's place among them, -1 where nobody decides.
        """
        agent = torch.full((len(cards),), -1)
        known = torch.full((len(cards),), -1)
        legal = torch.zeros(len(cards), max(self._num_actions), dtype=torch.bool)
        for number in range(NUM_AGENTS):
            rows, observation, mask = self._seen(game.decisions(), asked=asked, agent=number)
            if len(rows):
                agent[rows] = number
                known[rows] = self._enter(number, torch.cat((observation, mask.float()), dim=1))
                legal[rows, : mask.shape[1]] = mask
        alike = known * NUM_AGENTS + agent if not self._dealt else torch.arange(len(cards))
        place = torch.full_like(known, -1)
        _, place[asked] = _distinct(alike[asked, None])
        # Of those alike, any: here the last.
        chosen = torch.zeros(int(place.max()) + 1 if len(place) else 0, dtype=torch.int64)
        chosen[place[asked]] = asked.nonzero().squeeze(1)
        frontier = _Frontier(
            cards=cards[chosen],
            actions=actions[chosen],
            agent=agent[chosen],
            known=known[chosen],
            legal=legal[chosen],
        )
        return frontier, place

    def _seen(
        self, groups: Sequence[Group], *, asked: torch.Tensor, agent: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Where an agent is asked, what it sees there [rows, F] and may do [rows, n]."""
        for group in groups:
            rows = ((group.agent_index[:, 0] == agent) & asked).nonzero().squeeze(1)
            if len(rows):
                observation = group.observation[rows, 0]
                if group.action_mask is None:
                    return (
                        rows,
                        observation,
                        observation.new_ones(len(rows), self._num_actions[agent]) > 0,
                    )
                return rows, observation, group.action_mask[rows, 0]
        return torch.zeros(0, dtype=torch.int64), torch.zeros(0, 0), torch.zeros(0, 0) > 0

    def _enter(self, agent: int, rows: torch.Tensor) -> torch.Tensor:
        """Note what an agent can know on this level. Returns each row's information set."""
        before = sum(len(entered) for entered in self._rows[agent])
        found, index = _distinct(rows)
        self._rows[agent].append(found)
        check_size(sum(len(entered) for rows in self._rows for entered in rows))
        return index + before

    def _refuse_chance(self) -> None:
        """A game without deals must begin the same whatever its key is."""
        game = self._game_class(NUM_PROBES, device=CPU)
        game.reset(torch.ones(NUM_PROBES, dtype=torch.bool), key=torch.arange(NUM_PROBES))
        for group in game.decisions():
            if bool((group.observation != group.observation[:1]).any()):
                raise NoGameTree("the game's chance must be in its deals: see DealtGame")


def check_size(num_information_sets: int) -> None:
    """Stop before a game fills the memory.

    Raises:
        NoGameTree: If both agents together have more than `MAX_INFORMATION_SETS`.
    """
    if num_information_sets > MAX_INFORMATION_SETS:
        raise NoGameTree(f"the game must have at most {MAX_INFORMATION_SETS:,} information sets")


def _distinct(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Different rows, and the number of each row among them. [N, k] to [M, k] and int64 [N]."""
    different, index = np.unique(rows.numpy(), axis=0, return_inverse=True)
    return torch.from_numpy(different), torch.from_numpy(index.reshape(-1))
