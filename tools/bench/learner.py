"""The whole learner in one process: it plays, stores and learns; nothing is published or decided.

Shapes: B environments.

Tests: `tests/tools/bench/test_command.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing

import torch

from arena.config import LearnerSetup
from arena.core import Actor, Algorithm
from arena.envs.base import BatchedEnv, Turn, TurnWrapper
from arena.experience import Rollout
from arena.learners.loop import NoProgress
from arena.learners.work.players import Players
from arena.learners.work.training import seatings_that_fit
from arena.matches.seeds import environment_seeds
from arena.matches.teammates import Cast, training_seatings
from arena.rollout.collector import Collector, TrainingBlock
from arena.rollout.recorder import Learning, SeatedPlayer
from arena.types import Entrant, Player, PlayerId, PolicyId, population_of

from .play import count_decisions
from .subject import SEED, Subject

NUM_FROZEN = 8


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
        learning = Learning(policy=PolicyId(f"{subject.population}/p000"), algorithm=self.algorithm)
        self._collector = make_collector(
            subject.setup,
            env,
            blocks=training_blocks(subject, learning=learning, num_frozen=num_frozen),
            players=subject.players,
            generator=self._generator,
        )

    def collect(self) -> Rollout:
        """Play, and return the rollout without learning."""
        # One policy learns, so there is one rollout.
        ((_, rollout),) = self._collector.collect()
        return rollout

    def __call__(self) -> int:
        """Play and learn, and return the decisions of the policy that learns."""
        # The difference, because the collector counts from its beginning.
        return play_and_learn(self._collector, generator=self._generator)


def play_and_learn(collector: Collector, *, generator: torch.Generator) -> int:
    """Play one rollout of each policy that learns, update them on theirs, and return their
    decisions.
    """
    # The difference, because the collector counts from its beginning.
    before = sum(collector.agent_steps.values())
    for learning, rollout in collector.collect():
        learning.algorithm.update(rollout, generator=generator)
    return sum(collector.agent_steps.values()) - before


class _CountingEnv(TurnWrapper):
    """A `BatchedEnv` that counts the decisions it asks for."""

    decisions = 0

    def reset(self, seeds: Sequence[int]) -> Turn:
        # The reset's turn is left out; the one after the rollout's last step stands in for it.
        turn = super().reset(seeds)
        self.decisions = 0
        return turn

    def _changed(self, turn: Turn) -> Turn:
        self.decisions += count_decisions(turn.groups)
        return turn


def decisions_per_trained(subject: Subject, *, num_frozen: int) -> float:
    """Return the decisions of all players per decision of the learning policy, in one rollout."""
    env = _CountingEnv(subject.make_env())
    with closing(env):
        rollout = LearnerWork(subject, env, num_frozen=num_frozen).collect()
    return env.decisions / rollout.agent_steps


def make_collector(
    setup: LearnerSetup,
    env: BatchedEnv,
    *,
    blocks: Sequence[TrainingBlock],
    players: Players,
    generator: torch.Generator,
    seed: int = SEED,
) -> Collector:
    """Make a collector as a learner has it."""
    return Collector(
        env,
        seeds=environment_seeds(seed, num_envs=env.num_envs),
        blocks=blocks,
        seats=setup.training_seats,
        sides=tuple(setup.sides),
        populations=setup.agents_of,
        actions=players.actions,
        openings=setup.environment.random_openings,
        generator=generator,
        progress=NoProgress(),
        critics=players.critics,
    )


def training_blocks(
    subject: Subject, *, learning: Learning, num_frozen: int
) -> list[TrainingBlock]:
    """Seat a policy in self-play, or half of the time against frozen policies.

    Seats of other populations are always taken by frozen policies, one at least.
    """
    setup = subject.setup
    trainee = Player(player=PlayerId(learning.policy))
    actors: dict[PlayerId, Actor] = {}
    opponents: dict[str, list[Player]] = {}
    for position, population in enumerate(setup.populations):
        own = population == learning.population
        for index in range(num_frozen if own else max(num_frozen, 1)):
            # A ghost's id: population/policy@agent_steps
            player = PlayerId(f"{population}/p{index:03d}@{1:012d}")
            # Other weights for each, as opponents in a league have.
            seed = 1 + NUM_FROZEN * position + index
            actors[player] = subject.make_frozen(population, seed=seed)
            opponents.setdefault(population, []).append(Player(player=player))
    seatings = training_seatings(
        _casts(setup, trainee=trainee, opponents=opponents, num_frozen=num_frozen),
        seats=setup.seats,
        population=learning.population,
        is_mixed=bool(setup.agent_seats),
    )
    seated: Mapping[PlayerId, SeatedPlayer] = {**actors, trainee.player: learning}
    return [
        TrainingBlock(
            entrants=tuple(Entrant(player.player) for player in seating.players),
            players=tuple(seated[player.player] for player in seating.players),
        )
        for seating in seatings_that_fit(seatings, num_envs=subject.num_envs, seed=SEED)
    ]


def _casts(
    setup: LearnerSetup,
    *,
    trainee: Player,
    opponents: Mapping[str, Sequence[Player]],
    num_frozen: int,
) -> list[Cast]:
    """Put frozen players beside and against the trainee, its own rival in the first half."""
    own, is_mixed = population_of(trainee.player), bool(setup.agent_seats)
    size = max(len(seat.agents) for seat in setup.seats) if is_mixed else 1

    def side(population: str, turn: int, *, number: int) -> tuple[Player, ...]:
        players = opponents.get(population) or (trainee,)
        return tuple(players[(turn + index) % len(players)] for index in range(number))

    return [
        (
            (trainee, *side(own, turn, number=size - 1)),
            {
                name: (trainee, *side(own, turn + 1, number=size - 1))
                if name == own and turn < num_frozen
                else side(name, turn + 1, number=size)
                for name in dict.fromkeys(seat.population for seat in setup.seats)
            },
        )
        # Of those that cooperate there is one seating, unless they have partners.
        for turn in range(max(2 * num_frozen, 1) if is_mixed or len(setup.sides) > 1 else 1)
    ]
