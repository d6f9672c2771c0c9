"""Suites find the mistakes of users' objects, and name the rule that is broken."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import arena.testing
from arena.config import NetworkConfig
from arena.testing import ContractBroken, check_batched_game
from tests.assets.batched_games import TakesTurns
from tests.assets.dqn import Dqn
from tests.assets.sinks import Kept
from tests.contracts import broken_algorithms, broken_players, broken_rules

Suite = Callable[..., None]

SUITES: Mapping[str, tuple[type, Mapping[Any, str]]] = {
    "matchmaker": (broken_rules.Uniform, broken_rules.MATCHMAKERS),
    "exploit": (broken_rules.CopiesTheBest, broken_rules.EXPLOITS),
    "explore": (broken_rules.Nudges, broken_rules.EXPLORES),
    "thinning": (broken_rules.Eldest, broken_rules.THINNINGS),
    "algorithm": (Dqn, broken_algorithms.ALGORITHMS),
    "bot": (broken_players.FirstLegal, broken_players.BOTS),
    "encoder": (broken_players.OneLayer, broken_players.ENCODERS),
    "batched_game": (TakesTurns, broken_players.GAMES),
    "sink": (Kept, broken_players.SINKS),
}
"""By suite: an object without a fault, and objects with one, with the rule that it breaks."""

BOARD = {"environment": "classic/tictactoe-v3"}
KEYWORDS: Mapping[str, Mapping[str, Any]] = {
    "algorithm": BOARD,
    "bot": BOARD,
    "encoder": BOARD,
    "batched_game": {"num_calls": 30},
}

FAULTS = [
    pytest.param(suite, broken, rule, id=f"{suite}-{broken.__name__}")
    for suite, (_, faults) in SUITES.items()
    for broken, rule in faults.items()
]


def check(suite: str, given: object, **more: object) -> None:
    function: Suite = getattr(arena.testing, f"check_{suite}")
    function(given, **KEYWORDS.get(suite, {}), **more)


@pytest.mark.parametrize(("suite", "broken", "rule"), FAULTS)
def test_a_fault_is_found_and_its_rule_named(suite: str, broken: type, rule: str) -> None:
    with pytest.raises(ContractBroken, match=re.escape(rule)) as found:
        check(suite, broken)
    # The class is named by its module, as in a configuration.
    assert str(found.value).startswith(f"{__package__ or 'tests.contracts'}.")
    assert f":{broken.__name__}: " in str(found.value)


@pytest.mark.parametrize(("broken", "rule"), broken_algorithms.CRITICS.items())
def test_a_fault_of_a_centralized_critic_is_found(broken: type, rule: str) -> None:
    network = NetworkConfig(hidden_sizes=(16, 16), critic="joint", normalize_observations=False)
    with pytest.raises(ContractBroken, match=re.escape(rule)):
        check("algorithm", broken, network=network)
    check("algorithm", "ppo", network=network)


@pytest.mark.parametrize("suite", SUITES)
def test_an_object_without_a_fault_passes(suite: str) -> None:
    check(suite, SUITES[suite][0])


@pytest.mark.parametrize("suite", SUITES)
def test_an_object_is_one_file_found_by_its_reference(
    suite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    right, module = SUITES[suite][0], f"file_of_{suite}"
    text = f"from {right.__module__} import {right.__name__}\n\nclass Own({right.__name__}): ...\n"
    (tmp_path / f"{module}.py").write_text(text, encoding="utf8")
    check(suite, f"{module}:Own", launch_directory=str(tmp_path))
    with pytest.raises(ContractBroken, match=f"{module} has no 'Other'"):
        check(suite, f"{module}:Other", launch_directory=str(tmp_path))


def test_types_name_what_is_resolved() -> None:
    stub = Path(arena.testing.__file__).with_suffix(".pyi").read_text(encoding="utf8")
    named = {
        alias.asname: node.module
        for node in ast.walk(ast.parse(stub))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert named == vars(arena.testing)["_HOMES"]


def test_there_are_forty_faults_and_five_of_every_suite() -> None:
    assert len(FAULTS) >= 40
    assert all(len(faults) >= 5 for _, faults in SUITES.values())
    public = {name for name in dir(arena.testing) if name.startswith("check_")}
    assert {f"check_{suite}" for suite in SUITES} == public


def test_a_twin_that_plays_another_game_is_found() -> None:
    rule = "it must be the same game as classic/tictactoe-v3: terminated .* after the actions"
    with pytest.raises(ContractBroken, match=rule):
        check_batched_game(broken_players.KnowsNoDiagonals, against="classic/tictactoe-v3")
