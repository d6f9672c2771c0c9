from __future__ import annotations

from arena.codec import from_msgpack, msgpack_bytes
from arena.learners.ranks.crew import RankResult, merge_results
from arena.rollout.measured import Measures, Spread
from arena.types import Entrant, PairScore, PolicyId, Tally
from arena.wire.messages import InFlight

ME, OTHER = Entrant("player/p000#0"), Entrant("bot:random")


def tally(other: Entrant, *, matches: int, returns: float) -> Tally:
    return Tally(
        entrants=(ME, other),
        matches=matches,
        pairs=(PairScore(first=0, second=1, wins=matches, draws=0, losses=0),),
        return_sum=(returns, -returns),
        return_sum_of_squares=(returns * returns, returns * returns),
        length_sum=7 * matches,
    )


def result(*, matches: int, low: float | None, void: int = 0) -> RankResult:
    height = Spread()
    for value in range(matches):
        height.add(float(value))
    return RankResult(
        tallies=(tally(OTHER, matches=matches, returns=1.5),),
        episodes=(tally(OTHER, matches=matches + 1, returns=1.5),),
        measures=(
            Measures(
                num_steps=32,
                low=low,
                high=low,
                figures={"height": height} if matches else {},
                num_trained=matches,
                num_decisions=10,
            ),
        ),
        in_flight=(InFlight(entrants=(ME, OTHER), num_envs=matches),),
        dropped=(PolicyId("player/p001"),),
        lost={"episode/dropped": 2.0, **({"episode/void": float(void)} if void else {})},
    )


def test_results_of_ranks_add_up() -> None:
    merged = merge_results(
        [result(matches=3, low=None), result(matches=2, low=-1.0, void=4), result(matches=0, low=2)]
    )
    assert [one.matches for one in merged.tallies] == [5]
    assert merged.tallies[0].length_sum == 35
    assert merged.tallies[0].return_sum == (4.5, -4.5)
    assert [one.matches for one in merged.episodes] == [8]
    assert merged.in_flight == (InFlight(entrants=(ME, OTHER), num_envs=5),)
    assert merged.dropped == (PolicyId("player/p001"),)
    assert merged.lost == {"episode/dropped": 6.0, "episode/void": 4.0}
    # Heights 0, 1, 2 and 0, 1: mean 0.8, variance (0.64 + 0.04 + 1.44 + 0.64 + 0.04) / 5.
    found = merged.measures[0].metrics()
    assert found["environment/height_mean"] == 0.8
    assert abs(found["environment/height_deviation"] - 0.56**0.5) < 1e-12
    assert (found["reward/min"], found["reward/max"]) == (-1.0, 2.0)
    assert found["rollout/trained_share"] == 5 / 30
    assert found["rollout/steps_count"] == 32.0


def test_a_result_is_the_same_after_its_way() -> None:
    sent = result(matches=3, low=-1.0)
    body = msgpack_bytes(sent, is_ours=True)
    assert from_msgpack(body, RankResult, limit=len(body), is_ours=True) == sent
