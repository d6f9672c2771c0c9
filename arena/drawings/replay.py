"""A game that is played again from its seed and its actions, by the steppers that played it.

Environments without a drawing are drawn by PettingZoo's own ``render``. Imports PettingZoo: it runs
in the child of `arena.drawings.draw`.

Tests: `tests/arena/drawings/test_draw.py`.
"""

from __future__ import annotations

import base64
import contextlib
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from arena.drawings.games import move_of
from arena.drawings.picture import Game, Moment, Picture
from arena.envs.batched.find import find_game, names_code
from arena.envs.one_by_one import steppers
from arena.envs.openspiel.game import is_openspiel
from arena.envs.openspiel.stepper import OpenSpielStepper
from arena.envs.pettingzoo.buffers import Buffers
from arena.envs.pettingzoo.episode import EpisodeRow, Stepper
from arena.envs.registry import make_environment
from arena.errors import ConfigError, EnvironmentFault, EnvironmentUnavailable

MODES = ("rgb_array", "ansi")
"""Values of ``render_mode`` that give a picture, the best first."""

SHOW_ALL_HANDS = re.compile(r"classic/(leduc_holdem|texas_holdem|gin_rummy|hanabi)")
"""Environments whose pictures show what an agent must not see."""

MAX_PIXELS = 1 << 22

ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""Colours and the like of a terminal."""


class Decisions(dict[str, list[Any]]):
    """Decisions by agent, each alone in a list; one that is missing is a fault."""

    def __missing__(self, agent: str) -> list[Any]:
        """Raise the fault."""
        raise EnvironmentFault(
            f"{agent} is on turn where {', '.join(self)} decided: the game went on differently"
        )


def replay(game: Game, *, renders: bool = False) -> Iterator[Moment]:
    """Yield the start, and each moment after a step.

    Args:
        game: Game to play again.
        renders: Whether its environment is to draw itself.

    Raises:
        ConfigError: If the environment cannot be made, differs from the spec, or cannot draw
            itself.
        EnvironmentFault: If it breaks, or goes on differently than when the game was played.
    """
    spec = game.spec
    buffers = Buffers(
        spec,
        populations={agent: (agent,) for agent in spec.agents},
        num_envs=1,
        num_sides=len(spec.agents),
        continuous_actions=game.continuous_actions,
    )
    stepper, live = _made(game, buffers, renders=renders)
    layouts = {agent: one.actions for agent, one in buffers.populations.items()}
    stepper.start(game.seed)
    moment = Moment(env=live(), environment_id=spec.id, agents=spec.agents, viewer=game.viewer)
    yield moment
    returns, over = np.zeros(len(spec.agents)), False
    for number, rows in enumerate(game.turns):
        if over:
            raise EnvironmentFault(f"it is over after {number} of {len(game.turns)} steps")
        buffers.clear()
        # Agents are put into the environment's order, because a file may have another one.
        actions = Decisions(
            (agent, layouts[agent].actions(np.array([rows[agent]], layouts[agent].row_dtype)))
            for agent in spec.agents
            if agent in rows
        )
        turn = {agent: action for agent, (action,) in actions.items()}
        # A state describes actions only until they are carried out.
        chosen = {agent: row for agent in turn if isinstance(row := rows[agent], int)}
        did = [move_of(moment, agent, index) for agent, index in chosen.items()]
        over = stepper.step(actions)
        returns += buffers.reward[0]
        moment = replace(
            moment,
            env=live(),
            turns=(*moment.turns, turn),
            did=tuple(filter(None, did)),
            returns=dict(zip(spec.agents, returns.tolist(), strict=True)),
            # At the end all cards are shown.
            viewer=None if over else game.viewer,
        )
        yield moment


def _made(game: Game, buffers: Buffers, *, renders: bool) -> tuple[Stepper, Callable[[], object]]:
    """Make a stepper, and a function that returns its live environment."""
    spec, place = game.spec, game.launch_directory
    # The score is not read here, so zeros will do.
    row = EpisodeRow(buffers, b=0, score=lambda *_: (0.0,) * len(spec.agents), keeps_infos=False)
    game_class = find_game(spec.id, launch_directory=place) if names_code(spec.id) else None
    if game_class is None:
        try:
            if is_openspiel(spec.id):
                played = OpenSpielStepper(steppers.checked_game(spec), row=row)
                return played, lambda: played.state
            make = partial(make_environment, spec.id, api=spec.api, launch_directory=place)
            env = make(kwargs=spec.kwargs)
            if renders:
                mode = render_mode_of(env)
                # An exception of `close` is no reason not to draw the game.
                with contextlib.suppress(Exception):
                    env.close()
                env = make(kwargs={**spec.kwargs, "render_mode": mode})
            steppers.check_spec(env, spec=spec, possible_agents=game.possible_agents)
            # The wrappers stay, because one that enforces the order of calls must see the reset.
            return steppers.make_stepper(env, row, api=spec.api), lambda: env
        except EnvironmentUnavailable:
            # Poker needs no OpenSpiel; other twins are not used, because torch starts slowly.
            game_class = find_game(spec.id, launch_directory=place)
            if game_class is None:
                raise
    if renders:
        render_mode_of(game_class)
    from arena.drawings.batched import BatchedStepper

    stepper = BatchedStepper(game_class, spec, row)
    return stepper, lambda: stepper.game


def render_mode_of(env: object) -> str:
    """Return the ``render_mode`` with which an environment draws itself.

    Raises:
        ConfigError: If it has none that gives a picture.
    """
    modes = list(getattr(env, "metadata", {}).get("render_modes", ()))
    for mode in MODES:
        if mode in modes:
            return mode
    raise ConfigError(
        f"its metadata must have one of the render modes {' and '.join(MODES)}, got {modes}; or a "
        "function of yours draws it (docs/how-to/drawing.md)"
    )


def render(moment: Moment) -> Picture:
    """Return what an environment renders.

    Raises:
        EnvironmentFault: If that is neither text nor pixels.
    """
    shown = moment.env.render()
    if isinstance(shown, str):
        return Picture(text=ESCAPES.sub("", shown))
    frame = np.asarray(shown)
    shape = "x".join(map(str, frame.shape))
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or not frame.size:
        raise EnvironmentFault(
            "render must return text, or pixels as uint8 of height x width x 3, got "
            f"{type(shown).__name__} {frame.dtype} {shape}"
        )
    if frame.size > 3 * MAX_PIXELS:
        raise EnvironmentFault(f"render must return at most {MAX_PIXELS:,} pixels, got {shape}")
    # pygame is imported here, because only PettingZoo's games require it.
    import pygame

    file = io.BytesIO()
    # pygame's first axis is the horizontal one.
    pygame.image.save(pygame.surfarray.make_surface(frame.swapaxes(0, 1)), file, "frame.png")
    return Picture(png=base64.b64encode(file.getvalue()).decode())
