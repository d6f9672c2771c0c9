"""Orders that are kept between decisions are those of sorting anew."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from arena.types import PolicyId
from populations.core import Member
from populations.pbt.ranking import MAX_MOVED, Ranking

NUM_MEMBERS = 12
MIN_MATCHES = 10
RATINGS = st.sampled_from([None, math.nan, -30.0, 0.0, 10.0, 10.5])
DEVIATIONS = st.sampled_from([0.0, 7.0, 40.0, math.inf])


def member(
    index: int, rating: float | None = 0.0, deviation: float = 0.0, num_matches: int = 10
) -> Member:
    return Member(
        policy=PolicyId(f"player/p{index:03d}"),
        index=index,
        rating=rating,
        deviation=deviation,
        num_matches=num_matches,
        is_reference=False,
        num_returns=0,
        return_mean=0.0,
        return_variance=0.0,
    )


def sorted_anew(members: list[Member], num_deviations: float) -> list[Member]:
    """By bound, highest first; of equals the better rated, then the lower index."""

    def bound(known: Member) -> float:
        assert known.rating is not None
        if math.isinf(known.deviation):
            sign = (num_deviations > 0.0) - (num_deviations < 0.0)
            return sign * math.inf if sign else known.rating
        return known.rating + num_deviations * known.deviation

    ranked = [
        known
        for known in members
        if known.rating is not None
        and not math.isnan(known.rating)
        and known.num_matches >= MIN_MATCHES
    ]
    by_rating = sorted(ranked, key=lambda known: (-(known.rating or 0.0), known.index))
    return sorted(by_rating, key=lambda known: -bound(known))


CHANGES = st.lists(
    st.tuples(
        st.integers(0, NUM_MEMBERS - 1), RATINGS, DEVIATIONS, st.sampled_from([0, 9, 10, 11])
    ),
    max_size=5,
)


@given(steps=st.lists(CHANGES, max_size=8), num_deviations=st.sampled_from([0.0, 1.5]))
def test_orders_follow_what_changes(
    steps: list[list[tuple[int, float | None, float, int]]], num_deviations: float
) -> None:
    ranking = Ranking(min_matches=MIN_MATCHES)
    members = [member(index, float(index % 4)) for index in range(NUM_MEMBERS)]
    for changes in [[], *steps]:
        for index, rating, deviation, num_matches in changes:
            members[index] = member(index, rating, deviation, num_matches)
        ranking.update(members)
        for bounds in (-num_deviations, 0.0, num_deviations):
            expected = sorted_anew(members, bounds)
            assert ranking.order(bounds) == tuple(expected)
            assert ranking.order(bounds, within=slice(3)) == tuple(expected[:3])
            assert ranking.order(bounds, within=slice(-3, None)) == tuple(expected[-3:])


def test_many_changes_and_another_number_of_members_sort_anew() -> None:
    ranking = Ranking(min_matches=MIN_MATCHES)
    members = [member(index, float(index)) for index in range(3 * MAX_MOVED)]
    ranking.update(members)
    assert ranking.order() == tuple(reversed(members))
    turned = [replace(known, rating=-float(known.index)) for known in members]
    ranking.update(turned)
    assert ranking.order() == tuple(turned)
    ranking.update(turned[1:])
    assert ranking.order() == tuple(turned[1:])


def test_unchanged_members_are_not_sorted_again() -> None:
    ranking = Ranking(min_matches=MIN_MATCHES)
    members = [member(index, float(index)) for index in range(NUM_MEMBERS)]
    ranking.update(members)
    ranking.order()
    members[4] = replace(members[4], rating=100.0)
    ranking.update(members)
    (keys,) = ranking._orders.values()
    assert len(keys) == NUM_MEMBERS
    assert ranking.order()[0] is members[4]
