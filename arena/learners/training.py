"""Carries out a Train assignment: play, learn, publish."""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from arena.config import LearnerSetup
from arena.envs.base import BatchedEnv
from arena.learners.faults import AssignmentFault, naming_policy
from arena.learners.players import Players, frozen_entrant
from arena.learning.hyperparameters import policy_reward_weights
from arena.matches.match import Progress
from arena.matches.seeds import Stream, derived_seed, environment_seeds, seed_everything
from arena.rollout.collector import Collector, TrainingBlock
from arena.rollout.recorder import Learning, SeatedPlayer
from arena.types import Entrant, PolicyId, Seating, Tally, trainee_entrant
from arena.wire.messages import Finished, Train, Trainee

logger = logging.getLogger(__name__)

LAST_NOT_MEAN = frozenset({"optimizer/learning_rate"})
"""Metrics of which the last value says more than the mean."""


def train(
    message: Train,
    *,
    setup: LearnerSetup,
    env: Callable[[], BatchedEnv],
    players: Players,
    device: torch.device,
    progress: Progress,
    should_stop: Callable[[], bool],
) -> Finished:
    """Carry out a Train assignment.

    Raises:
        AssignmentFault: If it cannot be done, or was stopped with nothing to publish.
        EnvironmentFault: If an environment broke its contract.
        ConfigError: If user code cannot be used.
    """
    started = time.perf_counter()
    if should_stop():
        raise AssignmentFault("stopped", "told to stop before the start")
    generator = seed_everything(message.seed, device=device)
    learning = {
        trainee.policy: _learning(
            trainee,
            message=message,
            index=index,
            players=players,
            reward_weights=_reward_weights(trainee, setup=setup, device=device),
        )
        for index, trainee in enumerate(message.trainees)
    }
    trained = _Training(message, learning=learning, generator=generator)
    if message.agent_steps > 0:
        trained.run(env(), setup=setup, players=players, progress=progress, should_stop=should_stop)
    before_publish = time.perf_counter()
    checkpoints = tuple(
        players.publish(
            trainee,
            learning[trainee.policy].algorithm,
            agent_steps=trained.agent_steps.get(trainee.policy, 0),
        )
        for trainee in message.trainees
    )
    finished = time.perf_counter()
    return Finished(
        assignment_id=message.assignment_id,
        attempt=message.attempt,
        checkpoints=checkpoints,
        tallies=trained.tallies,
        metrics={**trained.metrics(), "time/publish_s": finished - before_publish},
        duration_s=finished - started,
    )


def _reward_weights(
    trainee: Trainee, *, setup: LearnerSetup, device: torch.device
) -> torch.Tensor | None:
    """Float32 [R], or None where the environment's own reward is what counts."""
    components = setup.environment.reward_weights
    if not components:
        return None
    weights = policy_reward_weights(trainee.hyperparameters, reward_weights=components)
    return torch.tensor(weights, dtype=torch.float32, device=device)


def _learning(
    trainee: Trainee,
    *,
    message: Train,
    index: int,
    players: Players,
    reward_weights: torch.Tensor | None,
) -> Learning:
    return Learning(
        policy=trainee.policy,
        algorithm=players.algorithm(
            trainee, seed=derived_seed(message.seed, Stream.WEIGHTS, index)
        ),
        reward_weights=reward_weights,
    )


class _Training:
    """The playing and learning part, and what is measured of it."""

    def __init__(
        self,
        message: Train,
        *,
        learning: Mapping[PolicyId, Learning],
        generator: torch.Generator,
    ) -> None:
        self._message = message
        self._learning = learning
        self._generator = generator
        self._updates = {policy: _MeanMetrics() for policy in learning}
        self._collect_s = 0.0
        self._update_s = 0.0
        self._episodes: tuple[Tally, ...] = ()
        self.agent_steps: dict[PolicyId, int] = {}
        self.tallies: tuple[Tally, ...] = ()

    def run(
        self,
        env: BatchedEnv,
        *,
        setup: LearnerSetup,
        players: Players,
        progress: Progress,
        should_stop: Callable[[], bool],
    ) -> None:
        """Do whole rollouts, at least one, until the budget is reached or the learner must stop."""
        message = self._message
        collector = Collector(
            env,
            seeds=environment_seeds(message.seed, num_envs=env.num_envs),
            blocks=self._blocks(num_envs=env.num_envs, setup=setup, players=players),
            seats=setup.seats,
            sides=tuple(setup.sides),
            populations={name: value.agents for name, value in setup.populations.items()},
            actions=players.actions,
            openings=setup.environment.random_openings,
            generator=self._generator,
            progress=progress,
            critics=players.critics,
            product_dtypes=players.product_dtypes,
        )
        for policy in self._learning:
            if policy not in collector.agent_steps:
                raise ValueError(f"trainee {policy} has no seat in any seating")
        while True:
            self._rollout(collector, progress=progress)
            if sum(collector.agent_steps.values()) >= message.agent_steps:
                break
            if should_stop():
                if not message.may_stop_early:
                    raise AssignmentFault("stopped", "told to stop during training")
                break
        self.agent_steps = dict(collector.agent_steps)
        self.tallies = collector.tallies()
        self._episodes = collector.episodes()

    def _rollout(self, collector: Collector, *, progress: Progress) -> None:
        start = time.perf_counter()
        rollouts = collector.collect()
        collected = time.perf_counter()
        for learning, rollout in rollouts:
            with naming_policy(learning.policy):
                metrics = learning.algorithm.update(rollout, generator=self._generator)
            self._updates[learning.policy].add(metrics)
            progress.advance()
        self._collect_s += collected - start
        self._update_s += time.perf_counter() - collected

    def _blocks(
        self, *, num_envs: int, setup: LearnerSetup, players: Players
    ) -> list[TrainingBlock]:
        seatings = seatings_that_fit(
            self._message.opponents, num_envs=num_envs, seed=self._message.seed
        )
        generations = {t.policy: t.generation for t in self._message.trainees}
        blocks = []
        for seating in seatings:
            entrants: list[Entrant] = []
            seated: list[SeatedPlayer] = []
            for seat, player in zip(setup.seats, seating.players, strict=True):
                policy = PolicyId(player.player)
                if player.weights is None and policy in generations:
                    entrants.append(trainee_entrant(policy, generation=generations[policy]))
                    seated.append(self._learning[policy])
                else:
                    entrants.append(frozen_entrant(player))
                    seated.append(players.frozen(player, population=seat.population))
            blocks.append(TrainingBlock(entrants=tuple(entrants), players=tuple(seated)))
        return blocks

    def metrics(self) -> dict[str, float]:
        """Flat and finite; of several trainees each one's own are below its id."""
        result: dict[str, float] = {}
        duration_s = self._collect_s + self._update_s
        for policy, mean in self._updates.items():
            prefix = "" if len(self._updates) == 1 else f"{policy}/"
            own = {**mean.result(), **self._episode_metrics(policy)}
            if duration_s > 0.0:
                own["throughput/agent_steps_per_s"] = self.agent_steps[policy] / duration_s
            result.update({f"{prefix}{name}": value for name, value in own.items()})
        result["time/collect_s"] = self._collect_s
        result["time/update_s"] = self._update_s
        return result

    def _episode_metrics(self, policy: PolicyId) -> dict[str, float]:
        """Of all episodes that ended and in which the policy learned."""
        num_episodes = num_returns = length_sum = 0
        return_sum = 0.0
        generations = {t.policy: t.generation for t in self._message.trainees}
        entrant = trainee_entrant(policy, generation=generations[policy])
        for tally in self._episodes:
            own = [
                value
                for name, value in zip(tally.entrants, tally.return_sum, strict=True)
                if name == entrant
            ]
            if own:
                num_episodes += tally.matches
                length_sum += tally.length_sum
                num_returns += tally.matches * len(own)
                return_sum += sum(own)
        metrics = {"episode/count": float(num_episodes)}
        if num_episodes:
            metrics["episode/return_mean"] = return_sum / num_returns
            metrics["episode/length_mean"] = length_sum / num_episodes
        return metrics


class _MeanMetrics:
    """Means over updates, without what is not finite: one bad number must not hide the others."""

    def __init__(self) -> None:
        self._sum: defaultdict[str, float] = defaultdict(float)
        self._count: defaultdict[str, int] = defaultdict(int)

    def add(self, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            if not math.isfinite(value):
                continue
            if name in LAST_NOT_MEAN:
                self._sum[name], self._count[name] = value, 1
            else:
                self._sum[name] += value
                self._count[name] += 1

    def result(self) -> dict[str, float]:
        return {name: total / self._count[name] for name, total in self._sum.items()}


def seatings_that_fit(
    seatings: Sequence[Seating], *, num_envs: int, seed: int
) -> tuple[Seating, ...]:
    """All seatings, or as many as there are environments.

    Which ones is drawn from the seed, because taking the first ones or every other one would let
    some seat be played more often than others.
    """
    if len(seatings) <= num_envs:
        return tuple(seatings)
    logger.info("%d seatings for %d environments: some are left out", len(seatings), num_envs)
    rng = np.random.default_rng(derived_seed(seed, Stream.BLOCKS))
    chosen = sorted(rng.permutation(len(seatings))[:num_envs].tolist())
    return tuple(seatings[index] for index in chosen)
