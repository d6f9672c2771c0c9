"""Who decides where: routes the decisions of B environments to the players that have the seats.

One mechanism for matches and for training. A player is whatever the caller seats: an Actor, or a
policy that learns. Shapes: B environments, A agents, S decisions of a population at once, N rows of
a flattened group (B * S), F features, n actions, H numbers of a state.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, TypeVar

import torch

from arena.core import Actor, ActorInGames, RememberingActor, state_size
from arena.envs.base import Group
from arena.matches.memory import Memory
from arena.matches.rows import Rows
from arena.networks.frozen import FrozenPolicy
from arena.networks.stack import PolicyStack, stack_key
from arena.types import Seat

PlayerT = TypeVar("PlayerT")

NOBODY = -1
"""In a table of owners: no decision is asked for here."""


def block_of_envs(sizes: Sequence[int], *, device: torch.device | str = "cpu") -> torch.Tensor:
    """Index of the block of each environment, blocks one after the other. int64 [sum(sizes)]."""
    counts = torch.tensor(sizes, dtype=torch.int64, device=device)
    return torch.repeat_interleave(torch.arange(len(sizes), device=device), counts)


def equal_blocks(
    num_blocks: int, *, num_envs: int, device: torch.device | str = "cpu"
) -> torch.Tensor:
    """Index of the block of each environment, in blocks whose sizes differ by at most one.

    Environment b belongs to block b * K // B. int64 [B].

    Raises:
        ValueError: If there are more blocks than environments.
    """
    if not 1 <= num_blocks <= num_envs:
        raise ValueError(f"1 to {num_envs} blocks fit {num_envs} environments, got {num_blocks}")
    return torch.arange(num_envs, device=device) * num_blocks // num_envs


class SeatedPlayers(Generic[PlayerT]):
    """The players of B environments in their seats, which they keep until `move`.

    Args:
        blocks: For each block of environments one player per seat; the same object is one player
            wherever it sits.
        block_of_env: The block of each environment. int64 [B].
        seats: The seats that are filled; together they have every agent once.
        agents: The environment's agents in order.
        product_dtypes: In which a population's frozen policies act where several do in one call;
            float32 where it says nothing.
        memory: States of the episodes that go on; None: all begin.

    Attributes:
        memory: What players with a memory remember. Who steps the environments lets it forget.

    Raises:
        ValueError: If a block does not fill every seat, or the seats do not partition the agents.
    """

    def __init__(
        self,
        blocks: Sequence[Sequence[PlayerT]],
        *,
        block_of_env: torch.Tensor,
        seats: Sequence[Seat],
        agents: tuple[str, ...],
        product_dtypes: Mapping[str, torch.dtype] = MappingProxyType({}),
        memory: Memory | None = None,
    ) -> None:
        seated = sorted(agent for seat in seats for agent in seat.agents)
        if seated != sorted(agents):
            raise ValueError(f"seats must have every agent once, they have {seated} of {agents}")
        column = {agent: at for at, agent in enumerate(agents)}
        index_of: dict[int, int] = {}
        players: list[PlayerT] = []
        members: list[dict[str, set[int]]] = []
        table = torch.full((len(blocks), len(agents)), NOBODY, dtype=torch.int64)
        for row, block in enumerate(blocks):
            if len(block) != len(seats):
                raise ValueError(f"block {row} has {len(block)} players for {len(seats)} seats")
            members.append({})
            for seat, player in zip(seats, block, strict=True):
                if id(player) not in index_of:
                    index_of[id(player)] = len(players)
                    players.append(player)
                members[row].setdefault(seat.population, set()).add(index_of[id(player)])
                for agent in seat.agents:
                    table[row, column[agent]] = index_of[id(player)]
        self.players: tuple[PlayerT, ...] = tuple(players)
        self._members = members
        self._table_of_blocks = table.to(block_of_env.device)
        self.table = self._table_of_blocks[block_of_env]
        self.memory = Memory(
            num_envs=len(self.table),
            num_agents=len(agents),
            size=max(map(state_size, self.players), default=0),
            device=self.table.device,
            before=memory,
        )
        self._agents = agents
        self._seat_of = {agent: seat for seat in seats for agent in seat.agents}
        self._product_dtypes = product_dtypes
        self._deciders = self._deciders_of(len(blocks))

    def _deciders_of(self, num_blocks: int) -> dict[str, _Deciders]:
        """The actors of the first blocks, by population."""
        indices: dict[str, set[int]] = {}
        for members in self._members[:num_blocks]:
            for population, own in members.items():
                indices.setdefault(population, set()).update(own)
        return {
            population: _deciders(
                self.players,
                indices=sorted(own),
                device=self.table.device,
                product_dtype=self._product_dtypes.get(population, torch.float32),
            )
            for population, own in indices.items()
        }

    def move(self, block_of_env: torch.Tensor) -> None:
        """Seat each environment's players of its block (int64 [B]); between episodes only."""
        self.table = self._table_of_blocks[block_of_env]

    def retire(self, *, from_block: int) -> None:
        """Decide without the players of later blocks, in which no environment is any more.

        Args:
            from_block: First block that is empty; so are all after it.
        """
        self._deciders = self._deciders_of(from_block)

    def leave(self) -> None:
        """Let go of all players. Only `memory` is of use after that."""
        self.players = ()
        self._deciders = {}

    def owners(self, agent_index: torch.Tensor, *, active: torch.Tensor | None) -> torch.Tensor:
        """Index in ``players`` of who makes each decision, NOBODY where there is none.

        Args:
            agent_index: Which agent decides, -1 for no decision. int64 [B, S].
            active: Environments that still play; None: all. bool [B].

        Returns:
            int64 [B, S].
        """
        owner = self.table.gather(1, agent_index.clamp(min=0))
        nobody = agent_index < 0
        if active is not None:
            nobody = nobody | ~active[:, None]
        return owner.masked_fill(nobody, NOBODY)

    def play_frozen(
        self,
        population: str,
        group: Group,
        *,
        owner: torch.Tensor,
        action: torch.Tensor,
        generator: torch.Generator,
    ) -> None:
        """Let a population's actors make their decisions and write them into ``action``.

        Frozen policies of one architecture decide in one call, every other actor in one of its own
        (see `decide`). What others decide stays as it is.

        Args:
            population: Whose decisions these are.
            group: The decisions that are asked for.
            owner: Who makes them, from `owners`. int64 [B, S].
            action: Where they are written. int64 [B, S] or float32 [B, S, K].
            generator: The only source of randomness.
        """
        deciders = self._deciders.get(population)
        if deciders is None:
            return
        for stack, member in deciders.stacks:
            player = member[owner]
            rows = Rows(group, where=player != NOBODY)
            if len(rows):
                mask, player = rows.action_mask, rows.take(player)
                rows.put(
                    action, stack.act(rows.observation, mask, player=player, generator=generator)
                )
        for index, actor in deciders.alone:
            decide(
                actor,
                group,
                where=owner == index,
                action=action,
                agents=self._agents,
                generator=generator,
            )
        for index, in_games in deciders.in_games:
            self._decide_in(
                in_games, group, where=owner == index, action=action, generator=generator
            )
        for index, remembering in deciders.remembering:
            decide_from(
                remembering,
                group,
                where=owner == index,
                action=action,
                agents=self._agents,
                memory=self.memory,
                generator=generator,
            )

    def _decide_in(
        self,
        actor: ActorInGames,
        group: Group,
        *,
        where: torch.Tensor,
        action: torch.Tensor,
        generator: torch.Generator,
    ) -> None:
        """As `decide`, for an actor that is told in which games it decides."""
        episodes = self.memory.episodes
        for agent, rows in _by_agent(group, where=where, agents=self._agents):
            games = rows.index.cpu() // where.shape[1]
            chosen = actor.act_in(
                rows.observation,
                rows.action_mask,
                seat=self._seat_of[agent],
                agent=agent,
                games=games,
                episodes=episodes[games],
                generator=generator,
            )
            rows.put(action, chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Deciders:
    """The actors of a population, in as few calls as possible.

    Attributes:
        stacks: Frozen policies of one architecture, and of each player its index among them or
            NOBODY; the last entry, which the owner NOBODY finds, is NOBODY. int64 [players + 1].
        alone: The other actors and their indices.
        in_games: Those that are told in which games they decide.
        remembering: Those with a memory.
    """

    stacks: tuple[tuple[PolicyStack, torch.Tensor], ...]
    alone: tuple[tuple[int, Actor], ...]
    in_games: tuple[tuple[int, ActorInGames], ...]
    remembering: tuple[tuple[int, RememberingActor], ...]


def _deciders(
    players: Sequence[object],
    *,
    indices: Sequence[int],
    device: torch.device,
    product_dtype: torch.dtype,
) -> _Deciders:
    """Those of some players that are actors."""
    alike: dict[Hashable, dict[int, FrozenPolicy]] = {}
    alone: list[tuple[int, Actor]] = []
    in_games: list[tuple[int, ActorInGames]] = []
    remembering: list[tuple[int, RememberingActor]] = []
    for index in indices:
        player = players[index]
        if isinstance(player, RememberingActor) and player.state_size:
            remembering.append((index, player))
        elif type(player) is FrozenPolicy:
            alike.setdefault(stack_key(player), {})[index] = player
        elif isinstance(player, ActorInGames):
            in_games.append((index, player))
        elif isinstance(player, Actor):
            alone.append((index, player))
    alone += [
        only for policies in alike.values() if len(policies) == 1 for only in policies.items()
    ]
    stacks = []
    for policies in alike.values():
        if len(policies) > 1:
            member = torch.full((len(players) + 1,), NOBODY, dtype=torch.int64)
            member[list(policies)] = torch.arange(len(policies))
            stack = PolicyStack(list(policies.values()), product_dtype=product_dtype)
            stacks.append((stack, member.to(device)))
    return _Deciders(
        stacks=tuple(stacks),
        alone=tuple(alone),
        in_games=tuple(in_games),
        remembering=tuple(remembering),
    )


def decide(
    actor: Actor,
    group: Group,
    *,
    where: torch.Tensor,
    action: torch.Tensor,
    agents: tuple[str, ...],
    generator: torch.Generator,
) -> None:
    """Let an actor make decisions and write them into ``action``.

    `Actor.act` names a single agent, so an actor is asked once per agent on turn. A frozen policy,
    and any other actor whose attribute ``reads_agent`` is False, gets all its rows in one call.

    Args:
        actor: Who decides.
        group: The decisions that are asked for.
        where: Those that are the actor's. bool [B, S].
        action: Where they are written. int64 [B, S] or float32 [B, S, K].
        agents: Names of the agents.
        generator: The only source of randomness.
    """
    for agent, rows in _calls(actor, group, where=where, agents=agents):
        chosen = actor.act(rows.observation, rows.action_mask, agent=agent, generator=generator)
        rows.put(action, chosen)


def decide_from(
    actor: RememberingActor,
    group: Group,
    *,
    where: torch.Tensor,
    action: torch.Tensor,
    agents: tuple[str, ...],
    memory: Memory,
    generator: torch.Generator,
) -> None:
    """As `decide`, for an actor that remembers; what it remembers afterwards is kept."""
    places = memory.places(group.agent_index)
    for agent, rows in _calls(actor, group, where=where, agents=agents):
        own = rows.take(places)
        chosen, state = actor.act_from(
            rows.observation,
            rows.action_mask,
            state=memory.recall(own, size=actor.state_size),
            agent=agent,
            generator=generator,
        )
        rows.put(action, chosen)
        memory.keep(own, state)


def _calls(
    actor: object, group: Group, *, where: torch.Tensor, agents: tuple[str, ...]
) -> Iterator[tuple[str, Rows]]:
    """The rows of each call of an actor, with the agent that it is told."""
    rows = Rows(group, where=where)
    if not len(rows):
        return
    if getattr(actor, "reads_agent", not isinstance(actor, FrozenPolicy)):
        yield from _by_agent(group, where=where, agents=agents)
    else:
        yield "", rows


def _by_agent(
    group: Group, *, where: torch.Tensor, agents: tuple[str, ...]
) -> Iterator[tuple[str, Rows]]:
    for index in sorted(set(group.agent_index[where].tolist())):
        yield agents[index], Rows(group, where=where & (group.agent_index == index))
