"""Promises of every matchmaker, whatever its rule, and how a user's own is made."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.errors import ConfigError
from populations.candidates import Candidate
from populations.config.run_config import validate_config
from populations.core import Matchmaker
from populations.matchmaking.alphastar import AlphastarMatchmaker
from populations.matchmaking.drawing import RuleMatchmaker
from populations.matchmaking.external_players import ExternalPlayer, ExternalPlayersMatchmaker
from populations.matchmaking.kinds import KINDS as MATCHMAKING_KINDS
from populations.matchmaking.make import make_matchmaker
from populations.matchmaking.settings import MatchmakingConfig
from tests.populations.matchmaking.toy_league import ghost, latest, request, shares

VARIANTS: dict[str, dict[str, object]] = {kind: {"kind": kind} for kind in MATCHMAKING_KINDS}
for weighting in ("linear", "linear_capped", "variance", "variance_left_rectified"):
    VARIANTS[f"pfsp-{weighting}"] = {"kind": "pfsp", "weighting": weighting}
VARIANTS["pfsp-thompson"] = {"kind": "pfsp", "posterior": "thompson"}
for solver in ("uniform", "uniform_biased", "prd", "alpha_rank", "rectified", "latest"):
    VARIANTS[f"psro-{solver}"] = {"kind": "psro", "meta_solver": solver, "psro_players": 2}
VARIANTS["alphastar-paper"] = {"kind": "alphastar", "constants": "paper"}

ROLES = ("main", "main_exploiter", "league_exploiter")


def make(variant: str, *, latest_ratio: float = 0.5) -> Matchmaker:
    section = MatchmakingConfig.model_validate({**VARIANTS[variant], "latest_ratio": latest_ratio})
    return make_matchmaker(section, window=2, launch_directory=str(Path.cwd()))


@pytest.mark.parametrize("variant", VARIANTS)
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_every_rule_fills_every_block_and_is_a_function_of_its_arguments(
    variant: str, data: st.DataObject
) -> None:
    num_ghosts, num_others = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 3))
    is_own = data.draw(st.booleans()) or num_ghosts + num_others == 0
    ghosts = [
        ghost(
            10 * number,
            policy=data.draw(st.integers(0, 3)),
            role=data.draw(st.sampled_from(ROLES)),
            quality=data.draw(st.floats(-20.0, 5.0)),
        )
        for number in range(num_ghosts)
    ]
    others = [
        latest(number + 1, role=data.draw(st.sampled_from(ROLES))) for number in range(num_others)
    ]
    # The cases are all won, all lost, never played and anything between.
    rates: dict[str, float] = {
        row.player: data.draw(st.sampled_from([0.0, 0.3, 0.5, 1.0]))
        for row in [*ghosts, *others]
        if data.draw(st.booleans())
    }
    num_opponents = data.draw(st.integers(1, 9))
    latest_ratio = data.draw(st.floats(0.0, 1.0))
    asked = request(
        ghosts=ghosts,
        others=others,
        num_opponents=num_opponents,
        role=data.draw(st.sampled_from(ROLES)),
        is_own=is_own,
        rates=rates,
        matches=data.draw(st.sampled_from([1e-300, 1.0, 1e12])),
        ratings={row.player: data.draw(st.floats(-1e5, 1e5)) for row in ghosts[:2]},
        trainee_rating=data.draw(st.sampled_from([float("nan"), 0.0, 1200.0])),
    )
    matchmaker = make(variant, latest_ratio=latest_ratio)
    seed = data.draw(st.integers(0, 2**32))
    first, second = (matchmaker.draw(asked, rng=np.random.default_rng(seed)) for _ in range(2))
    assert first == second
    assert first.num_mirrors + len(first.players) == num_opponents
    assert first.num_mirrors == 0 or is_own
    assert set(first.players) <= {*ghosts, *others}
    assert isinstance(matchmaker, RuleMatchmaker | AlphastarMatchmaker)
    distribution = matchmaker.distribution(asked, rng=np.random.default_rng(seed))
    parts = np.concatenate([[distribution.mirror], distribution.latest, distribution.ghosts])
    assert np.isfinite(parts).all()
    assert parts.min() >= 0.0
    assert parts.sum() == pytest.approx(1.0)
    if isinstance(matchmaker, RuleMatchmaker) and num_ghosts and (is_own or num_others):
        drawn = sum(player in ghosts for player in first.players)
        assert abs(drawn - (1.0 - matchmaker.latest_ratio) * num_opponents) < 1.0 + 1e-6


@pytest.mark.parametrize("variant", ["uniform", "psro", "alphastar", "quality", "rating_proximate"])
def test_the_order_of_candidates_does_not_matter(variant: str) -> None:
    ghosts = [ghost(10 * n, role=ROLES[n % 3], quality=-0.1 * n) for n in range(6)]
    rates: dict[str, float] = {row.player: 0.15 * n for n, row in enumerate(ghosts)}
    found = []
    for rows in (ghosts, ghosts[::-1]):
        asked = request(ghosts=rows, rates=rates)
        matchmaker = make(variant)
        assert isinstance(matchmaker, RuleMatchmaker | AlphastarMatchmaker)
        distribution = matchmaker.distribution(asked, rng=np.random.default_rng(0))
        found.append(dict(zip(asked.ghosts.players, distribution.ghosts, strict=True)))
    assert found[0] == pytest.approx(found[1])


BOTS = [
    ExternalPlayer(player=ghost(0).player, share=0.1),
    ExternalPlayer(player=ghost(1).player, share=0.15),
]


def test_outsiders_have_their_share_and_the_rest_is_the_rules() -> None:
    matchmaker = ExternalPlayersMatchmaker(inner=make("latest"), external=BOTS)
    # 0.25 x 8 = 2 blocks for certain; the rest is mirror self-play.
    rng = np.random.default_rng(0)
    drawn = [matchmaker.draw(request(), rng=rng) for _ in range(200)]
    assert {(len(o.players), o.num_mirrors) for o in drawn} == {(2, 6)}
    found = shares(matchmaker, request(), num_draws=2500)
    expected = {ghost(0).player: 0.1, ghost(1).player: 0.15, "mirror": 0.75}
    assert found == pytest.approx(expected, abs=0.01)


def test_outsiders_alone_need_nobody_else() -> None:
    alone = [ExternalPlayer(player=ghost(0).player, share=1.0)]
    matchmaker = ExternalPlayersMatchmaker(inner=make("uniform"), external=alone)
    drawn = matchmaker.draw(request(ghosts=0, is_own=False), rng=np.random.default_rng(0))
    assert [type(player) for player in drawn.players] == [Candidate] * 8
    assert {player.player for player in drawn.players} == {ghost(0).player}


OWN = """
from populations.core import Opponents


class Newest:
    def __init__(self, *, back=0):
        self.back = back

    def draw(self, request, *, rng):
        ghost = request.ghosts[len(request.ghosts) - 1 - self.back]
        return Opponents(num_mirrors=0, players=(ghost,) * request.num_opponents)


class Silent:
    pass


class Broken:
    def __init__(self):
        raise RuntimeError("no")


class Loses:
    def draw(self, request, *, rng):
        return self._found(request)

    def _found(self, request):
        return request.ghots


class Answers:
    def draw(self, request, *, rng):
        return [1, 2]


value = 3
"""


@pytest.fixture
def launch_directory(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "own_matchmaking.py").write_text(OWN)
    path = list(sys.path)
    yield str(tmp_path)
    sys.path[:] = path
    sys.modules.pop("own_matchmaking", None)


def section(**values: object) -> MatchmakingConfig:
    return MatchmakingConfig.model_validate(values)


def test_a_users_own_class_is_called_with_its_options(launch_directory: str) -> None:
    for options, steps in (({}, 5), ({"back": 2}, 3)):
        matchmaker = make_matchmaker(
            section(kind="own_matchmaking:Newest", options=options),
            window=2,
            launch_directory=launch_directory,
        )
        drawn = matchmaker.draw(request(), rng=np.random.default_rng(0))
        assert [player.agent_steps for player in drawn.players] == [steps] * 8


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("own_matchmaking:Missing", {}, "kind: own_matchmaking:Missing: own_matchmaking has no"),
        ("no_such_module:A", {}, "kind: no_such_module:A: there is no module 'no_such_module'"),
        ("own_matchmaking:value", {}, "kind: own_matchmaking:value must be a class, got 3"),
        ("own_matchmaking:Silent", {}, r"must be a populations.core.Matchmaker, .* draw\("),
        ("own_matchmaking:Broken", {}, "raised RuntimeError: no"),
        ("own_matchmaking:Newest", {"far": 1}, r"matchmaking.options {'far': 1} raised TypeError"),
    ],
)
def test_what_is_wrong_with_it_is_said_at_the_start(
    launch_directory: str, name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_matchmaker(
            section(kind=name, options=options), window=2, launch_directory=launch_directory
        )


def test_a_bug_in_it_is_one_message_with_its_own_lines(launch_directory: str) -> None:
    kind = "own_matchmaking:Loses"
    rule = make_matchmaker(section(kind=kind), window=2, launch_directory=launch_directory)
    with pytest.raises(ConfigError) as caught:
        rule.draw(request(), rng=np.random.default_rng(0))
    said, *lines = str(caught.value).splitlines()
    assert said.startswith(f"matchmaking.kind: {kind} in draw raised AttributeError: ")
    assert [line.rpartition(", in ")[2] for line in lines[::2]] == ["draw", "_found"]
    assert lines[-1] == "    return request.ghots"


def test_what_it_answers_must_be_opponents(launch_directory: str) -> None:
    kind = "own_matchmaking:Answers"
    rule = make_matchmaker(section(kind=kind), window=2, launch_directory=launch_directory)
    with pytest.raises(ConfigError, match=r"in draw must return Opponents, got \[1, 2\]"):
        rule.draw(request(), rng=np.random.default_rng(0))


@pytest.mark.parametrize(
    ("matchmaking", "message"),
    [
        ({"kind": "pfps"}, r"matchmaking.kind: must be one of latest, .* or package.module:Class"),
        ({"bots": {"bot:nobody": 0.1}}, "a bot is bot:random, .*, got 'bot:nobody'"),
        ({"bots": {"bot:random": 0.6, "exports/a": 0.5}}, "shares must sum to at most 1"),
        ({"bots": {"bot:random": 0.0}}, "greater than 0"),
        ({"options": {"back": 1}}, "options must be empty where kind is .*, got \\{'back': 1\\}"),
        ({"meta_solver": "guess"}, "matchmaking.meta_solver"),
        ({"latest_ratio": 0.7, "living_ratio": 0.4}, "must sum to at most 1, got 0.7 and 0.4"),
        ({"psro_players": 1}, "psro_players: must be at least 2, got 1"),
    ],
)
def test_the_configuration_names_what_is_wrong(
    matchmaking: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        validate_config({"environment": {"id": "a:b"}, "matchmaking": matchmaking})


def test_shares_that_sum_to_one_but_for_rounding_pass() -> None:
    assert section(latest_ratio=0.7, living_ratio=0.1 * 3).living_ratio == 0.1 * 3
