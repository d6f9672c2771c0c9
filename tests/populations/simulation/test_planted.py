"""The planted truth: variances, probabilities and learning, against formulas and enumeration."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.types import RANDOM_BOT
from populations.search_space import parse_search_space
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
    # Twice the rate of equals times 0.2403; with a top, at 0.55 of the way from 0.1 to 0.9.
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
