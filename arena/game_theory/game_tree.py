"""Tree of a small two-player game, grown breadth-first by playing a batched game.

There is one batch per length of history, in which every game replays one history and one more
action. The number of histories is therefore bounded by memory only, and no game needs to be copied.
Games of OpenSpiel grow in `arena.game_theory.openspiel_tree`.

Shapes: B games of one batch; H histories of one length (in decisions) that end in a decision; E
edges, legal actions after them with the chance events that follow; I information sets of an agent
(what it can know when it decides); D deals of c cards; F features of an observation; n actions.

Tests: `tests/arena/game_theory/test_exploitability.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch

from arena.envs.base import Group
from arena.envs.batched.game import BatchedGame, BatchedGameClass, StepResult
from arena.envs.spaces.observations import discrete_actions

CPU = torch.device("cpu")
NUM_AGENTS = 2

MAX_HISTORIES = 100_000
"""Most histories of one length in a small game."""

MAX_INFORMATION_SETS = 100_000
"""Most information sets of both agents together in a small game."""

REWARD_TOLERANCE = 1e-4
"""Tolerance for the sum of the two rewards of a step, which must be 0."""

NUM_PROBES = 64
"""Number of keys tried in the search for chance events outside the deals."""


class NoGameTree(ValueError):
    """Error: a game is not small, not two-player zero-sum, or has chance events that are not
    declared.
    """


@runtime_checkable
class DealtGame(BatchedGame, Protocol):
    """Game whose only chance event is a deal of cards at the start of an episode.

    A game without chance but with hidden actions has one deal of no cards, ``zeros(1, 0)``.
    """

    def deals(self) -> torch.Tensor:
        """Return all deals, equally likely. int64 [D, c]."""

    def deal(self, cards: torch.Tensor) -> None:
        """Begin all episodes anew with these cards.

        Args:
            cards: Cards of each episode. int64 [B, c].
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class InformationSets:
    """Everything that one agent can know when it decides.

    Attributes:
        observation: Observation of each set. float32 [I, F].
        legal: Legal actions of each set. bool [I, n].
    """

    observation: torch.Tensor
    legal: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Histories of one length that end in a decision, and the edges that leave them.

    Attributes:
        agent: Agent that decides. int64 [H].
        known: Its information set, counted through all levels. int64 [H].
        parent: History that an edge leaves, of H. int64 [E].
        action: Action of an edge. int64 [E].
        chance: Probability of an edge's chance event, given the action. float64 [E].
        reward: Rewards of both agents on an edge. float64 [E, 2].
        child: History that an edge leads to, of the next level's H; -1 where the game ended. int64
            [E].
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
    """Tree of a whole game.

    Attributes:
        agents: Names of the agents.
        knowledge: Information sets by agent.
        start: Probability that chance begins with each history of the first level. float64 [H].
        levels: Levels by length of history.
    """

    agents: tuple[str, ...]
    knowledge: tuple[InformationSets, ...]
    start: torch.Tensor
    levels: tuple[Level, ...]


def grow_tree(game_class: BatchedGameClass) -> GameTree:
    """Play every history of a game.

    Histories that look the same are merged in a game that is no `DealtGame`, as nothing is hidden
    there.

    Raises:
        NoGameTree: If it is not a small two-player zero-sum game with turns, perfect recall, and no
            chance events but its deals.
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
        # Deals are equally likely; a game without deals has one start.
        start=torch.full((num_starts,), 1 / num_starts, dtype=torch.float64),
        levels=tuple(levels),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frontier:
    """Histories to continue: their cards [H, c], their actions [H, length], and the deciding
    agents.
    """

    cards: torch.Tensor
    actions: torch.Tensor
    agent: torch.Tensor
    known: torch.Tensor
    legal: torch.Tensor


class _Grower:
    """Builder of a tree, level by level, that collects what each agent can know."""

    def __init__(self, game_class: BatchedGameClass, *, game: BatchedGame) -> None:
        self._game_class = game_class
        self._num_actions = tuple(
            len(discrete_actions(game.agent_specs[agent].action)) for agent in game.agents
        )
        # Rows of each level by agent: an observation and its mask. [I of the level, F + n]
        self._rows: tuple[list[torch.Tensor], ...] = ([], [])
        self._cards = torch.zeros(1, 0, dtype=torch.int64)
        self._dealt = isinstance(game, DealtGame)
        if isinstance(game, DealtGame):
            self._cards = game.deals()
        else:
            self._refuse_chance()

    def first(self) -> _Frontier:
        """Return the decisions at the start of the game."""
        actions = torch.zeros(len(self._cards), 0, dtype=torch.int64)
        game, _ = self._play(self._cards, actions)
        asked = torch.ones(len(self._cards), dtype=torch.bool)
        return self._look(game, cards=self._cards, actions=actions, asked=asked)[0]

    def expand(self, frontier: _Frontier) -> tuple[Level, _Frontier]:
        """Try every legal action after every history."""
        # One edge for each legal action: [H, n] -> [E] twice.
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
        ended = last.terminated if last.truncated is None else last.terminated | last.truncated
        # A history ends when both agents have ended.
        after, child = self._look(game, cards=cards, actions=actions, asked=~ended.all(dim=1))
        level = Level(
            agent=frontier.agent,
            known=frontier.known,
            parent=parent,
            action=action,
            # All chance is in the deals, so no chance event follows an action.
            chance=torch.ones(len(action), dtype=torch.float64),
            reward=last.reward.double(),
            child=child,
        )
        return level, after

    def knowledge(self) -> tuple[InformationSets, ...]:
        """Return all information sets found, by agent.

        Raises:
            ValueError: If one has histories of different lengths.
        """
        gathered = []
        # A set that was found on two levels would appear twice here.
        for rows, n in zip(self._rows, self._num_actions, strict=True):
            all_rows = torch.cat(rows) if rows else torch.zeros(0, n)
            if len(_distinct(all_rows)[0]) < len(all_rows):
                raise NoGameTree(
                    "the game must have perfect recall: an observation tells how many actions "
                    "came before"
                )
            # [I, F + n] -> [I, n] and [I, F]
            legal = all_rows[:, all_rows.shape[1] - n :] > 0
            observation = all_rows[:, : all_rows.shape[1] - n]
            gathered.append(InformationSets(observation=observation, legal=legal))
        return tuple(gathered)

    def _play(self, cards: torch.Tensor, actions: torch.Tensor) -> tuple[BatchedGame, StepResult]:
        """Begin a game with each row's cards and play its actions. [B, c], [B, length]."""
        # The game is replayed from the start, because a batched game's state cannot be copied.
        num_games = len(cards)
        game = self._game_class(num_games, device=CPU)
        everywhere = torch.ones(num_games, dtype=torch.bool)
        # Any key will do, because a deal replaces its chance, and other games have none.
        game.reset(everywhere, key=torch.zeros(num_games, dtype=torch.int64))
        if isinstance(game, DealtGame):
            game.deal(cards)
        last = StepResult(reward=torch.zeros(num_games, NUM_AGENTS), terminated=~everywhere)
        for at in range(actions.shape[1]):
            action = actions[:, at : at + 1]
            asked = [group.agent_index >= 0 for group in game.decisions()]
            # The group with the decision gets the action, other groups 0.
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
        """Return the pending decisions of games with ``asked`` set, bool [B], and their
        information.

        Returns:
            The histories to continue, and each game's place among them, -1 without a decision.
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
        # Without hidden cards an information set is a position, so agent and set are its key. In a
        # dealt game no histories are merged.
        alike = known * NUM_AGENTS + agent if not self._dealt else torch.arange(len(cards))
        place = torch.full_like(known, -1)
        _, place[asked] = _distinct(alike[asked, None])
        # Merged histories are interchangeable, so the last one represents them.
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
        """Return the games in which an agent decides, its observations [rows, F] and its masks
        [rows, n].
        """
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
        """Record the information sets of an agent on this level, and return each row's set."""
        before = sum(len(entered) for entered in self._rows[agent])
        # Earlier levels are not searched, because with perfect recall their sets cannot recur.
        found, index = _distinct(rows)
        self._rows[agent].append(found)
        check_size(sum(len(entered) for rows in self._rows for entered in rows))
        return index + before

    def _refuse_chance(self) -> None:
        """Check that a game without deals begins the same for every key."""
        # This is a probe, not a proof, because later chance events are not searched for.
        game = self._game_class(NUM_PROBES, device=CPU)
        game.reset(torch.ones(NUM_PROBES, dtype=torch.bool), key=torch.arange(NUM_PROBES))
        for group in game.decisions():
            if bool((group.observation != group.observation[:1]).any()):
                raise NoGameTree("the game's chance must be in its deals: see DealtGame")


def check_size(num_information_sets: int) -> None:
    """Check that a game does not fill the memory.

    Raises:
        NoGameTree: If both agents together have more than `MAX_INFORMATION_SETS`.
    """
    if num_information_sets > MAX_INFORMATION_SETS:
        raise NoGameTree(f"the game must have at most {MAX_INFORMATION_SETS:,} information sets")


def _distinct(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the distinct rows, and the number of each row among them. [N, k] to [M, k],
    int64 [N].
    """
    different, index = np.unique(rows.numpy(), axis=0, return_inverse=True)
    return torch.from_numpy(different), torch.from_numpy(index.reshape(-1))
