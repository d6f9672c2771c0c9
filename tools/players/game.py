"""Game: the environment, and how it is divided among players.

Tests: `tests/tools/evaluate/test_command.py`, `tests/tools/export/test_command.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arena.config import EnvironmentConfig, LearnerSetup, NetworkConfig
    from arena.core import Actor
    from arena.environment_spec import EnvironmentSpec
    from arena.envs.base import BatchedEnv
    from arena.matches.play import Progress
    from arena.matches.tournament import Contender, TournamentResult
    from arena.spaces import ActionLayout, ObservationLayout
    from arena.types import Seat
    from populations.config.trust import Word

MAX_BATCHED, MAX_ONE_BY_ONE = 4096, 64
"""Environments that step as one: of a batched game, and of Python objects stepped in turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """Game that players must share to meet.

    Attributes:
        environment: Configuration of the environment.
        spec: Its facts.
        sides: Agents that share one score.
        seats: Seats in order.
        populations: Agents by population.
        word: The user's word for the code of the file that it is from.
        is_exported: Whether that is an export's card.
        agent_ids: Populations whose networks are told which of their agents decides.
    """

    environment: EnvironmentConfig
    spec: EnvironmentSpec
    sides: Mapping[str, tuple[str, ...]]
    seats: tuple[Seat, ...]
    populations: Mapping[str, tuple[str, ...]]
    word: Word
    is_exported: bool = False
    agent_ids: tuple[str, ...] = ()

    @property
    def launch_directory(self) -> str:
        """First directory in which user code is looked for."""
        return self.word.launch_directory

    @property
    def is_playable(self) -> bool:
        """Return whether the game runs no foreign code, or code that the user has trusted."""
        from arena.errors import NotTrusted

        try:
            self.check_word()
        except NotTrusted:
            return False
        return True

    def check_word(self) -> None:
        """Refuse to play by code that the user has not vouched for.

        Raises:
            NotTrusted: If there is some.
        """
        self.word.check(self.environment.id, self.spec.id, self.environment.outcome)

    def vouched_for(self, environment: str) -> Game:
        """Return the same game by an environment that the user names, with the export's arguments
        for it.

        An outcome that is code of the export's maker is not used: returns decide.

        Raises:
            ConfigError: If there is no such environment.
        """
        from arena.environment_spec import EnvironmentRequest
        from arena.envs.inspect import inspect_environment
        from arena.resolve import code_directory
        from populations.config.trust import Word, is_code

        outcome = self.environment.outcome
        # The user trusts the environment, but not other code that the card names.
        is_users = isinstance(outcome, str) and is_code(outcome)
        word = Word(launch_directory=code_directory())
        own = self.environment.model_copy(
            update={"id": environment, "outcome": "return" if is_users else outcome}
        )
        spec = inspect_environment(
            EnvironmentRequest(
                environment,
                kwargs=own.kwargs,
                launch_directory=word.launch_directory,
                backend=own.possible_backend,
                possible_agents=own.possible_agents,
            )
        )
        # The spec is replaced too: its digest decides whether players of runs can play this game.
        return replace(self, environment=own, spec=spec, word=word)

    @classmethod
    def of_setup(cls, setup: LearnerSetup, *, word: Word | None = None) -> Game:
        """Return the game of a run.

        Args:
            setup: Set-up of the run's learners.
            word: The user's word for its code; None: it is the user's own, by his command line.
        """
        from populations.config.trust import Word

        return cls(
            environment=setup.environment,
            # Results are about matches, so the lessons of training do not apply.
            spec=setup.spec.of_matches,
            sides=setup.sides,
            seats=setup.seats,
            populations=setup.agents_of,
            word=word or Word(launch_directory=setup.launch_directory),
            agent_ids=setup.agent_ids,
        )

    @classmethod
    def of_environment(cls, environment: str) -> Game:
        """Return the game of a run with nothing but ``environment.id``.

        Raises:
            ConfigError: If there is no such environment.
        """
        from arena.environment_spec import EnvironmentRequest
        from arena.envs.inspect import inspect_environment
        from arena.resolve import code_directory
        from populations.config.run_config import validate_config
        from populations.config.run_file import learner_setup, new_run_file

        launch_directory = code_directory()
        spec = inspect_environment(
            EnvironmentRequest(environment, launch_directory=launch_directory)
        )
        run_file = new_run_file(
            # The whole configuration is validated, so that sides and seats are resolved as in a
            # run.
            validate_config({"environment": {"id": environment}}),
            spec,
            name=environment,
            launch_directory=launch_directory,
        )
        return cls.of_setup(learner_setup(run_file, root=Path.cwd()))

    def batch_size(self, num_matches: int) -> int:
        """Return the number of environments for so many matches: as many as step faster
        together.
        """
        from arena.envs.batched.find import find_game

        batched = self.environment.possible_backend != "pettingzoo" and find_game(
            self.spec.id, launch_directory=self.launch_directory
        )
        return max(1, min(num_matches, MAX_BATCHED if batched else MAX_ONE_BY_ONE))

    def make_env(self, num_envs: int) -> BatchedEnv:
        """Make environments to play in, on the CPU."""
        import torch

        from arena.envs.make import make_batched_env
        from arena.envs.one_by_one.steppers import EnvsRequest

        self.check_word()
        # A policy's matrix products are too small for several threads, which would only wait.
        torch.set_num_threads(1)
        return make_batched_env(
            EnvsRequest(
                self.environment,
                spec=self.spec,
                sides=self.sides,
                populations=self.populations,
                num_envs=num_envs,
                launch_directory=self.launch_directory,
                agent_ids=self.agent_ids,
            )
        )

    def has_chance(self) -> bool:
        """Return whether the game goes on differently after the same decisions, seed by seed."""
        from arena.envs.probe.chance import NUM_SEEDS, has_chance

        # Several seeds are compared, because only chance makes their games diverge.
        with closing(self.make_env(NUM_SEEDS)) as env:
            return has_chance(env, populations=self.populations, actions=self.action_layouts())

    def play(
        self,
        env: BatchedEnv,
        contenders: Mapping[str, Contender],
        *,
        num_matches: int,
        seed: int,
        progress: Progress,
    ) -> TournamentResult:
        """Let every ordered pair of contenders meet; the seed alone decides how.

        Args:
            env: Environments by `make_env`.
            contenders: Participants by their names in results.
            num_matches: Matches per ordered pair.
            seed: Seed of episodes and actions.
            progress: Counter of steps.
        """
        import torch

        from arena.matches.seeds import seed_everything
        from arena.matches.tournament import play_tournament

        return play_tournament(
            env,
            contenders=contenders,
            num_matches=num_matches,
            seats=self.seats,
            sides=self.sides,
            seed=seed,
            generator=seed_everything(seed, device=torch.device("cpu")),
            progress=progress,
        )

    def population_of(self, agent: str) -> str:
        """Return the population of an agent."""
        return next(name for name, agents in self.populations.items() if agent in agents)

    def action_layouts(self) -> dict[str, ActionLayout]:
        """Return the layout of the actions of each population."""
        from arena.envs.random_play import action_layouts

        continuous = self.environment.continuous_actions
        return action_layouts(self.spec, populations=self.populations, continuous=continuous)

    def layouts(
        self, agents: Sequence[str], *, network: NetworkConfig
    ) -> tuple[ObservationLayout, ActionLayout]:
        """Return the layouts of observations and actions of a policy of some agents."""
        from arena.envs.spaces.agent_id_wrapper import observation_layout
        from arena.spaces import ActionLayout

        facts = self.spec.agent_specs[agents[0]]
        continuous = self.environment.continuous_actions
        return (
            observation_layout(facts, agents=agents, network=network),
            ActionLayout.from_json(facts.action, continuous=continuous),
        )

    def make_bots(self, bot: str, *, is_named: bool = False) -> dict[str, Actor]:
        """Make a bot for every population.

        Args:
            bot: Id of the bot.
            is_named: Whether the user has named it on the command line, and not the game's file.
        """
        from arena.matches.actors import make_bot
        from arena.resolve import NO_CODE, code_directory, put_first_on_path
        from arena.types import RANDOM_BOT

        where = self.launch_directory
        if is_named and bot != RANDOM_BOT:
            # A bot that the user names is trusted: it may be beside the game's code or in the
            # current directory.
            put_first_on_path(code_directory())
            where = code_directory() if where == NO_CODE else where
        elif not is_named:
            self.word.check(bot)

        # Each population has a bot of its own, because action spaces may differ.
        return {
            name: make_bot(
                bot,
                facts=self.spec.agent_specs[self.populations[name][0]],
                actions=actions,
                launch_directory=where,
            )
            for name, actions in self.action_layouts().items()
        }
