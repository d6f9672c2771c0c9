"""Seated players: routes the decisions of B environments to the players in the seats.

Matches and training share this mechanism. A player is an Actor, or a policy that learns, whose
decisions are made elsewhere. Shapes: B environments, A agents, S decisions of a population at once,
N rows of a flattened group (B * S), F features, n actions, H numbers of a recurrent state.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

import torch

from arena.core import Actor, ActorInput, Games
from arena.envs.base import Group
from arena.matches.recurrent_state import RecurrentState, Rows
from arena.networks.frozen import FrozenPolicy
from arena.networks.stack import PolicyStack, stack_key
from arena.types import Seat

_Deciders = tuple[Sequence[tuple[PolicyStack, torch.Tensor]], Sequence[tuple[int, Actor]]]
"""Actors of a population. First, stacks of frozen policies of one architecture, each with a table
from player to index in the stack, or NOBODY, int64 [players + 1]; the last entry, which the owner
NOBODY reads, is NOBODY. Second, the other actors with their indices: those without games and
recurrent state, then those that read games, then recurrent ones. The order of draws depends on this
order. """


class Seatable(Protocol):
    """A player that can have a seat: an Actor, or a policy that learns."""

    @property
    def state_size(self) -> int:
        """Size H of the recurrent state; 0: the player is not recurrent."""


PlayerT = TypeVar("PlayerT", bound=Seatable)

NOBODY = -1
"""Owner of a slot without a pending decision."""


def block_of_envs(sizes: Sequence[int], *, device: torch.device | str = "cpu") -> torch.Tensor:
    """Return each environment's block, blocks one after the other. int64 [sum(sizes)]."""
    counts = torch.tensor(sizes, dtype=torch.int64, device=device)
    return torch.repeat_interleave(torch.arange(len(sizes), device=device), counts)


def equal_blocks(
    num_blocks: int, *, num_envs: int, device: torch.device | str = "cpu"
) -> torch.Tensor:
    """Return each environment's block, in blocks whose sizes differ by at most one.

    Environment b belongs to block b * K // B. int64 [B].

    Raises:
        ValueError: If there are more blocks than environments.
    """
    if not 1 <= num_blocks <= num_envs:
        raise ValueError(f"1 to {num_envs} blocks fit {num_envs} environments, got {num_blocks}")
    # b K // B takes each of 0 .. K - 1 for floor(B / K) or ceil(B / K) values of b.
    return torch.arange(num_envs, device=device) * num_blocks // num_envs


class SeatedPlayers(Generic[PlayerT]):
    """The players of B environments in their seats, which they keep until `move`.

    Args:
        blocks: One player per seat, for each block of environments; the same object is one player
            in all of its seats.
        block_of_env: Block of each environment. int64 [B].
        seats: Occupied seats; together they have every agent once.
        agents: Agents of the environment in order.
        product_dtypes: Dtype, by population, in which several frozen policies act in one call;
            float32 where there is none.
        recurrent_state: States of continuing episodes; None: all episodes begin.

    Attributes:
        recurrent_state: States of the recurrent players. The caller that steps the environments
            resets it.

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
        recurrent_state: RecurrentState | None = None,
    ) -> None:
        # Comparing sorted lists detects missing agents as well as duplicates.
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
                # Players are compared by identity: one object is one player in all of its seats.
                if id(player) not in index_of:
                    index_of[id(player)] = len(players)
                    players.append(player)
                members[row].setdefault(seat.population, set()).add(index_of[id(player)])
                for agent in seat.agents:
                    table[row, column[agent]] = index_of[id(player)]
        self.players: tuple[PlayerT, ...] = tuple(players)
        self._members = members
        # [blocks, A] -> [B, A]
        self._table_of_blocks = table.to(block_of_env.device)
        self.table = self._table_of_blocks[block_of_env]
        self.recurrent_state = RecurrentState(
            num_envs=len(self.table),
            num_agents=len(agents),
            size=max((player.state_size for player in self.players), default=0),
            device=self.table.device,
            before=recurrent_state,
        )
        self._agents = agents
        self._seat_of = {agent: seat for seat in seats for agent in seat.agents}
        self._product_dtypes = product_dtypes
        self._deciders = self._deciders_of(len(blocks))

    def _deciders_of(self, num_blocks: int) -> dict[str, _Deciders]:
        """Return the actors of the first blocks, by population."""
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
        """Seat the players of each environment's new block (int64 [B]); only between episodes."""
        self.table = self._table_of_blocks[block_of_env]

    def retire(self, *, from_block: int) -> None:
        """Drop the players of later blocks, which have no environments any more.

        Args:
            from_block: First block that is empty; so are all after it.
        """
        self._deciders = self._deciders_of(from_block)

    def leave(self) -> None:
        """Release all players; only `recurrent_state` may be used afterwards."""
        self.players = ()
        self._deciders = {}

    def owners(self, agent_index: torch.Tensor) -> torch.Tensor:
        """Return the index in ``players`` of each decision's player, NOBODY where there is none.

        Args:
            agent_index: Index of the deciding agent, -1 for no decision. int64 [B, S].

        Returns:
            int64 [B, S].
        """
        # Index -1, no decision, reads agent 0 and is masked.
        owner = self.table.gather(1, agent_index.clamp(min=0))
        return owner.masked_fill(agent_index < 0, NOBODY)

    def decide(self, population: str, group: Group, *, generator: torch.Generator) -> torch.Tensor:
        """Return a population's actions where actors decide; zeros elsewhere.

        int64 [B, S] or float32 [B, S, K].
        """
        action, owner = group.new_actions(), self.owners(group.agent_index)
        self.play_frozen(population, group, owner=owner, action=action, generator=generator)
        return action

    def play_frozen(
        self,
        population: str,
        group: Group,
        *,
        owner: torch.Tensor,
        action: torch.Tensor,
        generator: torch.Generator,
    ) -> None:
        """Write the decisions of a population's actors into ``action``.

        Frozen policies of one architecture decide in one call, every other actor in a call of its
        own (see `decide`). Decisions of policies that learn are left unchanged.

        Args:
            population: Population that decides.
            group: Pending decisions.
            owner: Player of each decision, from `owners`. int64 [B, S].
            action: Tensor to write the actions into. int64 [B, S] or float32 [B, S, K].
            generator: The only source of randomness.
        """
        stacks, singles = self._deciders.get(population, ((), ()))
        for stack, member in stacks:
            # The index NOBODY reads the last entry, which is NOBODY.
            player = member[owner]
            rows = Rows(group, where=player != NOBODY)
            if len(rows):
                mask, player = rows.action_mask, rows.take(player)
                rows.put(
                    action, stack.act(rows.observation, mask, player=player, generator=generator)
                )
        # All actors draw from one generator, so single actors always follow the stacks in this
        # order.
        for index, actor in singles:
            self._decide(actor, group, where=owner == index, action=action, generator=generator)

    def _decide(
        self,
        actor: Actor,
        group: Group,
        *,
        where: torch.Tensor,
        action: torch.Tensor,
        generator: torch.Generator,
    ) -> None:
        """Let an actor decide as in `decide`, with its recurrent state and games if it reads
        them.
        """
        # Most actors have neither state nor games, so no places are computed.
        if not actor.state_size and not actor.reads_games:
            decide(
                actor, group, where=where, action=action, agents=self._agents, generator=generator
            )
            return
        states, size = self.recurrent_state, actor.state_size
        # Actors keep no state (`Actor`), so the caller reads and writes it.
        places = states.places(group.agent_index)
        for agent, rows in _calls(actor, group, where=where, agents=self._agents):
            place = rows.take(places)
            inputs = ActorInput(
                observation=rows.observation,
                action_mask=rows.action_mask,
                recurrent_state=states.read(place, size=size) if size else None,
                games=self._games(agent, rows, group=group) if actor.reads_games else None,
            )
            output = actor.act(inputs, agent=agent, generator=generator)
            rows.put(action, output.action)
            if output.recurrent_state is not None:
                states.write(place, output.recurrent_state)

    def _games(self, agent: str, rows: Rows, *, group: Group) -> Games:
        # row = b S + s -> b
        index = rows.index.cpu() // group.agent_index.shape[1]
        episodes = self.recurrent_state.episodes
        return Games(seat=self._seat_of[agent], index=index, episode=episodes[index])


def _deciders(
    players: Sequence[object],
    *,
    indices: Sequence[int],
    device: torch.device,
    product_dtype: torch.dtype,
) -> _Deciders:
    """Group some of the actors, so that they act in as few calls as possible."""
    alike: dict[Hashable, dict[int, FrozenPolicy]] = {}
    plain: list[tuple[int, Actor]] = []
    in_games: list[tuple[int, Actor]] = []
    recurrent: list[tuple[int, Actor]] = []
    for index in indices:
        player = players[index]
        if not isinstance(player, Actor):  # This player is a policy that learns.
            continue
        if player.state_size:
            recurrent.append((index, player))
        # `type` instead of `isinstance`: a subclass may act differently from the stack.
        elif type(player) is FrozenPolicy:
            alike.setdefault(stack_key(player), {})[index] = player
        elif player.reads_games:
            in_games.append((index, player))
        else:
            plain.append((index, player))
    # A single policy needs no stack.
    plain += [
        only for policies in alike.values() if len(policies) == 1 for only in policies.items()
    ]
    stacks: list[tuple[PolicyStack, torch.Tensor]] = []
    for policies in alike.values():
        if len(policies) > 1:
            member = torch.full((len(players) + 1,), NOBODY, dtype=torch.int64)
            member[list(policies)] = torch.arange(len(policies))
            stack = PolicyStack(list(policies.values()), product_dtype=product_dtype)
            stacks.append((stack, member.to(device)))
    return stacks, [*plain, *in_games, *recurrent]


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

    `Actor.act` names a single agent, so an actor that reads the agent is called once per agent on
    turn; any other actor gets all its rows in one call.

    Args:
        actor: Actor without a recurrent state that reads no games.
        group: Pending decisions.
        where: Decisions of the actor. bool [B, S].
        action: Tensor to write the actions into. int64 [B, S] or float32 [B, S, K].
        agents: Names of the agents.
        generator: The only source of randomness.
    """
    for agent, rows in _calls(actor, group, where=where, agents=agents):
        inputs = ActorInput(observation=rows.observation, action_mask=rows.action_mask)
        rows.put(action, actor.act(inputs, agent=agent, generator=generator).action)


def _calls(
    actor: Actor, group: Group, *, where: torch.Tensor, agents: tuple[str, ...]
) -> Iterator[tuple[str, Rows]]:
    """Yield the agent and the rows of each call of an actor."""
    rows = Rows(group, where=where)
    if not len(rows):
        return
    if not actor.reads_agent:
        yield "", rows
        return
    # Indices are sorted, because the order of draws must not depend on a set's order.
    for index in sorted(set(group.agent_index[where].tolist())):
        yield agents[index], Rows(group, where=where & (group.agent_index == index))
