"""Every decision of every policy that learns is in its rollout once, with what belongs to it."""

from __future__ import annotations

import importlib
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from arena.core import ActorInput, AlgorithmOutput
from arena.envs.random_play import uniform_actions
from arena.experience import Rollout
from arena.matches.actors import RandomActor
from arena.matches.seated import equal_blocks
from arena.rollout.recorder import Learning, SeatedPlayer
from arena.spaces import ActionLayout, ObservationLayout
from arena.types import PolicyId
from tests.arena.samples import Inert, facts_of, make_blocks, make_collector, make_env

AGENTS = ("a", "b", "c", "d")
SIDES = {agent: (agent,) for agent in AGENTS}
POPULATIONS = {"player": AGENTS}
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


class Scripted(Inert):
    """Legal actions, and log-probabilities and values that tell which decision it was."""

    rollout_length = LENGTH
    gamma = 0.0
    gae_lambda = 0.0

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


def plain(action: Any) -> Any:
    """An action that compares by value."""
    if isinstance(action, dict):
        return {name: plain(part) for name, part in action.items()}
    return np.asarray(action).tolist()


@pytest.mark.parametrize("form", ["discrete", "multi_discrete", "box", "dict"])
@pytest.mark.parametrize("name", ["Turns", "AtOnce"])
@pytest.mark.slow
def test_every_decision_is_in_its_rollout_once(name: str, form: str) -> None:
    spec = facts_of(f"payloads:{name}", {"form": form})
    layout = ObservationLayout.from_json(spec.agent_specs["a"].observation)
    actions = ActionLayout.from_json(spec.agent_specs["a"].action, continuous="squashed")
    made = importlib.import_module("payloads").MADE
    made.clear()
    env = make_env(spec, num_envs=NUM_ENVS, sides=SIDES, populations=POPULATIONS)
    learning = {
        policy: Learning(policy=policy, algorithm=Scripted(policy, layout, actions))
        for policy in (FIRST, SECOND)
    }
    one, two, frozen = learning[FIRST], learning[SECOND], RandomActor(actions)
    players: list[tuple[SeatedPlayer, ...]] = [(one, two, frozen, one), (frozen, one, two, frozen)]
    collector = make_collector(
        env,
        make_blocks(*players),
        sides=SIDES,
        populations=POPULATIONS,
        action=actions,
        seed=5,
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
