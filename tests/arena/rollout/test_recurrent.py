"""What policies remember while they learn: stored with its decision, and gone with the episode."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from arena.checkpoints.tensors import serialize
from arena.config import NetworkConfig, RandomOpenings
from arena.core import ActorInput, AlgorithmOutput
from arena.envs.random_play import uniform_actions
from arena.experience import Rollout
from arena.learning.hyperparameters import PpoHyperparameters, PpoSettings
from arena.learning.ppo import Ppo
from arena.learning.sequences import pack
from arena.networks.frozen import FrozenPolicy
from arena.rollout.collector import Collector
from arena.rollout.recorder import Learning, SeatedPlayer
from arena.spaces import ActionLayout, ObservationLayout
from arena.types import PolicyId
from tests.arena.samples import (
    CPU,
    Inert,
    each_alone,
    facts_of,
    make_blocks,
    make_collector,
    make_env,
)

FIRST, SECOND = PolicyId("player/p000"), PolicyId("player/p001")

Mark = tuple[int, int]
"""Environment and step; with the agent, a decision."""


class World:
    """An environment of the tests and its layouts."""

    def __init__(self, reference: str, *, num_envs: int, **kwargs: Any) -> None:
        spec = facts_of(reference, kwargs)
        self.agents = spec.agents
        self.populations = {"player": spec.agents}
        self.sides = each_alone(spec)
        agent_spec = spec.agent_specs[spec.agents[0]]
        self.layout = ObservationLayout.from_json(agent_spec.observation)
        self.actions = ActionLayout.from_json(agent_spec.action, continuous="squashed")
        self.env = make_env(spec, num_envs=num_envs, sides=self.sides, populations=self.populations)

    def collector(self, *blocks: Sequence[SeatedPlayer], **options: Any) -> Collector:
        self.blocks = make_blocks(*blocks)
        return make_collector(
            self.env,
            self.blocks,
            sides=self.sides,
            populations=self.populations,
            action=self.actions,
            seed=5,
            **options,
        )

    def collect(self, collector: Collector, number: int, *, is_cut: bool) -> list[Any]:
        """Some rollouts; cut, each is of an assignment of its own, and episodes go on."""
        found = [collector.collect()]
        for seed in range(1, number):
            if is_cut:
                becomes = {block: block for block in collector.in_flight()}
                collector.rest()
                generator = torch.Generator().manual_seed(seed)
                collector.go_on(
                    self.blocks, num_new=len(self.blocks), becomes=becomes, generator=generator
                )
            found.append(collector.collect())
        return found


class Diary(Inert):
    """An algorithm and an actor whose state is the mark of its agent's last decision."""

    rollout_length = 20
    gamma = 0.0
    gae_lambda = 0.0
    state_size = 3
    bptt_length = 1
    reads_agent = False
    reads_games = False

    def __init__(self, layout: ObservationLayout, actions: ActionLayout) -> None:
        self._layout, self._actions = layout, actions
        self.read: list[tuple[Mark, int, list[float]]] = []

    def marks(self, observation: torch.Tensor) -> list[tuple[Mark, int]]:
        seen = self._layout.to_environment(observation)
        marks = np.rint(seen["mark"]).astype(int).tolist()
        return [((env, n), int(who)) for (env, n), who in zip(marks, seen["who"], strict=True)]

    def act(
        self, inputs: ActorInput, *, generator: torch.Generator, agent: str | None = None
    ) -> AlgorithmOutput:
        marks, state = self.marks(inputs.observation), inputs.recurrent_state
        assert state is not None
        self.read += [(*mark, before) for mark, before in zip(marks, state.tolist(), strict=True)]
        action = uniform_actions(
            self._actions,
            num_rows=len(inputs.observation),
            action_mask=inputs.action_mask,
            generator=generator,
        )
        return AlgorithmOutput(
            action=action,
            log_prob=torch.zeros(len(marks)),
            value=self.value(inputs),
            recurrent_state=torch.tensor([[1.0, *mark] for mark, _ in marks]),
        )

    def value(self, inputs: ActorInput) -> torch.Tensor:
        assert inputs.recurrent_state is not None
        return inputs.recurrent_state.sum(dim=1)


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("name", ["Turns", "AtOnce"])
@pytest.mark.slow
def test_every_decision_comes_with_what_its_agent_remembers(name: str, is_cut: bool) -> None:
    world = World(f"payloads:{name}", num_envs=4, form="discrete")
    made = importlib.import_module("payloads").MADE[-4:]
    diaries = [Diary(world.layout, world.actions) for _ in range(3)]
    one, two = (
        Learning(policy=policy, algorithm=algorithm)
        for policy, algorithm in zip((FIRST, SECOND), diaries, strict=False)
    )
    ghost: Any = diaries[2]
    collector = world.collector((one, two, ghost, one), (ghost, one, two, ghost))
    rollouts = world.collect(collector, 4, is_cut=is_cut)
    world.env.close()
    logged = {(d.mark, world.agents.index(d.agent)): d for env in made for d in env.log}

    def expected(mark: Mark, who: int) -> list[float]:
        before = logged[mark, who].before
        return [0.0, 0.0, 0.0] if before is None else [1.0, *map(float, before)]

    num_first = 0
    for diary in diaries:
        assert len(diary.read) > 50
        for mark, who, state in diary.read:
            assert state == expected(mark, who)
            num_first += not any(state)
    assert num_first > 20
    for pair in rollouts:
        for learning, rollout in pair:
            diary = diaries[0] if learning is one else diaries[1]
            assert rollout.sequences is not None
            rows = rollout.sequences.rows.squeeze(1)
            assert sorted(rows.tolist()) == list(range(len(rollout)))
            marks = diary.marks(rollout.observation[rows])
            states = rollout.sequences.state.tolist()
            assert states == [expected(*mark) for mark in marks]
            assert rollout.value[rows].tolist() == [sum(state) for state in states]


def recurrent(world: World, core: Any, *, bptt_length: int | None = None, **numbers: float) -> Ppo:
    return Ppo(
        NetworkConfig(hidden_sizes=(8,), core=core, core_size=6),
        observation=world.layout,
        action=world.actions,
        hyperparameters=PpoHyperparameters.model_validate({"rollout_length": 11, **numbers}),
        settings=PpoSettings(bptt_length=bptt_length),
        device=CPU,
        precision="float32",
        seed=3,
    )


def ghost_of(ppo: Ppo, world: World) -> FrozenPolicy:
    return FrozenPolicy.from_weights(
        NetworkConfig(hidden_sizes=(8,), core="lstm", core_size=6),
        ppo.weights(),
        observation=world.layout,
        action=world.actions,
        device=CPU,
    )


def unrolled(ppo: Ppo, rollout: Rollout) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and values by sequences, in the order of the rollout."""
    assert rollout.sequences is not None
    packed, network = pack(rollout.sequences), ppo._network
    place = packed.rows.argsort()
    normalized = network.normalize_observation(rollout.observation[packed.rows])
    parameters, value = network.unroll(
        normalized, batch_sizes=packed.batch_sizes, state=packed.state
    )
    log_prob = network.distribution(parameters, None).log_prob(rollout.action[packed.rows])
    return log_prob[place], value[place]


@pytest.mark.parametrize("bptt_length", [None, 4])
@pytest.mark.parametrize("core", ["gru", "lstm"])
def test_a_rollout_unrolls_to_what_was_played(core: str, bptt_length: int | None) -> None:
    """In mirror self-play and against a ghost with a memory, rollout after rollout."""
    world = World("t_maze:TMaze", num_envs=6)
    ppo = recurrent(world, core, bptt_length=bptt_length)
    ghost = ghost_of(recurrent(world, "lstm"), world)
    me = Learning(policy=FIRST, algorithm=ppo)
    collector = world.collector((me, me), (me, ghost), (ghost, me))
    longest = 0
    for _ in range(3):
        ((_, rollout),) = collector.collect()
        log_prob, value = unrolled(ppo, rollout)
        torch.testing.assert_close(log_prob, rollout.log_prob, rtol=0, atol=1e-5)
        torch.testing.assert_close(value, rollout.value, rtol=0, atol=1e-5)
        assert rollout.sequences is not None
        longest = max(longest, int((rollout.sequences.rows >= 0).sum(dim=1).max()))
        # A sequence that continues from the previous rollout does not start from the initial state.
        assert rollout.sequences.state.abs().sum(dim=1).gt(0).any() or bptt_length is None
    assert longest == (4 if bptt_length else 11)
    world.env.close()


def test_random_openings_are_not_remembered() -> None:
    world = World("t_maze:TMaze", num_envs=6)
    ppo = recurrent(world, "gru")
    me = Learning(policy=FIRST, algorithm=ppo)
    openings = RandomOpenings(share=1.0, max_decisions=4)
    collector = world.collector((me, me), openings=openings)
    for _ in range(2):
        ((_, rollout),) = collector.collect()
        log_prob, _ = unrolled(ppo, rollout)
        torch.testing.assert_close(log_prob, rollout.log_prob, rtol=0, atol=1e-5)
    world.env.close()


@pytest.mark.parametrize("numbers", [{}, {"magnet_coef": 0.2, "ema_decay": 0.5, "value_clip": 0.2}])
def test_the_same_seed_learns_the_same(numbers: dict[str, float]) -> None:
    digests = []
    for _ in range(2):
        world = World("t_maze:TMaze", num_envs=6)
        ppo = recurrent(world, "lstm", bptt_length=5, **numbers)
        before = ppo.weights()
        collector = world.collector((Learning(policy=FIRST, algorithm=ppo),) * 2)
        generator = torch.Generator().manual_seed(1)
        for _ in range(2):
            ((_, rollout),) = collector.collect()
            metrics = ppo.update(rollout, generator=generator)
            assert metrics["gradient/skipped"] == 0.0
        world.env.close()
        weights = ppo.weights()
        name = "core.recurrent.weight_hh_l0"
        assert not torch.equal(weights[name], before[name])
        digests.append(hashlib.sha256(serialize(weights)).hexdigest())
    assert digests[0] == digests[1]
