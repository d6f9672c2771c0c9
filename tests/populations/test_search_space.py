from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Mapping

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from scipy import stats

from arena.errors import ConfigError
from arena.learning.hyperparameters import PpoHyperparameters, coerce_hyperparameters
from arena.types import Hyperparameters
from populations.choices import Categories, figures, kinds, number_of, parse_categories
from populations.config.resolve import resolve_config
from populations.config.run_config import RunConfig, load_config, validate_config
from populations.core import SearchSpace
from populations.hyperparameter_schedules import ScheduledValues, parse_schedules, start_values
from populations.search_space import (
    Choices,
    Range,
    optuna_distributions,
    parse_search_space,
    validate_search_space,
)
from populations.yaml_documents import read_document
from tests.populations.controller.simulated import duel_spec

START = coerce_hyperparameters(PpoHyperparameters, {})
NAMES = tuple(PpoHyperparameters.model_fields)

SPACE: SearchSpace = {
    "learning_rate": {"low": 1e-5, "high": 3e-3, "log": True},
    "entropy_coef": {"low": 0, "high": 1},
    "gamma": {"low": 0.9, "high": 0.9999, "complement": True, "log": True},
    "gae_lambda": {"low": 0.8, "high": 0.99, "complement": True},
    "clip_coef": {"low": 0.1, "high": 0.35, "step": 0.1},
    "num_epochs": {"low": 1, "high": 10},
    "num_minibatches": {"low": 1, "high": 64, "log": True},
    "rollout_length": {"low": 16, "high": 70, "step": 16},
    "max_grad_norm": {"choices": [0.1, 0.5, 2.0]},
}


def test_what_is_integral_is_decided_by_the_hyperparameter() -> None:
    dimensions = parse_search_space(SPACE, start=START)
    integral = {name for name, dim in dimensions.items() if isinstance(dim, Range) and dim.integral}
    assert integral == {"num_epochs", "num_minibatches", "rollout_length"}
    # The bound 1 of entropy_coef does not make it a choice of 0 and 1.
    rng = np.random.default_rng(0)
    assert 0.0 < number_of(dimensions["entropy_coef"].sample(rng)) < 1.0
    # Without a start value the type of the bounds decides.
    unknown = parse_search_space(
        {"a": {"low": 1, "high": 3}, "b": {"low": 1.0, "high": 3}}, start={}
    )
    assert unknown == {
        "a": Range(low=1, high=3, step=1, integral=True),
        "b": Range(low=1.0, high=3),
    }


def test_bounds_end_where_the_steps_do() -> None:
    dimensions = parse_search_space(SPACE, start=START)
    clip_coef, rollout_length = dimensions["clip_coef"], dimensions["rollout_length"]
    assert isinstance(clip_coef, Range)
    assert isinstance(rollout_length, Range)
    assert clip_coef.high == pytest.approx(0.3)
    assert rollout_length.high == 64
    assert clip_coef.fit(0.26) == pytest.approx(0.3)
    assert clip_coef.fit(9.0) == clip_coef.high


def test_distributions_are_optunas() -> None:
    distributions = optuna_distributions(parse_search_space(SPACE, start=START))
    assert distributions == {
        "learning_rate": FloatDistribution(1e-5, 3e-3, log=True),
        "entropy_coef": FloatDistribution(0.0, 1.0),
        "gamma": FloatDistribution(0.0001, 0.1, log=True),
        "gae_lambda": FloatDistribution(0.01, 0.2),
        "clip_coef": FloatDistribution(0.1, 0.3, step=0.1),
        "num_epochs": IntDistribution(1, 10),
        "num_minibatches": IntDistribution(1, 64, log=True),
        "rollout_length": IntDistribution(16, 64, step=16),
        "max_grad_norm": CategoricalDistribution((0.1, 0.5, 2.0)),
    }


@pytest.mark.parametrize("name", SPACE)
def test_samples_are_distributed_as_optunas(name: str) -> None:
    size = 2000
    dimension = parse_search_space(SPACE, start=START)[name]
    rng = np.random.default_rng(5)
    ours = np.array([dimension.sample(rng) for _ in range(size)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=6))
        distributions = {name: optuna_distributions(parse_search_space(SPACE, start=START))[name]}
        theirs = np.array([study.ask(distributions).params[name] for _ in range(size)])
    if isinstance(dimension, Range) and dimension.complement:
        theirs = 1.0 - theirs
    if isinstance(dimension, Range) and not dimension.integral and dimension.step is None:
        assert stats.ks_2samp(ours, theirs).pvalue > 0.001
    else:
        values = sorted({*ours.round(9), *theirs.round(9)})
        table = [[int(np.sum(np.isclose(drawn, v))) for v in values] for drawn in (ours, theirs)]
        assert stats.chi2_contingency(table).pvalue > 0.001
    if isinstance(dimension, Range):
        assert ours.min() >= dimension.low
        assert ours.max() <= dimension.high


def test_log_uniform_against_its_formula() -> None:
    dimension = parse_search_space(SPACE, start=START)["learning_rate"]
    rng = np.random.default_rng(1)
    drawn = np.log([dimension.sample(rng) for _ in range(3000)])
    low, high = math.log(1e-5), math.log(3e-3)
    assert stats.kstest(drawn, stats.uniform(low, high - low).cdf).pvalue > 0.001


def test_types_stay() -> None:
    rng = np.random.default_rng(2)
    for name, dimension in parse_search_space(SPACE, start=START).items():
        assert type(dimension.sample(rng)) is type(START[name])
        assert type(dimension.perturb(START[name], factor=1.2, rng=rng)) is type(START[name])


@pytest.mark.parametrize(
    ("entry", "start", "up", "down"),
    [
        ({"low": 0.0, "high": 0.5}, 0.0, 0.005, 0.0),
        ({"low": -1.0, "high": 1.0}, 0.0, 0.02, -0.02),
        # A factor multiplies 1 - x, which is 0 here.
        ({"low": 0.5, "high": 1.0, "complement": True}, 1.0, 0.995, 1.0),
        # A factor moves 1e-300, and a bound is not a fixed point.
        ({"low": 0.0, "high": 1.0}, 1e-300, 1.2e-300, 8e-301),
        ({"low": 0.1, "high": 1.0}, 0.0, 0.1, 0.1),
    ],
)
def test_what_no_factor_moves_goes_a_hundredth_of_its_range(
    entry: dict[str, object], start: float, up: float, down: float
) -> None:
    dimension = parse_search_space({"kl_coef": entry}, start={"kl_coef": start})["kl_coef"]
    rng = np.random.default_rng(0)
    assert dimension.perturb(start, factor=1.2, rng=rng) == pytest.approx(up, rel=1e-12)
    assert dimension.perturb(start, factor=0.8, rng=rng) == pytest.approx(down, rel=1e-12)


def test_choices_of_an_integer_are_integers() -> None:
    dimension = parse_search_space({"num_epochs": {"choices": [2, 4.0]}}, start=START)["num_epochs"]
    assert dimension == Choices(choices=(2, 4))
    assert all(type(choice) is int for choice in dimension.choices)


def test_a_valid_space_passes_also_with_a_start_value_outside() -> None:
    validate_search_space(SPACE, names=NAMES, start={**START, "learning_rate": 1e30})
    validate_search_space({}, names=NAMES, start=START)


@pytest.mark.parametrize(
    ("name", "entry", "message"),
    [
        (
            "learning_rat",
            {"low": 0, "high": 1},
            ": no such hyperparameter; did you mean 'learning_rate'?",
        ),
        ("gamma", {"low": 0.9, "hihg": 1}, ".hihg: no such key; did you mean 'high'?"),
        ("gamma", {"low": 0.9}, ": high is missing"),
        (
            "gamma",
            {"low": 0.9, "high": 0.5},
            ": low must be at most high, got low 0.9 and high 0.5",
        ),
        ("gamma", {"low": "0.9", "high": 1}, ".low: must be a number, got '0.9'"),
        ("gamma", {"low": True, "high": 1}, ".low: must be a number, got True"),
        (
            "gamma",
            {"low": float("nan"), "high": 1},
            ".low: must be a number within +-1e+300, got nan",
        ),
        ("gamma", {"low": 0, "high": 10**400}, ".high: must be a number within +-1e+300"),
        (
            "gamma",
            {"low": 0, "high": 2, "complement": True},
            ": low and high must be in [0, 1] where complement is true, got 0 and 2",
        ),
        (
            "gamma",
            {"low": 0.9, "high": 1, "complement": True, "log": True},
            ".high: must be below 1 where log is about 1 - x, got 1",
        ),
        (
            "learning_rate",
            {"low": 0, "high": 1, "log": True},
            ".low: must be above 0 where log is true, got 0",
        ),
        (
            "learning_rate",
            {"low": 1, "high": 2, "log": "yes"},
            ".log: must be true or false, got 'yes'",
        ),
        ("clip_coef", {"low": 0.1, "high": 1, "step": 0}, ".step: must be above 0, got 0"),
        (
            "clip_coef",
            {"low": 0.1, "high": 1, "step": 0.1, "log": True},
            ": step and log exclude each other",
        ),
        (
            "clip_coef",
            {"low": 0.1, "high": 1, "step": 1e-18},
            ".step: at most 9007199254740992 steps",
        ),
        ("num_epochs", {"low": 1.2, "high": 1.8}, ": there is no integer from 1.2 to 1.8"),
        ("num_epochs", {"low": 1, "high": 4, "step": 0.5}, ".step: must be an integer, got 0.5"),
        (
            "num_epochs",
            {"low": 0, "high": 1, "complement": True},
            ".complement: must be false for an integer",
        ),
        (
            "clip_coef",
            {"low": 0.1, "high": 1, "factors": 1.1},
            ".factors: must be a list of 1 to 16 numbers, got 1.1",
        ),
        (
            "clip_coef",
            {"low": 0.1, "high": 1, "factors": []},
            ".factors: must be a list of 1 to 16 numbers, got []",
        ),
        (
            "clip_coef",
            {"low": 0.1, "high": 1, "factors": [0.9, 0]},
            ".factors: every factor must be greater than 0, got [0.9, 0]",
        ),
        (
            "clip_coef",
            {"low": 0.1, "high": 1, "factors": [0.9, "1.1"]},
            ".factors: must be a number, got '1.1'",
        ),
        (
            "clip_coef",
            {"low": 0.1, "high": 1, "factors": [0.9], "uniform": [0.8, 1.2]},
            ": factors and uniform exclude each other",
        ),
        (
            "clip_coef",
            {"low": 0.1, "high": 1, "uniform": [1.1, 1.5]},
            ".uniform: must be [a, b] with 0 < a < 1 < b (of others values would only rise, or "
            "only fall), got [1.1, 1.5]",
        ),
        ("clip_coef", {"low": 0.1, "high": 1, "uniform": 1.5}, ".uniform: must be [a, b] with"),
        ("num_epochs", {"choices": []}, ".choices: must be a list of one or more numbers, got []"),
        ("num_epochs", {"choices": [1, 2.5]}, ".choices: must be integers, got [1, 2.5]"),
        ("num_epochs", {"choices": [1, 1]}, ".choices: must be different numbers"),
        ("num_epochs", {"choices": [1, "2"]}, ".choices: must be a number, got '2'"),
        ("num_epochs", {"choices": [1], "low": 0}, ": choices must stand alone, got choices, low"),
        ("num_epochs", [1, 2], ": must be {low, high} or {choices}, got [1, 2]"),
    ],
)
def test_errors_name_the_key_the_rule_and_the_value(
    name: str, entry: Mapping[str, object], message: str
) -> None:
    key = "populations.player.search_space"
    with pytest.raises(ConfigError) as caught:
        validate_search_space({name: entry}, names=NAMES, start=START, key=key)
    assert str(caught.value).startswith(f"{key}.{name}{message}")


RNG = np.random.default_rng(0)
COLOURS = Categories(choices=("red", "green", "blue"))


def test_true_is_of_another_kind_than_one() -> None:
    found = kinds({"one": 1, "half": 0.5, "flag": True, "colour": "red"})
    assert found == {"one": float, "half": float, "flag": bool, "colour": str}


def test_numbers_move_to_a_neighbour() -> None:
    choices = Choices(choices=(1.0, 2.0, 4.0))
    assert [choices.perturb(2.0, factor=f, rng=RNG) for f in (0.8, 1.0, 1.2)] == [1.0, 2.0, 4.0]
    assert choices.perturb(4.0, factor=1.2, rng=RNG) == 4.0


def test_a_name_stays_or_becomes_any_of_the_others() -> None:
    found = Counter(COLOURS.perturb("green", factor=1.2, rng=RNG) for _ in range(2000))
    assert [found[one] for one in COLOURS.choices] == pytest.approx([500, 1000, 500], abs=100)
    assert {COLOURS.perturb("green", factor=1.0, rng=RNG) for _ in range(20)} == {"green"}
    drawn = {COLOURS.perturb("pink", factor=1.0, rng=RNG) for _ in range(50)}
    assert drawn == {"red", "green", "blue"}
    assert Categories(choices=("red",)).perturb("red", factor=1.2, rng=RNG) == "red"


def test_choices_have_their_order_and_keep_their_types() -> None:
    space: dict[str, dict[str, object]] = {
        "colour": {"choices": ["red", "green", "blue"]},
        "flag": {"choices": [True, False]},
        "size": {"choices": [3, 1]},
    }
    found = parse_search_space(space, start={})
    flag = Categories(choices=(True, False))
    assert found == {"colour": COLOURS, "flag": flag, "size": Choices(choices=(3, 1))}
    assert [COLOURS.place(one) for one in ("blue", "pink", None, 1, True)] == [2, *[None] * 4]
    # 1 == True in Python, but they are different values here.
    assert [flag.place(one) for one in (False, True, 0, 1)] == [1, 0, None, None]
    assert [COLOURS.fit(one) for one in ("blue", "pink")] == ["blue", "red"]
    assert [COLOURS.to_unit(one) for one in COLOURS.choices] == [0.0, 0.5, 1.0]


def test_curves_have_the_place_of_text_and_one_for_true() -> None:
    space: dict[str, dict[str, object]] = {"colour": {"choices": ["red", "green", "blue"]}}
    values: Hyperparameters = {"colour": "blue", "flag": True, "size": 3, "name": "unknown"}
    assert figures(values, space) == {"colour": 2, "flag": 1, "size": 3}
    assert type(figures(values, space)["flag"]) is int
    assert figures({"colour": "pink"}, space) == {}


@pytest.mark.parametrize("choices", [["red", "red"], [True, True]])
def test_equal_names_are_refused(choices: list[object]) -> None:
    with pytest.raises(ConfigError, match="must be different, got"):
        parse_categories(choices, key="search_space.x.choices")


@pytest.mark.parametrize("choices", [["red", 1], [True, 1], [True, "red"], [None]])
def test_names_and_numbers_do_not_mix(choices: list[object]) -> None:
    with pytest.raises(ConfigError, match="must be a number, got"):
        parse_search_space({"x": {"choices": choices}}, start={})


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
    # The schedule is exact at both ends.
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


SCHEDULED_SPACE: dict[str, dict[str, object]] = {
    "learning_rate": {"low": 1e-4, "high": 2e-3, "log": True},
    "gamma": {"low": 0.9, "high": 0.999, "complement": True},
    "num_epochs": {"low": 1, "high": 8},
}


def values_of(**hyperparameters: object) -> ScheduledValues:
    return ScheduledValues.of(hyperparameters, SCHEDULED_SPACE)


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
    # 1.5e-5 is below the bounds; with a factor of 1 the schedule's own value is kept.
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
