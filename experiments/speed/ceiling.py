"""How much of what stepping and updating alone allow does a learner reach on PettingZoo?

    python -m experiments.speed.ceiling connect_four.yaml spread.yaml --rounds 7 backend=...

One process and one thread, one JSON line per configuration. In each round a learner's loop (collect
and update, against frozen copies of its own policy where the configuration has ghosts) does some
rollouts, and it is noted what its environments were told. Then bare PettingZoo environments (no
wrapper, nothing copied or checked) are given the same seeds and actions and asked for the
observations that the next player needs, and the update alone is done as often on the last
rollout. The ceiling is the rate that these two would allow if nothing else took any time. Times are
of the processor, since others may use the machine too.

Shapes: B environments.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import torch
from pettingzoo import AECEnv

from arena.envs.base import BatchedEnv, Turn
from arena.envs.chance import episode_seed
from arena.envs.registry import make_environment
from arena.envs.spaces.observations import first_action
from arena.errors import ConfigError
from arena.experience import Rollout
from arena.matches.teammates import training_seatings
from arena.networks.frozen import FrozenPolicy
from arena.rollout.collector import Collector, TrainingBlock
from arena.rollout.recorder import Learning, SeatedPlayer
from arena.types import Entrant, Player, PlayerId, PolicyId
from tools.bench.learner import make_collector
from tools.bench.subject import SEED, Subject, load_subject

WARM_UP = 8
"""Rollouts before the first round: products of each new number of rows are compiled once."""

Actions = Mapping[str, int]
"""Actions by agent, as its environment numbers them."""


class RecordedEnv:
    """A `BatchedEnv` that notes the seeds and the actions it is given.

    Args:
        env: Steps the environments.
        subject: Owner of the environments.
    """

    def __init__(self, env: BatchedEnv, *, subject: Subject) -> None:
        self._env = env
        self.num_envs, self.agents = env.num_envs, env.agents
        self._first = [
            first_action(subject.setup.spec.agent_specs[agent].action) for agent in env.agents
        ]
        self._asked: dict[str, torch.Tensor] = {}
        self._steps: list[list[tuple[torch.Tensor, torch.Tensor]]] = []
        self.seeds: tuple[int, ...] = ()

    def reset(self, seeds: Sequence[int]) -> Turn:
        """Begin anew."""
        self.seeds = tuple(seeds)
        self._steps.clear()
        return self._note(self._env.reset(seeds))

    def step(self, actions: Mapping[str, torch.Tensor]) -> Turn:
        """Note the pending decisions and their actions, and step."""
        self._steps.append([(asked, actions[name]) for name, asked in self._asked.items()])
        return self._note(self._env.step(actions))

    def halt(self, environments: torch.Tensor) -> None:
        """Halt as the environments do; pending decisions stay unanswered."""
        self._env.halt(environments)
        for asked in self._asked.values():
            asked[environments] = -1

    def resume(self, environments: torch.Tensor) -> None:
        """Resume as the environments do: a begun episode begins again, as it was."""
        self._env.resume(environments)

    def close(self) -> None:
        """Close as the environments do."""
        self._env.close()

    def take_actions(self) -> list[list[Actions]]:
        """Take all actions since the last call, by environment and step."""
        taken: list[list[Actions]] = [[] for _ in range(self.num_envs)]
        for groups in self._steps:
            chosen: list[dict[str, int]] = [{} for _ in range(self.num_envs)]
            for asked, actions in groups:
                for b, s in (asked >= 0).nonzero().tolist():
                    index = int(asked[b, s])
                    chosen[b][self.agents[index]] = int(actions[b, s]) + self._first[index]
            for steps, of_env in zip(taken, chosen, strict=True):
                steps.append(of_env)
        self._steps.clear()
        return taken

    def _note(self, turn: Turn) -> Turn:
        self._asked = {name: group.agent_index.clone() for name, group in turn.groups.items()}
        return turn


class BareEnvironment:
    """One PettingZoo environment behind all wrappers, driven as its API demands.

    Args:
        env: A ``pettingzoo.AECEnv`` or ``ParallelEnv``.
        seed: Seed of its episodes, which are seeded as those of a `BatchedEnv`.
        at_once: Whether all agents are asked before any of them acts.
    """

    def __init__(self, env: Any, *, seed: int, at_once: bool) -> None:
        self._env = env
        self._seed = seed
        self._episodes = 0
        takes_turns = isinstance(env, AECEnv)
        self._observes_all = takes_turns and at_once
        self._observes_one = takes_turns and not at_once
        self._step = self._step_in_turns if takes_turns else self._step_at_once
        self._reset()

    def step(self, actions: Actions) -> None:
        """Carry out the decisions, and look at what is decided next."""
        self._step(actions)

    def close(self) -> None:
        """Release what it holds."""
        self._env.close()

    def _reset(self) -> None:
        self._env.reset(seed=episode_seed(self._seed, episode=self._episodes))
        self._episodes += 1
        self._observe()

    def _observe(self) -> None:
        env = self._env
        if self._observes_one:
            env.observe(env.agent_selection)
        elif self._observes_all:
            for agent in env.agents:
                env.observe(agent)

    def _step_in_turns(self, actions: Actions) -> None:
        env = self._env
        for action in actions.values():
            env.step(action)
        selected = env.agent_selection
        if not (env.terminations[selected] or env.truncations[selected]):
            self._observe()
            return
        if self._observes_all:
            self._observe()
        while env.agents and (
            env.terminations[env.agent_selection] or env.truncations[env.agent_selection]
        ):
            env.step(None)
        if env.agents:
            self._observe()
        else:
            self._reset()

    def _step_at_once(self, actions: Actions) -> None:
        self._env.step(actions)
        if not self._env.agents:
            self._reset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Work of one round, and the processor's seconds for it.

    Attributes:
        agent_steps: Decisions of the policy that learns.
        learner_s: Seconds of the learner's loop.
        stepping_s: Seconds of the bare environments.
        update_s: Seconds of the updates alone.
    """

    agent_steps: int
    learner_s: float
    stepping_s: float
    update_s: float

    @property
    def ratio(self) -> float:
        """Share of the ceiling that is reached; 1 is all of it."""
        return (self.stepping_s + self.update_s) / self.learner_s


class Contest:
    """A learner, and what it cannot be faster than.

    Owns its environments; close it.

    Args:
        subject: Configuration of the learner.
        num_rollouts: Number of rollouts in a round.
        one_by_one: Bare environments go through a round one after the other, so that each has a
            core's caches to itself, which no learner can do. Otherwise all do each step before
            any does the next.
    """

    def __init__(self, subject: Subject, *, num_rollouts: int, one_by_one: bool) -> None:
        self._subject = subject
        self._one_by_one = one_by_one
        self._num_rollouts = num_rollouts
        self._generator = torch.Generator(subject.device).manual_seed(SEED)
        self._algorithm = subject.make_policy()
        self._still = subject.make_policy(stands_still=True)
        self._env = RecordedEnv(subject.make_env(), subject=subject)
        ghosts = [self._ghost() for _ in range(num_ghosts(subject))]
        self._collector = self._make_collector(ghosts)
        self._bare = self._make_bare()
        for _ in range(WARM_UP):
            self._rollout = self._learn()
        self._catch_up()

    def close(self) -> None:
        """Release the environments."""
        self._env.close()
        for bare in self._bare:
            bare.close()

    def round(self) -> Round:
        """Let both do the same."""
        before = sum(self._collector.agent_steps.values())
        started = time.process_time()
        for _ in range(self._num_rollouts):
            self._rollout = self._learn()
        learner_s = time.process_time() - started
        stepping_s = self._catch_up()
        started = time.process_time()
        for _ in range(self._num_rollouts):
            self._still.update(self._rollout, generator=self._generator)
        return Round(
            agent_steps=sum(self._collector.agent_steps.values()) - before,
            learner_s=learner_s,
            stepping_s=stepping_s,
            update_s=time.process_time() - started,
        )

    def _learn(self) -> Rollout:
        ((learning, rollout),) = self._collector.collect()
        learning.algorithm.update(rollout, generator=self._generator)
        return rollout

    def _catch_up(self) -> float:
        """Give the bare environments what the learner's were given. Seconds."""
        actions = self._env.take_actions()
        work = [
            [(bare, step) for step in steps]
            for bare, steps in zip(self._bare, actions, strict=True)
        ]
        if not self._one_by_one:
            work = [list(step) for step in zip(*work, strict=True)]
        started = time.process_time()
        for part in work:
            for bare, step in part:
                bare.step(step)
        return time.process_time() - started

    def _ghost(self) -> FrozenPolicy:
        """Return the policy after one more rollout of self-play."""
        self._collector = self._make_collector(())
        self._learn()
        subject, population = self._subject, self._subject.population
        return FrozenPolicy.from_weights(
            subject.setup.populations[population].network,
            self._algorithm.weights(),
            observation=subject.observations[population],
            action=subject.actions[population],
            device=subject.device,
        )

    def _make_collector(self, ghosts: Sequence[FrozenPolicy]) -> Collector:
        subject = self._subject
        trainee = Player(player=PlayerId(f"{subject.population}/p000"))
        rivals = [
            Player(player=PlayerId(f"{trainee.player}@{at:012d}")) for at in range(len(ghosts))
        ]
        seats = subject.setup.training_seats
        num_mirrors = subject.config.matchmaking.opponents - len(ghosts)
        seatings = training_seatings(
            [
                ((trainee,), {subject.population: (rival,)})
                for rival in [trainee] * num_mirrors + rivals
            ],
            seats=seats,
            population=subject.population,
        )
        learning = Learning(policy=PolicyId(trainee.player), algorithm=self._algorithm)
        seated: dict[PlayerId, SeatedPlayer] = {
            trainee.player: learning,
            **{rival.player: ghost for rival, ghost in zip(rivals, ghosts, strict=True)},
        }
        return make_collector(
            subject,
            self._env,
            blocks=[
                TrainingBlock(
                    entrants=tuple(Entrant(player.player) for player in seating.players),
                    players=tuple(seated[player.player] for player in seating.players),
                )
                for seating in seatings
            ],
            generator=self._generator,
        )

    def _make_bare(self) -> list[BareEnvironment]:
        setup = self._subject.setup
        spec = setup.spec
        return [
            BareEnvironment(
                make_environment(
                    spec.id,
                    kwargs=spec.kwargs,
                    api=spec.api,
                    launch_directory=setup.launch_directory,
                ).unwrapped,
                seed=seed,
                at_once=spec.api == "parallel",
            )
            for seed in self._env.seeds
        ]


def num_ghosts(subject: Subject) -> int:
    """Count an assignment's frozen opponents."""
    matchmaking = subject.config.matchmaking
    if matchmaking.kind == "latest" or len(subject.setup.sides) == 1:
        return 0
    return matchmaking.opponents - round(matchmaking.latest_ratio * matchmaking.opponents)


def measure(
    subject: Subject, *, rounds: int, num_rollouts: int, one_by_one: bool
) -> dict[str, object]:
    """Measure several rounds; return medians, with the worst and the best ratio."""
    if len(subject.setup.populations) != 1:
        raise ConfigError(f"one population can be measured, got {list(subject.setup.populations)}")
    with closing(Contest(subject, num_rollouts=num_rollouts, one_by_one=one_by_one)) as contest:
        done = [contest.round() for _ in range(rounds)]
    ratios = [each.ratio for each in done]

    def microseconds(seconds: Callable[[Round], float]) -> float:
        return round(1e6 * statistics.median(seconds(each) / each.agent_steps for each in done), 2)

    return {
        "ratio": round(statistics.median(ratios), 3),
        "ratio_low": round(min(ratios), 3),
        "ratio_high": round(max(ratios), 3),
        "ghosts": num_ghosts(subject),
        "one_by_one": one_by_one,
        "agent_steps_per_s": round(
            statistics.median(each.agent_steps / each.learner_s for each in done)
        ),
        "learner_us": microseconds(lambda each: each.learner_s),
        "stepping_us": microseconds(lambda each: each.stepping_s),
        "update_us": microseconds(lambda each: each.update_s),
        "rounds": rounds,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configurations", nargs="+", help="presets or YAML files, KEY=VALUE")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rollouts", type=int, default=1, help="rollouts in a round")
    parser.add_argument(
        "--one-by-one", action="store_true", help="measure a higher ceiling, see Contest"
    )
    options = parser.parse_args()
    overrides = [value for value in options.configurations if "=" in value]
    torch.set_num_threads(1)
    for source in (value for value in options.configurations if "=" not in value):
        subject = load_subject(source, overrides)
        line = measure(
            subject,
            rounds=options.rounds,
            num_rollouts=options.rollouts,
            one_by_one=options.one_by_one,
        )
        sys.stdout.write(json.dumps({"configuration": source, **line}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
