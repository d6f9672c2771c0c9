"""Metrics of one trainee among several."""

from __future__ import annotations

from arena.types import PolicyId
from arena.wire.messages import Trainee
from populations.controller.indexes.trainee_metrics import metrics_of_trainee

ANN, BOB = PolicyId("speaker/p000"), PolicyId("listener/p000")


def trainee(policy: PolicyId) -> Trainee:
    return Trainee(
        policy=policy,
        generation=0,
        agent_steps=0,
        learner_updates=0,
        checkpoint=None,
        hyperparameters={},
    )


def test_a_lone_trainee_has_all_of_them() -> None:
    metrics = {"loss/value": 1.0, "episode/count": 2.0}
    assert metrics_of_trainee(metrics, [trainee(ANN)], of=ANN) == metrics


def test_of_several_each_has_its_own_and_those_of_all() -> None:
    metrics = {f"{ANN}/loss/value": 1.0, f"{BOB}/loss/value": 2.0, "episode/count": 3.0}
    both = [trainee(ANN), trainee(BOB)]
    assert metrics_of_trainee(metrics, both, of=ANN) == {"loss/value": 1.0, "episode/count": 3.0}
    assert metrics_of_trainee(metrics, both, of=BOB) == {"loss/value": 2.0, "episode/count": 3.0}
