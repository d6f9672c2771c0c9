"""Successive halving: who leaves, who stays, and who comes back."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from arena.types import LearnerId, PolicyId
from populations.controller.evaluation.pairings import evaluation_pool
from populations.controller.evolution.halving import fill_places, halve, num_active, num_places
from populations.controller.indexes.teams import team_of
from populations.controller.state.state import make_state
from populations.decisions import Evidence, Keep
from populations.records.rows import AssignmentRow, PolicyState
from populations.views.sentences import event_document, sentence
from tests.populations.controller.eager import PBT, transaction
from tests.populations.controller.simulated import (
    DUEL,
    DUET,
    TAG,
    World,
    by_rate,
    duet_spec,
    fold,
    made_once,
    make_world,
    stranger,
    tag_spec,
)

HALVING: dict[str, object] = {**PBT, "share": "halving", "reference": False}
SIX: dict[str, object] = {
    **DUEL,
    "populations": {"player": {"size": 6}},
    "pbt": HALVING,
    "stop": {"agent_steps_per_policy": 8000},
}


@made_once
def halved(document: dict[str, object] = SIX, *, learners: int = 2) -> World:
    """A world in which the learning rate makes a difference, played to its end."""
    world = make_world(document)
    world.learning = by_rate
    for _ in range(learners):
        world.join()
    world.run()
    return world


def retired(world: World) -> set[PolicyId]:
    return set(world.state.tables.policies.by("inactive").get("retired", ()))


@pytest.mark.parametrize(
    ("sections", "population", "places"),
    [
        ({"pbt": {**PBT, "share": "even"}}, "player", 6),
        ({}, "player", 2),
        ({"learners": 4}, "player", 4),
        ({"learners": 1}, "player", 2),  # a single policy has no other to be compared with
        ({"learners": 4, "deterministic": True}, "player", 2),  # one assignment at a time
    ],
)
def test_places_by_hand(sections: dict[str, object], population: str, places: int) -> None:
    state = make_world({**SIX, **sections}).state
    assert num_places(state.settings.config, state.crew, population) == places


def test_populations_share_learners_but_teams_and_rivals_use_one_for_all() -> None:
    tag = {**TAG, "pbt": HALVING}
    state = make_world({**tag, "learners": 6}, tag_spec()).state
    assert num_places(state.settings.config, state.crew, "prey") == 3
    bound = {**tag, "learners": {"predator": 5, "prey": 2}}
    state = make_world(bound, tag_spec()).state
    assert [
        num_places(state.settings.config, state.crew, name) for name in ("predator", "prey")
    ] == [5, 2]
    rivals = {**tag, "learners": 3, "matchmaking": {"rivals": "learning"}}
    state = make_world(rivals, tag_spec()).state
    assert num_places(state.settings.config, state.crew, "prey") == 3
    teams = {**DUET, "pbt": HALVING, "learners": 3}
    state = make_world(teams, duet_spec()).state
    assert num_places(state.settings.config, state.crew, "speaker") == 3


def test_learners_from_elsewhere_make_places() -> None:
    world = make_world(SIX)
    for _ in range(5):
        world.join()
    assert num_places(world.state.settings.config, world.state.crew, "player") == 5


def test_the_worse_half_leaves_until_as_many_train_as_learners() -> None:
    world = halved()
    policies = world.state.tables.policies
    active = 6
    for event in world.events("promoted", "retired", "exploited", "explored", "kept"):
        if event.kind not in ("promoted", "retired"):
            assert active == 2, "nobody copies or explores before"
            continue
        rank, ranked = event.data["rank"], event.data["num_ranked"]
        assert isinstance(rank, int)
        assert isinstance(ranked, int)
        # Of an odd number the better half is the larger one.
        leaves = rank > max(2, ranked / 2 + 0.5 * (ranked % 2))
        assert event.kind == ("retired" if leaves else "promoted")
        active -= leaves
    retired = {name for name, row in policies.items() if row.state == "retired"}
    assert active == num_active(world.state.settings.config, world.state.tables, "player") == 2
    assert {row.subject for row in world.events("retired")} == retired
    assert len(retired) == 4
    assert world.events("explored"), "PBT goes on among those who are left"
    # Retired policies train no more, and the others get their steps.
    steps = {name: row.agent_steps for name, row in policies.items()}
    assert max(steps[name] for name in retired) < min(
        steps[name] for name in policies if name not in retired
    )
    for row in world.events("retired"):
        after = world.committed[world.committed.index(row) :]
        given = [one for one in after if isinstance(one, AssignmentRow) and one.kind == "train"]
        assert all(t.policy != row.subject for one in given for t in one.message.trainees)  # type: ignore[union-attr]
    assert fold(world.committed) == world.state.tables


def test_retired_policies_are_rated_by_what_they_left_behind() -> None:
    state = halved().state
    known = evaluation_pool(state.settings, state.indexes, state.blame.ledger, None)
    places = {str(one.player.player): place for place, one in enumerate(known.players)}
    for name in retired(halved()):
        place = places[name]
        one = known.players[place]
        assert str(one.entrant) == state.league.weights(state.tables.policies[name])
        assert not known.field.is_ranked[place], "PBT does not select among them"
        assert state.league.record(one.population, one.entrant).matches > 100


def test_the_event_says_why_one_got_less_and_one_more() -> None:
    world = halved()
    first = world.events("retired")[0]
    assert str(first.data["reason"]) == (
        "it is in the worse half; 5 train on, until 2 do (pbt.share is halving)"
    )
    assert " was retired: it is in the worse half" in sentence(event_document(first))
    assert " trains on: it is in the better half" in sentence(
        event_document(world.events("promoted")[0])
    )


def test_with_a_learner_for_each_policy_nobody_leaves() -> None:
    world = halved({**SIX, "learners": 6}, learners=6)
    assert world.events("retired", "promoted") == []
    assert world.events("exploited")


def free_retired(world: World) -> None:
    """Ask for places as after any assignment, and answer what is explored."""
    tx = transaction(world)
    fill_places(world.state, tx)
    world.committed.extend(tx.rows)


def test_a_retired_policy_comes_back_by_a_copy_where_a_learner_has_joined() -> None:
    world = halved()
    world.state.phase.name = "training"
    before = dict(world.state.tables.policies)
    free_retired(world)
    assert world.state.tables.policies == before, "there is no place"
    learners = [stranger(world) for _ in range(3)]
    world.state.crew.learners = {
        LearnerId(f"new-{index}"): one for index, one in enumerate(learners)
    }
    free_retired(world)
    back = [row for row in world.state.tables.policies.values() if before[row.policy] != row]
    assert [row.policy for row in back] == [min(retired(world))], "one place, one policy"
    (waiting,) = back
    assert (waiting.state, waiting.pending["kind"]) == ("retired", "exploit")
    donor = before[PolicyId(str(waiting.pending["donor"]))]
    assert donor.state == "active"
    assert num_active(world.state.settings.config, world.state.tables, "player") == 3
    free_retired(world)
    assert num_active(world.state.settings.config, world.state.tables, "player") == 3, (
        "one that waits for its copy has the place"
    )


def test_in_a_run_one_comes_back_with_the_next_assignment_after_a_learner_has_joined() -> None:
    world = make_world({**SIX, "stop": {"agent_steps_per_policy": 60_000}})
    world.learning = by_rate
    for _ in range(2):
        world.join()
    world.steps(60)
    assert num_active(world.state.settings.config, world.state.tables, "player") == 2
    gone = set(retired(world))
    world.join()
    world.steps(6)
    assert num_active(world.state.settings.config, world.state.tables, "player") == 3
    (back,) = gone - retired(world)
    event = world.events("exploited")[-1]
    assert event.subject == back
    assert event.data["reason"] == "it was retired, and there is a place for it again"
    assert fold(world.committed) == world.state.tables


def test_all_come_back_where_a_resume_gives_everybody_a_share() -> None:
    world = halved()
    even = make_world({**SIX, "pbt": {**HALVING, "share": "even"}}).state.settings.config
    tables = fold(world.committed)
    world.state = make_state(even, world.setup, tables)
    world.state.phase.name = "training"
    assert len(retired(world)) == 4, "who is retired is in the journal"
    free_retired(world)
    assert num_active(world.state.settings.config, world.state.tables, "player") == 6


def test_in_the_final_matches_nobody_comes_back() -> None:
    world = halved()
    assert world.state.phase.name == "over"
    for _ in range(3):
        world.join()
    before = dict(world.state.tables.policies)
    free_retired(world)
    assert world.state.tables.policies == before


@pytest.mark.parametrize(("rank", "kind"), [(None, "promoted"), (3, "promoted"), (4, "retired")])
def test_mates_leave_together(rank: int | None, kind: str) -> None:
    world = make_world({**DUET, "pbt": HALVING}, duet_spec())
    state, tx = world.state, transaction(world)
    evidence = Evidence(
        rank=rank, num_ranked=5, num_selected=0, rating=0.0, num_matches=9, deviation=1.0
    )
    team = team_of(state.league, state.tables.policies[PolicyId("speaker/p001")])
    halve(state.settings.config, tx, team, Keep(reason="own", evidence=evidence), places=2, data={})
    mates = [state.tables.policies[row.policy] for row in team]
    gone: PolicyState = "retired" if kind == "retired" else "active"
    assert [row.state for row in mates] == [gone, gone]
    found = [row.kind for row in tx.rows if hasattr(row, "kind")]
    assert found == [kind, kind]
    assert mates[0] == replace(team[0], state=gone)
