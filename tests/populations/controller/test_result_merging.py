"""Results of players that are gone: merged as the tallies say it, and the same after a resume."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from arena.types import Digest, Entrant, is_trainee, policy_of_trainee
from populations.audit.tally_checks import differences, refold
from populations.controller import rating_input, result_merging
from populations.controller.rating_input import asked_for, fit_input, snapshot
from populations.controller.state.state import make_state
from populations.league.league import RECENT_PER_POLICY, League
from populations.league.lineage import first_of_line
from populations.league.merging import MERGED, Merge, merges
from populations.records.rows import CheckpointRow, EventRow, RatingsRow, TallyRow
from tests.populations.controller.simulated import (
    DUEL,
    DUET,
    TAG,
    World,
    duel_spec,
    duet_spec,
    fold,
    make_world,
    tag_spec,
)
from tests.populations.payoffs import records

# Several tests share whole runs, so they stay in one worker.
pytestmark = pytest.mark.xdist_group("merged results")

KEEP = 16
ENTRANTS = 24
"""Entrants of a fit from which on results are merged."""

FEW: dict[str, object] = {
    # The interval is longer than three checkpoints, which are kept in any case.
    "ghosts": {"every_agent_steps": 2000, "keep": KEEP},
    "evaluation": {"share": 0.3},
    "stop": {"agent_steps_per_policy": 24_000},
}
GAMES = {
    "duel": (DUEL, duel_spec),
    # One game has two opposing populations, the other has two that cooperate in teams.
    "tag": (TAG, tag_spec),
    "duet": (DUET, duet_spec),
}


def merge_from(patch: pytest.MonkeyPatch, num_entrants: int) -> None:
    """Have results merged as soon as a fit has so many entrants."""
    for module in (rating_input, result_merging):
        patch.setattr(module, "MAX_ENTRANTS", num_entrants)
        patch.setattr(module, "SLACK", 4)


def run(world: World) -> World:
    """Go on until training ends; look at what is merged at each merge."""
    while not world.over and world.now_s < 1e6 and world.state.phase.name == "training":
        before = len(world.events("results_merged"))
        world.step()
        for event in world.events("results_merged")[before:]:
            check(world, event)
    return world


def check(world: World, event: EventRow) -> None:
    """Nobody is merged for whose rating anything asks."""
    tables, league = world.state.tables, world.state.league
    asked = asked_for(snapshot(league))
    (merge,) = merges([event])
    ghosts = {Entrant(ghost.weights_digest) for ghost in tables.ghosts.values() if ghost.is_present}
    # Some rows of checkpoints may be removed by now, too.
    origins = {row.weights_digest: row for row in world.committed if isinstance(row, CheckpointRow)}
    for gone, generation in merge.gone.items():
        policy, into = policy_of_trainee(generation)
        # The generation is no longer trained, and PBT counts no matches of it.
        oldest = tables.policies[policy].generation + 1 - result_merging.RECENT_GENERATIONS
        if is_trainee(gone):
            former = policy_of_trainee(gone)
            assert former[0] == policy
            assert former[1] < into <= oldest
            continue
        made = origins[Digest(gone)]
        assert (merge.population, gone) not in asked
        assert made.state == "deleted"
        assert gone not in ghosts
        # The same event may have begun a generation after the merge.
        assert max(made.generation, oldest - 1) <= into <= max(made.generation, oldest)
        assert made.policy == policy
    for entrant in merge.forgotten:
        assert entrant not in ghosts
        if is_trainee(entrant):
            policy, number = policy_of_trainee(entrant)
            row = tables.policies[policy]
            present = Entrant(f"{policy}#{row.generation}")
            assert number < first_of_line(tables.generations, present)
        else:
            made = origins[Digest(entrant)]
            since = tables.policies[made.policy].agent_steps - made.agent_steps
            assert since > world.state.settings.config.ghosts.every_agent_steps


@pytest.fixture(
    scope="module",
    params=[
        name if name == "duel" else pytest.param(name, marks=pytest.mark.slow) for name in GAMES
    ],
)
def merged(request: pytest.FixtureRequest) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(result_merging, "BATCH", 4)
        # The limit is below the number of players, so that some wait for the next merge.
        patch.setattr(result_merging, "MAX_MERGED", 12)
        merge_from(patch, ENTRANTS)
        document, spec = GAMES[request.param]
        world = make_world({**document, **FEW}, spec=spec(), joined=2)
        yield run(world)


def all_merges(world: World) -> list[Merge]:
    return list(merges(row for row in world.committed if isinstance(row, EventRow)))


def test_results_are_merged_and_forgotten(merged: World) -> None:
    found = all_merges(merged)
    assert sum(len(merge.gone) for merge in found) > 2 * KEEP
    # Pure cooperation has no opponents to choose.
    if not merged.state.league.is_cooperation:
        assert sum(len(merge.forgotten) for merge in found) > KEEP
    # Merged weights are never merged again.
    for population in merged.state.settings.setup.populations:
        gone = Counter(g for m in found if m.population == population for g in m.gone)
        assert set(gone.values()) <= {1}


def test_training_results_with_ghosts_are_kept(merged: World) -> None:
    ghosts = {ghost.weights_digest for ghost in merged.state.tables.ghosts.values()}
    met = {Digest(entrant) for entrant in merged.state.league.payoff.entrants()}
    # The ghosts include evaluated and other ones.
    assert ghosts & met or merged.state.league.is_cooperation
    for population in merged.state.settings.setup.populations:
        found = result_merging._forgotten(
            merged.state.settings.config, merged.state.league, population
        )
        assert not ghosts & {Digest(entrant) for entrant in found}


@pytest.mark.slow
def test_rows_are_what_tallies_and_merges_between_them_say(merged: World) -> None:
    state, found = merged.state, all_merges(merged)
    tallies = [row for row in merged.committed if isinstance(row, TallyRow)]
    half_life = state.settings.config.payoffs.half_life_matches
    seats = state.settings.setup.seats
    folded = refold(tallies, seats=seats, half_life_matches=half_life, merges=found)
    assert list(differences(state.tables, folded)) == []
    assert fold(merged.committed) == state.tables
    # A different sequence of merges is detected.
    without = refold(tallies, seats=seats, half_life_matches=half_life, merges=found[:-1])
    assert list(differences(state.tables, without)) != []
    # Merges must not change matches, wins or returns.
    plain = refold(tallies, seats=seats, half_life_matches=half_life)
    for name in ("matches", "wins", "draws", "losses"):
        sums = [
            sum(getattr(row, name) for row in records.values())
            for records in (state.tables.records, plain.records)
        ]
        assert sums[0] == sums[1]
        assert sums[0] > 0 or name == "draws"
    assert len(state.tables.records) < len(plain.records)
    assert len(state.tables.pairs) < 0.8 * len(plain.pairs)


def test_a_resumed_league_has_the_same(merged: World) -> None:
    state = merged.state
    live = state.league
    anew = make_state(state.settings.config, state.settings.setup, state.tables).league
    assert dict(live.results) == dict(anew.results)
    assert dict(live.links) == dict(anew.links)
    assert len(live.links) > KEEP
    assert records(live.payoff) == records(anew.payoff)
    for policy in state.tables.policies.values():
        assert live.matches_in_generation(policy) == anew.matches_in_generation(policy)
        for method in (League.standing_weights, League.first_weights):
            assert method(live, policy) == method(anew, policy)
    links = fit_input(snapshot(live)).links
    # The links of merged players use seats without an advantage over each other.
    assert (links.seats[:, 0] == links.seats[:, 1]).all()
    assert len(links) > KEEP
    assert len({*links.first, *links.second}) > KEEP / 2
    assert snapshot(live).standing == snapshot(anew).standing


def test_records_grow_no_more_once_the_pool_is_full(merged: World) -> None:
    tables, league = merged.state.tables, merged.state.league
    ghosts = len(snapshot(league).ghosts)
    others = sum(row.state == "present" for row in tables.checkpoints.values())
    # A generation has one row with the sums of all merged players.
    bound = (
        len(tables.generations)
        + ghosts
        + (RECENT_PER_POLICY + 2) * len(tables.policies)
        + others
        + 4
        + 12
    )
    assert len(league.tables.records) <= bound


@pytest.mark.slow
def test_without_a_bound_of_ghosts_their_results_stay() -> None:
    short = {"agent_steps_per_policy": 10_000}
    few = {"every_agent_steps": 1000, "keep": None}
    world = make_world({**DUEL, **FEW, "ghosts": few, "stop": short}, joined=1)
    with pytest.MonkeyPatch.context() as patch:
        merge_from(patch, ENTRANTS)
        patch.setattr(result_merging, "BATCH", 1)
        run(world)
    gone = {entrant for merge in all_merges(world) for entrant in merge.gone}
    ghosts = {Entrant(ghost.weights_digest) for ghost in world.state.tables.ghosts.values()}
    assert len(ghosts) > ENTRANTS
    assert not gone & ghosts


def test_strengths_of_a_merge_are_the_ratings_of_the_last_fit_else_by_results(
    merged: World,
) -> None:
    fitted: dict[str, dict[Entrant, float]] = {}
    others: list[bool] = []
    num_rated = 0
    for row in merged.committed:
        if isinstance(row, RatingsRow):
            fitted[row.population] = dict(zip(row.entrants, row.ratings, strict=True))
        elif isinstance(row, EventRow) and row.kind == MERGED:
            (merge,) = merges([row])
            for population, entrant, point in merge.points:
                if entrant not in merge.gone:
                    continue
                rating = fitted[population].get(entrant)
                if rating is not None:
                    num_rated += 1
                    assert point == round(rating, 1)
                else:
                    # A rating of the whole line would equal one of the last fit to the decimal.
                    others.append(point not in {round(r, 1) for r in fitted[population].values()})
    assert num_rated > KEEP
    assert len(others) > KEEP
    assert sum(others) > 0.5 * len(others)
