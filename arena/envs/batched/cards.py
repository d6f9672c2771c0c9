"""Card games with a short betting tree, unrolled into tables, so that a step is a look-up.

The rules are written in plain Python for one line of betting, and read once when a game is made. A
position is a deal and a point, that is, the betting so far.

Shapes: B games, D deals of c cards, P points of decision and one for the end, n actions,
F features of an observation.

Tests: `tests/arena/envs/batched/test_games.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, Protocol

import torch

from arena.environment_spec import AgentSpec
from arena.envs.base import Group
from arena.envs.batched.game import StepResult, refuse_kwargs
from arena.envs.chance import first_uniforms
from arena.envs.openspiel.game import openspiel_agent_spec

AGENTS = ("player_0", "player_1")
NOBODY = -1

Bets = tuple[int, ...]
"""All actions so far, of both agents."""


class CardRules(Hashable, Protocol):
    """Rules of a two-player zero-sum card game, for one deal and one line of betting."""

    num_cards: int
    """Number of cards in the deck; cards are numbered from 0."""

    num_dealt: int
    """Number c of cards dealt from the top of a shuffled deck."""

    num_actions: int
    """Number n of actions."""

    observation_size: int
    """Number F of features."""

    def legal_actions(self, bets: Bets) -> Sequence[int]:
        """Return the legal actions; none at the end."""

    def agent_on_turn(self, bets: Bets) -> int:
        """Return the agent on turn, 0 or 1. Not called at the end."""

    def payoff(self, bets: Bets, *, cards: Sequence[int]) -> float:
        """Return agent 0's winnings from agent 1; called only at the end."""

    def features(self, bets: Bets, *, cards: Sequence[int]) -> Sequence[int]:
        """Return the indices of the acting agent's features that are 1; all others are 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardTables:
    """Unrolled card game. Point P is the end, which has no successor.

    Attributes:
        deals: Deals in the order of chance's outcomes. int64 [D, c].
        num_outcomes: Number of outcomes of each chance event. float64 [c].
        stride: Number of deals that share each event's outcome. float64 [c].
        agent: Agent on turn; -1 at the end. int64 [P + 1].
        legal: Legal actions. bool [P + 1, n].
        next_point: Point after an action; the end where it is not legal. int64 [(P + 1) * n].
        reward: Rewards of both agents. float32 [D * (P + 1) * n, 2].
        observation: Observation of the agent on turn. float32 [D * (P + 1), F].
    """

    deals: torch.Tensor
    num_outcomes: torch.Tensor
    stride: torch.Tensor
    agent: torch.Tensor
    legal: torch.Tensor
    next_point: torch.Tensor
    reward: torch.Tensor
    observation: torch.Tensor


@cache
def unroll(rules: CardRules) -> CardTables:
    """Follow every line of betting under every deal."""
    points = _points(rules)
    numbers = {bets: number for number, bets in enumerate(points)}
    end, n = len(points), rules.num_actions
    # `permutations` is in lexicographic order, which equals chance's outcomes read as digits.
    deals = list(itertools.permutations(range(rules.num_cards), rules.num_dealt))
    agent = [rules.agent_on_turn(bets) for bets in points]
    legal = torch.zeros(end + 1, n, dtype=torch.bool)
    next_point = torch.full((end + 1, n), end)
    # The dtype is explicit, because users' code in this process may have changed the default.
    reward = torch.zeros(len(deals), end + 1, n, 2, dtype=torch.float32)
    observation = torch.zeros(len(deals), end + 1, rules.observation_size, dtype=torch.float32)
    for point, bets in enumerate(points):
        for number, cards in enumerate(deals):
            observation[number, point, list(rules.features(bets, cards=cards))] = 1.0
        for action in rules.legal_actions(bets):
            legal[point, action] = True
            after = (*bets, action)
            next_point[point, action] = numbers.get(after, end)
            # The game is zero-sum: agent 1 loses what agent 0 wins.
            if after not in numbers:
                won = torch.tensor([rules.payoff(after, cards=cards) for cards in deals])
                reward[:, point, action] = torch.stack((won, -won), dim=1)
    # In mixed radix, event k has num_cards - k outcomes, and its digit weighs the product of the
    # rest.
    num_outcomes = [rules.num_cards - dealt for dealt in range(rules.num_dealt)]
    return CardTables(
        deals=torch.tensor(deals),
        num_outcomes=torch.tensor(num_outcomes, dtype=torch.float64),
        stride=torch.tensor(
            [math.prod(num_outcomes[at + 1 :]) for at in range(len(num_outcomes))],
            dtype=torch.float64,
        ),
        agent=torch.tensor([*agent, NOBODY]),
        legal=legal,
        next_point=next_point.flatten(),
        reward=reward.flatten(0, 2),
        observation=observation.flatten(0, 1),
    )


def _points(rules: CardRules) -> list[Bets]:
    """Return all lines of betting with an agent on turn, shorter ones first."""
    points: list[Bets] = []
    reached: list[Bets] = [()]
    while reached:
        reached = [bets for bets in reached if rules.legal_actions(bets)]
        points += reached
        reached = [(*bets, action) for bets in reached for action in rules.legal_actions(bets)]
    return points


class CardGame:
    """A `BatchedGame` and `arena.game_theory.game_tree.DealtGame` of two agents in turn.

    All cards are dealt when an episode begins; later ones are hidden until they appear. The k-th
    random number of an episode picks the k-th card among the remaining ones, in their order.

    Args:
        num_games: B.
        device: Device of all tensors.
        kwargs: None.

    Raises:
        ConfigError: If there are any.

    Attributes:
        rules: Rules of the game; each has a class of its own.
    """

    api: Literal["aec"] = "aec"
    agents = AGENTS
    groups = (AGENTS,)
    rules: CardRules

    def __init__(self, num_games: int, *, device: torch.device, **kwargs: object) -> None:
        refuse_kwargs(type(self).__name__, kwargs)
        tables = unroll(self.rules)
        num_actions, num_features = tables.legal.shape[1], tables.observation.shape[1]
        spec = openspiel_agent_spec((num_features,), num_actions)
        self.agent_specs: Mapping[str, AgentSpec] = dict.fromkeys(AGENTS, spec)
        self._num_actions = num_actions
        self._num_points = len(tables.agent)
        self._end = self._num_points - 1
        self._deals = tables.deals.to(device)
        self._num_outcomes = tables.num_outcomes.to(device)
        # Each deal has one row per point, so deal d begins at row d (P + 1).
        self._first_rows = (tables.stride * self._num_points).to(device)
        self._agent = tables.agent.to(device)
        self._legal = tables.legal.to(device)
        self._next_point = tables.next_point.to(device)
        self._reward = tables.reward.to(device)
        self._observation = tables.observation.to(device)
        # A game's position is its point and the first row of its deal. [B]
        self._point = torch.zeros(num_games, dtype=torch.int64, device=device)
        self._first_row = torch.zeros_like(self._point)

    def deals(self) -> torch.Tensor:
        """Return all deals, equally likely. int64 [D, c]."""
        return self._deals

    def deal(self, cards: torch.Tensor) -> None:
        """Begin all episodes anew, with these cards.

        Args:
            cards: Cards in the order of dealing. int64 [B, c].

        Raises:
            ValueError: If a game's cards are none of ``deals``.
        """
        expected = (len(self._point), self._deals.shape[1])
        if tuple(cards.shape) != expected:
            raise ValueError(f"cards must be [B, c] {expected}, got {tuple(cards.shape)}")
        # [B, 1, c] == [D, c] -> [B, D]
        same = (cards[:, None] == self._deals).all(dim=2)
        unknown = ~same.any(dim=1)
        if bool(unknown.any()):
            raise ValueError(
                "cards must be different ones of the deck, "
                f"got {cards[unknown.int().argmax()].tolist()}"
            )
        self._point = torch.zeros_like(self._point)
        self._first_row = same.int().argmax(dim=1) * self._num_points

    def dealt(self) -> torch.Tensor:
        """Return the cards of each game, including hidden ones. int64 [B, c]."""
        return self._deals[self._first_row // self._num_points]

    def reset(self, games: torch.Tensor, *, key: torch.Tensor) -> None:
        """Deal in some games."""
        chance = first_uniforms(key, num_draws=len(self._num_outcomes))
        # floor(u m) is uniform over the m remaining outcomes; float64 holds these integers
        # exactly.
        outcome = (chance * self._num_outcomes).floor_()
        # This is the deal's number in mixed radix, times the rows of a deal.
        first_row = (outcome @ self._first_rows).long()
        # All games draw, and `where` keeps the deals of those that go on, which avoids indexing.
        self._first_row = torch.where(games, first_row, self._first_row)
        self._point = self._point.masked_fill(games, 0)

    def decisions(self) -> tuple[Group]:
        """Return the decision of the agent on turn: it sees its card, the public one once revealed,
        and all bets.
        """
        observation = self._observation.index_select(0, self._first_row + self._point)
        return (
            Group(
                self._agent.index_select(0, self._point)[:, None],
                observation[:, None],
                self._legal.index_select(0, self._point)[:, None],
            ),
        )

    def step(self, actions: Sequence[torch.Tensor]) -> StepResult:
        """Bet in each game."""
        action, n = actions[0][:, 0], self._num_actions
        # Tables are flat [deal, point, action], so each game needs one look-up per table.
        row = (self._first_row + self._point) * n + action
        self._point = self._next_point.index_select(0, self._point * n + action)
        over = self._point == self._end
        return StepResult(
            reward=self._reward.index_select(0, row),
            terminated=over[:, None].expand(-1, 2),
        )
