"""Whatever the configuration: what must never happen in a league, does not."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec import Struct, structs

from populations.choices import number_of
from populations.config.run_config import RunConfig, validate_config
from populations.matchmaking.kinds import KINDS as MATCHMAKING_KINDS
from populations.pbt.settings import EXPLOIT_KINDS, EXPLORE_KINDS
from populations.records.aggregates import Row
from populations.records.rows import EventRow, PolicyRow
from populations.search_space import Choices, parse_search_space
from populations.simulation.environment import simulated_config, simulated_run
from populations.simulation.planted import PlantedModel
from populations.simulation.world import World, make_world, start

SEARCH_SPACE = {
    "learning_rate": {"low": 1e-4, "high": 1e-2, "log": True},
    "gamma": {"low": 0.9, "high": 0.999, "complement": True},
    "num_epochs": {"choices": [1, 2, 4]},
}
MODEL = PlantedModel(learning_agent_steps=2000.0)
MAX_EVENTS = 2000
"""Far more than any of these runs has."""

SETTLED = settings(
    deadline=None,
    database=None,
    derandomize=True,
    # Shrinking is left out, because runs are long.
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)
SECTIONS = st.fixed_dictionaries(
    {
        "size": st.integers(min_value=1, max_value=4),
        "fraction": st.sampled_from([0.1, 0.25, 0.5]),
        "min_matches": st.sampled_from([1, 20, 300]),
        "mutate_others": st.booleans(),
        "reference": st.booleans(),
        "latest_ratio": st.sampled_from([0.0, 0.5, 1.0]),
        "opponents": st.integers(min_value=1, max_value=5),
        "share": st.sampled_from([0.0, 0.2, 0.5]),
        "keep": st.sampled_from([1, 3, None]),
        "deterministic": st.booleans(),
        "populations": st.integers(min_value=1, max_value=2),
        "rivals": st.sampled_from(["frozen", "learning"]),
        "seed": st.integers(min_value=0, max_value=10**6),
    }
)


def configuration(
    drawn: Mapping[str, object], *, kind: str, exploit: str, explore: str
) -> RunConfig:
    names = ["player", "other"][: int(str(drawn["populations"]))]
    has_rivals = len(names) == 2 and kind != "alphastar"
    population = {
        "size": drawn["size"],
        "hyperparameters": {"learning_rate": 1e-3, "num_epochs": 2},
        "search_space": SEARCH_SPACE,
    }
    document = {
        "environment": {"id": "tests.game:env", "num_envs": 4},
        "populations": {name: {**population, "agents": [f"{name}_*"]} for name in names},
        "matchmaking": {
            "kind": kind,
            "latest_ratio": drawn["latest_ratio"],
            "opponents": drawn["opponents"],
            "rivals": drawn["rivals"] if has_rivals else "frozen",
        },
        "ghosts": {"every_agent_steps": 1000},
        "pbt": {
            "exploit": exploit,
            "explore": explore,
            "ready_agent_steps": 1000,
            "warm_up_agent_steps": 1000,
            "min_rating_gap": 0,
            **{key: drawn[key] for key in ("fraction", "min_matches", "mutate_others")},
            "reference": drawn["reference"],
        },
        "evaluation": {"share": drawn["share"]},
        "checkpoints": {"keep": drawn["keep"]},
        "assignment": {"agent_steps": 500},
        "learners": 2,
        "stop": {"agent_steps_per_policy": 3000},
        "deterministic": drawn["deterministic"],
        "seed": drawn["seed"],
    }
    return simulated_config(validate_config(document))


def run(config: RunConfig) -> tuple[World, list[Row]]:
    world = make_world(simulated_run(config), MODEL, agent_steps_per_s=500.0, matches_per_s=50.0)
    committed: list[Row] = []
    world.watch = committed.extend
    start(world)
    for _ in range(MAX_EVENTS):
        if not world.advance():
            return world, committed
    kinds = Counter(row.kind for row in committed if isinstance(row, EventRow))
    raise AssertionError(f"the run does not end in the phase {world.state.phase.name}: {kinds}")


def numbers(value: object) -> Iterator[float]:
    """All numbers in a row."""
    if isinstance(value, bool | str | bytes | None):
        return
    if isinstance(value, int | float):
        yield float(value)
    elif isinstance(value, Struct):
        yield from numbers(structs.asdict(value))
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from numbers(inner)
    elif isinstance(value, Sequence):
        for inner in value:
            yield from numbers(inner)


def check(config: RunConfig) -> list[Row]:
    """Run a league, look at everything that it committed, and return it."""
    world, committed = run(config)
    tables = world.state.tables
    assert tables.run.state == "finished"
    sizes = {name: population.size for name, population in config.populations.items()}
    for name, size in sizes.items():
        assert sum(row.population == name for row in tables.policies.values()) == size
    assert len(tables.policies) == sum(sizes.values())
    spaces = {
        name: parse_search_space(population.search_space, start=population.start_values)
        for name, population in config.populations.items()
    }
    for row in committed:
        assert all(math.isfinite(number) for number in numbers(row)), row
        if isinstance(row, PolicyRow):
            for name, dimension in spaces[row.population].items():
                value = row.hyperparameters[name]
                if isinstance(dimension, Choices):
                    assert value in dimension.choices
                else:
                    assert dimension.low <= number_of(value) <= dimension.high
        elif isinstance(row, EventRow) and row.kind == "exploited":
            assert row.data["donor"] != row.subject
            donor = tables.policies[row.data["donor"]]  # type: ignore[index]
            assert donor.population == tables.policies[row.subject].population  # type: ignore[index]
        elif isinstance(row, EventRow):
            assert row.kind not in ("exploit_failed", "explore_failed"), row
    return committed


@pytest.mark.parametrize("kind", MATCHMAKING_KINDS)
@settings(parent=SETTLED, max_examples=3)
@given(drawn=SECTIONS)
@pytest.mark.slow
def test_invariants_hold_with_every_kind_of_matchmaking(
    kind: str, drawn: Mapping[str, object]
) -> None:
    check(configuration(drawn, kind=kind, exploit="truncation", explore="perturb"))


@pytest.mark.parametrize("exploit", EXPLOIT_KINDS)
@settings(parent=SETTLED, max_examples=3)
@given(drawn=SECTIONS)
def test_invariants_hold_with_every_kind_of_exploit(
    exploit: str, drawn: Mapping[str, object]
) -> None:
    check(configuration(drawn, kind="uniform", exploit=exploit, explore="resample"))


EAGER = {"size": 3, "min_matches": 1, "share": 0.5, "mutate_others": True}
"""So that PBT decides often."""


@pytest.mark.parametrize("explore", [kind for kind in EXPLORE_KINDS if kind != "gp"])
@settings(parent=SETTLED, max_examples=2)
@given(drawn=SECTIONS)
@pytest.mark.slow
def test_invariants_hold_with_every_kind_of_explore(
    explore: str, drawn: Mapping[str, object]
) -> None:
    config = configuration({**drawn, **EAGER}, kind="latest", exploit="truncation", explore=explore)
    kinds = {row.kind for row in check(config) if isinstance(row, EventRow)}
    assert kinds & {"explored", "exploited", "kept"}, "PBT has decided something"


def test_invariants_hold_with_explore_by_gaussian_processes() -> None:
    """Once: each fit of such a process takes a good part of a second."""
    drawn = {
        **EAGER,
        "size": 2,
        "fraction": 0.5,
        "reference": True,
        "latest_ratio": 0.5,
        "opponents": 2,
        "keep": 1,
        "deterministic": True,
        "populations": 1,
        "seed": 1,
    }
    check(configuration(drawn, kind="latest", exploit="truncation", explore="gp"))
