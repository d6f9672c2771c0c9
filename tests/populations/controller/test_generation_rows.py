"""Rows of generations go, and nothing that follows from the others changes by that."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from arena.types import Entrant, trainee_entrant
from populations.audit.tally_checks import differences, refold
from populations.audit.verify import Sums, check_evolution
from populations.choices import number_of
from populations.controller import result_merging
from populations.controller.indexes.opponent_pool import OpponentPools
from populations.controller.opponents import OpponentStatistics
from populations.controller.state.state import ControllerState, make_state
from populations.controller.state.transaction import Transaction
from populations.league.league import League
from populations.league.lineage import History, first_of_line, line_of, num_copies, schedule_of
from populations.league.merging import Merge, merges
from populations.records.rows import EventRow, GenerationRow, PolicyRow, TallyRow
from populations.records.tables import GENERATIONS, Table
from tests.populations.controller.simulated import DUEL, TAG, World, fold, make_world, tag_spec
from tests.populations.controller.test_result_merging import ENTRANTS, merge_from, run

# Several tests share whole runs, so they stay in one worker.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("generation rows")]

KEPT, RECENT = 24, 3
LONG: dict[str, object] = {
    "ghosts": {"every_agent_steps": 1000, "keep": 16},
    "pbt": {
        "ready_agent_steps": 600,
        "ready_growth": 0,
        "warm_up_agent_steps": 600,
        "min_matches": 4,
        # With this gap hardly any policy is surely better, so lines become long.
        "min_rating_gap": 150,
    },
    "stop": {"agent_steps_per_policy": 24_000},
}
WORLDS: dict[str, dict[str, object]] = {
    "evaluating": {**DUEL, **LONG, "evaluation": {"share": 0.3}},
    "tag": {**TAG, **LONG, "evaluation": {"share": 0.3}},
}


def results(state: ControllerState, policy: PolicyRow) -> list[list[float]]:
    """Results against all ghosts, by which opponents are chosen; of one after the other."""
    found = []
    for population in state.settings.setup.populations:
        pool = state.indexes.opponent_pools.pool(population)
        record = OpponentStatistics(
            state.fits,
            pool,
            policy,
            population,
            ghosts_every=state.settings.config.ghosts.every_agent_steps,
        ).record(pool.ghosts.candidates)
        found += [column.tolist() for column in record]
    return found


def anew(state: ControllerState) -> ControllerState:
    return make_state(state.settings.config, state.settings.setup, state.tables)


def known(league: League) -> object:
    """What others read of generations."""
    policies = list(league.tables.policies.values())
    return (
        [first_of_line(league.tables.generations, entrant_of(policy)) for policy in policies],
        [
            line_of(league.tables.generations, league.payoff, entrant_of(policy))
            for policy in policies
        ],
        [league.matches_in_generation(policy) for policy in policies],
        [num_copies(league.tables.generations, policy.policy) for policy in policies],
        [
            list(league.tables.generations.by("population")[policy.population].values())[-KEPT:]
            for policy in policies
        ],
    )


def entrant_of(policy: PolicyRow) -> Entrant:
    return trainee_entrant(policy.policy, generation=policy.generation)


@dataclass
class Watched:
    """A world whose removals and merges are looked at, each one before and after."""

    world: World
    sizes: list[tuple[int, int]] = field(default_factory=list)
    num_folds: int = 0


@pytest.fixture(scope="module", params=list(WORLDS))
def watched(request: pytest.FixtureRequest) -> Watched:
    world = make_world(
        WORLDS[request.param],
        tag_spec() if request.param == "tag" else None,
        joined=2,
        learning=lambda trainee: 2e4 * number_of(trainee.hyperparameters["learning_rate"]),
    )
    found = Watched(world)
    remove, apply = result_merging.remove_generations, result_merging._apply

    def look(league: League, tx: Transaction, populations: list[str]) -> None:
        state = world.state
        before, num_before = known(state.league), len(state.tables.generations)
        remove(league, tx, populations)
        num_after = len(state.tables.generations)
        found.sizes.append((num_before, num_after))
        if num_after < num_before:
            assert known(state.league) == before == known(anew(state).league)

    def look_at_merge(league: League, pools: OpponentPools, tx: Transaction, merge: Merge) -> None:
        state = world.state
        policies = list(state.tables.policies.values())
        before = [results(state, policy) for policy in policies]
        apply(league, pools, tx, merge)
        if any(merge.folds()):
            found.num_folds += 1
            after = [results(state, policy) for policy in policies]
            for old, new in zip(before, after, strict=True):
                for one, other in zip(old, new, strict=True):
                    assert one == pytest.approx(other, rel=1e-9)
            # A resumed controller has the same values to the bit.
            assert after == [results(anew(state), policy) for policy in policies]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(result_merging, "remove_generations", look)
        patch.setattr(result_merging, "KEPT_GENERATIONS", KEPT)
        patch.setattr(result_merging, "GENERATIONS_BATCH", 4)
        patch.setattr(result_merging, "BATCH", 4)
        merge_from(patch, ENTRANTS)
        patch.setattr(result_merging, "RECENT_GENERATIONS", RECENT)
        patch.setattr(result_merging, "_apply", look_at_merge)
        run(world)
    return found


def all_generations(world: World) -> dict[str, GenerationRow]:
    return {row.entrant: row for row in world.committed if isinstance(row, GenerationRow)}


def all_events(world: World) -> list[EventRow]:
    return [row for row in world.committed if isinstance(row, EventRow)]


def test_rows_grow_no_more(watched: Watched) -> None:
    tables = watched.world.state.tables
    made = all_generations(watched.world)
    assert len(made) > 3 * KEPT
    assert sum(before > after for before, after in watched.sizes) > 3
    # Rows are among the newest, named by checkpoints, or made since the last removal.
    named = {(row.policy, row.generation) for row in tables.checkpoints.values()}
    others = [
        row for row in tables.generations.values() if (row.policy, row.generation) not in named
    ]
    populations = len(watched.world.state.settings.setup.populations)
    assert len(others) <= populations * (KEPT + 8) + len(tables.policies)


def test_results_of_former_generations_become_one(watched: Watched) -> None:
    state = watched.world.state
    assert watched.num_folds > 3
    trained = Counter(
        {policy: len(state.league.payoff.generations(policy)) for policy in state.tables.policies}
    )
    # Rows are recent, hold the sum of older rows, or were made since the last merge.
    assert max(trained.values()) <= RECENT + 8
    made = Counter(row.policy for row in all_generations(watched.world).values())
    assert max(made.values()) > 2 * (RECENT + 8)


def test_the_journal_has_what_memory_has(watched: Watched) -> None:
    world = watched.world
    state = world.state
    assert fold(world.committed) == state.tables
    folded = refold(
        [row for row in world.committed if isinstance(row, TallyRow)],
        seats=state.settings.setup.seats,
        half_life_matches=state.settings.config.payoffs.half_life_matches,
        merges=list(merges(all_events(world))),
    )
    assert list(differences(state.tables, folded)) == []


def test_views_and_replays_have_all_of_them(watched: Watched) -> None:
    world = watched.world
    tables, made = world.state.tables, all_generations(world)
    history = History.of(tables, all_events(world))
    assert set(history.generations) == set(made)
    for policy in tables.policies:
        whole = replace(tables, generations=Table(GENERATIONS, made.values()))
        assert schedule_of(tables, policy, history=history) == schedule_of(whole, policy)


def test_verification_reads_events_and_rows(watched: Watched) -> None:
    world = watched.world
    sums = Sums()
    sums.add_events(all_events(world))
    removed = sums.generations
    assert len(removed) > KEPT
    assert list(check_evolution(world.state.tables, removed)) == []
    assert list(check_evolution(world.state.tables)) != []
    some = dict(list(removed.items())[1:])
    assert list(check_evolution(world.state.tables, some)) != []
