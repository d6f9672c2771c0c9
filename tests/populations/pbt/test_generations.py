"""What models are told of past generations: not what was measured, but what can be believed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.types import Value
from populations.choices import number_of
from populations.core import Explore, SearchSpace
from populations.pbt.explore import PerturbSettings
from populations.pbt.generations import believable, believed_leads, finished
from populations.pbt.model_based import ModelBased, SamplerKind, _values
from populations.pbt.pb2 import Pb2
from populations.records.rows import GenerationRow
from populations.search_space import parse_search_space
from tests.populations.pbt.histories import generation


def test_believed_rates_by_hand() -> None:
    """Equal variances of 4, rates 0, 6 and 12: Q = 72 / 4, tau^2 = (18 - 2) / (3/4 - 1/4) = 32."""
    believed, reliability = believable(np.array([0.0, 6.0, 12.0]), np.full(3, 2.0))
    assert reliability == pytest.approx(np.full(3, 32 / 36))
    assert believed == pytest.approx(6.0 + 32 / 36 * np.array([-6.0, 0.0, 6.0]))


def test_what_is_all_noise_is_not_believed() -> None:
    believed, reliability = believable(np.array([-1.0, 0.0, 1.0]), np.full(3, 2.0))
    assert reliability == pytest.approx(np.zeros(3))
    assert believed == pytest.approx(np.zeros(3))


def test_the_truth_is_nearer_to_what_is_believed_than_to_what_was_measured() -> None:
    rng = np.random.default_rng(0)
    true = rng.normal(100.0, 50.0, 400)
    deviations = np.exp(rng.uniform(2.0, 8.0, 400))
    measured = true + deviations * rng.normal(size=400)
    believed, _ = believable(measured, deviations)
    assert np.std(believed - true) < 50.0 < 5.0 * 50.0 < np.std(measured - true)


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0.0, 1e6)), min_size=1, max_size=12))
@example(drawn=[(0.0, 1e-160)])
@example(drawn=[(0.0, 1e-160), (1.0, 1.0)])
def test_believed_rates_lie_between_the_measured_ones(drawn: list[tuple[float, float]]) -> None:
    rates, deviations = np.array(drawn).T
    believed, reliability = believable(rates, deviations)
    assert np.isfinite(believed).all()
    slack = 1e-9 * (1.0 + np.abs(rates).max())
    assert (believed >= rates.min() - slack).all()
    assert (believed <= rates.max() + slack).all()
    assert ((reliability >= 0.0) & (reliability <= 1.0)).all()


def test_generations_whose_gain_is_not_known_are_left_out() -> None:
    known = generation({"a": 0.5}, rate=5.0)
    unknown = [
        generation({"a": 0.5}, rate=5.0, deviation=None),
        replace(known, gain_agent_steps=None),
        replace(known, gain_agent_steps=0),
        replace(known, rating_begin=None),
        replace(known, rating_end=math.nan),
        generation({"a": 0.5}, rate=None),
    ]
    assert [one.row for one in finished([*unknown, known])] == [known]


def test_a_rate_is_over_the_steps_between_the_rated_weights() -> None:
    row = replace(
        generation({}, rate=5.0, num_steps=400_000),
        rating_begin=100.0,
        rating_end=150.0,
        gain_agent_steps=250_000,
    )
    (found,) = finished([row])
    assert found.measured == 200.0


def history_of(rates: list[float], deviations: list[float]) -> list[GenerationRow]:
    """One generation after the other, each of a million agent steps."""
    return [
        generation({}, rate=rate, number=k, num_steps=10**6, begin=k * 10**6, deviation=deviation)
        for k, (rate, deviation) in enumerate(zip(rates, deviations, strict=True))
    ]


def test_leads_by_hand() -> None:
    # The rates are on the line 30 - 10 k, changed by 9 so that the line stays by symmetry.
    rates = [30.0 + 9.0, 20.0 - 9.0, 10.0 - 9.0, 0.0 + 9.0]
    # Q = 4 * 81, tau^2 = (324 - 3) / (4 - 1) = 107.
    known = finished(history_of(rates, [1.0] * 4))
    assert believed_leads(known) == pytest.approx(np.array([9.0, -9.0, -9.0, 9.0]) * 107 / 108)


def test_a_rate_that_falls_for_all_is_no_lead() -> None:
    known = finished(history_of([400.0 - 7.0 * k for k in range(30)], [50.0] * 30))
    assert believed_leads(known) == pytest.approx(np.zeros(30), abs=1e-6)


def test_what_is_all_noise_keeps_its_order_and_the_less_exact_is_pulled_more() -> None:
    # Q is 2 * .25 + .0025 for three measurements: below 2, so the estimated variance is 0.
    known = finished(history_of([0.5, 0.0, 0.0, 0.5], [1.0, 1.0, 10.0, 1.0]))
    found = believed_leads(known)
    assert all(one.reliability == 0.0 for one in known)
    assert found[0] > found[1]
    assert found[3] > found[1]
    assert abs(found[2]) < 0.05 * found[0]


@given(
    st.lists(
        st.tuples(st.floats(-1e6, 1e6), st.floats(0.0, 1e6), st.integers(0, 10**9)),
        min_size=1,
        max_size=12,
    )
)
def test_leads_are_finite_whatever_was_measured(drawn: list[tuple[float, float, int]]) -> None:
    known = finished(
        generation({}, rate=rate, number=k, num_steps=10**6, begin=begin, deviation=deviation)
        for k, (rate, deviation, begin) in enumerate(drawn)
    )
    assert np.isfinite(believed_leads(known)).all()


SPACE: SearchSpace = {name: {"low": 0.0, "high": 1.0} for name in ("a", "b")}


def gain(a: Value, b: Value) -> float:
    """Best at (0.7, 0.3), where it is 300; a far corner has none."""
    a, b = number_of(a), number_of(b)
    return 300.0 * math.exp(-8.0 * ((a - 0.7) ** 2 + (b - 0.3) ** 2))


def mean_gain(rule: Explore, history: list[GenerationRow], *, num_seeds: int) -> float:
    """Return the mean gain of what a rule explores after a history."""
    middle = {"a": 0.5, "b": 0.5}
    rngs = [np.random.default_rng(seed) for seed in range(num_seeds)]
    found = [
        rule.explore(middle, SPACE, history=history, agent_steps=10**6, rng=rng) for rng in rngs
    ]
    return float(np.mean([gain(**one.new) for one in found]))


@pytest.mark.parametrize(
    ("rule", "least"),
    [
        (Pb2(fallback=PerturbSettings()), 250.0),
        (ModelBased(sampler="tpe", fallback=PerturbSettings()), 150.0),
        (ModelBased(sampler="cma_es", fallback=PerturbSettings()), 150.0),
    ],
)
def test_a_generation_of_500_steps_ruins_no_model(rule: Explore, least: float) -> None:
    """With its 60,000 Elo per million steps, PB2 went to its corner: a mean gain of 0."""
    rng = np.random.default_rng(0)
    history: list[GenerationRow] = []
    for i in range(40):
        a, b = rng.random(2).tolist()
        noisy = gain(a, b) + float(rng.normal(0.0, 30.0))
        history.append(
            generation(
                {"a": a, "b": b}, rate=noisy, index=i % 8, begin=200_000 * (i // 8), deviation=3.0
            )
        )
    short = generation(
        {"a": 0.0, "b": 1.0}, rate=60_000.0, number=9, num_steps=500, begin=10**6, deviation=40.0
    )
    assert short.rating_end == 30.0
    assert mean_gain(rule, [*history, short], num_seeds=3) > least


@pytest.mark.parametrize("sampler", ["tpe", "cma_es", pytest.param("gp", marks=pytest.mark.slow)])
def test_early_generations_are_no_better_for_being_early(sampler: SamplerKind) -> None:
    """All rates fall by 60 a round, and the first rounds know only the far corner."""
    rng = np.random.default_rng(1)
    history: list[GenerationRow] = []
    for i in range(80):
        place, low = rng.random(2), (0.0, 0.6) if i < 24 else (0.0, 0.0)
        a, b = (np.array(low) + (0.4 if i < 24 else 1.0) * place).tolist()
        rate = 0.3 * gain(a, b) - 60.0 * (i // 8) + float(rng.normal(0.0, 10.0))
        history.append(
            generation(
                {"a": a, "b": b}, rate=rate, index=i % 8, begin=100_000 * (i // 8), deviation=1.0
            )
        )
    rule = ModelBased(sampler=sampler, fallback=PerturbSettings())
    assert mean_gain(rule, history, num_seeds=6) > 150.0


def test_a_gaussian_process_is_told_what_neighbours_say_and_not_the_luckiest() -> None:
    """Noise three times as wide as the truth, as in leagues: one value says next to nothing."""
    rng = np.random.default_rng(2)
    places = rng.random((200, 2))
    truth = np.array([gain(a, b) for a, b in places.tolist()])
    noise = 3.0 * float(np.std(truth))
    history = [
        generation(
            {"a": a, "b": b},
            rate=rate + noise * float(rng.normal()),
            index=k % 8,
            number=k,
            num_steps=10**6,
            begin=10**6 * (k // 8),
            deviation=noise,
        )
        for k, ((a, b), rate) in enumerate(zip(places.tolist(), truth.tolist(), strict=True))
    ]
    known = finished(history)
    dimensions = parse_search_space(SPACE, start={"a": 0.5, "b": 0.5})
    told = _values("gp", [(one.row.hyperparameters, one) for one in known], dimensions)
    assert np.corrcoef(believed_leads(known), truth)[0, 1] < 0.5
    assert np.corrcoef(told, truth)[0, 1] > 0.75
