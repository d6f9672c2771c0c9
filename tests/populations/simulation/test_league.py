"""A small simulated league: what the figures must be, and that it is the same each time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict, Unpack

import numpy as np
import pytest
from scipy.stats import spearmanr

from arena.types import Player, PlayerId
from arena.wire.messages import Train
from populations.config.run_config import load_config
from populations.simulation.environment import NUM_LEARNERS, simulated_config, simulated_run
from populations.simulation.league import (
    Outcome,
    default_model,
    simulate,
    spearman,
    total_agent_steps,
)
from populations.simulation.planted import PlantedModel, Weights
from populations.simulation.world import make_world, start

SHORT = ("stop.agent_steps_per_policy=600000", "pbt.warm_up_agent_steps=200000")


def simulated(*overrides: str, num_policies: int = 12, draw_rate: float = 0.0) -> Outcome:
    config = simulated_config(load_config("default", overrides), num_policies=num_policies)
    model = replace(default_model(config), draw_rate=draw_rate)
    return simulate(config, model=model)


@pytest.mark.slow
def test_ratings_follow_the_planted_skills() -> None:
    outcome = simulated(*SHORT, "pbt.exploit=none", num_policies=16)
    assert outcome.spearman is not None
    assert outcome.spearman > 0.9
    assert outcome.num_round_robin_matches == 16 * 15
    assert 0 < outcome.num_final_matches <= outcome.num_matches
    assert outcome.exploits == ()
    assert 100.0 < outcome.skill_deviation < 350.0


@pytest.mark.slow
def test_gated_copies_are_seldom_of_a_worse_donor() -> None:
    settings = (
        *SHORT,
        "stop.agent_steps_per_policy=1500000",
        "pbt.min_rating_gap=0",
        "pbt.min_matches=20",
    )
    gated = simulated(*settings, "pbt.confidence=0.9", num_policies=16)
    assert len(gated.exploits) > 5
    assert gated.num_wrong_exploits <= 0.3 * len(gated.exploits)
    assert all(gap is not None and gap > 0.0 for gap, _ in gated.exploits)


@pytest.mark.slow
def test_the_same_configuration_gives_the_same_outcome() -> None:
    assert simulated(*SHORT, "seed=7") == simulated(*SHORT, "seed=7")
    assert simulated(*SHORT, "seed=7") != simulated(*SHORT, "seed=8")


@pytest.mark.slow
def test_the_curve_of_the_best_skill_goes_up_to_the_end_of_training() -> None:
    curve = simulated(*SHORT).best_skill
    steps = [agent_steps for agent_steps, _ in curve]
    assert steps == sorted(steps)
    assert steps[0] == 0
    assert steps[-1] >= 12 * 600_000
    assert curve[0][1] == 0.0
    assert curve[-1][1] > 700.0


def test_progress_is_told_until_all_is_done() -> None:
    config = simulated_config(load_config("default", SHORT), num_policies=3)
    told: list[float] = []
    simulate(config, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_progress_is_told_of_those_that_stay() -> None:
    # The one that leaves first is ahead of the others, and the last steps are few.
    changes = ("pbt.share=halving", "learners=2", "pbt.ready_agent_steps=30000")
    limits = ("pbt.warm_up_agent_steps=60000", "stop.agent_steps_per_policy=610001")
    config = simulated_config(load_config("default", (*SHORT, *changes, *limits)), num_policies=5)
    told: list[float] = []
    outcome = simulate(config, progress=told.append)
    assert outcome.num_retired == 3
    assert told == sorted(told)
    assert told[-1] == 1.0
    # No end comes from nowhere: an assignment has a twelfth of a policy's steps at most.
    assert max(one - other for one, other in zip(told[1:], told, strict=False)) < 0.1


@pytest.mark.parametrize("preset", ["connect_four", "simple_spread", "simple_tag"])
def test_every_kind_of_preset_can_be_simulated(preset: str) -> None:
    config = simulated_config(load_config(preset), num_policies=2)
    assert config.stop.duration_s is None
    assert config.learners == min(NUM_LEARNERS, 2 * len(config.populations))
    short = config.model_copy(
        update={"stop": config.stop.model_copy(update={"agent_steps_per_policy": 300_000})}
    )
    outcome = simulate(short)
    assert outcome.num_policies == 2 * len(config.populations)
    assert outcome.num_matches > 0
    assert total_agent_steps(short) == 300_000 * outcome.num_policies


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording(PlantedModel):
    """A truth that remembers the opponents that weights were trained against."""

    seen: list[Sequence[Weights]] = field(default_factory=list)

    def trained(self, weights: Weights, **words: Unpack[TrainedWords]) -> Weights:
        self.seen.append(words["opponents"])
        return PlantedModel.trained(self, weights, **words)


class TrainedWords(TypedDict):
    """Arguments of `PlantedModel.trained`."""

    agent_steps: int
    speed: float
    opponents: Sequence[Weights]
    rng: np.random.Generator


def test_rivals_that_learn_at_once_are_trained_by_their_own_seatings() -> None:
    overrides = ("matchmaking.rivals=learning", "stop.agent_steps_per_policy=300000")
    config = simulated_config(load_config("simple_tag", overrides))
    model = Recording(ceiling=default_model(config).ceiling)
    world = make_world(simulated_run(config), model)
    start(world)
    compared = 0
    while world.advance():
        for queue in world.given.values():
            for message in queue:
                if not isinstance(message, Train) or len(message.trainees) < 2:
                    continue
                before: dict[str, Weights] = {
                    trainee.policy: replace(model.bot("x"), skill=float(1000 + index))
                    for index, trainee in enumerate(message.trainees)
                }
                for index, trainee in enumerate(message.trainees):
                    model.seen.clear()
                    rng = np.random.default_rng(1)
                    world.learner.improved(message, trainee, before, rng)
                    # The first seat is the first population's.
                    others = [
                        seating.players[1 - index]
                        for seating in message.opponents
                        if seating.players[index] == Player(player=PlayerId(trainee.policy))
                    ]
                    assert model.seen == [[world.learner._weights(p, before) for p in others]]
                    compared += 1
    assert compared > 20
    assert world.state.tables.run.state == "finished"


@pytest.mark.parametrize("seed", range(5))
def test_spearman_is_scipys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 8, size=20).astype(np.float64)
    second = first + rng.integers(0, 8, size=20)
    assert spearman(first, second) == pytest.approx(spearmanr(first, second).statistic)


def test_spearman_of_equal_values_is_unknown() -> None:
    assert spearman(np.ones(3), np.arange(3.0)) is None
