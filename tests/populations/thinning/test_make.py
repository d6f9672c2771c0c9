"""Rules of thinning by name, and a user's own, which may answer anything."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from arena.errors import ConfigError
from populations.config.sections import GhostsConfig
from populations.core import ThinningRequest
from populations.thinning.kinds import THINNINGS
from populations.thinning.make import make_thinning, places_of

EVERY_SECOND = """
class EverySecond:
    def __init__(self, section):
        self.keep = section.keep

    def choose(self, request):
        return [n for n in range(0, len(request.policies), 2) if not request.is_needed[n]][:2]


class Mute:
    def __init__(self, section):
        pass


def broken(section):
    return {}["nothing"]


NUMBER = 3
"""


def request(num: int = 8, *, num_to_go: int = 2) -> ThinningRequest:
    is_needed = np.zeros(num, dtype=bool)
    is_needed[0] = True
    return ThinningRequest(
        policies=np.zeros(num, dtype=np.int64),
        agent_steps=np.arange(num),
        ratings=np.full(num, np.nan),
        lows=np.full(num, -np.inf),
        is_needed=is_needed,
        num_to_go=num_to_go,
    )


@pytest.fixture
def directory(tmp_path: Path) -> str:
    (tmp_path / "own_thinning.py").write_text(EVERY_SECOND)
    return str(tmp_path)


@pytest.mark.parametrize("name", list(THINNINGS))
def test_rules_by_name(name: str) -> None:
    rule = make_thinning(name, GhostsConfig(thinning=name))
    assert len(rule.choose(request())) == 2


def test_a_users_own_class_is_called_with_the_section(directory: str) -> None:
    section = GhostsConfig(thinning="own_thinning:EverySecond", keep=99)
    rule = make_thinning(section.thinning, section, launch_directory=directory)
    assert rule.keep == 99  # type: ignore[attr-defined]
    assert places_of(rule.choose(request()), request()) == (2, 4)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("own_thinning:Mute", r"must be a populations.core.Thinning, with a method choose"),
        ("own_thinning:broken", r"own_thinning:broken, when it was made, .*KeyError"),
        ("own_thinning:NUMBER", r"must be a class, got 3"),
        ("own_thinning:Nobody", r"ghosts.thinning: .*Nobody"),
        ("no_such_module:Class", r"ghosts.thinning: .*no_such_module"),
    ],
)
def test_a_class_that_cannot_be_had_is_refused(directory: str, name: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        make_thinning(name, GhostsConfig(thinning=name), launch_directory=directory)


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be one of spread, oldest, or package.module:Class"):
        GhostsConfig(thinning="newest")


class Answer:
    def __init__(self, answer: object) -> None:
        self.answer = answer

    def choose(self, _: ThinningRequest) -> tuple[int, ...]:
        return self.answer  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (None, "must return places"),
        ("12", "must return places"),
        ([1.5], "whole numbers, got 1.5"),
        ([8], "at least 0 and below 8, got 8"),
        ([-1], "at least 0 and below 8, got -1"),
        ([1, 1], "named twice"),
        ([0], "the ghost in place 0 is needed"),
        ([1, 2, 3], "at most 2 are to go, got 3"),
    ],
)
def test_an_answer_that_is_none_is_refused(answer: object, complaint: str) -> None:
    with pytest.raises((TypeError, ValueError), match=complaint):
        places_of(answer, request())


@pytest.mark.parametrize("answer", [(3, 1), [3, 1], np.array([3, 1])])
def test_places_may_come_in_any_sequence(answer: object) -> None:
    assert places_of(answer, request()) == (3, 1)
