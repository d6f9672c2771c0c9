"""Every decision of every policy that learns is in its rollout once, with what belongs to it."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from arena.config import EnvironmentConfig, RandomOpenings
from arena.core import ActorInput, AlgorithmOutput
from arena.environment_spec import EnvironmentRequest, EnvironmentSpec
from arena.envs.describe import environment_facts
from arena.envs.make import make_batched_env
from arena.envs.one_by_one.steppers import EnvsRequest
from arena.envs.random_play import uniform_actions
from arena.envs.spaces.actions import ActionLayout
from arena.envs.spaces.observations import ObservationLayout
from arena.experience import Rollout
from arena.matches.actors import RandomActor
from arena.matches.seated import equal_blocks
from arena.matches.seating import make_seats
from arena.rollout.collector import Collector, TrainingBlock
from arena.rollout.recorder import Learning, SeatedPlayer
from arena.types import Entrant, PolicyId

ASSETS = str(Path(__file__).parents[2] / "assets")
AGENTS = ("a", "b", "c", "d")
SIDES = {agent: (agent,) for agent in AGENTS}
POPULATIONS = {"player": AGENTS}
SEATS = make_seats(agents=AGENTS, sides=SIDES, populations=POPULATIONS)
NUM_ENVS, LENGTH, NUM_ROLLOUTS = 4, 25, 4
FIRST, SECOND = PolicyId("player/p000"), PolicyId("player/p001")

Mark = tuple[int, int, int]
"""Environment, step, agent."""


def marks_of(layout: ObservationLayout, observation: torch.Tensor) -> list[Mark]:
    seen = layout.to_environment(observation)
    marks = np.rint(seen["mark"]).astype(int).tolist()
    return [(env, count, int(who)) for (env, count), who in zip(marks, seen["who"], strict=True)]


def log_prob_of(mark: Mark, policy: PolicyId) -> float:
    return -float(mark[1] * 8 + mark[2] * 2 + (policy == SECOND))


class Scripted:
    """Legal actions, and log-probabilities and values that tell which decision it was."""

    state_size = 0
    critic_size = 0
    bptt_length = None
    rollout_length = LENGTH
    gamma = 0.0
    gae_lambda = 0.0
    learner_updates = 0
    needs_transitions = False

    def __init__(self, policy: PolicyId, layout: ObservationLayout, actions: ActionLayout) -> None:
        self._policy, self._layout, self._actions = policy, layout, actions

    def act(self, inputs: ActorInput, *, generator: torch.Generator) -> AlgorithmOutput:
        observation, action_mask = inputs.observation, inputs.action_mask
        rows = uniform_actions(
            self._actions,
            num_rows=len(observation),
            action_mask=action_mask,
            generator=generator,
        )
        marks = marks_of(self._layout, observation)
        log_prob = torch.tensor([log_prob_of(mark, self._policy) for mark in marks])
        return AlgorithmOutput(
            action=rows, log_prob=log_prob, value=torch.tensor([float(mark[1]) for mark in marks])
        )

    def value(self, inputs: ActorInput) -> torch.Tensor:
        observation = inputs.observation
        return torch.zeros(len(observation))


class Silence:
    def advance(self, agent_steps: int = 0) -> None:
        return


def facts_of(name: str, form: str) -> EnvironmentSpec:
    return environment_facts(
        EnvironmentRequest(f"payloads:{name}", kwargs={"form": form}, launch_directory=ASSETS)
    )


def plain(action: Any) -> Any:
    """An action that compares by value."""
    if isinstance(action, dict):
        return {name: plain(part) for name, part in action.items()}
    return np.asarray(action).tolist()


@pytest.mark.parametrize("form", ["discrete", "multi_discrete", "box", "dict"])
@pytest.mark.parametrize("name", ["Turns", "AtOnce"])
@pytest.mark.slow
def test_every_decision_is_in_its_rollout_once(name: str, form: str) -> None:
    spec = facts_of(name, form)
    layout = ObservationLayout.from_json(spec.agent_specs["a"].observation)
    actions = ActionLayout.from_json(spec.agent_specs["a"].action, continuous="squashed")
    made = importlib.import_module("payloads").MADE
    made.clear()
    env = make_batched_env(
        EnvsRequest(
            EnvironmentConfig(id=spec.id, kwargs=dict(spec.kwargs)),
            spec=spec,
            sides=SIDES,
            populations=POPULATIONS,
            num_envs=NUM_ENVS,
            launch_directory=ASSETS,
        )
    )
    scripted: dict[PolicyId, Any] = {
        policy: Scripted(policy, layout, actions) for policy in (FIRST, SECOND)
    }
    learning = {
        policy: Learning(policy=policy, algorithm=algorithm)
        for policy, algorithm in scripted.items()
    }
    one, two, frozen = learning[FIRST], learning[SECOND], RandomActor(actions)
    players: list[tuple[SeatedPlayer, ...]] = [(one, two, frozen, one), (frozen, one, two, frozen)]
    collector = Collector(
        env,
        seeds=range(NUM_ENVS),
        blocks=[
            TrainingBlock(entrants=tuple(Entrant(f"{b}{s}") for s in range(4)), players=seated)
            for b, seated in enumerate(players)
        ],
        seats=SEATS,
        sides=tuple(SIDES),
        populations=POPULATIONS,
        actions={"player": actions},
        openings=RandomOpenings(),
        generator=torch.Generator().manual_seed(5),
        progress=Silence(),
    )
    block = equal_blocks(2, num_envs=NUM_ENVS).tolist()
    index_of = {env.index: b for b, env in enumerate(made)}

    def owner(mark: Mark) -> SeatedPlayer:
        seated: SeatedPlayer = players[block[index_of[mark[0]]]][mark[2]]
        return seated

    num_missing = num_found = 0
    begun = [0] * NUM_ENVS
    for _ in range(NUM_ROLLOUTS):
        rollouts = {player.policy: rollout for player, rollout in collector.collect()}
        logged = {}
        last = set()
        for b, single in enumerate(made):
            latest = {}
            for decision in single.log[begun[b] :]:
                mark = (*decision.mark, AGENTS.index(decision.agent))
                assert mark not in logged
                logged[mark] = decision
                latest[mark[2]] = mark
            last |= set(latest.values())
            begun[b] = len(single.log)
        for policy, rollout in rollouts.items():
            own = {mark for mark in logged if owner(mark) is learning[policy]}
            found = marks_of(layout, rollout.observation)
            assert len(set(found)) == len(found) == len(rollout)
            assert set(found) <= own
            # Of an agent's last decision it is not known yet what it brings.
            assert own - set(found) <= last
            assert rollout.agent_steps == len(own)
            check_payloads(rollout, [logged[mark] for mark in found], actions)
            log_probs = [log_prob_of(mark, policy) for mark in found]
            assert rollout.log_prob.tolist() == log_probs
            assert rollout.value.tolist() == [float(mark[1]) for mark in found]
            num_found += len(found)
            num_missing += len(own) - len(found)
    env.close()
    assert num_found > 10 * num_missing > 0 or num_missing == 0
    repeated = [
        one.agent == two.agent
        for single in made
        for one, two in zip(single.log, single.log[1:], strict=False)
    ]
    assert any(repeated)
    happened = sum((single.happened for single in made), Counter[str]())
    assert min(happened["late"], happened["terminated"], happened["truncated"]) > 3


def check_payloads(rollout: Rollout, decisions: list[Any], actions: ActionLayout) -> None:
    """What was done, allowed and received, against what the environment wrote down."""
    assert [plain(action) for action in actions.actions(rollout.action.numpy())] == [
        plain(decision.action) for decision in decisions
    ]
    assert rollout.return_.tolist() == [decision.earned for decision in decisions]
    if rollout.action_mask is None:
        assert {decision.mask for decision in decisions} == {None}
    else:
        assert rollout.action_mask.tolist() == [decision.mask for decision in decisions]
