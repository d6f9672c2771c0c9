"""Games played by the code that plays them in a run, and drawings read back."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from arena.drawings.picture import Game
from arena.environment_spec import EnvironmentRequest, EnvironmentSpec
from arena.envs.base import BatchedEnv
from arena.envs.chance import episode_seed
from arena.envs.describe import environment_facts, populations_of
from arena.envs.make import PlainEnvs
from arena.envs.random_play import action_layouts, random_legal_actions

ASSETS = str(Path(__file__).parents[2] / "assets")
SVG = "{http://www.w3.org/2000/svg}"

Cells = dict[tuple[int, ...], str]
PlayRandomly = Callable[..., tuple[Game, dict[str, float]]]


@pytest.fixture
def play_randomly() -> PlayRandomly:
    return _play_randomly


@cache
def _made(environment_id: str, **kwargs: object) -> tuple[EnvironmentSpec, BatchedEnv]:
    spec = environment_facts(
        EnvironmentRequest(environment_id, kwargs=kwargs, launch_directory=ASSETS)
    )
    return spec, PlainEnvs(spec=spec, launch_directory=ASSETS).make(num_envs=1)


def _play_randomly(
    environment_id: str, *, seed: int = 1, most: int = 500, **kwargs: object
) -> tuple[Game, dict[str, float]]:
    """A random game of the batch, and its returns."""
    spec, env = _made(environment_id, **kwargs)
    layouts = action_layouts(spec, populations=populations_of(spec))
    generator = torch.Generator().manual_seed(seed)
    turn = env.reset([seed])
    turns: list[dict[str, int | list[float]]] = []
    returns = torch.zeros(len(spec.agents), dtype=torch.float64)
    while len(turns) < most:
        actions = random_legal_actions(turn, actions=layouts, generator=generator)
        rows: dict[str, int | list[float]] = {}
        for name, group in turn.groups.items():
            for slot, agent in enumerate(group.agent_index[0].tolist()):
                if agent >= 0:
                    rows[spec.agents[agent]] = actions[name][0, slot].tolist()
        turn = env.step(actions)
        turns.append(rows)
        returns += turn.reward[0]
        if turn.episode_over[0]:
            break
    key = episode_seed(seed, episode=0)
    game = Game(spec=spec, seed=key, turns=tuple(turns), launch_directory=ASSETS)
    return game, dict(zip(spec.agents, returns.tolist(), strict=True))


def cells_in(svg: str) -> Cells:
    """The pieces of a drawing by row and column. They must stand in the order of their cells."""
    pieces = [
        one for one in ElementTree.fromstring(svg).iter(f"{SVG}g") if "data-piece" in one.attrib
    ]
    cells = [tuple(map(int, piece.attrib["data-cell"].split(","))) for piece in pieces]
    places = [piece.attrib["transform"][10:].split(")")[0].split() for piece in pieces]
    assert len(set(cells)) == len(cells)
    for axis, coordinate in ((0, 1), (1, 0)):
        for at, other in pairwise(range(len(cells))):
            # Columns of hexagonal boards are compared only within a row.
            if axis == 0 or cells[at][0] == cells[other][0]:
                ahead = cells[at][axis] - cells[other][axis]
                apart = float(places[at][coordinate]) - float(places[other][coordinate])
                assert (ahead > 0, ahead < 0) == (apart > 1, apart < -1)
    return {cell: piece.attrib["data-piece"] for cell, piece in zip(cells, pieces, strict=True)}


def letters(rows: list[str]) -> Cells:
    """The cells of a board that is written as text."""
    return {
        (row, column): letter
        for row, line in enumerate(rows)
        for column, letter in enumerate(line)
        if letter != "."
    }
