"""The first difference of two turns.

Shapes: B environments, A agents, S agents of a population that decide at once, P agents of a
population, K rows of a tensor in one environment, X numbers of a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from arena.envs.base import Turn

ABOUT_THE_NEXT_DECISION = frozenset({"agent_index", "action_mask", "observation"})
"""Tensors that already belong to the next episode where one has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """First difference of two turns, and the way to reproduce it.

    It is in the lowest differing environment, and in the first differing tensor there.

    Attributes:
        what: A tensor of `Turn` or `Group`; ``api``, ``agents``, or an agent's ``observation
            space``, ``action space`` or ``mask`` where the specs differ.
        one: Value in the first environment: a row of numbers (None: not a number), or a fact.
        other: Value in the second environment.
        position: Position of the difference in these rows.
        also: Further tensors that differ in the same environment and call.
        environment_index: Index in the batch; None for a fact, a shape or a dtype.
        agent: Agent concerned; None if the value belongs to no agent.
        seed: Seed of this environment.
        episode: Episode of this environment, from 0.
        episode_seed: Seed that the environment's own reset got for this episode.
        call: Call of ``step`` since this episode began; 0: the reset.
        actions: Actions in this episode, by agent; one entry per call.
    """

    what: str
    one: object
    other: object
    position: int = 0
    also: tuple[str, ...] = ()
    environment_index: int | None = None
    agent: str | None = None
    seed: int | None = None
    episode: int | None = None
    episode_seed: int | None = None
    call: int | None = None
    actions: tuple[Mapping[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class _Pair:
    """One tensor of both turns.

    Attributes:
        tensor: Name of the tensor.
        one: Tensor of the first turn. [B, K, X], or fewer axes.
        other: Tensor of the second turn.
        columns: Agent's column by row. int64 [B, K]; None: rows belong to no agent.
        defined: Defined rows. bool [B, K]; None: all.
    """

    tensor: str
    one: torch.Tensor
    other: torch.Tensor
    columns: torch.Tensor | None
    defined: torch.Tensor | None = None

    def is_alike(self) -> bool:
        """Return whether shapes and dtypes are equal."""
        return self.one.shape == self.other.shape and self.one.dtype == self.other.dtype

    def differing(self) -> torch.Tensor | None:
        """Return the differing numbers; None if there are none. bool [B, K, X]."""
        # Equality is the usual case and cheap to test; NaN does not equal itself and is handled
        # below.
        if torch.equal(self.one, self.other):
            return None
        differ = self.one != self.other
        if self.one.is_floating_point():
            # NaN in both counts as equal, such as the score of an unfinished episode.
            differ &= ~(self.one.isnan() & self.other.isnan())
        differ = _rows(differ)
        if self.defined is not None:
            # [B, K] -> [B, K, 1], against [B, K, X]
            differ &= self.defined[..., None]
        return differ if bool(differ.any()) else None


def first_difference(
    one: Turn,
    other: Turn,
    *,
    agents: tuple[str, ...],
    populations: Mapping[str, tuple[str, ...]],
) -> Difference | None:
    """Compare two turns wherever they are defined; only equal numbers are equal.

    Args:
        one: First turn, of B environments.
        other: Second turn.
        agents: All agents, in the order of the columns.
        populations: Agents by population.

    Returns:
        The difference, without its place in time; None if there is none.
    """
    differing = []
    for pair in _pairs(one, other, agents=agents, populations=populations):
        if not pair.is_alike():
            shapes = [f"{tensor.dtype} {tuple(tensor.shape)}" for tensor in (pair.one, pair.other)]
            return Difference(what=pair.tensor, one=shapes[0], other=shapes[1])
        differ = pair.differing()
        if differ is not None:
            differing.append((pair, differ))
    if not differing:
        return None
    return _lowest(differing, agents=agents)


def _lowest(differing: list[tuple[_Pair, torch.Tensor]], *, agents: tuple[str, ...]) -> Difference:
    # The lowest environment comes first; there, `differing` has the order of `_pairs`.
    b = min(int(differ.flatten(1).any(dim=1).nonzero()[0]) for _, differ in differing)
    here = [(pair, differ[b]) for pair, differ in differing if bool(differ[b].any())]
    pair, differ = here[0]
    row, position = differ.nonzero()[0].tolist()
    column = -1 if pair.columns is None else int(pair.columns[b, row])
    further = dict.fromkeys(other.tensor for other, _ in here[1:])
    return Difference(
        what=pair.tensor,
        environment_index=b,
        agent=agents[column] if column >= 0 else None,
        one=_plain(_rows(pair.one)[b, row]),
        other=_plain(_rows(pair.other)[b, row]),
        position=position,
        also=tuple(name for name in further if name != pair.tensor),
    )


def _pairs(
    one: Turn, other: Turn, *, agents: tuple[str, ...], populations: Mapping[str, tuple[str, ...]]
) -> Iterator[_Pair]:
    """Yield the tensors to compare, causes before consequences."""
    everyone = torch.arange(len(agents)).expand(one.reward.shape[0], -1)
    yield _Pair("terminated", one.terminated.cpu(), other.terminated.cpu(), everyone)
    yield _Pair("truncated", one.truncated.cpu(), other.truncated.cpu(), everyone)
    yield _Pair("reward", one.reward.cpu(), other.reward.cpu(), everyone)
    yield _Pair("episode_over", one.episode_over.cpu(), other.episode_over.cpu(), None)
    # All sides share one row, so that a difference shows all scores.
    yield _Pair("score", one.score.cpu().unsqueeze(1), other.score.cpu().unsqueeze(1), None)
    # A difference of the flags themselves has been found above.
    truncated = (one.truncated & other.truncated.to(one.truncated.device)).cpu()
    for name, members in populations.items():
        columns = torch.tensor([agents.index(agent) for agent in members])
        yield _Pair(
            "final_observation",
            one.final_observation[name].cpu(),
            other.final_observation[name].cpu(),
            columns.expand(len(truncated), -1),
            truncated[:, columns],
        )
    for name in populations:
        yield from _group_pairs(one, other, name=name)


def _group_pairs(one: Turn, other: Turn, *, name: str) -> Iterator[_Pair]:
    group, second = one.groups[name], other.groups[name]
    columns, other_columns = group.agent_index.cpu(), second.agent_index.cpu()
    yield _Pair("agent_index", columns, other_columns, columns)
    if columns.shape != other_columns.shape:
        return
    # A decision that only one turn has is found as a difference of agent_index.
    asked = (columns >= 0) & (other_columns >= 0)
    mask, other_mask = (
        # A mask that only one turn has is found as a difference of shapes.
        torch.empty(0, dtype=torch.bool) if mask is None else mask.cpu()
        for mask in (group.action_mask, second.action_mask)
    )
    yield _Pair("action_mask", mask, other_mask, columns, asked)
    yield _Pair("observation", group.observation.cpu(), second.observation.cpu(), columns, asked)


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """Reshape [B], [B, K] or [B, K, X] to [B, K, X]."""
    return tensor.reshape(*tensor.shape, *[1] * (3 - tensor.ndim))


def _plain(row: torch.Tensor) -> list[object]:
    # JSON has no NaN.
    return [None if value != value else value for value in row.tolist()]
