from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from arena.errors import ConfigError
from populations.config.run_config import validate_config
from populations.matchmaking.make import make_matchmaker
from populations.matchmaking.settings import MatchmakingConfig
from tests.populations.matchmaking.toy_league import request

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
