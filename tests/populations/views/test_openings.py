"""The view of openings: planted mixes come out as they were planted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from msgspec import structs

from arena.config import NO_OPENINGS, RandomOpenings
from arena.environment_spec import AgentSpec
from arena.matches.openings import most_played
from arena.matches.seating import make_seats
from arena.types import Entrant, PairScore, PolicyId
from populations.league.league import League
from populations.records.rows import TallyRow
from populations.views.questions.inspection import Inspection
from populations.views.questions.openings import (
    MAX_WINDOWS,
    Window,
    distance,
    label_of,
    period,
    summary_of,
    window_width,
)
from populations.views.training import openings_document
from tests.populations.rows import make_tally, make_tally_row

ROCK, PAPER, SCISSORS = 0, 1, 2
MATCHES = 100
STEP = 1000
SEATS = make_seats(
    agents=("a", "b"), sides={"a": ("a",), "b": ("b",)}, populations={"player": ("a", "b")}
)
SPEC = AgentSpec(
    observation={"kind": "Discrete", "n": 4, "start": 0},
    action={"kind": "Discrete", "n": 3, "start": 0},
    mask=None,
)


def digest(number: int) -> Entrant:
    return Entrant(f"{number:064x}")


def tally(number: int, counts: dict[int, int], *, kind: Any = "evaluate") -> TallyRow:
    """Matches of one checkpoint against a bot; each first action wins as often as it is played."""
    matches = sum(counts.values())
    wins = sum(count // 2 for count in counts.values())
    own = [(action, count, float(count // 2)) for action, count in counts.items()]
    return make_tally_row(
        make_tally(
            (digest(number), "bot:random"),
            (0, 1, wins, 0, matches - wins),
            matches=matches,
            length_sum=matches,
            openings=(
                most_played(own, most=32),
                most_played([(0, matches, float(matches - wins))], most=32),
            ),
        ),
        number + 1,
        kind=kind,
        assignment_id=number,
    )


def document(rows: list[TallyRow], openings: RandomOpenings = NO_OPENINGS) -> dict[str, Any]:
    """The view of tallies whose checkpoints are STEP agent steps apart."""
    origins = {
        digest(number): SimpleNamespace(
            policy=PolicyId(f"player/p{number % 2:03d}"), agent_steps=number * STEP
        )
        for number in range(max(row.sequence for row in rows))
    }
    config = SimpleNamespace(evaluation=SimpleNamespace(random_openings=openings))
    spec = SimpleNamespace(agent_specs={"a": SPEC, "b": SPEC})
    run = SimpleNamespace(
        reader=SimpleNamespace(all_tallies=lambda: iter(rows)),
        tables=SimpleNamespace(run=SimpleNamespace(run="r"), ratings={}),
        league=cast(League, SimpleNamespace(seats=SEATS, checkpoints=origins)),
        run_file=SimpleNamespace(spec=spec, config=config),
        champions=lambda population: {},
    )
    return dict(openings_document(cast(Inspection, run), None))


def test_a_planted_cycle_is_shown_with_its_period() -> None:
    counts = [{number // 4 % 3: 90, (number // 4 + 1) % 3: 10} for number in range(40)]
    shown = document([tally(number, one) for number, one in enumerate(counts)])
    first, second = shown["summary"]
    # Each action leads for four checkpoints, so the mix returns after twelve.
    assert first["period_agent_steps"] == pytest.approx(12 * STEP, rel=0.03)
    assert first["period_correlation"] > 0.9
    assert first["label"] == "action 0"
    assert first["since_agent_steps"] == pytest.approx(36 * STEP, rel=0.03)
    assert first["favourites"] == 10
    # Only a bot is in the second seat.
    assert "action" not in second
    assert {row["seat"] for row in shown["openings"]} == {"a"}
    assert len({row["window"] for row in shown["openings"]}) == MAX_WINDOWS


def test_random_decisions_are_not_counted_as_what_a_player_opens_with() -> None:
    rows = [tally(0, {ROCK: 30, PAPER: 50})]
    for share, is_counted in ((0.0, True), (0.5, False)):
        shown = document(rows, RandomOpenings(share=share))
        assert {line["is_counted"] for line in shown["summary"]} == {is_counted}


def test_counts_shares_and_scores_are_those_of_the_tallies() -> None:
    row = tally(0, {ROCK: 30, PAPER: 50})
    # Twenty more matches, six of them won, began with actions that are not counted separately.
    pair = PairScore(first=0, second=1, wins=46, draws=0, losses=54)
    rows = [structs.replace(row, tally=structs.replace(row.tally, matches=100, pairs=(pair,)))]
    rows.append(tally(0, {SCISSORS: 999}, kind="train"))
    shown = document(rows)["openings"]
    assert [(r["label"], r["count"], r["share"], r["score"]) for r in shown] == [
        ("action 1", 50, 0.5, 0.5),
        ("action 0", 30, 0.3, 0.5),
        ("others", 20, 0.2, pytest.approx(0.3)),
    ]
    assert all(r["matches"] == 100 for r in shown)
    for row in shown:
        assert row["share_low"] < row["share"] < row["share_high"]


def test_noise_and_a_trend_are_no_cycle() -> None:
    rng = np.random.default_rng(1)
    found = 0
    for _ in range(300):
        shares = rng.multinomial(50, [0.4, 0.3, 0.3], size=30) / 50
        mixes = {at: dict(enumerate(row)) for at, row in enumerate(shares.tolist())}
        found += period(cast(Any, mixes))[0] is not None
    assert found <= 6
    trend = {at: {ROCK: 1 - at / 30, PAPER: at / 30} for at in range(31)}
    assert period(cast(Any, trend)) == (None, None)
    assert period({0: {ROCK: 1.0}}) == period({}) == (None, None)
    assert period({at: {ROCK: 1.0} for at in range(20)}) == (None, None)


def test_the_distance_of_mixes_is_the_share_that_moved() -> None:
    assert distance({ROCK: 1.0}, {PAPER: 1.0}) == 1.0
    assert distance({ROCK: 0.5, PAPER: 0.5}, {ROCK: 0.25, PAPER: 0.5, None: 0.25}) == 0.25


def test_what_was_played_since_when() -> None:
    windows = {
        at: Window(matches=MATCHES, points=50.0, actions={action: (MATCHES, 50.0)})
        for at, action in enumerate([ROCK, PAPER, ROCK, ROCK])
    }
    summary = summary_of(windows, width=10, label=str)
    shown = {key: summary[key] for key in ("action", "share", "since_agent_steps", "mean_change")}
    assert shown == {
        "action": ROCK,
        "share": 1.0,
        "since_agent_steps": 20,
        "mean_change": pytest.approx(2 / 3),
    }


@pytest.mark.parametrize("steps", [0, 1, 39, 40, 41, 10**9])
def test_windows_are_no_more_than_fit(steps: int) -> None:
    assert steps // window_width(steps) < MAX_WINDOWS


def test_actions_have_the_numbers_of_the_environment() -> None:
    one = AgentSpec(
        observation=SPEC.observation, action={"kind": "Discrete", "n": 3, "start": 5}, mask=None
    )
    assert label_of(one)(2) == "action 7"
    many = AgentSpec(
        observation=SPEC.observation,
        action={"kind": "MultiDiscrete", "nvec": [2, 3], "start": [0, 0], "dtype": "int64"},
        mask=None,
    )
    assert label_of(many)(5) == "action (1, 2)"
