"""New hyperparameters: answers that depend on the question alone, and rules that fail."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from arena.types import Hyperparameters, PolicyId
from populations.controller.evolution.exploring import answer, problem_of
from populations.controller.state.events import ExploreHyperparameters
from populations.core import Exploration, SearchSpace
from populations.decisions import Keep, NotReady
from populations.records.rows import GenerationRow, Json
from tests.populations.controller.eager import eager_world, pending_world
from tests.populations.controller.simulated import World


class Broken:
    """A rule that fails, or gives what must not be used."""

    def __init__(self, new: Hyperparameters | None) -> None:
        self.new = new

    def explore(
        self,
        hyperparameters: Hyperparameters,
        search_space: SearchSpace,
        *,
        history: Sequence[GenerationRow] = (),
        agent_steps: int = 0,
        rng: np.random.Generator,
    ) -> Exploration:
        del search_space, history, agent_steps, rng
        if self.new is None:
            raise ZeroDivisionError("no neighbours")
        return Exploration(
            old=hyperparameters, new={**hyperparameters, **self.new}, moves={"gamma": "guessed"}
        )


@pytest.mark.parametrize(
    ("new", "reason", "places"),
    [
        (None, "ZeroDivisionError: no neighbours", ["explore"]),
        ({"learning_rate": math.nan}, "learning_rate must be a finite number", []),
        ({"learning_rate": 1.0}, "learning_rate must be in [1e-05, 0.003], got 1.0", []),
        ({"clip_coef": 0.1}, "clip_coef is not in the search space, but changed to 0.1", []),
        ({"clip": 0.1}, "it must give", []),
    ],
)
@pytest.mark.slow
def test_a_failing_rule_leaves_an_event_and_values_are_perturbed(
    new: Hyperparameters | None, reason: str, places: list[str]
) -> None:
    world = eager_world()
    world.state.settings.explore = {"player": Broken(new)}
    world.run()
    assert world.state.tables.run.state == "finished"
    failures = world.events("explore_failed")
    assert failures
    for event in failures:
        said, *lines = str(event.data["reason"]).splitlines()
        assert reason in said
        assert [line.rpartition(", in ")[2] for line in lines[::2]] == places
    changes = world.events("exploited", "explored")
    assert len(changes) == len(failures)
    for event in changes:
        assert set(_mapping(event.data["moves"]).values()) <= {"x0.8", "x1.2", "resampled", "kept"}


def _mapping(value: Json) -> Mapping[str, Json]:
    assert isinstance(value, Mapping)
    return value


def run_until_ready(rule: object) -> World:
    """Until the rule has been asked for the first time."""
    world = eager_world()
    world.state.settings.exploit = {"player": rule}  # type: ignore[dict-item]
    while not world.events("exploit_failed"):
        world.step()
    return world


def test_a_rule_that_cannot_decide_leaves_an_event_and_the_run_goes_on() -> None:
    class Nonsense:
        def decide(self, policy: PolicyId, **_: object) -> None:
            raise LookupError(f"who is {policy}?")

    world = eager_world()
    world.state.settings.exploit = {"player": Nonsense()}  # type: ignore[dict-item]
    world.run()
    assert world.state.tables.run.state == "finished"
    reasons = [str(e.data["reason"]).splitlines() for e in world.events("exploit_failed")]
    assert "LookupError: who is player/p001?" in {said for said, *_ in reasons}
    # The following lines are of the user's file, and none are of Arena.
    for _, place, code in reasons:
        assert place.endswith("in decide")
        assert code == '    raise LookupError(f"who is {policy}?")'
    assert not world.events("exploited", "explored")


KNOWN = {"rank": 1, "num_ranked": 2, "num_selected": 1, "rating": None, "num_matches": 3}


@pytest.mark.parametrize("decision", [Keep, NotReady])
def test_a_decision_without_evidence_leaves_an_event(decision: type[Keep | NotReady]) -> None:
    class Careless:
        def decide(self, policy: PolicyId, **_: object) -> object:
            return decision(reason="as it is", evidence=None)  # type: ignore[arg-type]

    (event, *_) = run_until_ready(Careless()).events("exploit_failed")
    assert "a decision's evidence must be an Evidence, got None" in str(event.data["reason"])


@pytest.mark.parametrize(("decision", "kind"), [(Keep, "kept"), (NotReady, "decision_postponed")])
def test_evidence_may_have_any_names(decision: type[Keep | NotReady], kind: str) -> None:
    class Own:
        def decide(self, policy: PolicyId, **_: object) -> object:
            taken = {"kind": 1, "subject": 2, "agent_steps": -1, "marks": -1, "mine": 5}
            return decision(reason="as it is", evidence={**KNOWN, **taken})  # type: ignore[arg-type]

    world = eager_world()
    world.state.settings.exploit = {"player": Own()}  # type: ignore[dict-item]
    while not world.events(kind):
        world.step()
    assert world.events("exploit_failed") == []
    (event, *_) = world.events(kind)
    assert (event.data["mine"], event.data["kind"]) == (5, 1)
    assert -1 not in (event.data["marks" if kind == "kept" else "agent_steps"],)


@pytest.mark.parametrize("answered", ["keep", 3, ("p001", True)])
def test_a_decision_that_is_none_leaves_an_event(answered: object) -> None:
    class Nonsense:
        def decide(self, policy: PolicyId, **_: object) -> object:
            return answered

    world = run_until_ready(Nonsense())
    (event, *_) = world.events("exploit_failed")
    assert event.data["reason"] == f"TypeError: decide must return a Decision, got {answered!r}"


def test_an_exploration_that_is_none_is_a_problem() -> None:
    class Nothing:
        def explore(self, *_: object, **__: object) -> None:
            return None

    values = {"gamma": 0.95}
    explored = answer(
        ExploreHyperparameters(
            policy=PolicyId("player/p001"),
            rule=Nothing(),  # type: ignore[arg-type]
            hyperparameters=values,
            search_space={"gamma": {"low": 0.9, "high": 0.99}},
            history=(),
            agent_steps=0,
            seed=(1,),
        )
    )
    assert explored.problem == "TypeError: explore must return an Exploration, got None"
    assert explored.exploration.new.keys() == values.keys()


@pytest.mark.parametrize("bad", [-0.1, 2.0, math.inf, True])
def test_values_outside_of_the_search_space_are_a_problem(bad: float) -> None:
    space = {"gamma": {"low": 0.9, "high": 0.99}}
    old = {"gamma": 0.95, "num_epochs": 4}
    assert problem_of({**old, "gamma": bad}, hyperparameters=old, space=space) is not None
    assert problem_of({**old, "gamma": 0.99}, hyperparameters=old, space=space) is None
    assert problem_of(old, hyperparameters=old, space=space) is None


def test_a_start_value_outside_of_the_search_space_may_stay() -> None:
    space = {"gamma": {"low": 0.9, "high": 0.99}}
    old = {"gamma": 0.5}
    assert problem_of(old, hyperparameters=old, space=space) is None


def test_an_answer_depends_on_the_question_alone() -> None:
    world = pending_world("exploit")
    question = world.questions[0]
    assert isinstance(question, ExploreHyperparameters)
    assert answer(question) == answer(question)
    others = [answer(replace(question, seed=(1, 2, number))) for number in range(8)]
    assert any(other != answer(question) for other in others), "its seed is part of it"
