"""Metrics of one trainee among several."""

from __future__ import annotations

from arena.types import PolicyId
from populations.controller.indexes.trainee_metrics import metrics_of_trainee
from tests.populations.rows import make_trainee

ANN, BOB = PolicyId("speaker/p000"), PolicyId("listener/p000")


def test_a_lone_trainee_has_all_of_them() -> None:
    metrics = {"loss/value": 1.0, "episode/count": 2.0}
    assert metrics_of_trainee(metrics, [make_trainee(ANN)], of=ANN) == metrics


def test_of_several_each_has_its_own_and_those_of_all() -> None:
    metrics = {f"{ANN}/loss/value": 1.0, f"{BOB}/loss/value": 2.0, "episode/count": 3.0}
    both = [make_trainee(ANN), make_trainee(BOB)]
    assert metrics_of_trainee(metrics, both, of=ANN) == {"loss/value": 1.0, "episode/count": 3.0}
    assert metrics_of_trainee(metrics, both, of=BOB) == {"loss/value": 2.0, "episode/count": 3.0}
