"""Play before a policy's first update, which fills its normalizers and nothing else.

Tests: `tests/arena/learners/work/test_warm_up.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from arena.core import HasNormalizers
from arena.envs.base import BatchedEnv, Phase, Turn
from arena.envs.phase import players_of_agents, tell_environments
from arena.errors import ConfigError
from arena.learners.work.faults import AssignmentFault
from arena.learners.work.players import Equipment
from arena.matches.seated import SeatedPlayers
from arena.matches.seeds import environment_seeds
from arena.rollout.critic_rows import CriticRows
from arena.rollout.recorder import Learning
from arena.types import Player, PlayerId, PolicyId
from arena.wire.messages import Train

MAX_IDLE = 10_000
"""Calls of ``step`` in a row without a decision of the population after which play ends.

Training, which follows, tells of somebody who never decides (`arena.learners.work.faults`).
"""


def warm_up(
    message: Train,
    equipment: Equipment,
    *,
    learning: Mapping[PolicyId, Learning],
    generator: torch.Generator,
) -> None:
    """Let bots play until the normalizers of new policies have seen what their population asks for.

    Weights that were trained elsewhere bring their own statistics.

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
        play = _Play(
            equipment.environments.begin(),
            equipment,
            player=settings.player,
            population=policy.population,
            generator=generator,
        )
        play.run(algorithm, message=message, agent_steps=settings.agent_steps)
        equipment.environments.release()


class _Play:
    """A bot in every seat, watched by the policy of one population."""

    def __init__(
        self,
        env: BatchedEnv,
        equipment: Equipment,
        *,
        player: str,
        population: str,
        generator: torch.Generator,
    ) -> None:
        setup, players = equipment.setup, equipment.players
        self._env = env
        self._equipment = equipment
        self._population = population
        self._generator = generator
        self._player = player
        self._block_of_env = torch.zeros(env.num_envs, dtype=torch.int64, device=equipment.device)
        bot = Player(player=PlayerId(player))
        self._seated = SeatedPlayers(
            [[players.frozen(bot, population=seat.population) for seat in setup.seats]],
            block_of_env=self._block_of_env,
            seats=setup.seats,
            agents=env.agents,
        )
        critic = players.critics.get(population)
        agents = setup.agents_of
        self._critic = (
            None
            if critic is None
            else CriticRows(critic, agents=env.agents, populations=agents, device=equipment.device)
        )

    def run(self, algorithm: HasNormalizers, *, message: Train, agent_steps: int) -> None:
        """Play until the population has decided so often."""
        seats = self._equipment.setup.seats
        phase = Phase(
            name="training",
            agent_steps=0,
            players=players_of_agents(seats, [self._player] * len(seats)),
        )
        tell_environments(self._env, [phase], block_of_env=self._block_of_env)
        turn = self._env.reset(environment_seeds(message.seed, num_envs=self._env.num_envs))
        seen = num_idle = 0
        while num_idle < MAX_IDLE:
            shown = self._show(turn, algorithm)
            seen += shown
            num_idle = 0 if shown else num_idle + 1
            if seen >= agent_steps:
                return
            if self._equipment.should_stop():
                raise AssignmentFault("stopped", "told to stop while normalizers were filled")
            turn = self._step(turn)
            self._equipment.progress.advance()

    def _show(self, turn: Turn, algorithm: HasNormalizers) -> int:
        """Show the population's pending decisions to the algorithm; return their number."""
        if self._critic is not None:
            self._critic.show(turn)
        group = turn.groups[self._population]
        where = group.agent_index >= 0
        # [B, S, F] -> [N, F], with [B, S] for the rows that are asked about
        critic_input = None if self._critic is None else self._critic.of(group.agent_index)[where]
        algorithm.update_normalizers(group.observation[where], critic_input=critic_input)
        return int(where.sum())

    @torch.no_grad()
    def _step(self, turn: Turn) -> Turn:
        actions = {}
        for population, group in turn.groups.items():
            action = group.new_actions()
            owner = self._seated.owners(group.agent_index, active=None)
            self._seated.play_frozen(
                population, group, owner=owner, action=action, generator=self._generator
            )
            actions[population] = action
        turn = self._env.step(actions)
        self._seated.recurrent_state.reset(turn)
        return turn
