"""Random legal play of a batch, for checks and comparisons of environments and for `bot:random`.

Tests: `tests/arena/envs/spaces/test_actions.py`, `tests/arena/envs/test_agents.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from arena.environment_spec import ContinuousActions, EnvironmentSpec
from arena.envs.base import BatchedEnv, Group, Turn
from arena.spaces import MAX_TANH, ActionLayout


def action_layouts(
    spec: EnvironmentSpec,
    *,
    populations: Mapping[str, tuple[str, ...]],
    continuous: ContinuousActions = "squashed",
) -> dict[str, ActionLayout]:
    """Return the action layout of each population."""
    return {
        name: ActionLayout.from_json(spec.agent_specs[agents[0]].action, continuous=continuous)
        for name, agents in populations.items()
    }


def random_legal_actions(
    turn: Turn, *, actions: Mapping[str, ActionLayout], generator: torch.Generator
) -> dict[str, torch.Tensor]:
    """Draw one action for each pending decision, each legal one equally likely.

    Args:
        turn: Turn with the decisions, on any device.
        actions: Action layouts by population.
        generator: The only source of randomness. On the CPU.

    Returns:
        Actions by population, on the CPU. int64 [B, S] or float32 [B, S, K].
    """
    return {
        name: random_answers(group, layout=actions[name], generator=generator)
        for name, group in turn.groups.items()
    }


def random_turns(
    env: BatchedEnv,
    *,
    seeds: Sequence[int],
    actions: Mapping[str, ActionLayout],
    generator: torch.Generator,
) -> Iterator[tuple[Turn, dict[str, torch.Tensor]]]:
    """Reset environments and step them without end, with `random_legal_actions`.

    Args:
        env: Batch of environments.
        seeds: Seed of each.
        actions: Action layouts by population.
        generator: Source of the actions. On the CPU.

    Yields:
        Each turn with the actions to be played next; the caller may replace them in the mapping.
    """
    turn = env.reset(seeds)
    while True:
        answers = random_legal_actions(turn, actions=actions, generator=generator)
        yield turn, answers
        turn = env.step(answers)


def random_answers(
    group: Group, *, layout: ActionLayout, generator: torch.Generator
) -> torch.Tensor:
    """Draw one action for each slot of a group, on the generator's device. [B, S] or [B, S, K]."""
    mask, shape = group.action_mask, group.agent_index.shape
    # [B, S, n] -> [B * S, n]; slots without a decision are drawn, too, and then ignored.
    flat_mask = None if mask is None else mask.to(generator.device).flatten(0, 1)
    rows = uniform_actions(
        layout, num_rows=shape.numel(), action_mask=flat_mask, generator=generator
    )
    return rows.view(*shape, *layout.row_shape)


def uniform_actions(
    layout: ActionLayout,
    *,
    num_rows: int,
    action_mask: torch.Tensor | None,
    generator: torch.Generator,
) -> torch.Tensor:
    """Draw actions: legal choices equally often, and numbers uniformly within their bounds.

    The distance of a number from its only bound is that of a standard normal one from 0; a number
    without bounds is standard normal.

    Args:
        layout: Layout of the actions.
        num_rows: N.
        action_mask: True for legal choices. bool [N, n].
        generator: The only source of randomness; its device is that of the actions.

    Returns:
        Actions int64 [N] or float32 [N, K].
    """
    columns = []
    first = 0
    for number in layout.branches:
        # Masks of all categories lie side by side, so this is the slice of one category.
        legal = None if action_mask is None else action_mask[:, first : first + number]
        columns.append(_choices(number, num_rows=num_rows, legal=legal, generator=generator))
        first += number
    if layout.is_discrete:
        return columns[0]
    numbers = _numbers(layout, num_rows=num_rows, generator=generator)
    choices = [column.float()[:, None] for column in columns]
    return torch.cat([*choices, numbers], dim=1)


def _choices(
    number: int, *, num_rows: int, legal: torch.Tensor | None, generator: torch.Generator
) -> torch.Tensor:
    device = generator.device
    if legal is None:
        return torch.randint(number, (num_rows,), generator=generator, device=device)
    draws = torch.rand(legal.shape, generator=generator, dtype=torch.float32, device=device)
    # The largest of independent uniform draws is a uniform choice among the legal ones. Draws are
    # at least 0, so the -1 of an illegal choice never wins.
    return draws.masked_fill_(~legal, -1.0).argmax(dim=1)


def _numbers(layout: ActionLayout, *, num_rows: int, generator: torch.Generator) -> torch.Tensor:
    """Draw numbers before they are brought within bounds. float32 [N, C]."""
    shape, device = (num_rows, layout.num_continuous), generator.device
    if not layout.num_continuous:
        return torch.zeros(shape, dtype=torch.float32, device=device)
    share = torch.rand(shape, generator=generator, device=device, dtype=torch.float64)
    normal = torch.randn(shape, generator=generator, device=device, dtype=torch.float64)
    low, high = (
        torch.tensor(bound, dtype=torch.float64, device=device)
        for bound in (layout.low, layout.high)
    )
    squashed = torch.from_numpy(layout.squashed).to(device)
    # u = atanh(2 s - 1): after squashing, l + (h - l) (tanh(u) + 1) / 2 is uniform in [l, h].
    within = torch.atanh((2 * share - 1).clamp(-MAX_TANH, MAX_TANH))
    # Clipped numbers are the action itself: (1 - s) l + s h.
    within = torch.where(squashed, within, (1 - share) * low + share * high)
    # With only a lower bound: l + |z|; only an upper one: h - |z|; none: z.
    beside_low = torch.where(low.isfinite(), low + normal.abs(), normal)
    beside = torch.where(high.isfinite(), high - normal.abs(), beside_low)
    return torch.where(low.isfinite() & high.isfinite(), within, beside).float()
