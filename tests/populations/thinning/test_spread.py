"""Which ghosts stay: the newest, the strongest, and those without which a curve would change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from populations.core import ThinningRequest
from populations.thinning.kinds import THINNINGS, Oldest
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
    # Equal steps. Off the line of their neighbours: 1 by 50, 2 by 100, 3 by 0, 4 by 100.
    curve = [0.0, 100.0, 100.0, 300.0, 500.0, 500.0]
    assert NONE.choose(request(curve, num_to_go=1)) == (3,)
    # Then 1 has the triangle (0, 100, 100), and 2 that of (100, 100, 500): 50 of width 2, and
    # 400 / 3 of width 3.
    assert NONE.choose(request(curve, num_to_go=2)) == (3, 1)


def test_unrated_ghosts_are_spread_by_age() -> None:
    nothing = [float("nan")] * 6
    # Gaps of 10, 1, 1, 10, 10: the two inside the short ones are first.
    steps = [0, 10, 11, 12, 22, 32]
    assert NONE.choose(request(nothing, num_to_go=1, steps=steps)) == (2,)


def test_the_newest_and_the_strongest_stay() -> None:
    ratings = [0.0, 0.0, 900.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    rule = Spread(newest_ratio=0.5, strongest_ratio=0.25)
    # Of four that stay two are the newest, one is the strongest, and the first one is the end of
    # history.
    assert set(rule.choose(request(ratings, num_to_go=4))) == {1, 3, 4, 5}


def test_each_policy_has_a_curve_of_its_own() -> None:
    # Two policies by turns, each on a line: none of them is off the other's.
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
    # A policy that gains ever less: 64 stay of 2,000.
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
    # The newest quarter, and the widest gap before: 1/32 of history would be even.
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
