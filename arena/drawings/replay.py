"""A game that is played again from its seed and its actions, by the steppers that played it.

Imports PettingZoo: it runs in the child of `arena.drawings.draw`.

Tests: `tests/arena/drawings/test_draw.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from arena.drawings.picture import Game, Moment
from arena.environment_spec import EnvironmentSpec
from arena.envs.batched.find import find_game, names_code
from arena.envs.one_by_one import steppers
from arena.envs.openspiel.game import is_openspiel
from arena.envs.pettingzoo.buffers import Buffers
from arena.envs.pettingzoo.episode import EpisodeRow
from arena.envs.pettingzoo.stepper import Stepper
from arena.envs.registry import make_environment
from arena.envs.spaces.actions import ActionLayout
from arena.envs.twins import TWINS
from arena.errors import EnvironmentFault, EnvironmentUnavailable


class Decisions(dict[str, list[Any]]):
    """Decisions by agent, each alone in a list; one that is missing is a fault."""

    def __missing__(self, agent: str) -> list[Any]:
        """Raise the fault."""
        raise EnvironmentFault(
            f"{agent} is on turn where {', '.join(self)} decided: the game went on differently"
        )


def replay(game: Game, *, render_mode: str | None = None) -> Iterator[Moment]:
    """Yield the start, and each moment after a step.

    Args:
        game: Game to play again.
        render_mode: ``render_mode`` that the environment is made with. None: that of the game.

    Raises:
        ConfigError: If the environment cannot be made, or differs from the spec.
        EnvironmentFault: If it breaks, or goes on differently than when the game was played.
    """
    mode = {} if render_mode is None else {"render_mode": render_mode}
    spec = replace(game.spec, kwargs={**game.spec.kwargs, **mode})
    alone, num_agents = {agent: (agent,) for agent in spec.agents}, len(spec.agents)
    buffers = Buffers(spec, populations=alone, num_envs=1, num_sides=num_agents)
    # Nobody reads the score.
    row = EpisodeRow(buffers, b=0, score=lambda *_: (0.0,) * num_agents, keeps_infos=False)
    stepper, live = _made(game, spec, row)
    layouts = {
        agent: ActionLayout.from_json(facts.action, continuous=game.continuous_actions)
        for agent, facts in spec.agent_specs.items()
    }
    stepper.start(game.seed)
    moment = Moment(env=live(), environment_id=spec.id, agents=spec.agents, viewer=game.viewer)
    yield moment
    returns, over = np.zeros(num_agents), False
    for number, rows in enumerate(game.turns):
        if over:
            raise EnvironmentFault(f"it is over after {number} of {len(game.turns)} steps")
        buffers.clear()
        # In the environment's order: a file may have another.
        actions = Decisions(
            (agent, layouts[agent].actions(np.array([rows[agent]], layouts[agent].row_dtype)))
            for agent in spec.agents
            if agent in rows
        )
        # OpenSpiel has words for actions until they are carried out.
        words = getattr(live(), "action_to_string", lambda *_: "")
        chosen = [(spec.agents.index(agent), action) for agent, (action,) in actions.items()]
        move = ", ".join(words(*one) for one in chosen)
        over = stepper.step(actions)
        returns += buffers.reward[0]
        moment = replace(
            moment,
            env=live(),
            turns=(*moment.turns, {agent: action for agent, (action,) in actions.items()}),
            move=move,
            returns=dict(zip(spec.agents, returns.tolist(), strict=True)),
            # The cards are turned.
            viewer=None if over else game.viewer,
        )
        yield moment


def _made(
    game: Game, spec: EnvironmentSpec, row: EpisodeRow
) -> tuple[Stepper, Callable[[], object]]:
    """Make a stepper, and a function that returns its live environment."""
    place = game.launch_directory
    alone = {agent: (agent,) for agent in spec.agents}
    is_game = names_code(spec.id) and find_game(spec.id, launch_directory=place) is not None
    try:
        if is_openspiel(spec.id):
            played = steppers.openspiel_stepper(spec, populations=alone)(row)
            return played, lambda: played.state
        if not is_game:
            env = make_environment(
                spec.id, kwargs=spec.kwargs, api=spec.api, launch_directory=place
            )
            steppers.check_spec(env, spec=spec, possible_agents=game.possible_agents)
            # With its wrappers: one that enforces an order renders nothing that was reset below.
            return steppers.stepper_of(spec, populations=alone)(env, row), lambda: env
    except EnvironmentUnavailable:
        # Poker is played without OpenSpiel; elsewhere the twin is not used, as torch starts slowly.
        if spec.id not in TWINS:
            raise
    game_class = find_game(spec.id, launch_directory=place)
    assert game_class is not None, "it is a batched game, or has one"
    from arena.drawings.batched import BatchedStepper

    stepper = BatchedStepper(game_class, spec, row)
    return stepper, lambda: stepper.game
