"""One policy in mirror self-play, in this process, out of the pieces that a learner is made of.

No controller, ghosts, checkpoints or ratings: what remains is the environment, the collector and
the algorithm, so that their learning can be watched from update to update.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from arena.core import Actor, Algorithm
from arena.environment_spec import EnvironmentRequest
from arena.envs.base import BatchedEnv
from arena.envs.inspect import inspect_environment
from arena.envs.make import learner_request, make_batched_env
from arena.envs.spaces.actions import ActionLayout
from arena.envs.spaces.observations import ObservationLayout
from arena.learning.algorithms import make_algorithm
from arena.learning.ppo import LIVE, without_prefix
from arena.matches.actors import make_bot
from arena.matches.seeds import Stream, derived_seed, environment_seeds, seed_everything
from arena.matches.tournament import play_tournament
from arena.networks.frozen import FrozenPolicy
from arena.rollout.collector import Collector, TrainingBlock
from arena.rollout.recorder import Learning
from arena.types import Entrant, PolicyId
from populations.config.run_config import RunConfig
from populations.config.run_file import RunFile, learner_setup, new_run_file

CPU = torch.device("cpu")
EVALUATION_ENVS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Matches of the policy against another player, as often in each seat."""

    wins: int
    draws: int
    losses: int

    @property
    def matches(self) -> int:
        """Number of all matches."""
        return self.wins + self.draws + self.losses

    @property
    def win_rate(self) -> float:
        """Win rate; draws are no wins."""
        return self.wins / self.matches

    @property
    def score(self) -> float:
        """Score; draws are half a win."""
        return (self.wins + self.draws / 2) / self.matches


class Silence:
    """An `arena.matches.match.Progress` that shows nothing."""

    def advance(self, agent_steps: int = 0) -> None:
        """Do nothing."""


def prepare(config: RunConfig) -> RunFile:
    """Resolve a configuration of two sides and one population, as a launch would."""
    environment = config.environment
    spec = inspect_environment(
        EnvironmentRequest(
            environment.id, kwargs=environment.kwargs, launch_directory=str(Path.cwd())
        )
    )
    return new_run_file(config, spec, name="check", launch_directory=str(Path.cwd()))


class MirrorLearner:
    """The one policy, and how long it has trained. Close it when done.

    Args:
        run_file: Run file of `prepare`; environment, population and precision count.
        seed: Seed of weights, episodes and actions.
    """

    def __init__(self, run_file: RunFile, *, seed: int) -> None:
        self._setup = learner_setup(run_file, root=Path())
        (self._population,) = self._setup.populations
        self._seed = seed
        self._num_evaluations = 0
        self.train_s = 0.0
        """Seconds of collecting and updating; start-up and evaluations apart."""
        self.updates = 0
        """Number of rollouts learned from."""
        agents = self._setup.populations[self._population].agents
        facts = self._setup.spec.agent_specs[agents[0]]
        self._facts = facts
        self._layout = ObservationLayout.from_json(facts.observation)
        self._actions = ActionLayout.from_json(
            facts.action, continuous=self._setup.environment.continuous_actions
        )
        self._generator = seed_everything(seed, device=CPU)
        self._learning = Learning(
            policy=PolicyId(f"{self._population}/p000"),
            algorithm=self._make_algorithm(_start_values(run_file, self._population)),
        )
        self._env = self._make_env(self._setup.num_envs)
        self.evaluation_env = self._make_env(EVALUATION_ENVS)
        """Environments of matches that training does not see."""
        self.seats = self._setup.seats
        self._collector = self._make_collector()

    def _make_algorithm(self, hyperparameters: Mapping[str, float]) -> Algorithm:
        return make_algorithm(
            self._setup.populations[self._population],
            observation=self._layout,
            action=self._actions,
            hyperparameters=hyperparameters,
            device=CPU,
            precision=self._setup.precision,
            seed=derived_seed(self._seed, Stream.WEIGHTS, 0),
            launch_directory=self._setup.launch_directory,
        )

    def explore(self, hyperparameters: Mapping[str, float]) -> None:
        """Learn on with other hyperparameters, as after a checkpoint; rollouts stay as long."""
        before = self._learning.algorithm
        self._learning.algorithm = self._make_algorithm(hyperparameters)
        self._learning.algorithm.load(
            before.weights(), before.optimizer_state(), learner_updates=before.learner_updates
        )

    def _make_env(self, num_envs: int) -> BatchedEnv:
        asked = learner_request(self._setup, spec=self._setup.spec, device=CPU)
        return make_batched_env(replace(asked, num_envs=num_envs))

    def _make_collector(self) -> Collector:
        setup = self._setup
        block = TrainingBlock(
            entrants=(Entrant(f"{self._learning.policy}#0"),) * len(setup.seats),
            players=(self._learning,) * len(setup.seats),
        )
        return Collector(
            self._env,
            seeds=environment_seeds(self._seed, num_envs=self._env.num_envs),
            blocks=[block],
            seats=setup.seats,
            sides=tuple(setup.sides),
            populations=setup.agents_of,
            actions={self._population: self._actions},
            openings=setup.environment.random_openings,
            generator=self._generator,
            progress=Silence(),
        )

    @property
    def agent_steps(self) -> int:
        """Decisions so far, those of random openings apart."""
        return self._collector.agent_steps[self._learning.policy]

    def advance(self) -> None:
        """Collect one rollout, and learn from it."""
        start = time.perf_counter()
        for learning, rollout in self._collector.collect():
            learning.algorithm.update(rollout, generator=self._generator)
        self.train_s += time.perf_counter() - start
        self.updates += 1

    def play(self, bot: str, *, matches: int, greedy: bool) -> Record:
        """Play against a bot; training goes on as if nothing had been.

        Args:
            bot: Its id.
            matches: Matches as first player, and as many again as second.
            greedy: Play the likeliest actions instead of sampling.
        """
        self._num_evaluations += 1
        seed = derived_seed(self._seed, Stream.BLOCKS, self._num_evaluations)
        contenders = {"policy": self._frozen(greedy=greedy), "bot": self._bot(bot)}
        result = play_tournament(
            self.evaluation_env,
            contenders={name: {self._population: actor} for name, actor in contenders.items()},
            num_matches=matches,
            seats=self._setup.seats,
            sides=self._setup.sides,
            seed=seed,
            generator=torch.Generator(CPU).manual_seed(seed),
        )
        home, away = result.pairs
        return Record(
            wins=home.wins + away.losses,
            draws=home.draws + away.draws,
            losses=home.losses + away.wins,
        )

    def weights(self) -> dict[str, torch.Tensor]:
        """Return a copy of the weights that play."""
        return self._learning.algorithm.weights()

    def live_weights(self) -> dict[str, torch.Tensor]:
        """Return the weights that learn, where an average of them plays."""
        live = without_prefix(LIVE, self._learning.algorithm.optimizer_state())
        return self.weights() | live

    def _frozen(self, *, greedy: bool) -> Actor:
        return self.frozen(self.weights(), greedy=greedy)

    def frozen(self, weights: Mapping[str, torch.Tensor], *, greedy: bool) -> FrozenPolicy:
        """Return a player with some of the policy's weights."""
        return FrozenPolicy.from_weights(
            self._setup.populations[self._population].network,
            weights,
            observation=self._layout,
            action=self._actions,
            device=CPU,
            greedy=greedy,
        )

    def _bot(self, bot: str) -> Actor:
        return make_bot(
            bot,
            facts=self._facts,
            actions=self._actions,
            launch_directory=self._setup.launch_directory,
        )

    def close(self) -> None:
        """Release the environments."""
        self._env.close()
        self.evaluation_env.close()


def _start_values(run_file: RunFile, population: str) -> Mapping[str, float]:
    return run_file.config.populations[population].start_values
