"""The whole learner in one process: it plays, stores and learns; nothing is published or decided.

Shapes: B environments.

Tests: `tests/tools/bench/test_command.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import count
from typing import Protocol

import torch

from arena.config import LearnerSetup
from arena.core import Actor, Algorithm
from arena.envs.base import BatchedEnv
from arena.experience import Rollout
from arena.learners.loop import NoProgress
from arena.learners.work.players import Players
from arena.learners.work.training import seatings_that_fit
from arena.matches.seeds import environment_seeds
from arena.matches.teammates import Cast, training_seatings
from arena.rollout.collector import Collector, TrainingBlock
from arena.rollout.recorder import Learning
from arena.types import Player, PlayerId, Seating, population_of

from .play import count_decisions
from .subject import SEED, Subject

NUM_FROZEN = 8


class Frozen(Protocol):
    """Function that returns the actor of a player that does not learn."""

    def __call__(self, player: Player, *, population: str) -> Actor:
        """Return it."""


class LearnerWork:
    """Work of a learner: one call is one rollout of the subject's policy and the update on it.

    Args:
        subject: Configuration that is measured.
        env: Batch of environments, which is reset.
        num_frozen: Opponents that sit in half of the blocks (of another population: in all); 0:
            self-play.
    """

    def __init__(self, subject: Subject, env: BatchedEnv, *, num_frozen: int = 0) -> None:
        self._generator = torch.Generator(subject.device).manual_seed(SEED)
        self.algorithm: Algorithm = subject.make_policy()
        learning = Learning(policy=subject.policy, algorithm=self.algorithm)
        trainee = Player(player=PlayerId(subject.policy))
        seeds = count(1)

        @cache
        def frozen(player: Player, *, population: str) -> Actor:
            # Each frozen player has weights of its own, as opponents in a league have.
            return subject.make_frozen(population, seed=next(seeds))

        self._collector = make_collector(
            subject.setup,
            env,
            seatings=_seatings(subject.setup, trainee=trainee, num_frozen=num_frozen),
            learning={trainee.entrant: learning},
            frozen=frozen,
            players=subject.players,
            generator=self._generator,
        )

    def collect(self) -> Rollout:
        """Play, and return the rollout without learning."""
        # One policy learns, so there is one rollout.
        ((_, rollout),) = self._collector.collect()
        return rollout

    def decisions_per_trained(self) -> float:
        """Return the decisions of all players per decision of the learning policy, in one
        rollout.
        """
        decisions = 0

        def ask() -> bool:
            nonlocal decisions
            decisions += count_decisions(self._collector.turn.groups)
            return False

        # The collector asks before every step whether it should stop.
        ((_, rollout),) = self._collector.collect(ask)
        return decisions / rollout.agent_steps

    def __call__(self) -> int:
        """Play and learn, and return the decisions of the policy that learns."""
        # The collector counts from its creation, so the difference is returned.
        return play_and_learn(self._collector, generator=self._generator)


def play_and_learn(collector: Collector, *, generator: torch.Generator) -> int:
    """Play one rollout of each policy that learns, update them on theirs, and return their
    decisions.
    """
    # The collector counts from its creation, so the difference is returned.
    before = sum(collector.agent_steps.values())
    for learning, rollout in collector.collect():
        learning.algorithm.update(rollout, generator=generator)
    return sum(collector.agent_steps.values()) - before


def make_collector(
    setup: LearnerSetup,
    env: BatchedEnv,
    *,
    seatings: Sequence[Seating],
    learning: Mapping[str, Learning],
    frozen: Frozen,
    players: Players,
    generator: torch.Generator,
    seed: int = SEED,
) -> Collector:
    """Make a collector as a learner has it.

    Args:
        setup: Setup of the learner.
        env: Batch of environments, which is reset.
        seatings: Players of the blocks.
        learning: Policies that learn, by their names in seatings.
        frozen: Function that returns the actor of any other player.
        players: Layouts and critics of the learner.
        generator: Source of all actions.
        seed: Seed of the environments.
    """
    return Collector(
        env,
        seeds=environment_seeds(seed, num_envs=env.num_envs),
        blocks=[
            TrainingBlock(
                entrants=seating.entrants({}),
                players=tuple(
                    learning.get(player.entrant) or frozen(player, population=seat.population)
                    for seat, player in zip(setup.training_seats, seating.players, strict=True)
                ),
            )
            for seating in seatings_that_fit(seatings, num_envs=env.num_envs, seed=seed)
        ],
        seats=setup.training_seats,
        sides=tuple(setup.sides),
        populations=setup.agents_of,
        actions=players.actions,
        openings=setup.environment.random_openings,
        generator=generator,
        progress=NoProgress(),
        critics=players.critics,
    )


def _seatings(setup: LearnerSetup, *, trainee: Player, num_frozen: int) -> tuple[Seating, ...]:
    """Seat a policy in self-play, or half of the time against frozen policies.

    Seats of other populations are always taken by frozen policies, one at least. Frozen players sit
    beside and against the trainee, its own rival in the first half.
    """
    own, is_mixed = population_of(trainee.player), bool(setup.agent_seats)
    size = max(len(seat.agents) for seat in setup.seats) if is_mixed else 1

    def side(population: str, turn: int, *, number: int) -> tuple[Player, ...]:
        others = num_frozen if population == own else max(num_frozen, 1)
        # A ghost's id: population/policy@agent_steps
        names = [f"{population}/p{index:03d}@{1:012d}" for index in range(others)]
        players = [Player(player=PlayerId(name)) for name in names] or [trainee]
        return tuple(players[(turn + index) % len(players)] for index in range(number))

    casts: list[Cast] = [
        (
            (trainee, *side(own, turn, number=size - 1)),
            {
                name: (trainee, *side(own, turn + 1, number=size - 1))
                if name == own and turn < num_frozen
                else side(name, turn + 1, number=size)
                for name in dict.fromkeys(seat.population for seat in setup.seats)
            },
        )
        # Cooperating agents have one seating, unless they have partners.
        for turn in range(max(2 * num_frozen, 1) if is_mixed or len(setup.sides) > 1 else 1)
    ]
    return training_seatings(casts, seats=setup.seats, population=own, is_mixed=is_mixed)
