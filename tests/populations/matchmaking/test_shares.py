"""Shares of the latest, of other living members, of outsiders, and of ghosts by weight."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.types import Digest, PlayerId, WeightsRef
from arena.wire.messages import Train
from populations.candidates import FloatArray
from populations.config.resolve import resolve_config
from populations.config.run_config import RunConfig, validate_config
from populations.core import Matchmaker, OpponentRequest
from populations.matchmaking.drawing import (
    Rule,
    RuleMatchmaker,
    draw_count,
    draw_indices,
    normalized,
)
from populations.matchmaking.external_players import (
    ExternalPlayer,
    ExternalPlayersMatchmaker,
    external_player_id,
    external_player_key,
)
from populations.matchmaking.kinds import KINDS as MATCHMAKING_KINDS
from populations.matchmaking.make import make_matchmaker
from populations.matchmaking.settings import MatchmakingConfig
from populations.matchmaking.window import UniformRule
from populations.records.rows import AssignmentRow
from tests.populations.controller.simulated import DUEL, TAG, duel_spec, make_world, tag_spec
from tests.populations.matchmaking.toy_league import (
    SELF_PLAY,
    by_player,
    ghost,
    latest,
    request,
    shares,
)

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
    # The share is rounded down, so that the sum is at most 1.
    latest_ratio = (1.0 - living_ratio) * latest_share * (1.0 - 1e-12)
    matchmaker = make(kind=kind, living_ratio=living_ratio, latest_ratio=latest_ratio)
    asked = request(ghosts=num_ghosts, others=OTHERS, num_opponents=num_opponents)
    drawn = matchmaker.draw(asked, rng=np.random.default_rng(seed))
    assert drawn == matchmaker.draw(asked, rng=np.random.default_rng(seed))
    assert drawn.num_mirrors + len(drawn.players) == num_opponents
    living = Counter(player.player for player in drawn.players if player in OTHERS)
    expected = living_ratio * num_opponents
    # In AlphaStar's rule main agents additionally play each other.
    assert living.total() > expected - 1.0 - 1e-6
    if kind != "alphastar":
        assert living.total() < expected + 1.0 + 1e-6
        # The counts are as equal as possible.
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
    # Results against a living policy's replaced checkpoints count as results against the policy.
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


WEIGHTS = WeightsRef(digest=Digest("f" * 64), key="outsiders/001/predator")


def player(name: str, share: float) -> ExternalPlayer:
    return ExternalPlayer(player=PlayerId(name), share=share)


@settings(deadline=None, max_examples=60)
@given(
    first=st.floats(0.01, 0.5),
    second=st.floats(0.01, 0.5),
    num_opponents=st.integers(1, 40),
    seed=st.integers(0, 2**32),
)
def test_shares_are_met_to_the_next_whole_opponent(
    first: float, second: float, num_opponents: int, seed: int
) -> None:
    external = (player("bot:a", first), player("bot:b", second))
    matchmaker = ExternalPlayersMatchmaker(inner=SELF_PLAY, external=external)
    asked = request(num_opponents=num_opponents)
    drawn = matchmaker.draw(asked, rng=np.random.default_rng(seed))
    assert drawn.num_mirrors + len(drawn.players) == num_opponents
    assert abs(len(drawn.players) - (first + second) * num_opponents) < 1.0
    # Systematic sampling gives each player its share of the draws, up to one.
    number_of_a = sum(one.player == "bot:a" for one in drawn.players)
    assert abs(number_of_a - first / (first + second) * len(drawn.players)) < 1.0 + 1e-9


def test_an_imported_player_is_known_by_its_name_where_all_see_it() -> None:
    assert external_player_id("bot:random") == "bot:random"
    assert external_player_id("my exports/champion") == "outsider:my_exports/champion"
    assert external_player_key(3, "prey") == "outsiders/003/prey"
    one = ExternalPlayer(player=PlayerId("outsider:x"), share=1.0, weights=WEIGHTS)
    matchmaker = ExternalPlayersMatchmaker(inner=SELF_PLAY, external=(one,))
    (drawn, *_) = matchmaker.draw(request(), rng=np.random.default_rng(0)).players
    assert drawn.entrant == one.seated.entrant == "outsider:x"


def test_on_average_a_small_share_of_few_opponents_is_met() -> None:
    matchmaker = ExternalPlayersMatchmaker(inner=SELF_PLAY, external=(player("bot:a", 0.1),))
    found = shares(matchmaker, request(num_opponents=2), num_draws=4000)
    assert found["bot:a"] == pytest.approx(0.1, abs=0.02)


@dataclass(frozen=True)
class Planted:
    values: tuple[float, ...]

    def weights(self, request: OpponentRequest, *, rng: np.random.Generator) -> FloatArray:
        del request, rng
        return np.array(self.values)


def test_the_share_of_the_latest_is_exact_on_average() -> None:
    # 0.3 x 8 = 2.4: two or three blocks.
    matchmaker = RuleMatchmaker(rule=UniformRule(), latest_ratio=0.3)
    rng = np.random.default_rng(1)
    mirrors = [matchmaker.draw(request(), rng=rng).num_mirrors for _ in range(2000)]
    assert set(mirrors) == {2, 3}
    # standard deviation of the mean: sqrt(0.24 / 2000) = 0.011
    assert np.mean(mirrors) == pytest.approx(2.4, abs=0.05)


def test_a_whole_share_needs_no_chance() -> None:
    rng = np.random.default_rng(1)
    # 0.1 * 30 is slightly more than 3 in binary.
    matchmaker = RuleMatchmaker(rule=UniformRule(), latest_ratio=0.1)
    drawn = {matchmaker.draw(request(num_opponents=30), rng=rng).num_mirrors for _ in range(50)}
    assert drawn == {3}
    assert {draw_count(0.7 + 0.1 * 3, of=8, rng=rng) for _ in range(50)} == {8}


def test_ghosts_are_drawn_as_often_as_they_weigh() -> None:
    matchmaker = RuleMatchmaker(rule=Planted((1.0, 0.0, 3.0)), latest_ratio=0.5)
    asked = request(ghosts=3)
    expected = {ghost(0).player: 0.125, ghost(2).player: 0.375, "mirror": 0.5}
    distribution = matchmaker.distribution(asked, rng=np.random.default_rng(0))
    assert by_player(asked, distribution) == pytest.approx(expected)
    # 6000 ghosts: standard deviation of a share of 12000 opponents at most 0.004
    assert shares(matchmaker, asked, num_draws=1500) == pytest.approx(expected, abs=0.016)


@pytest.mark.parametrize("rule", [UniformRule(), Planted(())])
def test_whoever_is_not_there_leaves_its_share_to_the_other(rule: Rule) -> None:
    rng = np.random.default_rng(0)
    matchmaker = RuleMatchmaker(rule=rule, latest_ratio=0.5)
    asked = request(ghosts=0)
    assert by_player(asked, matchmaker.distribution(asked, rng=rng)) == {"mirror": 1.0}
    asked = request(ghosts=0, others=[latest(0, population="prey")], is_own=False)
    assert by_player(asked, matchmaker.distribution(asked, rng=rng)) == {"prey/p000": 1.0}
    asked = request(ghosts=1, is_own=False)
    only = RuleMatchmaker(rule=UniformRule(), latest_ratio=0.5).distribution(asked, rng=rng)
    assert by_player(asked, only) == {ghost(0).player: 1.0}
    with pytest.raises(ValueError, match="nobody to be drawn"):
        matchmaker.draw(request(ghosts=0, is_own=False), rng=rng)


def test_weights_that_say_nothing_are_uniform() -> None:
    assert normalized(np.zeros(4)).tolist() == [0.25] * 4
    assert normalized(np.zeros(0)).tolist() == []


@pytest.mark.parametrize("weights", [[1.0, -0.1], [np.nan, 1.0], [np.inf]])
def test_weights_must_be_weights(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights must be finite and at least 0"):
        normalized(np.array(weights))


@settings(deadline=None)
@given(
    weights=st.lists(st.floats(0.0, 1e6), min_size=1, max_size=30).filter(lambda w: sum(w) > 0.0),
    seed=st.integers(0, 2**32),
)
def test_what_weighs_nothing_is_never_drawn(weights: list[float], seed: int) -> None:
    drawn = draw_indices(np.array(weights), size=50, rng=np.random.default_rng(seed))
    assert drawn.shape == (50,)
    assert all(weights[index] > 0.0 for index in drawn)


class AlmostOne(np.random.Generator):
    """Draws so near to 1 that a product with the sum is the sum."""

    def random(self, *args: object, **kwargs: object) -> FloatArray:  # type: ignore[override]
        return np.array([np.nextafter(1.0, 0.0)])


def test_rounding_never_draws_beyond_the_last_weight() -> None:
    rng = AlmostOne(np.random.PCG64(0))
    for weights in ([1e-320, 0.0], [3.0, 5e-324, 0.0, 0.0]):
        drawn = draw_indices(np.array(weights), size=1, rng=rng)
        assert weights[int(drawn[0])] > 0.0


def test_errors_name_the_rule_and_the_value() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"latest_ratio must be in \[0, 1\], got 2.0"):
        RuleMatchmaker(rule=UniformRule(), latest_ratio=2.0).draw(request(), rng=rng)
