"""A small simulated league: what the figures must be, and that it is the same each time."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from typing import TypedDict, Unpack

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from arena.types import RANDOM_BOT, Player, PlayerId
from arena.wire.messages import Train
from experiments.planted_league.coverage import clustered, league_error, main
from populations.config.run_config import load_config
from populations.controller.evaluation.finals import longest_s
from populations.records.aggregates import Row
from populations.records.rows import EventRow
from populations.search_space import parse_search_space
from populations.simulation.environment import NUM_LEARNERS, simulated_config, simulated_run
from populations.simulation.league import (
    Outcome,
    default_model,
    simulate,
    spearman,
    total_agent_steps,
)
from populations.simulation.planted import (
    BEST_LEARNING_RATE,
    NUM_KINDS,
    PlantedModel,
    Weights,
    expected_score,
    make_landscape,
    place,
    unit,
)
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


def test_progress_is_told_of_those_that_stay() -> None:
    # The first policy to leave is ahead of the others, and the last steps are few.
    changes = ("pbt.share=halving", "learners=2", "pbt.ready_agent_steps=30000")
    limits = ("pbt.warm_up_agent_steps=60000", "stop.agent_steps_per_policy=610001")
    config = simulated_config(load_config("default", (*SHORT, *changes, *limits)), num_policies=5)
    told: list[float] = []
    outcome = simulate(config, progress=told.append)
    assert outcome.num_retired == 3
    assert told == sorted(told)
    assert told[-1] == 1.0
    # The end is announced in time: an assignment has at most a twelfth of a policy's steps.
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


MOST = 1.2
"""Time that finals take, over the time that is said."""


def asked_and_taken(
    *, num_learners: int, matches_per_s: float, num_policies: int, agent_steps: int
) -> tuple[float, float, bool]:
    """Return the most seconds of finals as said, those taken, and whether time ended them."""
    changes = (
        *(f"stop.agent_steps_per_policy={agent_steps}", f"learners={num_learners}", "seed=1"),
        *("pbt.share=even", "pbt.warm_up_agent_steps=1000000", "pbt.ready_agent_steps=500000"),
    )
    config = simulated_config(load_config("connect_four", changes), num_policies=num_policies)
    world = make_world(simulated_run(config), default_model(config), matches_per_s=matches_per_s)
    stopped = False

    def watch(rows: Sequence[Row]) -> None:
        nonlocal stopped
        stopped |= any(isinstance(row, EventRow) and row.kind == "finals_stopped" for row in rows)

    world.watch = watch
    start(world)
    begin_s = 0.0
    while world.advance():
        rows = world.state.tables.assignments.values()
        if world.state.phase.name == "training" or any(row.kind == "train" for row in rows):
            begin_s = world.now_s
    training_s = world.state.tables.run.training_s
    asked_s = longest_s(training_s=training_s, num_learners=num_learners)
    return asked_s, world.now_s - begin_s, stopped


SLOW, LONG, FAST = 0.5, 4.0, 60.0
"""Matches of a learner in a second. Of the slowest, evaluation in training can have taken more than
its share, which finals have less."""


@pytest.mark.parametrize(
    ("num_learners", "matches_per_s", "num_policies", "agent_steps"),
    [
        (1, LONG, 3, 400_000),
        (3, LONG, 3, 400_000),
        (3, SLOW, 3, 400_000),
        *(
            pytest.param(*regime, 1_000_000, marks=pytest.mark.slow)
            for regime in (
                (1, FAST, 4), (3, FAST, 4), (1, FAST, 12), (3, FAST, 12),
                (1, LONG, 12), (3, LONG, 12), (1, SLOW, 12), (3, SLOW, 12),
            )
        ),
    ],
)  # fmt: skip
def test_finals_keep_the_time_that_is_said(
    num_learners: int, matches_per_s: float, num_policies: int, agent_steps: int
) -> None:
    asked_s, taken_s, stopped = asked_and_taken(
        num_learners=num_learners,
        matches_per_s=matches_per_s,
        num_policies=num_policies,
        agent_steps=agent_steps,
    )
    assert 0.0 < taken_s <= MOST * asked_s
    # A short time limit must not be met by playing nothing.
    assert matches_per_s != LONG or (stopped and taken_s >= 0.8 * asked_s)


@pytest.mark.slow
def test_intervals_of_whole_leagues_hold_the_truth() -> None:
    # With a prior that expects no gain of children these held 50 to 60%, at a bias of -90 Elo.
    leagues = [league_error(16, seed=seed) for seed in (100, 101, 102)]
    assert np.mean([league.ratings for league in leagues]) >= 0.85
    assert np.mean([league.differences for league in leagues]) >= 0.85
    assert abs(np.mean([league.bias for league in leagues])) < 60.0
    assert max(league.misfit for league in leagues) < 4.0


@pytest.mark.slow
def test_intervals_hold_the_truth_where_two_populations_leave_many_ghosts() -> None:
    # With a prior of equal width for each step, however short, none of these intervals held the
    # truth, at biases of 270 and 290 Elo: the fit believed each copy of a lucky policy, 50 times in
    # a line.
    overrides = (
        "ghosts.keep=null",
        "ghosts.every_agent_steps=40000",
        "pbt.min_matches=60",
        "pbt.min_rating_gap=30",
        "evaluation.share=0.1",
    )
    leagues = [
        league_error(4, seed=seed, preset="simple_tag", overrides=overrides) for seed in (12, 13)
    ]
    assert np.mean([league.ratings for league in leagues]) >= 0.85
    assert np.mean([league.ghosts for league in leagues]) >= 0.9
    assert abs(np.mean([league.bias for league in leagues])) < 100.0


def test_the_experiment_prints_a_document_per_size(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--policies", "2", "--leagues", "2", "--draw-rate", "0.2", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["policies"] == document["leagues"] == 2
    assert 0.0 <= document["differences"][0] <= 1.0


def test_the_unit_is_the_league() -> None:
    # The deviation of 0, 1, 1, 0 is sqrt(1/3); the half width is 1.96 / sqrt(4) times that.
    mean, half = clustered([0.0, 1.0, 1.0, 0.0])
    assert mean == 0.5
    assert half == pytest.approx(0.98 * np.sqrt(1 / 3), abs=1e-3)


EVEN = Weights(skill=500.0, potential=0.0, kind=0)


def test_potentials_are_normal_with_the_spread() -> None:
    rng = np.random.default_rng(1)
    model = PlantedModel()
    potentials = [model.fresh(rng).potential for _ in range(20_000)]
    assert np.mean(potentials) == pytest.approx(0.0, abs=5.0)
    assert np.std(potentials) == pytest.approx(200.0, rel=0.02)


def test_a_copy_has_the_donors_skill_and_a_potential_of_the_same_spread() -> None:
    rng = np.random.default_rng(1)
    model = PlantedModel()
    pairs = [(donor := model.fresh(rng), model.copied(donor, rng)) for _ in range(20_000)]
    assert all(copy.skill == donor.skill and copy.kind == donor.kind for donor, copy in pairs)
    potentials = np.array([(donor.potential, copy.potential) for donor, copy in pairs])
    assert potentials[:, 1].std() == pytest.approx(200.0, rel=0.02)
    assert np.corrcoef(potentials.T)[0, 1] == pytest.approx(0.7, abs=0.02)


def test_the_cyclic_part_has_its_share_of_the_variance_and_goes_round() -> None:
    model = PlantedModel(cyclic_share=1.0 / 3.0)
    kinds = [Weights(skill=0.0, potential=0.0, kind=kind) for kind in range(NUM_KINDS)]
    ahead = {(a.kind, b.kind): model.advantage(a, b) for a, b in product(kinds, kinds)}
    assert ahead[1, 0] == ahead[2, 1] == ahead[0, 2] == -ahead[0, 1] > 0.0
    variance = np.mean([value**2 for value in ahead.values()])
    assert variance == pytest.approx(2.0 * model.spread**2 / 3.0)


def test_four_hundred_points_are_odds_of_ten_to_one() -> None:
    assert expected_score(400.0) == pytest.approx(10.0 / 11.0)
    assert expected_score(1e9) + expected_score(-1e9) == pytest.approx(1.0)


@pytest.mark.parametrize(("draw_rate", "top"), [(0.0, None), (0.3, None), (0.1, 0.9)])
def test_draws_do_not_change_the_expected_score(draw_rate: float, top: float | None) -> None:
    model = PlantedModel(draw_rate=draw_rate, top_draw_rate=top, seat_advantage=100.0)
    strong = Weights(skill=600.0, potential=0.0, kind=0)
    rng = np.random.default_rng(2)
    wins, draws, losses = model.play(strong, EVEN, num_matches=200_000, rng=rng)
    assert wins + draws + losses == 200_000
    # 100 points of skill and 100 of the seat: 1 / (1 + 10^(-1/2)) = 0.7597.
    assert (wins + 0.5 * draws) / 200_000 == pytest.approx(0.7597, abs=0.005)
    # The draw rate is twice that of equals times 0.2403; with a top, at 0.55 of the way from 0.1 to
    # 0.9.
    rate = draw_rate if top is None else 0.1 + 0.55 * 0.8
    assert draws / 200_000 == pytest.approx(2.0 * rate * 0.2403, abs=0.005)


def test_a_pair_has_an_effect_of_its_own_that_turns_with_it() -> None:
    model = PlantedModel(pair_deviation=100.0)
    rng = np.random.default_rng(0)
    many = [model.fresh(rng) for _ in range(60)]
    effects = [model.advantage(a, b) for i, a in enumerate(many) for b in many[:i]]
    assert np.std(effects) == pytest.approx(100.0, rel=0.1)
    assert model.advantage(many[0], many[1]) == -model.advantage(many[1], many[0])
    trained = replace(many[0], skill=50.0)
    assert model.advantage(trained, many[1]) == 50.0 + model.advantage(many[0], many[1])
    assert model.advantage(trained, many[0]) == 50.0


def test_whoever_trained_longer_is_ahead_by_the_same_whatever_lies_between() -> None:
    model = PlantedModel(recency=80.0)
    rng = np.random.default_rng(0)
    trained = [EVEN]
    for agent_steps in (400_000, 100_000, 3_000_000):
        trained.append(
            model.trained(trained[-1], agent_steps=agent_steps, speed=0.0, opponents=[], rng=rng)
        )
    trained = [replace(one, skill=0.0) for one in trained]
    found = [model.difference(one, two) for one, two in pairwise(reversed(trained))]
    assert found == pytest.approx([80.0, 80.0 * np.tanh(1.0), 80.0 * np.tanh(4.0)], abs=1e-6)
    assert model.difference(trained[0], trained[3]) == pytest.approx(-80.0)
    assert model.advantage(trained[3], model.bot(RANDOM_BOT)) == pytest.approx(80.0)


def test_learning_comes_near_the_ceiling_and_two_halves_are_a_whole() -> None:
    model = PlantedModel(noise=0.0, learning_agent_steps=1000.0)
    rng = np.random.default_rng(0)
    weights = Weights(skill=0.0, potential=-100.0, kind=0)
    once = model.trained(weights, agent_steps=1000, speed=1.0, opponents=[weights], rng=rng)
    assert once.skill == pytest.approx(900.0 * (1.0 - math.exp(-1.0)))
    half = model.trained(weights, agent_steps=500, speed=1.0, opponents=[weights], rng=rng)
    whole = model.trained(half, agent_steps=500, speed=1.0, opponents=[half], rng=rng)
    assert whole.skill == pytest.approx(once.skill)
    slow = model.trained(weights, agent_steps=1000, speed=0.1, opponents=[weights], rng=rng)
    assert 0.0 < slow.skill < once.skill


def test_hopeless_opponents_teach_less() -> None:
    model = PlantedModel(noise=0.0)
    rng = np.random.default_rng(0)
    hopeless = Weights(skill=-5000.0, potential=0.0, kind=0)
    gains = [
        model.trained(EVEN, agent_steps=1000, speed=1.0, opponents=[other], rng=rng).skill - 500.0
        for other in (EVEN, hopeless)
    ]
    assert gains[1] == pytest.approx(gains[0] / 2.0, rel=1e-3)


def test_learning_is_fastest_at_the_best_learning_rate() -> None:
    space = {"learning_rate": {"low": 1e-5, "high": 1e-2, "log": True}}
    landscape = make_landscape(space, start={"learning_rate": 1e-3}, width=0.25)
    best = 10.0 ** (-5.0 + 3.0 * BEST_LEARNING_RATE)
    assert landscape.speed({"learning_rate": best}) == pytest.approx(1.0)
    aside = 10.0 ** (-5.0 + 3.0 * (BEST_LEARNING_RATE - 0.25))
    assert landscape.speed({"learning_rate": aside}) == pytest.approx(math.exp(-0.5))
    assert make_landscape({}, start={}, width=0.25).speed({}) == 1.0


@given(value=st.floats(allow_nan=True, allow_infinity=True))
def test_the_place_in_a_range_is_always_in_it(value: float) -> None:
    space = {"gamma": {"low": 0.9, "high": 0.9999, "complement": True}}
    (dimension,) = parse_search_space(space, start={"gamma": 0.99}).values()
    assert 0.0 <= unit(dimension, value) <= 1.0


@given(name=st.text(max_size=20))
def test_a_name_has_its_place(name: str) -> None:
    assert 0.2 <= place(name) < 0.8
    assert place(name) == place(name)
