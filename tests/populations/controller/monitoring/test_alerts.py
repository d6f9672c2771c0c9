"""Alerts: each kind provoked in a whole controller, raised once, cleared when it is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from arena.checkpoints.manifest import Manifest
from arena.types import PolicyId
from arena.wire.messages import Evaluate, Finished, Train
from populations.config.sections import AlertKind
from populations.controller.indexes.alert_kinds import (
    GOOD_LOSS,
    HIGH_LOSS,
    KINDS,
    RULES,
    Trained,
    Window,
    entropy_bounds,
)
from populations.controller.server.live_status import alerts as shown_alerts
from populations.controller.state.events import (
    AssignmentFailed,
    ControllerStarted,
    LearnerLeft,
    Ticked,
)
from populations.controller.state.state import make_state
from populations.core import Member
from populations.decisions import Decision, NotReady
from populations.hooks.findings import Finding
from populations.league.league import League
from populations.pbt.selection import evidence_about
from populations.pbt.settings import PbtConfig
from populations.records.rows import AssignmentRow, EventRow, PolicyRow, RunRow
from tests.populations.controller.evolution.test_exploration import Broken
from tests.populations.controller.simulated import DUEL, SimpleLearner, World, make_world
from tests.populations.rows import make_failed


@dataclass(slots=True, kw_only=True)
class MeasuringLearner(SimpleLearner):
    """A learner that says of each assignment what a test wants it to.

    Attributes:
        metrics: Beside its own, of training.
        of_all: Beside its own, of evaluation too.
        train_s: Of each training assignment.
    """

    metrics: dict[str, float] = field(default_factory=dict)
    of_all: dict[str, float] = field(default_factory=dict)
    train_s: float = 1.0

    def carry_out(self, message: Train | Evaluate) -> tuple[Finished, dict[str, Manifest]]:
        finished, manifests = SimpleLearner.carry_out(self, message)
        is_training = isinstance(message, Train) and message.agent_steps > 0
        own = self.metrics if is_training else {}
        duration_s = self.train_s if is_training else finished.duration_s
        metrics = {**finished.metrics, **own, **self.of_all}
        return replace(finished, metrics=metrics, duration_s=duration_s), manifests


def measured_world(**sections: object) -> tuple[World, MeasuringLearner]:
    """A controller with two learners; PBT, ghosts and stops keep out of the way."""
    document = {
        **DUEL,
        "pbt": {"exploit": "none"},
        "evaluation": {"share": 0.0},
        "stop": {"agent_steps_per_policy": 10**9},
        **sections,
    }
    world = make_world(document)
    known = [one.name for one in fields(world.learner) if one.init]
    learner = MeasuringLearner(**{name: getattr(world.learner, name) for name in known})
    world.learner = learner
    for _ in range(2):
        world.join()
    for _ in range(4):  # one for every policy's initial checkpoint
        world.step()
    return world, learner


def assignments(world: World, *, each: int) -> None:
    """Let every policy finish so many training assignments."""
    rows = world.state.tables.policies
    goal = {name: row.agent_steps + 500 * each for name, row in rows.items()}
    for _ in range(100 * each):
        if all(rows[name].agent_steps >= steps for name, steps in goal.items()):
            return
        world.step()
    raise AssertionError("nobody trains")


def names(world: World) -> list[str]:
    """What holds now."""
    return [kind for kind, _ in world.state.measured.alerts.raised]


def raised(world: World, kind: str) -> list[EventRow]:
    """The events that an alert of a kind began."""
    return [event for event in world.events("alert") if event.data["name"] == kind]


BUSY = {"episode/count": 100.0, "rollout/steps_count": 100.0}
ALIKE = {**BUSY, "reward/min": 0.0, "reward/max": 0.0}
PROVOKED: dict[str, tuple[dict[str, float], dict[str, float]]] = {
    "no_episode_ended": ({"episode/count": 0.0, "rollout/steps_count": 2600.0}, BUSY),
    "reward_constant": (ALIKE, {**ALIKE, "reward/max": 1.0}),
    "observations_constant": (
        {**BUSY, "observation/spread": 0.0},
        {**BUSY, "observation/spread": 2.0},
    ),
    "entropy_collapsed": ({**BUSY, "policy/entropy": 0.005}, {**BUSY, "policy/entropy": 0.9}),
    "loss_high": ({**BUSY, "loss/value": 25.0}, {**BUSY, "loss/value": 0.8}),
    "kl_high": ({**BUSY, "policy/kl": 0.9}, {**BUSY, "policy/kl": 0.01}),
    "policy_destroyed": ({**BUSY, "policy/kl_max": 2.9}, {**BUSY, "policy/kl_max": 0.1}),
}


FIRST = {
    "no_episode_ended": 2,  # within 5,200 calls of step
    "reward_constant": 3,
    "observations_constant": 3,
    "entropy_collapsed": 5,
    "loss_high": 5,
    "kl_high": 5,
    "policy_destroyed": 1,
}
"""After so many assignments of one policy it is told."""


def test_every_kind_of_the_configuration_has_a_rule_and_advice() -> None:
    assert set(KINDS) == set(get_args(AlertKind))
    assert set(PROVOKED) == set(RULES)
    assert all(kind.advice.endswith(".") for kind in KINDS.values())


@pytest.mark.parametrize("kind", PROVOKED)
def test_what_learners_measure_raises_an_alert_once_and_clears_it(kind: str) -> None:
    bad, good = PROVOKED[kind]
    world, learner = measured_world()
    learner.metrics = good if kind != "reward_constant" else {}
    assignments(world, each=1)
    assert not world.events("alert")
    learner.metrics = bad
    assignments(world, each=8)
    (event,) = world.events("alert")
    sources = event.data["sources"]
    assert isinstance(sources, list)
    (source,) = sources
    before = world.committed[: world.committed.index(event)]
    measured = [
        row
        for row in before
        if isinstance(row, AssignmentRow)
        and row.status == "finished"
        and isinstance(row.message, Train)
        and row.message.trainees[0].policy == source
        and bad.items() <= row.metrics.items()
    ]
    assert len(measured) == FIRST[kind]
    assert (event.subject, event.data["name"]) == ("player", kind)
    assert event.data["advice"] == KINDS[kind].advice
    (document,) = shown_alerts(world.state.blame.pause, world.state.measured, now_s=world.now_s)
    assert isinstance(document, Mapping)
    assert (document["name"], document["subject"]) == (kind, "player")
    concerned = document["sources"]
    assert isinstance(concerned, list)
    assert len(concerned) == 4, "every policy is concerned, and it is one alert"
    assert str(event.data["what"]).startswith(f"{source}: ")
    learner.metrics = good
    assignments(world, each=KINDS[kind].clear_after + 3)
    (cleared,) = world.events("alert_cleared")
    assert (cleared.subject, cleared.data["name"]) == ("player", kind)
    assert shown_alerts(world.state.blame.pause, world.state.measured, now_s=world.now_s) == []


@pytest.mark.slow
def test_an_alert_does_not_come_and_go_with_each_assignment() -> None:
    world, learner = measured_world()
    for _ in range(12):
        learner.metrics = {**BUSY, "policy/kl": 0.9}
        assignments(world, each=2)
        learner.metrics = {**BUSY, "policy/kl": 0.15}  # neither too high nor good
        assignments(world, each=1)
    assert len(world.events("alert")) == 1
    learner.metrics = {**BUSY, "policy/kl": 0.01}
    assignments(world, each=1)
    assert not world.events("alert_cleared"), "one good one among bad ones says little"


def trained(metrics: Mapping[str, float], window: Window, **changes: object) -> Trained:
    known: dict[str, object] = {
        "policy": PolicyRow(policy="player/p000", population="player", index=0, hyperparameters={}),  # type: ignore[arg-type]
        "metrics": metrics,
        "window": window,
        "unended_s": 0.0,
        "episode_length": 0.0,
        "num_envs": 256,
        "action": {"kind": "Discrete", "n": 4},
        "weighs_rewards": False,
    }
    return Trained(**{**known, **changes})  # type: ignore[arg-type]


def window(*many: Mapping[str, float]) -> Window:
    made = Window()
    for metrics in many:
        made.record(metrics)
    return made


def test_long_episodes_are_no_alert_and_slow_ones_are_told_of_in_minutes() -> None:
    rule = RULES["no_episode_ended"]
    metrics = {"episode/count": 0.0, "rollout/steps_count": 32.0}
    assert rule(trained(metrics, window(*[metrics] * 93))) == "", "2,976 calls of step"
    assert "5,024 calls" in str(rule(trained(metrics, window(*[metrics] * 157))))
    slow = trained(metrics, window(*[metrics] * 6), unended_s=301.0)
    assert rule(slow) == ("no episode has ended in 192 calls of step of each of 256 environments")
    known = trained(metrics, window(*[metrics] * 300), episode_length=4000.0)
    assert rule(known) == ""
    ended = {**metrics, "episode/count": 1.0}
    assert rule(trained(ended, window(*[metrics] * 200, ended), unended_s=0.0)) == ""
    assert rule(trained({}, window({}))) is None, "not measured"


def test_a_reward_for_each_step_is_constant_only_if_returns_are() -> None:
    rule = RULES["reward_constant"]
    alike = {"reward/min": 1.0, "reward/max": 1.0, "episode/count": 100.0}
    lengths = {**alike, "episode/return_mean": 20.0, "episode/return_deviation": 5.0}
    assert rule(trained(lengths, window(*[lengths] * 5))) == ""
    same = {**alike, "episode/return_mean": 20.0, "episode/return_deviation": 0.0}
    assert rule(trained(same, window(*[same] * 5))) == "in 500 episodes every reward was 1"
    longer = {**same, "episode/return_mean": 21.0}
    assert rule(trained(longer, window(same, same, longer))) == ""
    assert rule(trained(alike, window(*[alike] * 5))) == "", "returns are not known"
    nothing = {**alike, "reward/min": 0.0, "reward/max": 0.0}
    assert rule(trained(nothing, window(nothing, nothing))) == "", "too few to tell"
    few = {**nothing, "episode/count": 10.0}
    assert rule(trained(few, window(*[few] * 9))) == "", "too few episodes to tell"
    assert rule(trained(nothing, window(*[nothing] * 3))) == "in 300 episodes every reward was 0"
    assert rule(trained(nothing, window(*[nothing] * 3), weighs_rewards=True)) is None


def test_entropy_is_judged_by_what_there_is_to_choose() -> None:
    assert entropy_bounds({"kind": "Discrete", "n": 4}) == pytest.approx(
        (0.0138629, 0.0277259), abs=1e-7
    )
    wide = entropy_bounds({"kind": "MultiDiscrete", "nvec": [[2, 3], [4, 5]]})
    assert wide == pytest.approx((0.0478749, 0.0957498), abs=1e-7)  # ln 120 = 4.787492
    assert entropy_bounds({"kind": "MultiBinary", "shape": [2, 2]}) == pytest.approx(
        (0.0277259, 0.0554518), abs=1e-7
    )
    box = {"kind": "Box", "shape": [2], "dtype": "float32"}
    assert entropy_bounds(box) == (-6.0, -5.0)
    assert entropy_bounds({"kind": "Discrete", "n": 1}) is None
    rule = RULES["entropy_collapsed"]
    dead = {"policy/entropy": 0.0, "optimizer/updates": 0.0}
    assert rule(trained(dead, window(dead))) is None, "nothing was updated, so nothing was measured"


def test_between_high_and_good_a_loss_says_nothing() -> None:
    losses = [
        {"loss/value": value} for value in (GOOD_LOSS - 1.0, GOOD_LOSS, HIGH_LOSS, HIGH_LOSS + 1.0)
    ]
    *found, high = [RULES["loss_high"](trained(loss, window(loss))) for loss in losses]
    assert found == ["", None, None]
    assert str(high).startswith("its value loss is 11, in units")


def test_void_episodes_are_told_wherever_they_happen() -> None:
    world, learner = measured_world()
    assignments(world, each=1)
    learner.of_all = {"episode/void": 3.0}
    world.step()
    (event,) = world.events("alert")
    assert event.data["name"] == "void_episodes"
    assert str(event.data["what"]).startswith("3 episodes of assignment ")
    learner.of_all = {}
    assignments(world, each=1)
    assert names(world) == ["void_episodes"]
    assignments(world, each=6)
    assert names(world) == []


@pytest.mark.slow
def test_learners_without_work_are_told_after_half_a_minute() -> None:
    world, _ = measured_world()
    for _ in range(6):
        world.join()
    assignments(world, each=1)
    assert not world.events("alert"), "that may pass"
    world.steps(32)
    (event,) = world.events("alert")
    assert event.data["name"] == "learners_idle"
    assert "of 8 learners have nothing to do" in str(event.data["what"])
    for name in list(world.state.crew.learners)[2:]:
        world.handle(LearnerLeft(learner=name, reason="not needed"))
    assignments(world, each=30)
    assert len(world.events("alert_cleared")) == 1


PBT = {
    "ready_agent_steps": 1000,
    "warm_up_agent_steps": 1000,
    "min_matches": 20,
    "min_rating_gap": 1,
    "confidence": 0.0,
    "reference": False,
}


@pytest.mark.slow
def test_a_rule_of_exploring_that_fails_is_told_and_forgotten_when_it_works() -> None:
    world, _ = measured_world(pbt=PBT, evaluation={"share": 0.3})
    works = world.state.settings.explore
    world.state.settings.explore = {"player": Broken(None)}
    while not raised(world, "explore_fell_back"):
        assignments(world, each=1)
    assignments(world, each=10)
    (event,) = raised(world, "explore_fell_back")
    assert event.subject == "player"
    assert "ZeroDivisionError: no neighbours" in str(event.data["what"])
    assert len(world.events("explore_failed")) > 1
    world.state.settings.explore = works
    assignments(world, each=20)
    assert "explore_fell_back" not in names(world)


def test_a_rule_of_selection_that_fails_is_told() -> None:
    class Undecided:
        def decide(self, *_: object, **__: object) -> object:
            raise KeyError("nobody")

    world, _ = measured_world(pbt=PBT, evaluation={"share": 0.3})
    world.state.settings.exploit = {"player": Undecided()}  # type: ignore[dict-item]
    assignments(world, each=6)
    (event,) = raised(world, "exploit_fell_back")
    assert event.subject == "player"
    assert "KeyError: 'nobody'" in str(event.data["what"])
    assert len(world.events("exploit_failed")) > 1


def test_pbt_that_cannot_decide_is_told() -> None:
    world, _ = measured_world(pbt={**PBT, "min_matches": 10**6})
    assignments(world, each=8)
    (event,) = world.events("alert")
    assert "for 2,000 agent steps" in str(event.data["what"]), "two decisions were missed"
    assert event.data["name"] == "pbt_undecided"
    assert "pbt.min_matches 1,000,000" in str(event.data["what"])
    assert "evaluation matches of its generation: 0" in str(event.data["what"])
    assert "lower pbt.min_matches" in str(event.data["advice"])
    assert not world.events("exploited", "explored", "kept")


def shown_alert(world: World, name: str) -> Mapping[str, object]:
    """The document of an alert that holds, as displays have it."""
    found = [one for one in world.state.measured.alerts.documents() if isinstance(one, Mapping)]
    (alert,) = [one for one in found if one["name"] == name]
    return alert


class Waiting:
    """A rule of a user's own that never knows enough."""

    def __init__(self, section: PbtConfig) -> None:
        del section

    def decide(self, policy: PolicyId, *, members: Sequence[Member], **_: object) -> Decision:
        return NotReady(reason="the moon is wrong", evidence=evidence_about(policy, members))


@pytest.mark.parametrize(
    ("own", "reason", "advice"),
    [
        # All have enough matches, so fewer matches would be no remedy.
        (False, "the moon is wrong", "does not cover its newest weights. Raise evaluation.share"),
        (True, "the moon is wrong", "pbt.exploit is a class of your own"),
    ],
)
def test_the_advice_of_pbt_that_cannot_decide_follows_from_the_cause(
    own: bool, reason: str, advice: str
) -> None:
    named = {"exploit": f"{Waiting.__module__}:{Waiting.__qualname__}"} if own else {}
    world, _ = measured_world(pbt={**PBT, "min_matches": 1, **named}, evaluation={"share": 0.4})
    rule: Any = Waiting(world.state.settings.config.pbt_of("player"))
    world.state.settings.exploit = {"player": rule}
    assignments(world, each=12)
    event = raised(world, "pbt_undecided")[0]
    assert f": {reason}; evaluation matches of its generation: " in str(event.data["what"])
    assert advice in str(event.data["advice"])
    assert "lower pbt.min_matches" not in str(event.data["advice"])
    # Displays and a resumed controller show the same alert.
    shown = shown_alert(world, "pbt_undecided")
    assert advice in str(shown["advice"])
    row = world.state.tables.alerts["pbt_undecided", "player"]
    assert row.advice == event.data["advice"]


def test_others_with_too_few_matches_are_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    def matches(league: League, policy: PolicyRow) -> int:
        return 500 if policy.index == 0 else 7

    monkeypatch.setattr(League, "matches_in_generation", matches)
    world, _ = measured_world(pbt={**PBT, "min_matches": 100}, evaluation={"share": 0.4})
    assignments(world, each=12)
    texts = world.state.measured.alerts.raised["pbt_undecided", "player"]
    assert texts[PolicyId("player/p000")].endswith(
        "no other policy is ranked; evaluation matches of its generation: 500, of the others': at "
        "most 7 (pbt.min_matches 100)"
    )
    shown = shown_alert(world, "pbt_undecided")
    assert "lower pbt.min_matches" in str(shown["advice"])


@pytest.mark.parametrize(("fail", "state"), [([], "finished"), (["no_steps"], "failed")])
def test_a_run_without_a_single_step_says_so_when_it_ends(fail: list[str], state: str) -> None:
    world = make_world({**DUEL, "stop": {"duration_s": 5.0}, "alerts": {"fail": fail}})
    for _ in range(8):
        world.now_s += 1.0
        world.handle(Ticked())
    assert world.over
    (event,) = world.events("alert")
    assert event.data["name"] == "no_steps"
    assert "stop.duration_s" in str(event.data["what"])
    run = world.state.tables.run
    assert run.state == state
    assert ("alerts.fail: no_steps" in run.reason) == bool(fail)
    assert [row.state for row in world.committed if isinstance(row, RunRow)][-1] == state


def test_an_alert_of_a_named_kind_ends_the_run_with_what_to_do() -> None:
    world, learner = measured_world(alerts={"fail": ["kl_high"]})
    learner.metrics = {**PROVOKED["loss_high"][0], "policy/kl": 0.9}
    for _ in range(60):
        if world.over:
            break
        for one in world.state.crew.learners.values():
            one.last_heard_s = world.now_s
        world.step()
    run = world.state.tables.run
    assert run.state == "failed"
    assert run.reason.startswith("alerts.fail: kl_high: player/p00")
    assert "target_kl" in run.reason
    assert {event.data["name"] for event in world.events("alert")} >= {"kl_high", "loss_high"}


def test_a_sink_that_failed_is_an_alert_until_it_works_again() -> None:
    world, _ = measured_world()
    for problem in ("OSError: no room", "OSError: still none"):
        finding = Finding("sink_failed", "mine:Sink", "mine:Sink", f"mine:Sink raised {problem}")
        world.handle(finding)
    (event,) = world.events("alert")
    assert (event.subject, event.data["name"]) == ("mine:Sink", "sink_failed")
    assert event.data["what"] == "mine:Sink raised OSError: no room"
    (document,) = shown_alerts(world.state.blame.pause, world.state.measured, now_s=0.0)
    assert isinstance(document, Mapping)
    assert document["what"] == "mine:Sink raised OSError: still none"
    world.handle(Finding("sink_failed", "mine:Sink", "mine:Sink", ""))
    assert names(world) == []
    assert world.state.phase.name == "training"


def test_alerts_outlast_the_controller_and_are_cleared_by_the_next() -> None:
    world, learner = measured_world()
    learner.metrics = PROVOKED["kl_high"][0]
    assignments(world, each=6)
    old = world.state
    world.state = make_state(old.settings.config, old.settings.setup, old.tables)
    world.given.clear()
    world.handle(ControllerStarted())
    assert names(world) == ["kl_high"]
    assert world.state.measured.alerts.raised.keys() == old.measured.alerts.raised.keys()
    world.join()
    world.join()
    assignments(world, each=6)
    assert len(world.events("alert")) == 1, "it is the same alert"
    learner.metrics = PROVOKED["kl_high"][1]
    assignments(world, each=4)
    assert names(world) == []
    assert world.state.tables.alerts == {}


def test_who_is_quarantined_concerns_nobody_any_more() -> None:
    world, learner = measured_world(populations={"player": {"size": 1}})
    learner.metrics = PROVOKED["kl_high"][0]
    assignments(world, each=6)
    assert names(world) == ["kl_high"]
    for _ in range(2):  # a policy is blamed by failures on two learners
        name, given = next(
            (name, message)
            for name, queue in world.given.items()
            for message in queue
            if isinstance(message, Train)
        )
        world.given[name].remove(given)
        failed = make_failed(
            given, kind="non_finite", reason="its loss is nan", policy="player/p000"
        )
        world.handle(AssignmentFailed(learner=name, failed=failed))
    assert world.events("quarantined")
    assert names(world) == []
    assert len(world.events("alert_cleared")) == 1
