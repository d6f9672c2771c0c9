"""Goals, pins of the best rated checkpoints and alerts, as they are kept beside the rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from arena.types import Digest, PolicyId
from arena.wire.messages import Trainee
from populations.controller.indexes.alert_kinds import KINDS, Alerts, document, resumed
from populations.controller.indexes.rated_pins import RatedPins
from populations.controller.state.goals import (
    MIN_RETURNS,
    MIN_WINDOW,
    WINDOW_PARTS,
    GenerationMatches,
    Sums,
    return_bound,
    score_bound,
    window_of_score,
)
from populations.hooks.findings import Finding
from populations.ratings.any_time import squared_width_of_windows
from populations.records.rows import AlertRow, CheckpointRow
from tests.populations.controller.simulated import DUEL, World, make_world

Z95_SQUARED = 1.959963984540054**2


def test_wilsons_lower_end_by_hand() -> None:
    # 90 of 100: (0.9 + 0.019207 - 1.96 sqrt(0.0009 + 0.00009604)) / 1.038415 = 0.8256
    ninety = Sums(matches=100.0, points=90.0)
    assert score_bound(ninety, z_squared=Z95_SQUARED) == pytest.approx(0.8256, abs=1e-4)
    assert score_bound(Sums(), z_squared=Z95_SQUARED) is None
    three = score_bound(Sums(matches=3.0, points=3.0), z_squared=Z95_SQUARED)
    assert three == pytest.approx(0.4385, abs=1e-4)


def test_a_mean_return_by_hand() -> None:
    # 50 returns of 9 and 50 of 11: mean 10, s^2 = 100 / 99
    sums = Sums(matches=100.0, return_sum=1000.0, return_squares=50 * 81.0 + 50 * 121.0)
    bound = return_bound(sums, z_squared=Z95_SQUARED)
    assert bound == pytest.approx(10.0 - 1.959964 * math.sqrt(100 / 99 / 100))
    few = Sums(matches=29.0, return_sum=290.0, return_squares=2900.0)
    assert return_bound(few, z_squared=Z95_SQUARED) is None


@pytest.mark.parametrize("score", [0.5, 0.95, 0.99, 0.999])
def test_a_score_can_be_reached_in_its_window(score: float) -> None:
    # The bound is that of the latest look of a long run with 64 policies.
    z_squared = squared_width_of_windows(1e6 / MIN_RETURNS, chances=64)
    window = window_of_score(score, z_squared=z_squared)
    bound = score_bound(Sums(matches=window, points=window), z_squared=z_squared)
    assert bound is not None
    assert bound > score


def test_a_score_that_is_looked_at_often_is_rarely_above_its_bound() -> None:
    """Plain 95% bounds of the newest 400 matches are above the truth at some time in most runs."""
    truth, per_look, looks = 0.6, 20, 300
    rng = np.random.default_rng(0)
    num_plain = num_at_any_time = 0
    for wins in rng.binomial(per_look, truth, size=(200, looks)).cumsum(axis=1):
        is_plain = is_at_any_time = False
        for look in range(looks):
            widths = squared_width_of_windows(
                (look + 1) * per_look / MIN_RETURNS, chances=len(WINDOW_PARTS)
            )
            for part in WINDOW_PARTS:
                first = look - int(part * MIN_WINDOW) // per_look
                points = float(wins[look] - (wins[first] if first >= 0 else 0))
                sums = Sums(matches=float(min(look + 1, look - first) * per_look), points=points)
                is_plain |= (score_bound(sums, z_squared=Z95_SQUARED) or 0.0) > truth
                is_at_any_time |= (score_bound(sums, z_squared=widths) or 0.0) > truth
        num_plain += is_plain
        num_at_any_time += is_at_any_time
    assert num_plain > 100
    assert num_at_any_time <= 10


def test_old_weights_go_and_still_count_as_looked_at() -> None:
    met = GenerationMatches(generation=0)
    for number in range(30):
        met.add(Digest(str(number)), Sums(matches=10_000.0, points=5_000.0))
    met.add(Digest("29"), Sums(matches=1.0, points=1.0))
    assert met.matches == 300_001.0
    assert met.kept == 100_001.0 == sum(sums.matches for sums in met.newest.values())
    assert met.newest[Digest("29")].points == 5_001.0


PEAK = 2000
"""Agent steps after which policies forget what they know."""

DOCUMENT: dict[str, Any] = {
    **DUEL,
    "populations": {"player": {"size": 3}},
    "ghosts": {"every_agent_steps": 10**6},
    "pbt": {"exploit": "none", "explore": "none"},
    "checkpoints": {"keep": 1},
    "evaluation": {"share": 0.5},
    "stop": {"agent_steps_per_policy": 8000},
}


def collapsing(trainee: Trainee) -> float:
    """Return Elo per 1000 agent steps: 200 up to the peak, then a fall by as much."""
    return 200.0 if trainee.agent_steps < PEAK else -200.0


def best_of(world: World) -> dict[PolicyId, CheckpointRow]:
    origins = world.state.league.checkpoints
    rows = (
        origins[Digest(entrant)]
        for ratings in world.state.tables.ratings.values()
        for entrant in ratings.best
    )
    return {row.policy: row for row in rows}


@pytest.mark.slow
def test_the_best_rated_checkpoint_stays_when_a_policy_gets_worse() -> None:
    world = make_world(DOCUMENT, joined=1, learning=collapsing)
    tables = world.state.tables
    for _ in range(600):
        for row in best_of(world).values():
            assert tables.checkpoints[row.key].state == "present", row
        if world.over:
            break
        world.step()
    best = best_of(world)
    assert best.keys() == tables.policies.keys()
    for policy in tables.policies.values():
        assert policy.agent_steps >= 8000
        # The peak is at 2000 agent steps, and checkpoints are 500 apart.
        assert best[policy.policy].agent_steps <= PEAK + 1000
        present = [
            row
            for row in tables.checkpoints.values()
            if row.policy == policy.policy and row.state == "present"
        ]
        # The newest, the evaluated and the best one stay, and the finals' first one.
        assert len(present) <= 4


def test_a_checkpoint_that_no_fit_has_covered_stays_until_one_has() -> None:
    world = make_world(DOCUMENT, joined=1)
    while not world.state.tables.records:
        for learner in list(world.given):
            event = world.work(learner)
            if event is not None:
                world.handle(event)
    assert not world.state.tables.ratings, "no fit has landed"
    retention = world.state.indexes.retention
    world.state.indexes.rated_pins = RatedPins()
    world.state.indexes.rated_pins.refresh(
        retention, league=world.state.league, contenders=world.state.fits.contenders
    )
    evaluated = {
        world.state.league.checkpoints[Digest(entrant)].key
        for _, entrant in world.state.tables.records
        if Digest(entrant) in world.state.league.checkpoints
    }
    held = {key for kind, keys in retention._needs.items() if kind[0] == "rated" for key in keys}
    assert evaluated
    assert evaluated <= held


def finding(what: str, *, kind: str = "kl_high", source: str = "p0") -> Finding:
    return Finding(kind, "player", source, what)


def test_it_holds_after_so_many_wrong_measurements_in_a_row_and_ends_after_so_many_good_ones() -> (
    None
):
    alerts = Alerts()
    kind = KINDS["kl_high"]
    said = [alerts.record(finding("high")) for _ in range(kind.raise_after + 2)]
    assert said == [None] * (kind.raise_after - 1) + [True, None, None]
    said = [alerts.record(finding("")) for _ in range(kind.clear_after + 1)]
    assert said == [None] * (kind.clear_after - 1) + [False, None]
    assert alerts.raised == {}


def test_one_good_measurement_starts_the_count_anew() -> None:
    alerts = Alerts()
    for _ in range(3):
        for _ in range(KINDS["kl_high"].raise_after - 1):
            assert alerts.record(finding("high")) is None
        assert alerts.record(finding("")) is None
    assert alerts.raised == {}


def test_it_holds_as_long_as_one_source_is_wrong() -> None:
    alerts = Alerts()
    for source in ("p0", "p1"):
        for _ in range(KINDS["kl_high"].raise_after):
            alerts.record(finding("high", source=source))
    assert alerts.raised == {("kl_high", "player"): {"p0": "high", "p1": "high"}}
    assert alerts.forget("kl_high", "player", "p0") is None
    assert alerts.forget("kl_high", "player", "p1") is False
    assert alerts.forget("kl_high", "player", "p1") is None
    assert alerts.documents() == []


def test_documents_have_what_to_do_and_at_most_three_texts() -> None:
    alerts = Alerts()
    for number in range(5):
        alerts.record(finding(f"text {number}", kind="learner_failing", source=f"slot-{number}"))
    (one,) = alerts.documents()
    assert isinstance(one, dict)
    assert one["what"] == "text 0; text 1; text 2"
    assert one["sources"] == [f"slot-{number}" for number in range(5)]
    assert one["advice"] == KINDS["learner_failing"].advice


def test_those_that_hold_follow_from_the_rows() -> None:
    row = AlertRow(name="kl_high", subject="player", what="high", advice="Lower it.", source="p0")
    (one,) = resumed([row]).documents()
    assert one == document("kl_high", "player", "high", sources=["p0"], advice="Lower it.")
