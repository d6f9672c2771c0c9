"""Observations of random play, by the packages of the games alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import count, islice
from typing import Any

import numpy as np

NUM_OBSERVATIONS = 2_000

Seen = tuple[str, Any, Any]
"""An agent that decides, its observation, and its mask of legal choices or None."""


def connect_four(episode: int) -> Iterator[Seen]:
    """Play an episode of `weights/competition.yaml`."""
    from pettingzoo.classic import connect_four_v3

    yield from _turns(connect_four_v3.env(), episode)


def simple_tag(episode: int) -> Iterator[Seen]:
    """Play an episode of `weights/chase.yaml`."""
    from mpe2 import simple_tag_v3

    yield from _turns(
        simple_tag_v3.env(
            num_adversaries=2, num_obstacles=1, max_cycles=12, continuous_actions=True
        ),
        episode,
    )


def _turns(env: Any, episode: int) -> Iterator[Seen]:
    rng = np.random.default_rng(episode)
    env.reset(seed=episode)
    for agent in env.agent_iter():
        seen, _, is_terminated, is_truncated, _ = env.last()
        if is_terminated or is_truncated:
            env.step(None)
            continue
        space = env.action_space(agent)
        if isinstance(seen, dict):
            yield agent, seen["observation"], seen["action_mask"]
            env.step(rng.choice(np.flatnonzero(seen["action_mask"])))
        else:
            yield agent, seen, None
            env.step(rng.uniform(space.low, space.high).astype(space.dtype))
    env.close()


def leduc_poker(episode: int) -> Iterator[Seen]:
    """Play an episode of `weights/memory.yaml`."""
    import pyspiel

    rng = np.random.default_rng(episode)
    state = pyspiel.load_game("leduc_poker").new_initial_state()
    while not state.is_terminal():
        if state.is_chance_node():
            actions, probabilities = zip(*state.chance_outcomes(), strict=True)
            state.apply_action(int(rng.choice(actions, p=probabilities)))
            continue
        player = state.current_player()
        numbers = np.array(state.information_state_tensor(player), np.float32)
        yield f"player_{player}", numbers, np.array(state.legal_actions_mask(player), np.int8)
        state.apply_action(int(rng.choice(state.legal_actions(player))))


def observed(play: Callable[[int], Iterator[Seen]], agents: Collection[str]) -> dict[str, Any]:
    """Return the first observations that some agents get in random play.

    Args:
        play: One of the games above, which plays an episode by its number.
        agents: Agents with equal spaces.

    Returns:
        Arrays with `NUM_OBSERVATIONS` rows, in the order of play: ``observation``, ``agent``,
            ``begins`` (whether it is the first of its episode) and, of a game with masks, ``mask``.
    """
    rows = list(islice(_rows(play, agents), NUM_OBSERVATIONS))
    columns = dict(
        zip(("begins", "agent", "observation", "mask"), zip(*rows, strict=True), strict=True)
    )
    if columns["mask"][0] is None:
        del columns["mask"]
    return {name: np.array(values) for name, values in columns.items()}


def _rows(
    play: Callable[[int], Iterator[Seen]], agents: Collection[str]
) -> Iterator[tuple[bool, str, Any, Any]]:
    for episode in count():
        own = (seen for seen in play(episode) if seen[0] in agents)
        for at, seen in enumerate(own):
            yield at == 0, *seen
