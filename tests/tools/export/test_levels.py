"""The choice of levels, and their export from a run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arena
from arena.checkpoints.files import sha256_bytes
from arena.checkpoints.tensors import serialize
from arena.codec import plain
from arena.errors import ConfigError
from arena.export.card import CardRating, read_card
from arena.export.champion import Champion
from tests.arena.export.conftest import BOARD
from tools.export.levels import (
    SCORES,
    Candidate,
    Matches,
    Member,
    card_levels,
    choose_levels,
    find_teams,
)
from tools.play.game import PersonsGame
from tools.play.table import sit_down
from tools.players.resolve import resolve_player
from tools.players.weights import PolicyWeights

pytestmark = pytest.mark.xdist_group("exports")

Command = Callable[..., dict[str, Any]]


class League:
    """Members with planted strengths, of which ratings say something; hot play comes to nothing."""

    def __init__(self, strengths: Sequence[float], *, seed: int, matches: int = 400) -> None:
        self.strengths = strengths
        self.rng = np.random.default_rng(seed)
        self.matches = matches
        self.won: Counter[tuple[Candidate, Candidate]] = Counter()
        self.played: Counter[tuple[Candidate, Candidate]] = Counter()

    def strength(self, candidate: Candidate) -> float:
        return self.strengths[candidate.member] / math.sqrt(candidate.temperature)

    def share(self, upper: Candidate, lower: Candidate) -> float:
        return 1.0 / (1.0 + math.pow(10.0, (self.strength(lower) - self.strength(upper)) / 400.0))

    def meet(self, upper: Candidate, lower: Candidate) -> float:
        self.won[upper, lower] += self.rng.binomial(self.matches, self.share(upper, lower))
        self.played[upper, lower] += self.matches
        return self.won[upper, lower] / self.played[upper, lower]


@settings(max_examples=60)
@given(
    strengths=st.lists(st.floats(0.0, 1800.0), min_size=1, max_size=40),
    number=st.integers(2, 10),
    error=st.floats(0.5, 1.5),
    seed=st.integers(0, 1000),
)
def test_each_level_beats_the_next_as_it_should(
    strengths: list[float], number: int, error: float, seed: int
) -> None:
    ordered = sorted(strengths, reverse=True)
    # Matches decide, because ratings may have another scale.
    league = League(ordered, seed=seed, matches=100_000)
    ratings = [error * strength for strength in ordered]
    levels = choose_levels(ratings, league.meet, number=number)
    assert levels[0] == Candidate(0)
    assert len(levels) <= number
    for upper, lower in pairwise(levels):
        # The scores are measured ones; four deviations of 100,000 matches are 0.006.
        assert SCORES[0] - 0.006 <= league.share(upper, lower) <= SCORES[1] + 0.006
        assert lower.member > upper.member or lower.temperature > upper.temperature
    # There are fewer levels only if the rest between the last one and the hottest play is too
    # small.
    if len(levels) < number:
        assert league.strength(levels[-1]) < 200.0 + ordered[-1] / 8.0


def test_members_go_before_temperatures() -> None:
    league = League([800.0 - 50.0 * at for at in range(17)], seed=1)
    levels = choose_levels(league.strengths, league.meet, number=5)
    assert len(levels) == 5
    assert {level.temperature for level in levels} == {1.0}
    # Between two members that are 600 apart lie levels with a temperature.
    league = League([700.0, 100.0], seed=1)
    levels = choose_levels(league.strengths, league.meet, number=5)
    assert [level.member for level in levels[:3]] == [0, 0, 0]
    assert 1.0 < levels[1].temperature < levels[2].temperature


def test_chance_does_not_choose() -> None:
    # With few matches every second score is off; a chosen policy was near twice.
    strengths = [1000.0 - 30.0 * at for at in range(34)]
    off = 0
    for seed in range(20):
        league = League(strengths, seed=seed)
        for upper, lower in pairwise(choose_levels(strengths, league.meet, number=6)):
            assert league.played[upper, lower] >= 2 * league.matches or lower.temperature > 1.0
            off += not SCORES[0] <= league.share(upper, lower) <= SCORES[1]
    assert off <= 2


def test_matches_are_seen_from_the_upper_one_in_both_orders() -> None:
    export, hot = MagicMock(), "player/p000 at temperature 2"
    export.settings.seed = 5
    export.game.play.return_value.pairs = (
        SimpleNamespace(home="player/p000", away=hot, score=0.9, matches=10),
        SimpleNamespace(home=hot, away="player/p000", score=0.3, matches=10),
    )
    matches = Matches(export, MagicMock(), [{"player": Member(0.0, "player/p000", MagicMock())}])
    matches._policies = {0: {"player": MagicMock()}}
    pair = Candidate(0), Candidate(0, 2.0)
    assert matches.meet(*pair) == pytest.approx(0.8)
    assert matches.meet(*pair) == pytest.approx(0.8)
    assert matches.score(*pair) == pytest.approx((0.8, 40))
    # The second comparison plays other games.
    first, second = export.game.play.call_args_list
    assert first.kwargs["seed"] != second.kwargs["seed"]


@pytest.mark.slow
def test_levels_of_a_run_are_exported_and_play(
    command: Command, leveled_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("populations.commands.export.levels.tell", said.append)
    directory = tmp_path / "champion"
    arguments = ("--levels", 9, "--matches", 0, "--to", directory, "--json")
    document = command("export", leveled_run, *arguments)["exports"]["player"]
    card = read_card(directory)
    assert [plain(level) for level in card.levels] == document["levels"]
    assert 2 <= len(card.levels) < 9
    top = card.levels[-1]
    assert (top.player, top.graph, top.temperature) == ("player/p000", "policy.onnx", 1.0)
    assert (top.rating, top.rating_low) == (card.rating.rating, card.rating.rating_low)
    for lower, upper in pairwise(card.levels):
        assert upper.score_below is not None
        assert SCORES[0] <= upper.score_below <= SCORES[1]
        assert upper.matches_below >= 400
        assert lower.rating < upper.rating
    assert [line.partition(":")[0] for line in said] == [f"{len(card.levels)} levels of 9"]

    # These matches differ from those by which the levels were chosen.
    names = [f"{directory}:level={number}" for number in (2, 1)]
    pairs = command("evaluate", *names, "--matches", 400, "--seed", 99, "--json")["pairs"]
    score = (pairs[0]["score"] + 1.0 - pairs[1]["score"]) / 2.0
    assert score == pytest.approx(card.levels[1].score_below, abs=0.06)

    # A level samples its actions, while other players may play greedily.
    assert not resolve_player(names[1]).can_repeat
    lowest = Champion(directory, level=1)
    assert len({lowest.act(BOARD) for _ in range(200)}) > 1
    loaded = arena.load(names[1])
    assert loaded.probabilities(BOARD) == pytest.approx(lowest.probabilities(BOARD))
    assert len({loaded.act(BOARD) for _ in range(200)}) > 1

    # The person sees the level's probabilities; the best policy always takes the middle.
    with closing(PersonsGame(sit_down(names[1]), seed=1)) as game:
        chances = {one["action"]: one["probability"] for one in game.thought["choices"]}
    wanted = lowest.probabilities(BOARD)[[*chances]]
    assert [*chances.values()] == pytest.approx(wanted, abs=1e-5)
    best = Champion(directory, level=len(card.levels)).probabilities(BOARD)
    assert max(wanted) < best.max() == pytest.approx(1.0)


@pytest.mark.slow
def test_a_player_of_a_run_has_a_temperature(leveled_run: Path) -> None:
    name = f"{leveled_run}:player/p000@1000"
    own, hot = (arena.load(one).probabilities(BOARD) for one in (name, f"{name}:temperature=0.01"))
    powers = own**100.0
    assert hot == pytest.approx(powers / powers.sum(), rel=1e-3)
    # The run's champion has odds of exp(100 / 50) to 1 for action 3 against each of the six others.
    player = arena.load(f"{leveled_run}:temperature=50", seed=1)
    chosen = [player.act(BOARD) for _ in range(600)]
    assert chosen.count(3) / 600 == pytest.approx(math.exp(2.0) / (math.exp(2.0) + 6.0), abs=0.07)
    found = resolve_player(f"{name}:temperature=0.01")
    plain = resolve_player(name).policies["player"]
    policy = found.policies["player"]
    assert isinstance(policy, PolicyWeights)
    assert isinstance(plain, PolicyWeights)
    assert policy.digest == sha256_bytes(serialize(policy.tensors)) != plain.digest
    # A temperature makes the player sample where it would play greedily.
    assert not found.can_repeat
    assert resolve_player(name).can_repeat


@pytest.mark.slow
def test_options_that_a_player_of_a_run_has_not_are_refused(
    command: Command, leveled_run: Path
) -> None:
    bounds = "temperature one of 0.000001 to 1,000,000, got"
    for option, says in (
        ("level=1", "must be a directory of arena export --levels"),
        ("depth=1", "has no option depth; it has level, temperature"),
        *((f"temperature={number}", bounds) for number in ("-1", "1e-40", "nan", "1e7")),
    ):
        error = command("evaluate", f"{leveled_run}:{option}", "bot:random", code=2)["error"]
        assert says in error


@pytest.mark.slow
def test_teams_of_two_populations_are_levels(
    command: Command, tag_run: Path, tmp_path: Path
) -> None:
    arguments = ("--levels", 3, "--matches", 0, "--to", tmp_path, "--json")
    exports = command("export", tag_run, *arguments)["exports"]
    levels = [exports[name]["levels"] for name in ("predator", "prey")]
    assert len(levels[0]) == len(levels[1]) >= 1
    for predator, prey in zip(*levels, strict=True):
        assert predator["temperature"] == prey["temperature"]
        assert predator["score_below"] == prey["score_below"]
    found = resolve_player(f"{tmp_path}:level={len(levels[0])}")
    assert set(found.policies) == {"predator", "prey"}


@pytest.mark.parametrize("high", [None, 530.0])
def test_a_level_is_as_unsure_as_the_exported_player(high: float | None) -> None:
    rating = CardRating(rating=500.0, rating_low=470.0, rating_high=high, open=high is None)
    policies: Any = [
        SimpleNamespace(player="p", agent_steps=0, digest=letter * 64) for letter in "aba"
    ]
    scores = [(10.0 / 11.0, 100), (0.5, 400)]
    levels = [*card_levels(policies, (1.0, 1.0, 4.0), scores, rating)]
    assert [level.level for level in levels] == [3, 2, 1]
    assert [level.graph[:9] for level in levels] == ["policy.on", "levels/01", "policy.on"]
    assert (levels[0].rating, levels[0].rating_low, levels[0].rating_high) == (500.0, 470.0, high)
    # Odds of 10 to 1 are 400 Elo; 1 to 1 is 0, and 400 matches of it add to the variance.
    first, second = 1.0 / (100 * 10.0 / 121.0), 1.0 / (400 * 0.25)
    for level, variance in zip(levels[1:], (first, first + second), strict=True):
        spread = math.hypot(1.96 * math.sqrt(variance) * 400.0 / math.log(10.0), 30.0)
        assert level.rating == pytest.approx(100.0)
        assert level.rating_low == pytest.approx(100.0 - spread)
        assert level.rating_high == (None if high is None else pytest.approx(100.0 + spread))


def test_an_unrated_player_has_no_levels() -> None:
    inspection: Any = SimpleNamespace(standings=lambda name: {name: []})
    top: Any = {"player": ("player/p009", SimpleNamespace(digest="x"))}
    with pytest.raises(ConfigError, match="begins at a player with a rating: player/p009 has none"):
        find_teams(inspection, top, {"player": CardRating()})
