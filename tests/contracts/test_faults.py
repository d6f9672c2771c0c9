"""Suites find the mistakes of users' objects, and name the rule that is broken."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import arena.testing
from arena.testing import ContractBroken
from tests.contracts import broken_rules

Suite = Callable[..., None]

SUITES: Mapping[str, tuple[type, Mapping[Any, str]]] = {
    "matchmaker": (broken_rules.Uniform, broken_rules.MATCHMAKERS),
    "exploit": (broken_rules.CopiesTheBest, broken_rules.EXPLOITS),
    "explore": (broken_rules.Nudges, broken_rules.EXPLORES),
    "thinning": (broken_rules.Eldest, broken_rules.THINNINGS),
}
"""By suite: an object without a fault, and objects with one, with the rule that it breaks."""

KEYWORDS: Mapping[str, Mapping[str, Any]] = {}

FAULTS = [
    pytest.param(suite, broken, rule, id=f"{suite}-{broken.__name__}")
    for suite, (_, faults) in SUITES.items()
    for broken, rule in faults.items()
]


def check(suite: str, given: object) -> None:
    function: Suite = getattr(arena.testing, f"check_{suite}")
    function(given, **KEYWORDS.get(suite, {}))


@pytest.mark.parametrize(("suite", "broken", "rule"), FAULTS)
def test_a_fault_is_found_and_its_rule_named(suite: str, broken: type, rule: str) -> None:
    with pytest.raises(ContractBroken, match=re.escape(rule)) as found:
        check(suite, broken)
    # By its module, as a configuration names it.
    assert str(found.value).startswith(f"{__package__ or 'tests.contracts'}.")
    assert f":{broken.__name__}: " in str(found.value)


@pytest.mark.parametrize("suite", SUITES)
def test_an_object_without_a_fault_passes(suite: str) -> None:
    check(suite, SUITES[suite][0])


def test_there_are_forty_faults_and_five_of_every_suite() -> None:
    assert len(FAULTS) >= 40
    assert all(len(faults) >= 5 for _, faults in SUITES.values())
    public = {name for name in dir(arena.testing) if name.startswith("check_")}
    assert {f"check_{suite}" for suite in SUITES} == public
