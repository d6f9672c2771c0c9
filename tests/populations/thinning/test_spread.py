"""Which ghosts stay: the newest, the strongest, and those without which a curve would change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.errors import ConfigError
from populations.config.sections import GhostsConfig
from populations.core import ThinningRequest
from populations.thinning.make import THINNINGS, Oldest, make_thinning, places_of
from populations.thinning.spread import ELO_PER_SHARE, LEAST_ELO, Spread

NONE = Spread(newest_ratio=0.0, strongest_ratio=0.0)


def request(
    ratings: list[float],
    *,
    num_to_go: int,
    steps: list[int] | None = None,
    policies: list[int] | None = None,
    needed: tuple[int, ...] = (),
) -> ThinningRequest:
    num = len(ratings)
    elo = np.array(ratings, dtype=np.float64)
    return ThinningRequest(
        policies=np.array(policies or [0] * num),
        agent_steps=np.array(steps or list(range(num))),
        ratings=elo,
        lows=np.where(np.isnan(elo), -np.inf, elo - 10.0),
        is_needed=np.isin(np.arange(num), needed),
        num_to_go=num_to_go,
    )


def test_a_ghost_on_the_line_of_its_neighbours_goes_first_by_hand() -> None:
    # Steps are equal. The distances to the line of the neighbours are 50 for 1, 100 for 2, 0 for 3,
    # 100 for 4.
    curve = [0.0, 100.0, 100.0, 300.0, 500.0, 500.0]
    assert NONE.choose(request(curve, num_to_go=1)) == (3,)
    # Then 1 has the triangle (0, 100, 100), and 2 that of (100, 100, 500): 50 of width 2, and 400 /
    # 3 of width 3.
    assert NONE.choose(request(curve, num_to_go=2)) == (3, 1)


def test_unrated_ghosts_are_spread_by_age() -> None:
    nothing = [float("nan")] * 6
    # The gaps are 10, 1, 1, 10, 10: the two ghosts between the short gaps are first.
    steps = [0, 10, 11, 12, 22, 32]
    assert NONE.choose(request(nothing, num_to_go=1, steps=steps)) == (2,)


def test_the_newest_and_the_strongest_stay() -> None:
    ratings = [0.0, 0.0, 900.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    rule = Spread(newest_ratio=0.5, strongest_ratio=0.25)
    # Of the four that stay two are the newest, one is the strongest, one is the first of history.
    assert set(rule.choose(request(ratings, num_to_go=4))) == {1, 3, 4, 5}


def test_each_policy_has_a_curve_of_its_own() -> None:
    # Two policies alternate, each on a line, so no ghost is off its policy's line.
    ratings = [0.0, 1000.0, 100.0, 900.0, 200.0, 800.0, 300.0, 100.0]
    policies = [0, 1] * 4
    steps = [0, 0, 1, 1, 2, 2, 3, 3]
    # 5 is off its line by 300; the others are on theirs.
    going = NONE.choose(request(ratings, num_to_go=3, policies=policies, steps=steps))
    assert 5 not in going
    assert set(going) <= {2, 3, 4}


@pytest.mark.parametrize("rule", [Oldest(), NONE, Spread(newest_ratio=0.25, strongest_ratio=0.125)])
@given(data=st.data())
def test_as_many_go_as_asked_and_none_that_is_needed(
    rule: Oldest | Spread, data: st.DataObject
) -> None:
    num = data.draw(st.integers(2, 24))
    ratings = data.draw(
        st.lists(st.floats(-500, 500) | st.just(float("nan")), min_size=num, max_size=num)
    )
    policies = data.draw(st.lists(st.integers(0, 2), min_size=num, max_size=num))
    needed = tuple(data.draw(st.sets(st.integers(0, num - 1))))
    num_to_go = data.draw(st.integers(0, num - 1))
    asked = request(ratings, num_to_go=num_to_go, policies=policies, needed=needed)
    going = rule.choose(asked)
    assert len(set(going)) == len(going) <= num_to_go
    assert not set(going) & set(needed)
    if isinstance(rule, Oldest):
        assert len(going) == min(num_to_go, num - len(needed))


def test_a_pool_that_is_thinned_again_and_again_keeps_its_beginning_and_an_even_spread() -> None:
    # The policy gains ever less, and 64 ghosts stay of 2,000.
    steps, ratings = [], []
    rule = THINNINGS["spread"].from_sections(Spread())
    for age in range(2000):
        steps.append(age)
        ratings.append(1000.0 * (1.0 - 0.998**age))
        if len(steps) > 64:
            going = set(rule.choose(request(ratings, num_to_go=4, steps=steps)))
            assert len(going) == 4
            steps = [step for place, step in enumerate(steps) if place not in going]
            ratings = [elo for place, elo in enumerate(ratings) if place not in going]
    assert steps[0] == 0
    assert steps[-1] == 1999
    # The bound holds for the newest quarter and the widest gap before; even gaps would be 1/32 of
    # history.
    assert max(np.diff(steps)) < 2000 / 10
    assert max(np.diff(ratings)) < 100.0


def _one_by_one(asked: ThinningRequest) -> tuple[int, ...]:
    """Look at all triangles before each removal, as the paper says it."""
    left = list(range(len(asked.policies)))
    going: list[int] = []
    while len(going) < asked.num_to_go:
        areas = []
        for policy in set(asked.policies.tolist()):
            line = [place for place in left if asked.policies[place] == policy]
            everyone = np.flatnonzero(asked.policies == policy)
            begin, end = asked.agent_steps[everyone[[0, -1]]].tolist()
            ages = {one: (asked.agent_steps[one] - begin) / max(end - begin, 1) for one in line}
            for index, place in enumerate(line):
                area = float("inf")
                if 0 < index < len(line) - 1:
                    low, high = line[index - 1], line[index + 1]
                    width, off = ages[high] - ages[low], LEAST_ELO
                    elo = asked.ratings
                    if width > 0.0 and not np.isnan(elo[[low, place, high]]).any():
                        share = (ages[place] - ages[low]) / width
                        off += abs(elo[place] - (elo[low] + share * (elo[high] - elo[low])))
                    area = 0.5 * width * off / ELO_PER_SHARE
                if not asked.is_needed[place]:
                    areas.append((float(area), place))
        if not areas:
            break
        going.append(min(areas)[1])
        left.remove(going[-1])
    return tuple(going)


@given(data=st.data())
def test_the_order_is_that_of_looking_at_all_triangles_each_time(data: st.DataObject) -> None:
    num = data.draw(st.integers(2, 24))
    elo = st.integers(-8, 8).map(lambda k: 40.0 * k) | st.just(float("nan"))
    asked = request(
        data.draw(st.lists(elo, min_size=num, max_size=num)),
        num_to_go=data.draw(st.integers(0, num)),
        steps=sorted(data.draw(st.lists(st.integers(0, 64), min_size=num, max_size=num))),
        policies=data.draw(st.lists(st.integers(0, 2), min_size=num, max_size=num)),
        needed=tuple(data.draw(st.sets(st.integers(0, num - 1)))),
    )
    assert NONE.choose(asked) == _one_by_one(asked)


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


def small_request(num: int = 8, *, num_to_go: int = 2) -> ThinningRequest:
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
    assert len(rule.choose(small_request())) == 2


def test_a_users_own_class_is_called_with_the_section(directory: str) -> None:
    section = GhostsConfig(thinning="own_thinning:EverySecond", keep=99)
    rule = make_thinning(section.thinning, section, launch_directory=directory)
    assert rule.keep == 99  # type: ignore[attr-defined]
    assert places_of(rule.choose(small_request()), small_request()) == (2, 4)


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
        places_of(answer, small_request())


@pytest.mark.parametrize("answer", [(3, 1), [3, 1], np.array([3, 1])])
def test_places_may_come_in_any_sequence(answer: object) -> None:
    assert places_of(answer, small_request()) == (3, 1)
