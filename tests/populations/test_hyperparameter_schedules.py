"""Schedules of hyperparameters: values by hand, what is refused, factors and bounds."""

from __future__ import annotations

import math

import pytest

from arena.errors import ConfigError
from populations.config.resolve import resolve_config
from populations.config.run_config import RunConfig, load_config, validate_config
from populations.hyperparameter_schedules import ScheduledValues, parse_schedules, start_values
from populations.yaml_documents import read_document
from tests.populations.controller.simulated import duel_spec

LINEAR = {"linear": [1.0e-3, 1.0e-5], "over_agent_steps": 1000}


def resolved(hyperparameters: dict[str, object], **population: object) -> RunConfig:
    own = {"hyperparameters": hyperparameters, **population}
    document = {"environment": {"id": "tests.duel:env"}, "populations": {"player": own}}
    return resolve_config(validate_config(document), duel_spec(), num_cores=2)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (LINEAR, {0: 1e-3, 500: 5.05e-4, 1000: 1e-5, 5000: 1e-5}),
        # b + (a - b) (1 + cos(pi t / N)) / 2
        ({"cosine": [1.0, 0.0], "over_agent_steps": 100},
         {0: 1.0, 25: (1 + math.sqrt(0.5)) / 2, 50: 0.5, 100: 0.0, 101: 0.0}),
        ({"steps": {"0": 1.0, "2e3": 0.5, "3000": 2}},
         {0: 1.0, 1999: 1.0, 2000: 0.5, 2999: 0.5, 3000: 2, 10**9: 2}),
    ],
)  # fmt: skip
def test_values_are_those_of_the_formula(
    written: dict[str, object], expected: dict[int, float]
) -> None:
    schedule = parse_schedules({"x": written})["x"]
    for agent_steps, value in expected.items():
        assert schedule.at(agent_steps) == pytest.approx(value, rel=1e-12, abs=1e-15)
    # Exact at both ends.
    assert (schedule.at(0), schedule.at(10**12)) == (expected[0], expected[max(expected)])


def test_steps_have_marks_and_curves_none() -> None:
    found = parse_schedules({"x": {"steps": {"0": 1.0, "20": 2.0}}, "y": LINEAR})
    assert [found["x"].next_mark(at) for at in (0, 19, 20)] == [20, 20, None]
    assert found["y"].next_mark(0) is None
    assert ScheduledValues(schedules=found).next_mark(5) == 20
    assert ScheduledValues(schedules=found).next_mark(20) is None


def test_a_document_has_counts_as_keys_only_where_a_schedule_has_steps() -> None:
    text = "{learning_rate: {steps: {0: 1.0e-3, 2e6: 1.0e-4}}}"
    schedule = parse_schedules(read_document(text, name="x"))["learning_rate"]  # type: ignore[arg-type]
    assert [schedule.at(at) for at in (0, 1_999_999, 2_000_000)] == [1e-3, 1e-3, 1e-4]
    for refused in ("{other: {0: 1}}", "{steps: {0: {1: 2}}}", "{steps: {true: 1}}"):
        with pytest.raises(ConfigError, match="a key must be text"):
            read_document(refused, name="x")
    with pytest.raises(ConfigError, match="the key '0' is there twice"):
        read_document("{steps: {0: 1, 0: 2}}", name="x")


@pytest.mark.parametrize(
    ("name", "written", "message"),
    [
        ("learning_rate", {"linear": [1.0]}, "must be a value or a schedule"),
        ("learning_rate", {"quadratic": [1, 2], "over_agent_steps": 5},
         "must be a value or a schedule, {linear: [a, b], over_agent_steps: N}"),
        ("learning_rate", {**LINEAR, "linear": [1e-3]},
         "learning_rate.linear: must be a list of two numbers, got [0.001]"),
        ("learning_rate", {**LINEAR, "over_agent_steps": 0.5},
         "learning_rate.over_agent_steps: must be a whole number from 1 to 1000000000000000, "
         "got 0.5"),
        ("learning_rate", {**LINEAR, "linear": [1e-3, "small"]}, "must be a finite number"),
        ("learning_rate", {**LINEAR, "linear": [1e-3, 0.0]},
         "learning_rate: must be greater than 0"),
        ("learning_rate", {"steps": {"5": 1e-3}}, "agent steps must rise from 0, got [5]"),
        ("learning_rate", {"steps": {"0": 1e-3, "2e3": 1e-4, "2000": 1e-5}},
         "agent steps must rise from 0, got [0, 2000, 2000]"),
        ("learning_rate", {"steps": {"0": 1e-3, "1.5": 1e-4}}, "must be whole numbers from 0"),
        ("learning_rate", {"steps": {}}, "must give values by agent steps"),
        ("num_epochs", {"linear": [4, 1], "over_agent_steps": 100},
         "num_epochs: an integer must have steps, {steps: {0: a, N: b}}"),
        ("num_epochs", {"steps": {"0": 4, "100": 1.5}}, "must be whole numbers, got 1.5"),
        ("learning_rat", LINEAR, "did you mean 'learning_rate'"),
    ],
)  # fmt: skip
def test_a_schedule_that_is_none_is_refused_with_rule_and_value(
    name: str, written: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as error_info:
        resolved({name: written})
    assert f"populations.player.hyperparameters.{name}" in str(error_info.value)
    assert message in str(error_info.value)


def test_choices_of_a_scheduled_hyperparameter_are_refused() -> None:
    space = {"learning_rate": {"choices": [1e-3, 1e-4]}}
    with pytest.raises(ConfigError, match=r"search_space\.learning_rate: must be {low, high}"):
        resolved({"learning_rate": LINEAR}, search_space=space)


def test_a_recorded_schedule_and_schedules_of_values_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match=r"player\.schedule: must be empty where"):
        resolved({"learning_rate": LINEAR}, size=1, schedule=[{"agent_steps": 0}])


def test_run_yaml_has_one_form_and_resolving_it_changes_nothing() -> None:
    config = resolved({"gamma": {"steps": {"0": 1, "2e2": 0.5}}, "num_epochs": 3})
    written = config.populations["player"].hyperparameters
    assert written["gamma"] == {"steps": {"0": 1.0, "200": 0.5}}
    assert (written["num_epochs"], written["learning_rate"]) == (3, 3e-4)
    document = config.model_dump(mode="json")
    assert resolve_config(validate_config(document), duel_spec(), num_cores=2) == config
    assert config.populations["player"].start_values["gamma"] == 1.0


def test_start_values_are_those_of_no_steps() -> None:
    written = {"a": 2, "b": {"steps": {"0": 3, "5": 4}}, "c": None}
    assert start_values(written) == {"a": 2, "b": 3}


SPACE: dict[str, dict[str, object]] = {
    "learning_rate": {"low": 1e-4, "high": 2e-3, "log": True},
    "gamma": {"low": 0.9, "high": 0.999, "complement": True},
    "num_epochs": {"low": 1, "high": 8},
}


def values_of(**hyperparameters: object) -> ScheduledValues:
    return ScheduledValues.of(hyperparameters, SPACE)


def test_the_factor_moves_the_value_and_bounds_hold_for_the_value() -> None:
    scheduled = values_of(learning_rate=LINEAR)
    new, factors = scheduled.explored(
        {"learning_rate": 1.5e-3}, old={"learning_rate": 1e-3}, factors={"learning_rate": 1.0},
        agent_steps=0,
    )  # fmt: skip
    assert factors == {"learning_rate": pytest.approx(1.5)}
    assert new == {"learning_rate": pytest.approx(1.5e-3)}
    later = scheduled.values(new, factors=factors, agent_steps=500)
    assert later == {"learning_rate": pytest.approx(1.5 * 5.05e-4)}
    # 1.5e-5 is below the bounds; with a factor of 1 the schedule's own value holds.
    assert scheduled.values(new, factors=factors, agent_steps=1000) == {"learning_rate": 1e-4}
    untouched = scheduled.values(new, factors={"learning_rate": 1.0}, agent_steps=1000)
    assert untouched == {"learning_rate": 1e-5}


def test_a_value_that_is_kept_keeps_its_factor() -> None:
    scheduled, old = values_of(learning_rate=LINEAR), {"learning_rate": 1e-5}
    new, factors = scheduled.explored(
        old, old=old, factors={"learning_rate": 1.0}, agent_steps=1000
    )
    assert (new, factors) == (old, {"learning_rate": 1.0})


def test_with_complement_the_factor_is_of_one_minus_x() -> None:
    scheduled = values_of(gamma={"linear": [0.9, 0.99], "over_agent_steps": 100})
    new, factors = scheduled.explored(
        {"gamma": 0.95}, old={"gamma": 0.9}, factors={"gamma": 1.0}, agent_steps=0
    )
    assert factors == {"gamma": pytest.approx(0.5)}
    assert scheduled.values(new, factors=factors, agent_steps=100)["gamma"] == pytest.approx(0.995)


def test_integers_stay_integers() -> None:
    scheduled = values_of(num_epochs={"steps": {"0": 4, "100": 1}})
    new, factors = scheduled.explored(
        {"num_epochs": 5}, old={"num_epochs": 4}, factors={"num_epochs": 1.0}, agent_steps=0
    )
    assert (new, factors) == ({"num_epochs": 5}, {"num_epochs": 1.25})
    later = scheduled.values(new, factors=factors, agent_steps=100)["num_epochs"]
    assert (later, type(later)) == (1, int)


def test_from_a_schedule_at_zero_no_factor_leads_away() -> None:
    scheduled = ScheduledValues.of(
        {"entropy_coef": {"linear": [0.1, 0.0], "over_agent_steps": 10}},
        {"entropy_coef": {"low": 0.001, "high": 1.0}},
    )
    new, factors = scheduled.explored(
        {"entropy_coef": 0.5}, old={"entropy_coef": 0.0}, factors={"entropy_coef": 2.0},
        agent_steps=10,
    )  # fmt: skip
    assert (new, factors) == ({"entropy_coef": 0.001}, {"entropy_coef": 2.0})


def test_without_schedules_nothing_changes() -> None:
    scheduled = values_of(learning_rate=1e-3)
    assert scheduled.first_factors == {}
    new = {"learning_rate": 5.0}
    assert scheduled.explored(new, old={}, factors={}, agent_steps=7) == (new, {})


@pytest.mark.parametrize(("preset", "stair"), [("kuhn_poker", 800_000), ("leduc_poker", 1_200_000)])
def test_the_poker_presets_have_the_rates_of_their_former_stairs(preset: str, stair: int) -> None:
    written = load_config(preset).populations["player"].hyperparameters
    rate = parse_schedules(written)["learning_rate"]
    for step in range(10):
        assert rate.at(step * stair) == pytest.approx(1e-3 - step * 1e-4, rel=1e-9)
    assert rate.at(10 * stair) == 1e-5
