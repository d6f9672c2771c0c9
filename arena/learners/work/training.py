"""Carries out a Train assignment: play, learn, publish.

Tests: `tests/arena/learners/work/test_worker.py`, `tests/arena/learners/work/test_episodes.py`.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from msgspec.structs import replace

from arena.core import Actor
from arena.envs.base import BatchedEnv, Phase
from arena.envs.phase import players_of_agents, tell_environments
from arena.learners.ranks.crew import (
    RankResult,
    Ranks,
    is_same_state,
    merge_results,
    share_digests,
    share_state,
)
from arena.learners.work.environments import HeldEpisodes, Team, actors_in, weights_of
from arena.learners.work.faults import AssignmentFault, Reached, Silence, naming_policy
from arena.learners.work.players import Equipment
from arena.learners.work.warm_up import warm_up
from arena.learning.hyperparameters import policy_reward_weights
from arena.learning.update_metrics import MeanMetrics
from arena.matches.seated import equal_blocks
from arena.matches.seeds import Stream, derived_seed, environment_seeds, seed_everything
from arena.normalization import all_of
from arena.rollout.collector import Collector, TrainingBlock
from arena.rollout.measured import Measures
from arena.rollout.recorder import Learning, SeatedPlayer
from arena.types import (
    Digest,
    Entrant,
    PolicyId,
    Seating,
    Tally,
)
from arena.users_code import naming_network
from arena.wire.messages import Finished, InFlight, Published, Train, Trainee

logger = logging.getLogger(__name__)


ROUNDING = 1e-9
"""Rounding error of a sum that should be 0, relative to the size of returns."""


def train(message: Train, equipment: Equipment) -> Finished:
    """Carry out a Train assignment.

    Raises:
        AssignmentFault: If it cannot be done, or was stopped with nothing to publish.
        EnvironmentFault: If an environment broke its contract.
        ConfigError: If user code cannot be used.
    """
    started = time.perf_counter()
    if equipment.should_stop():
        raise AssignmentFault("stopped", "told to stop before the start")
    # Without steps, only the first weights are published, which needs one process.
    ranks = equipment.ranks if message.agent_steps > 0 else None
    if ranks is not None:
        ranks.begin(message)
    # The seeds are set before algorithms and players are made, because users' code may draw from
    # the global generators.
    generator = seed_everything(message.seed, device=equipment.device)
    learning = {
        trainee.policy: _learning(
            _blank(trainee, ranks), message=message, index=index, equipment=equipment
        )
        for index, trainee in enumerate(message.trainees)
    }
    if ranks is None or not ranks.rank:
        warm_up(message, equipment, learning=learning, generator=generator)
    if ranks is not None:
        for policy in learning.values():
            share_state(policy.algorithm, ranks)
    trained = _Training(message, equipment, learning=learning, generator=generator, ranks=ranks)
    # Without steps, the first weights are published as they are.
    if message.agent_steps > 0:
        trained.run()
    # A user's algorithm has run as well, and may have changed process settings.
    equipment.settings.restore()
    before_publish = time.perf_counter()
    checkpoints = _publish(message, equipment, trained=trained, learning=learning, ranks=ranks)
    finished = time.perf_counter()
    # Episodes are held after publishing, because they are keyed by the digests of the new
    # checkpoints.
    digests = tuple(published.checkpoint.digest for published in checkpoints)
    if ranks is not None:
        digests = share_digests(digests, ranks, number=len(message.trainees))
    result = trained.gather(trained.hold(digests))
    spent = {"time/publish_s": finished - before_publish}
    return Finished(
        assignment_id=message.assignment_id,
        attempt=message.attempt,
        checkpoints=checkpoints,
        tallies=result.tallies,
        metrics={**trained.metrics(result), **spent, **result.lost},
        duration_s=finished - started,
        in_flight=result.in_flight,
        dropped=result.dropped,
    )


def _publish(
    message: Train,
    equipment: Equipment,
    *,
    trained: _Training,
    learning: Mapping[PolicyId, Learning],
    ranks: Ranks | None,
) -> tuple[Published, ...]:
    """Publish a checkpoint of each trainee; only the first rank does."""
    if ranks is not None:
        for policy in learning.values():
            if not is_same_state(policy.algorithm, ranks):
                raise AssignmentFault("error", f"ranks have different weights of {policy.policy}")
        if ranks.rank:
            return ()
    # If the second one fails, the first is garbage: only Finished makes checkpoints count.
    return tuple(
        equipment.players.publish(
            trainee,
            learning[trainee.policy].algorithm,
            agent_steps=trained.agent_steps.get(trainee.policy, 0),
        )
        for trainee in message.trainees
    )


def _reward_weights(trainee: Trainee, equipment: Equipment) -> torch.Tensor | None:
    """Return the weights, float32 [R]; None if the policy learns from the environment's reward."""
    components = equipment.setup.environment.reward_weights
    if not components:
        return None
    weights = policy_reward_weights(trainee.hyperparameters, reward_weights=components)
    return torch.tensor(weights, dtype=torch.float32, device=equipment.device)


def _blank(trainee: Trainee, ranks: Ranks | None) -> Trainee:
    """Return a rank's trainee; only the first rank's has a checkpoint to load."""
    if ranks is None or not ranks.rank:
        return trainee
    return replace(trainee, checkpoint=None, initial_weights=None, learner_updates=0)


def _learning(trainee: Trainee, *, message: Train, index: int, equipment: Equipment) -> Learning:
    # Reward weights are checked before the algorithm is loaded.
    reward_weights = _reward_weights(trainee, equipment)
    seed = derived_seed(message.seed, Stream.WEIGHTS, index)
    algorithm = equipment.players.algorithm(trainee, seed=seed)
    return Learning(policy=trainee.policy, algorithm=algorithm, reward_weights=reward_weights)


class _Training:
    """The playing and learning part of an assignment, with its metrics."""

    def __init__(
        self,
        message: Train,
        equipment: Equipment,
        *,
        learning: Mapping[PolicyId, Learning],
        generator: torch.Generator,
        ranks: Ranks | None,
    ) -> None:
        self._ranks = ranks
        self._message = message
        self._trainees: dict[str, Entrant] = {t.policy: t.entrant for t in message.trainees}
        self._equipment = equipment
        self._learning = learning
        self._generator = generator
        self._updates = {policy: MeanMetrics() for policy in learning}
        self._collect_s = 0.0
        self._update_s = 0.0
        self._held: HeldEpisodes | None = None
        self._sides: tuple[str, ...] = ()
        self._measures = {policy: Measures() for policy in learning}
        self.agent_steps: Mapping[PolicyId, int] = {}

    def run(self) -> None:
        """Collect whole rollouts, at least one, until the budget is reached or a stop is requested.

        Raises:
            AssignmentFault: If it was stopped before anything was learned or where stopping is not
                allowed, or the trainees never decide.
        """
        message = self._message
        held = self._begin()
        self._held, collector = held, held.collector
        ranks = 1 if self._ranks is None else self._ranks.number
        silence = Silence(num_envs=held.env.num_envs * ranks)
        self.agent_steps, is_done = dict(collector.agent_steps), collector.is_done
        # Only whole rollouts are trained on, so the budget is exceeded by less than one rollout.
        while not is_done and sum(self.agent_steps.values()) < message.agent_steps:
            reached = self._rollout(collector)
            if reached is not None:
                silence.add(reached, agent_steps_before=self.agent_steps)
                self.agent_steps, is_done = reached.agent_steps, reached.is_done
            # Without a whole rollout there is nothing to publish.
            elif message.may_stop_early and any(self.agent_steps.values()):
                break
            else:
                raise AssignmentFault("stopped", "told to stop during training")
        self._sides = tuple(seat.side for seat in self._equipment.setup.training_seats)
        for policy, measures in collector.measured().items():
            self._measures[policy].merge(measures)

    def gather(self, in_flight: tuple[InFlight, ...]) -> RankResult:
        """Return the result of all ranks in rank 0, this rank's alone in the others."""
        collector = None if self._held is None else self._held.collector
        dropped, lost = self._equipment.take_losses()
        own = RankResult(
            tallies=() if collector is None else collector.tallies(),
            episodes=() if collector is None else collector.episodes(),
            measures=tuple(self._measures.values()),
            in_flight=in_flight,
            dropped=dropped,
            lost=lost,
        )
        return own if self._ranks is None else merge_results(self._ranks.results(own))

    def hold(self, checkpoints: tuple[Digest, ...]) -> tuple[InFlight, ...]:
        """Keep the episodes in flight for the next assignment, and return their identities."""
        environments = self._equipment.environments
        # Assignments of whole episodes end all of them, so none is in flight.
        held = self._held
        if held is None or self._message.episodes is not None:
            environments.release()
            return ()
        # Algorithms go back to `Players`, so held episodes must not refer to them.
        held.collector.rest()
        held.checkpoints = checkpoints
        environments.hold(self._team, held)
        return tuple(
            InFlight(entrants=held.seating_of(weights).entrants(self._trainees), num_envs=num_envs)
            for weights, num_envs in held.in_flight.items()
        )

    @property
    def _team(self) -> Team:
        return tuple(trainee.policy for trainee in self._message.trainees)

    def _begin(self) -> HeldEpisodes:
        """Continue the episodes that the message names, or begin all anew."""
        message, environments = self._message, self._equipment.environments
        environments.enter(message.lesson)
        held = environments.take(self._team)
        if held is not None and not held.fits(message, is_share=self._ranks is not None):
            environments.release()
            held = None
        # A held batch continues without a reset.
        env = environments.begin() if held is None else held.env
        new = seatings_that_fit(message.opponents, num_envs=env.num_envs, seed=message.seed)
        # Environments learn their players before a collector resets them; episodes in flight keep
        # their players.
        self._tell(env, new)
        # The order is reversed so that of seatings with equal weights the first one wins.
        begun = {weights_of(seating): index for index, seating in reversed([*enumerate(new)])}
        seatings = list(new)
        # Seatings only of episodes in flight come last, because new episodes begin in the first
        # ones.
        for weights in () if held is None else held.in_flight:
            if weights not in begun and held is not None:
                begun[weights] = len(seatings)
                seatings.append(held.seating_of(weights))
        # Loaded actors are reused, because their files may be deleted by now.
        known = {} if held is None else held.actors
        blocks = [self._block(s, known=known) for s in seatings]
        actors = actors_in(blocks, seats=self._equipment.setup.training_seats)
        if held is not None:
            held.collector.go_on(
                blocks,
                num_new=len(new),
                becomes={
                    block: begun[weights_of(held.seatings[block])]
                    for block in held.collector.in_flight()
                },
                generator=self._generator,
            )
            held.seatings, held.actors = tuple(seatings), actors
            return held
        collector = self._new_collector(env, blocks)
        return HeldEpisodes(
            env=env, collector=collector, seatings=tuple(seatings), actors=actors, checkpoints=()
        )

    def _tell(self, env: BatchedEnv, seatings: Sequence[Seating]) -> None:
        """Tell the environments the players of their next episodes."""
        seats = self._equipment.setup.training_seats
        phases = [
            Phase(
                name="training",
                agent_steps=self._message.trainees[0].agent_steps,
                players=players_of_agents(seats, [player.player for player in seating.players]),
            )
            for seating in seatings
        ]
        # Environments are divided among the seatings in the same way as in the collector.
        tell_environments(
            env, phases, block_of_env=equal_blocks(len(phases), num_envs=env.num_envs)
        )

    def _new_collector(self, env: BatchedEnv, blocks: Sequence[TrainingBlock]) -> Collector:
        """Make a collector whose episodes all begin anew.

        Raises:
            ValueError: If a trainee has no seat.
        """
        message, setup, players = self._message, self._equipment.setup, self._equipment.players
        collector = Collector(
            env,
            seeds=environment_seeds(message.seed, num_envs=env.num_envs),
            blocks=blocks,
            seats=setup.training_seats,
            sides=tuple(setup.sides),
            populations=setup.agents_of,
            actions=players.actions,
            openings=setup.environment.random_openings,
            generator=self._generator,
            progress=self._equipment.progress,
            critics=players.critics,
            product_dtypes=players.product_dtypes,
            episodes=message.episodes,
            episode_length=message.episode_length,
            success_return=setup.success_return,
        )
        for policy in self._learning:
            # A trainee without a seat would have no decisions to train on.
            if policy not in collector.agent_steps:
                raise ValueError(f"trainee {policy} has no seat in any seating")
        return collector

    def _rollout(self, collector: Collector) -> Reached | None:
        """Collect one rollout and train on it; return None if it was stopped before its end."""
        start = time.perf_counter()
        rollouts = collector.collect(self._equipment.should_stop)
        collected = time.perf_counter()
        # Environments and bots may have changed process settings, which must not affect the
        # update.
        self._equipment.settings.restore()
        reached = self._reached(collector, is_whole=bool(rollouts))
        if reached is None:
            return None
        for learning, rollout in rollouts:
            with naming_policy(learning.policy), naming_network(policy=learning.policy):
                metrics = learning.algorithm.update(rollout, generator=self._generator)
            self._updates[learning.policy].add(metrics)
            self._measures[learning.policy].add_rollout(rollout)
            # Users' algorithms may learn without a torch optimizer, whose steps count as progress.
            self._equipment.progress.advance()
        self._collect_s += collected - start
        self._update_s += time.perf_counter() - collected
        return reached

    def _reached(self, collector: Collector, *, is_whole: bool) -> Reached | None:
        """Return the progress of all ranks after a rollout; None if one of them was stopped."""
        num_episodes = sum(tally.matches for tally in collector.episodes())
        if self._ranks is None:
            reached = Reached(
                agent_steps=dict(collector.agent_steps),
                num_episodes=num_episodes,
                is_done=collector.is_done,
            )
            return reached if is_whole else None
        policies = list(self._learning)
        agent_steps = (collector.agent_steps[policy] for policy in policies)
        own = (is_whole, collector.is_done, num_episodes, *agent_steps)
        rows = all_of(self._ranks.exchange, *own)
        totals = map(int, rows[:, 2:].sum(dim=0).tolist())
        reached = Reached(
            num_episodes=next(totals),
            agent_steps=dict(zip(policies, totals, strict=True)),
            is_done=bool(rows[:, 1].all()),
        )
        return reached if bool(rows[:, 0].all()) else None

    def _block(
        self, seating: Seating, *, known: Mapping[tuple[str, Entrant], Actor]
    ) -> TrainingBlock:
        """Seat players; actors in ``known`` are not loaded, because their files may be deleted."""
        seated: list[SeatedPlayer] = []
        for seat, player in zip(self._equipment.setup.training_seats, seating.players, strict=True):
            if player.entrant in self._trainees:
                seated.append(self._learning[PolicyId(player.player)])
                continue
            actor = known.get((seat.population, player.entrant))
            load = self._equipment.players.frozen
            seated.append(actor or load(player, population=seat.population, team=self._team))
        return TrainingBlock(entrants=seating.entrants(self._trainees), players=tuple(seated))

    def metrics(self, result: RankResult) -> dict[str, float]:
        """Return flat, finite metrics; several trainees have their id as a prefix."""
        found: dict[str, float] = {}
        duration_s = self._collect_s + self._update_s
        for (policy, mean), measures in zip(self._updates.items(), result.measures, strict=True):
            prefix = "" if len(self._updates) == 1 else f"{policy}/"
            own = {
                **mean.result(),
                **measures.metrics(),
                **self._episode_metrics(policy, result.episodes),
            }
            if duration_s > 0.0:
                own["throughput/agent_steps_per_s"] = self.agent_steps[policy] / duration_s
            found.update({f"{prefix}{name}": value for name, value in own.items()})
        found["time/collect_s"] = self._collect_s
        found["time/update_s"] = self._update_s
        return found

    def _episode_metrics(self, policy: PolicyId, episodes: Sequence[Tally]) -> dict[str, float]:
        """Return metrics of all ended episodes in which the policy learned."""
        entrant = self._trainees[policy]
        own = [tally for tally in episodes if entrant in tally.entrants]
        num_episodes = sum(tally.matches for tally in own)
        metrics = {
            "episode/count": float(num_episodes),
            **return_metrics(own, entrant=entrant, sides=self._sides),
        }
        if num_episodes:
            metrics["episode/length_mean"] = sum(one.length_sum for one in own) / num_episodes
        return metrics


def seatings_that_fit(
    seatings: Sequence[Seating], *, num_envs: int, seed: int
) -> tuple[Seating, ...]:
    """Return all seatings, or as many as there are environments, drawn from the seed."""
    if len(seatings) <= num_envs:
        return tuple(seatings)
    logger.info("%d seatings for %d environments: some are left out", len(seatings), num_envs)
    # The choice is random: the first ones, or every second one, would favour some seats.
    rng = np.random.default_rng(derived_seed(seed, Stream.BLOCKS))
    chosen = sorted(rng.permutation(len(seatings))[:num_envs].tolist())
    return tuple(seatings[index] for index in chosen)


def return_metrics(
    tallies: Sequence[Tally], *, entrant: Entrant, sides: Sequence[str]
) -> dict[str, float]:
    """Return mean and deviation of a player's returns over its seats; empty if no match counts.

    A player that sits on several sides of a game in which one side's gain is the other's loss has
    returns that cancel, however well it plays: such matches are left out.

    Args:
        tallies: Results of matches in which it took part.
        entrant: Entrant of the player.
        sides: Side of each seat.
    """
    count, sum_of_all, sum_of_squares = 0, 0.0, 0.0
    for tally in tallies:
        mine = [index for index, name in enumerate(tally.entrants) if name == entrant]
        total = math.fsum(tally.return_sum[index] for index in mine)
        squares = math.fsum(tally.return_sum_of_squares[index] for index in mine)
        number = tally.matches * len(mine)
        # Cauchy-Schwarz: |sum of x| <= sqrt(number * sum of x^2)
        size = math.sqrt(max(squares, 0.0) * number)
        # This is mirror play of a zero-sum game: the mean is 0, however well the player plays.
        if len({sides[index] for index in mine}) > 1 and abs(total) <= ROUNDING * size:
            continue
        count, sum_of_all = count + number, sum_of_all + total
        sum_of_squares += squares
    if not count:
        return {}
    mean = sum_of_all / count
    # Var = E[x^2] - E[x]^2; rounding may leave it below 0
    variance = max(sum_of_squares / count - mean * mean, 0.0)
    return {"episode/return_mean": mean, "episode/return_deviation": math.sqrt(variance)}
