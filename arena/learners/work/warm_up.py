"""Play before a policy's first update, which fills its normalizers and changes no weights.

Tests: `tests/arena/learners/work/test_worker_on_pettingzoo.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from arena.config import NormalizerWarmUp
from arena.core import HasNormalizers
from arena.envs.base import Phase, Turn
from arena.envs.phase import players_of_agents, tell_environments
from arena.errors import ConfigError
from arena.learners.work.faults import AssignmentFault
from arena.learners.work.players import Equipment
from arena.matches.play import Play
from arena.matches.seated import SeatedPlayers
from arena.matches.seating import plays_of
from arena.matches.seeds import environment_seeds
from arena.rollout.critic_rows import CriticRows
from arena.rollout.recorder import Learning
from arena.types import Player, PlayerId, PolicyId
from arena.wire.messages import Train

MAX_IDLE = 10_000
"""Calls of ``step`` in a row without a decision of the population after which play ends.

The training that follows reports a policy that never decides (`arena.learners.work.faults`).
"""


def warm_up(
    message: Train,
    equipment: Equipment,
    *,
    learning: Mapping[PolicyId, Learning],
    generator: torch.Generator,
) -> None:
    """Let bots play until the normalizers of new policies have seen the configured decisions.

    Weights that were trained elsewhere bring their own statistics, so they are skipped.

    Raises:
        AssignmentFault: If the learner was told to stop.
        ConfigError: If the bot cannot be made, or the algorithm has no normalizers to fill.
    """
    for trainee in message.trainees:
        policy = learning[trainee.policy]
        settings = equipment.setup.populations[policy.population].normalizer_warm_up
        is_new = trainee.checkpoint is None and trainee.initial_weights is None
        if settings is None or not is_new:
            continue
        algorithm = policy.algorithm
        if not isinstance(algorithm, HasNormalizers):
            raise ConfigError(
                f"populations.{policy.population}.normalizer_warm_up: its algorithm has no method "
                "update_normalizers, so there is nothing to fill"
            )
        equipment.environments.enter(message.lesson)
        _fill(
            algorithm,
            equipment,
            message=message,
            population=policy.population,
            settings=settings,
            generator=generator,
        )
        equipment.environments.release()


def _fill(
    algorithm: HasNormalizers,
    equipment: Equipment,
    *,
    message: Train,
    population: str,
    settings: NormalizerWarmUp,
    generator: torch.Generator,
) -> None:
    """Let a bot play in every seat until a population has made so many decisions."""
    setup, players = equipment.setup, equipment.players
    env = equipment.environments.begin()
    seats = [setup.seats[index] for index in plays_of(setup.seats)[0]]
    block_of_env = torch.zeros(env.num_envs, dtype=torch.int64, device=equipment.device)
    told = players_of_agents(seats, [settings.player] * len(seats))
    phase = Phase(name="training", agent_steps=0, players=told)
    tell_environments(env, [phase], block_of_env=block_of_env)
    bot = Player(player=PlayerId(settings.player))
    play = Play(
        env,
        seeds=environment_seeds(message.seed, num_envs=env.num_envs),
        generator=generator,
        seated=SeatedPlayers(
            [[players.frozen(bot, population=seat.population) for seat in seats]],
            block_of_env=block_of_env,
            seats=seats,
            agents=env.agents,
        ),
    )
    critic = None
    if population in players.critics:
        critic = CriticRows(
            players.critics[population],
            agents=env.agents,
            populations=setup.agents_of,
            device=equipment.device,
        )
    seen = num_idle = 0
    while num_idle < MAX_IDLE:
        shown = _show(play.turn, algorithm, population=population, critic=critic)
        seen += shown
        num_idle = 0 if shown else num_idle + 1
        if seen >= settings.agent_steps:
            return
        if equipment.should_stop():
            raise AssignmentFault("stopped", "told to stop while normalizers were filled")
        with torch.no_grad():
            play.step()
        equipment.progress.advance()


def _show(
    turn: Turn, algorithm: HasNormalizers, *, population: str, critic: CriticRows | None
) -> int:
    """Show the population's pending decisions to the algorithm; return their number."""
    if critic is not None:
        critic.show(turn)
    group = turn.groups[population]
    where = group.agent_index >= 0
    # [B, S, F] -> [N, F], with [B, S] for the rows that are asked about
    critic_input = None if critic is None else critic.of(group.agent_index)[where]
    algorithm.update_normalizers(group.observation[where], critic_input=critic_input)
    return int(where.sum())
