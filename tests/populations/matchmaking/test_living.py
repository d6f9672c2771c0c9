"""A share of opponents that are the other living members, whatever the kind."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.errors import ConfigError
from arena.wire.messages import Train
from populations.config.resolve import resolve_config
from populations.config.run_config import RunConfig, validate_config
from populations.core import Matchmaker
from populations.matchmaking.kinds import KINDS as MATCHMAKING_KINDS
from populations.matchmaking.make import make_matchmaker
from populations.matchmaking.settings import MatchmakingConfig
from populations.records.rows import AssignmentRow
from tests.populations.controller.simulated import DUEL, TAG, duel_spec, make_world, tag_spec
from tests.populations.matchmaking.toy_league import latest, request, shares

OTHERS = [latest(number) for number in (1, 2, 3)]


def make(**values: object) -> Matchmaker:
    section = MatchmakingConfig.model_validate(values)
    return make_matchmaker(section, window=2, launch_directory=str(Path.cwd()))


@pytest.mark.parametrize("kind", MATCHMAKING_KINDS)
@settings(deadline=None, max_examples=10)
@given(
    living_ratio=st.floats(0.0, 1.0),
    latest_share=st.floats(0.0, 1.0),
    num_opponents=st.integers(1, 9),
    num_ghosts=st.integers(0, 4),
    seed=st.integers(0, 2**32),
)
def test_every_kind_seats_the_living_for_their_share(
    kind: str,
    living_ratio: float,
    latest_share: float,
    num_opponents: int,
    num_ghosts: int,
    seed: int,
) -> None:
    # Rounded down, so that both are at most 1.
    latest_ratio = (1.0 - living_ratio) * latest_share * (1.0 - 1e-12)
    matchmaker = make(kind=kind, living_ratio=living_ratio, latest_ratio=latest_ratio)
    asked = request(ghosts=num_ghosts, others=OTHERS, num_opponents=num_opponents)
    drawn = matchmaker.draw(asked, rng=np.random.default_rng(seed))
    assert drawn == matchmaker.draw(asked, rng=np.random.default_rng(seed))
    assert drawn.num_mirrors + len(drawn.players) == num_opponents
    living = Counter(player.player for player in drawn.players if player in OTHERS)
    expected = living_ratio * num_opponents
    # AlphaStar's main agents meet each other besides.
    assert living.total() > expected - 1.0 - 1e-6
    if kind != "alphastar":
        assert living.total() < expected + 1.0 + 1e-6
        # As evenly as may be.
        counts = [living[other.player] for other in OTHERS]
        assert max(counts) - min(counts) <= 1
    if num_ghosts and kind not in ("latest", "alphastar"):
        assert abs(drawn.num_mirrors - latest_ratio * num_opponents) < 2.0 + 1e-6


def test_shares_are_of_the_same_opponents() -> None:
    matchmaker = make(kind="uniform", living_ratio=0.3, latest_ratio=0.2)
    found = shares(matchmaker, request(ghosts=2, others=OTHERS), num_draws=3000)
    living = sum(found.pop(other.player) for other in OTHERS)
    # Standard deviation of a share at most sqrt(1/4 / 24000) = 0.003.
    assert living == pytest.approx(0.3, abs=0.013)
    assert found.pop("mirror") == pytest.approx(0.2, abs=0.013)
    assert list(found.values()) == pytest.approx([0.25, 0.25], abs=0.013)


def test_where_nobody_else_lives_the_others_have_the_share() -> None:
    alone = request(ghosts=2, others=[])
    halves = make(kind="uniform", living_ratio=0.5, latest_ratio=0.25)
    drawn = halves.draw(alone, rng=np.random.default_rng(0))
    assert (drawn.num_mirrors, len(drawn.players)) == (4, 4)
    everything = make(kind="uniform", living_ratio=1.0)
    assert everything.draw(alone, rng=np.random.default_rng(0)).num_mirrors == 8


def test_against_another_population_only_the_latest_are_living() -> None:
    prey = [latest(number, population="prey") for number in range(2)]
    asked = request(ghosts=2, others=prey, is_own=False)
    found = shares(make(kind="uniform", living_ratio=1.0), asked, num_draws=50)
    assert found == {
        "prey/p000": pytest.approx(0.5, abs=0.2),
        "prey/p001": pytest.approx(0.5, abs=0.2),
    }


def config(**matchmaking: object) -> RunConfig:
    return validate_config({**DUEL, "matchmaking": matchmaking})


@pytest.mark.parametrize(
    ("matchmaking", "latest_ratio"),
    [
        ({"living_ratio": 1.0}, 0.0),
        ({"living_ratio": 0.75}, 0.25),
        ({"living_ratio": 0.25}, 0.5),
        ({"living_ratio": 0.3, "kind": "quality"}, 0.7),
        ({"living_ratio": 0.3, "latest_ratio": 0.7}, 0.7),
    ],
)
def test_what_the_living_leave_is_at_most_the_latest(
    matchmaking: dict[str, object], latest_ratio: float
) -> None:
    resolved = resolve_config(config(**matchmaking), duel_spec())
    assert resolved.matchmaking.latest_ratio == pytest.approx(latest_ratio)
    assert resolve_config(resolved, duel_spec()).matchmaking == resolved.matchmaking


def test_both_shares_are_at_most_all() -> None:
    with pytest.raises(ConfigError, match=r"must sum to at most 1, got 0.5 and 0.6"):
        config(latest_ratio=0.5, living_ratio=0.6)
    with pytest.raises(ConfigError, match=r"matchmaking.living_ratio.*1.5"):
        config(living_ratio=1.5)
    with pytest.raises(ConfigError, match=r"matchmaking.living_ratio"):
        config(liveng_ratio=0.5)


@pytest.mark.parametrize("kind", ["pfsp", "latest", "alphastar"])
def test_a_league_of_the_living_seats_only_them_and_knows_how_that_went(kind: str) -> None:
    stop = {"agent_steps_per_policy": 3000}
    world = make_world(
        {**DUEL, "matchmaking": {"kind": kind, "living_ratio": 1}, "stop": stop}, joined=2
    )
    world.run()
    drawn: Counter[str] = Counter()
    for row in world.committed:
        if (
            isinstance(row, AssignmentRow)
            and isinstance(row.message, Train)
            and row.status == "queued"
        ):
            (trainee,) = row.message.trainees
            for seating in row.message.opponents:
                others = [p.player for p in seating.players if p.weights is not None]
                assert len(others) == 1
                assert str(others[0]) != str(trainee.policy)
                drawn.update(others)
    policies = world.state.tables.policies
    assert set(drawn) == {str(policy) for policy in policies}
    # Results against checkpoints that are replaced all the time are results against the policy.
    known = [
        share
        for event in world.events("train_assigned")[-8:]
        for share in cast("dict[str, float]", event.data["predicted"]).values()
    ]
    assert known
    assert min(known) < 0.5


def test_predators_meet_living_prey() -> None:
    world = make_world({**TAG, "matchmaking": {"living_ratio": 1}}, tag_spec())
    world.join(populations=("predator",))
    world.join(populations=("prey",))
    world.steps(20)
    players = {
        player.player
        for row in world.committed
        if isinstance(row, AssignmentRow) and isinstance(row.message, Train)
        for seating in row.message.opponents
        for player in seating.players
    }
    assert players <= set(world.state.tables.policies)
    assert {player.split("/")[0] for player in players} == {"predator", "prey"}
