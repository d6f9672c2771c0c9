"""Contract of `populations.core.Explore`: checks that every implementation must pass."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import numpy as np

from arena.contracts.contract import Subject, name_of
from arena.types import Entrant, Hyperparameters, PolicyId
from populations.contracts.exploit import pbt_section
from populations.controller.evolution.exploring import problem_of
from populations.core import Exploration, Explore, SearchSpace
from populations.pbt.make import make_explore
from populations.records.rows import GenerationRow
from populations.search_space import parse_search_space

START: Hyperparameters = {
    "learning_rate": 3e-4,
    "gamma": 0.99,
    "num_epochs": 4,
    "rollout_length": 32,
    "entropy_coef": 0.01,
    "centered": False,
    "clip_coef": 0.2,
}

SPACE: SearchSpace = {
    "learning_rate": {"low": 1e-5, "high": 1e-3, "log": True},
    "gamma": {"low": 0.9, "high": 0.999, "complement": True},
    "num_epochs": {"low": 1, "high": 6},
    "rollout_length": {"choices": [16, 32, 64]},
    "entropy_coef": {"low": 0.0, "high": 0.02},
    "centered": {"choices": [False, True]},
}

NUM_STEPS = 40
"""Number of decisions in a row, enough for a rule that drifts to leave its bounds."""

FUNCTION = "explore must be a function of its arguments: equal arguments, equal answers"


def check_explore(
    explore: Explore | type[Explore] | str,
    *,
    section: Mapping[str, object] | None = None,
    launch_directory: str = "",
) -> None:
    """Check that a rule of exploring stays in the search space, from any start values.

    Args:
        explore: Object, class, or value of ``pbt.explore``: ``package.module:Class`` or a kind.
        section: Keys of the section ``pbt``, with which a class is called.
        launch_directory: Directory that is searched first for ``package``; empty: the working
            directory.

    Raises:
        ContractBroken: If a rule is broken; it names the first one.
    """
    subject = Subject(name_of(explore))
    keys = pbt_section(subject, section or {}, explore=explore)
    made = subject.given(
        explore,
        "it must be made with the section pbt as its argument",
        lambda _: make_explore(keys, launch_directory=launch_directory),
        keys,
    )
    subject.takes(made, "explore", {}, {}, history=(), agent_steps=0, rng=None)
    # In a run each decision starts from the values of an earlier one, so values may drift.
    values = dict(START)
    for step in range(NUM_STEPS):
        values = dict(_explore(subject, made, values, SPACE, seed=step).new)
    for start in _corners():
        _explore(subject, made, start, SPACE, seed=1)
    _explore(subject, made, START, {}, seed=1)
    first = _explore(subject, made, START, SPACE, seed=1, history=_history())
    # This repeats the first call after all others, so that a rule with hidden state is found.
    again = _explore(subject, made, START, SPACE, seed=1, history=_history())
    subject.must(FUNCTION, first == again, found=f"{first.new}, then {again.new}")


def _explore(
    subject: Subject,
    rule: Explore,
    start: Hyperparameters,
    space: SearchSpace,
    *,
    seed: int,
    history: Sequence[GenerationRow] = (),
) -> Exploration:
    given, given_space = dict(start), copy.deepcopy(dict(space))
    rule_text = "explore must answer any values and search space"
    with subject.answering(rule_text, draws="explore must draw from rng alone"):
        answer: object = rule.explore(
            given,
            given_space,
            history=history,
            agent_steps=1_000_000,
            rng=np.random.default_rng(seed),
        )
    rule_text = "explore must return populations.core.Exploration"
    explored = subject.must_be(rule_text, Exploration, answer)
    subject.must("explore must not change hyperparameters", given == start, got=given)
    subject.must("explore must not change search_space", given_space == space, got=given_space)
    subject.must("old must be the hyperparameters before", explored.old == start, got=explored.old)
    with subject.obeying("new must be numbers by name"):
        problem = problem_of(explored.new, hyperparameters=start, space=space)
    subject.must(f"new must be every hyperparameter, in its bounds: {problem}", problem is None)
    is_told = set(explored.moves) == set(space)
    rule_text = "moves must name every hyperparameter of the search space, and no other"
    subject.must(rule_text, is_told, got=sorted(explored.moves))
    return explored


def _corners() -> list[Hyperparameters]:
    """Return values at both ends of every range, and some outside of the ranges."""
    dimensions = parse_search_space(SPACE, start=START)
    ends = [{name: one.extremes[end] for name, one in dimensions.items()} for end in (0, -1)]
    beside: Hyperparameters = {"learning_rate": 0.01, "rollout_length": 24}
    return [{**START, **values} for values in (*ends, beside)]


def _history() -> list[GenerationRow]:
    """Return finished generations of four policies, and one running generation."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(13):
        policy = PolicyId(f"player/p{number % 4:03d}")
        rate = float(10.0 ** rng.uniform(-5.0, -3.0))
        is_over = number < 12
        rows.append(
            GenerationRow(
                entrant=Entrant(f"{policy}#{number // 4}"),
                policy=policy,
                population="player",
                generation=number // 4,
                cause="explore",
                parent=None,
                hyperparameters={**START, "learning_rate": rate},
                agent_steps_begin=number // 4 * 200_000,
                agent_steps_end=(number // 4 + 1) * 200_000 if is_over else None,
                rating_begin=0.0,
                rating_end=float(rng.normal(20.0, 10.0)) if is_over else None,
                gain_deviation=5.0 if is_over else None,
                gain_agent_steps=200_000 if is_over else None,
            )
        )
    return rows
