"""Every decision is in its rollout once, beside what was there at that time."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from arena.config import NetworkConfig
from arena.core import ActorInput, AlgorithmOutput
from arena.environment_spec import EnvironmentSpec
from arena.envs.base import BatchedEnv
from arena.envs.random_play import uniform_actions
from arena.envs.spaces.critic_input import CriticInput, critic_input
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
            # The outcome of an agent's last decision is not known yet.
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


NUM_JUDGED = 4
JUDGED_SIDES = {"left": ("a", "c"), "right": ("b", "d")}
POLICY = PolicyId("player/p000")

Row = list[float]


class Judge(Inert):
    """Random actions, and values that tell from which row they were computed."""

    rollout_length = LENGTH
    gae_lambda = 0.0
    critic_size: int = 0

    def __init__(self, actions: ActionLayout, *, critic_size: int) -> None:
        self.critic_size = critic_size
        self._actions = actions

    def judge(self, rows: torch.Tensor) -> torch.Tensor:
        """Whole numbers, so exact."""
        assert rows.shape[1] == self.critic_size
        return rows @ (torch.arange(self.critic_size) * 7 % 31 + 1.0)

    def act(self, inputs: ActorInput, *, generator: torch.Generator) -> AlgorithmOutput:
        assert inputs.recurrent_state is None
        assert inputs.critic_input is not None
        actions = uniform_actions(
            self._actions,
            num_rows=len(inputs.observation),
            action_mask=inputs.action_mask,
            generator=generator,
        )
        return AlgorithmOutput(
            action=actions,
            log_prob=torch.zeros(len(inputs.observation)),
            value=self.judge(inputs.critic_input),
        )

    def value(self, inputs: ActorInput) -> torch.Tensor:
        assert inputs.critic_input is not None
        assert len(inputs.observation) == len(inputs.critic_input)
        return self.judge(inputs.critic_input)


def facts(name: str) -> EnvironmentSpec:
    return facts_of(f"payloads:{name}", {"form": "discrete"}, reads_state=True)


def make_critic(spec: EnvironmentSpec, kind: Any) -> CriticInput:
    found = critic_input(
        NetworkConfig(critic=kind),
        population="player",
        populations=POPULATIONS,
        sides=JUDGED_SIDES,
        spec=spec,
    )
    assert found is not None
    return found


def made_env(spec: EnvironmentSpec, *, reads_state: bool) -> tuple[BatchedEnv, list[Any]]:
    made = importlib.import_module("payloads").MADE
    made.clear()
    env = make_env(
        spec,
        num_envs=NUM_ENVS,
        sides=JUDGED_SIDES,
        populations=POPULATIONS,
        reads_state=reads_state,
    )
    return env, list(made)


def collect(
    env: BatchedEnv, spec: EnvironmentSpec, critic: CriticInput, *, is_cut: bool
) -> tuple[Judge, Iterator[Rollout]]:
    """One policy, on both sides in half of the environments and against random play in others.

    Cut, each rollout is of an assignment of its own, and episodes go on.
    """
    actions = ActionLayout.from_json(spec.agent_specs["a"].action, continuous="squashed")
    judge = Judge(actions, critic_size=critic.layout.size)
    learning = Learning(policy=POLICY, algorithm=judge)
    others: tuple[SeatedPlayer, ...] = (learning, RandomActor(actions))
    blocks = make_blocks(*((learning, other) for other in others))
    collector = make_collector(
        env,
        blocks,
        sides=JUDGED_SIDES,
        populations=POPULATIONS,
        action=actions,
        seed=5,
        critics={"player": critic},
    )

    def rollouts() -> Iterator[Rollout]:
        for seed in range(NUM_JUDGED):
            if is_cut and seed:
                becomes = {block: block for block in collector.in_flight()}
                collector.rest()
                generator = torch.Generator().manual_seed(seed)
                collector.go_on(blocks, num_new=2, becomes=becomes, generator=generator)
            yield from (rollout for _, rollout in collector.collect())

    return judge, rollouts()


def seen_row(agent: str, mark: tuple[int, int]) -> Row:
    """An observation as a row: the mark, then who it is."""
    return [*map(float, mark), *(float(agent == other) for other in AGENTS)]


def one_hot(agent: str) -> Row:
    return [float(agent == other) for other in AGENTS]


def known(single: Any, episode: int, count: int, *, in_turn: bool) -> dict[str, tuple[int, int]]:
    """Of whom an observation is known before step ``count``, and which."""
    marks: dict[str, tuple[int, int]] = {}
    for decision in single.log:
        _, step = decision.mark
        if decision.episode != episode or not (step <= count if in_turn else step == count):
            continue
        ended, _ = single.ends.get((episode, decision.agent), (count + 1, ""))
        if ended > count:
            marks[decision.agent] = decision.mark
    return marks


def joint_row(agent: str, marks: dict[str, tuple[int, int]]) -> Row:
    team = next(side for side in JUDGED_SIDES.values() if agent in side)
    parts = [seen_row(mate, marks[mate]) if mate in marks else [0.0] * 6 for mate in team]
    return [number for part in (*parts, one_hot(agent)) for number in part]


def expected_row(single: Any, decision: Any, *, kind: str, in_turn: bool) -> Row:
    if kind == "state":
        return [*map(float, decision.mark), *one_hot(decision.agent)]
    marks = known(single, decision.episode, decision.mark[1], in_turn=in_turn)
    return joint_row(decision.agent, marks)


def final_row(single: Any, agent: str, episode: int, *, kind: str, in_turn: bool) -> Row:
    """When an agent was cut off."""
    count, _ = single.ends[episode, agent]
    if kind == "state":
        return [float(single.index), float(count), *one_hot(agent)]
    marks = known(single, episode, count, in_turn=in_turn)
    goes_on = episode == single.episode or any(
        other == episode and step > count for (other, _), (step, _) in single.ends.items()
    )
    if not goes_on:
        marks = {}
    for (other, mate), (step, how) in single.ends.items():
        if (other, step, how) == (episode, count, "truncated"):
            marks[mate] = (single.index, count)
    return joint_row(agent, marks)


def successor_value(
    single: Any, decision: Any, *, judge: Judge, row: Callable[..., Row], final: Callable[..., Row]
) -> tuple[str, float] | None:
    """What a decision's return has beside the reward; None: the environment has not told yet."""
    after = single.log[single.log.index(decision) + 1 :]
    for later in after:
        if (later.agent, later.episode) == (decision.agent, decision.episode):
            return "decision", float(judge.judge(torch.tensor([row(single, later)])))
    count, how = single.ends.get((decision.episode, decision.agent), (0, ""))
    if not how or count >= single.count:
        return None
    if how == "terminated":
        return how, 0.0
    at_end = final(single, decision.agent, decision.episode)
    return how, float(judge.judge(torch.tensor([at_end])))


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("kind", ["joint", "state"])
@pytest.mark.parametrize("name", ["Turns", "AtOnce"])
@pytest.mark.slow
def test_every_row_is_what_was_there_at_that_time(name: str, kind: str, is_cut: bool) -> None:
    spec = facts(name)
    critic = make_critic(spec, kind)
    env, made = made_env(spec, reads_state=kind == "state")
    judge, rollouts = collect(env, spec, critic, is_cut=is_cut)
    in_turn = name == "Turns"

    def row(single: Any, decision: Any) -> Row:
        return expected_row(single, decision, kind=kind, in_turn=in_turn)

    def final(single: Any, agent: str, episode: int) -> Row:
        return final_row(single, agent, episode, kind=kind, in_turn=in_turn)

    found = list(rollouts)
    env.close()
    logged = {
        (*decision.mark, decision.agent): (single, decision)
        for single in made
        for decision in single.log
    }
    checked: Counter[str] = Counter()
    num_together = 0
    for rollout in found:
        assert rollout.critic_input is not None
        assert rollout.critic_input.shape == (len(rollout), critic.layout.size)
        for seen, judged, value, return_ in zip(
            rollout.observation.tolist(),
            rollout.critic_input.tolist(),
            rollout.value.tolist(),
            rollout.return_.tolist(),
            strict=True,
        ):
            agent = AGENTS[seen[2:].index(1.0)]
            single, decision = logged[int(seen[0]), int(seen[1]), agent]
            assert judged == row(single, decision)
            assert value == float(judge.judge(torch.tensor([judged])))
            follows = successor_value(single, decision, judge=judge, row=row, final=final)
            if follows is not None:
                checked[follows[0]] += 1
                assert return_ == decision.earned + follows[1]
            if kind == "joint":
                num_together += sum(judged[2:6]) + sum(judged[8:12]) == 2.0
    assert min(checked["decision"], checked["terminated"], checked["truncated"]) > 5
    assert kind == "state" or num_together > 20


def test_nothing_is_kept_where_nothing_is_asked_for() -> None:
    """Neither the state in turns nor rows in rollouts."""
    spec = facts("AtOnce")
    env, _ = made_env(spec, reads_state=False)
    turn = env.reset(range(NUM_ENVS))
    assert turn.state is None
    assert turn.final_state is None
    action = ActionLayout.from_json({"kind": "Discrete", "n": 5, "start": 2}, continuous="clipped")
    learning = Learning(policy=POLICY, algorithm=Judge(action, critic_size=16))
    blocks = make_blocks((learning, learning))
    with pytest.raises(ValueError, match="computed from 16 numbers of their own, there are none"):
        make_collector(env, blocks, sides=JUDGED_SIDES, populations=POPULATIONS, action=action)
    env.close()
