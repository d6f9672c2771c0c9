"""Roles in the run: exploiters leave ghosts when they win, start again, and go on for ever."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.types import (
    AssignmentId,
    Digest,
    Entrant,
    PlayerId,
    PolicyId,
    WeightsRef,
    trainee_entrant,
)
from arena.wire.messages import Train, Trainee
from populations.audit.verify import check_evolution
from populations.controller.assignments.jobs import budget
from populations.controller.evolution.members import members_of
from populations.controller.evolution.resets import reset_key, win_rates_against_mains
from populations.controller.state.events import AssignmentFailed
from populations.records.rows import (
    AssignmentRow,
    EventRow,
    GenerationRow,
    GhostRow,
    PolicyRow,
    TallyRow,
)
from populations.records.tables import RATINGS, RECORDS, Table
from tests.populations.controller.eager import transaction
from tests.populations.controller.simulated import (
    AT_ONCE,
    CROWD,
    DUEL,
    TAG,
    World,
    crowd_spec,
    crowd_tally,
    fold,
    make_world,
    stranger,
    tag_spec,
)
from tests.populations.payoffs import met
from tests.populations.rows import make_failed, make_ratings, make_tally

MAIN_EXPLOITER, LEAGUE_EXPLOITER = PolicyId("player/p004"), PolicyId("player/p005")
EXPLOITERS = (MAIN_EXPLOITER, LEAGUE_EXPLOITER)
ROLES = {"main_exploiter": 1, "league_exploiter": 1}

LEAGUE: dict[str, object] = {
    **DUEL,
    "populations": {"player": {"size": 6, "roles": ROLES}},
    "matchmaking": {"kind": "alphastar"},
    "pbt": {"exploit": "none"},
    "roles": {"reset_probability": 0.5},
    "checkpoints": {"keep": 1},
    "stop": {"agent_steps_per_policy": 5000},
}


def strong_exploiters(trainee: Trainee) -> float:
    """Elo per 1000 steps: exploiters find something at once."""
    return 800.0 if trainee.policy in EXPLOITERS else 20.0


def league_world(**sections: object) -> World:
    return make_world({**LEAGUE, **sections}, joined=1, learning=strong_exploiters)


@pytest.fixture(scope="module")
def finished() -> World:
    """A run that is over; to be looked at only."""
    world = league_world(stop={"agent_steps_per_policy": 10_000})
    world.run()
    return world


def roles_of(world: World) -> dict[str, str]:
    return {row.policy: row.role for row in world.state.tables.policies.values()}


def generations(world: World, policy: PolicyId) -> list[GenerationRow]:
    return [row for row in world.state.tables.generations.values() if row.policy == policy]


def policy_rows(world: World, policy: PolicyId) -> list[PolicyRow]:
    return [row for row in world.committed if isinstance(row, PolicyRow) and row.policy == policy]


def ghosts_of(world: World, policy: PolicyId) -> list[GhostRow]:
    return [row for row in world.state.tables.ghosts.values() if row.policy == policy]


def trained_after(world: World, event: EventRow) -> Trainee:
    """The first trainee after a reset."""
    return next(
        trainee
        for row in world.committed
        if isinstance(row, AssignmentRow) and isinstance(row.message, Train)
        for trainee in row.message.trainees
        if trainee.policy == event.subject and trainee.generation == event.data["generation"]
    )


def number(value: object) -> float:
    assert isinstance(value, int | float)
    return value


def test_roles_are_dealt_at_the_start() -> None:
    world = make_world(LEAGUE)
    assert list(roles_of(world).values()) == ["main"] * 4 + ["main_exploiter", "league_exploiter"]


def test_the_life_of_a_main_exploiter(finished: World) -> None:
    world = finished
    assert world.state.tables.run.state == "finished"
    resets = [event for event in world.events("reset") if event.subject == MAIN_EXPLOITER]
    ghosts = ghosts_of(world, MAIN_EXPLOITER)
    assert len(resets) >= 3
    # A reset follows each ghost but the first, unless the policy has finished training.
    followed = [ghost.player for ghost in ghosts[1:] if ghost.agent_steps < 10_000]
    assert [event.data["ghost"] for event in resets] == followed
    rows = generations(world, MAIN_EXPLOITER)
    assert [row.cause for row in rows] == ["start"] + ["reset"] * len(resets)
    first = ghosts[0]
    start = world.state.tables.checkpoints[first.checkpoint]
    for event in resets:
        trainee = trained_after(world, event)
        assert trainee.checkpoint == start.ref
        assert trainee.donor is None
        assert trainee.agent_steps == event.data["agent_steps"]
        assert event.data["to"] == first.player
    for row in rows[1:]:
        assert (row.parent, row.parent_agent_steps) == (f"{MAIN_EXPLOITER}#0", 0)
        assert dict(row.hyperparameters) == dict(rows[0].hyperparameters)
    assert start.state == "present"
    assert start.agent_steps == 0
    assert list(check_evolution(world.state.tables)) == []


@pytest.mark.slow
def test_counters_never_fall_and_generations_rise_by_one(finished: World) -> None:
    world = finished
    for policy in EXPLOITERS:
        rows = policy_rows(world, policy)
        for before, after in pairwise(rows):
            assert after.agent_steps >= before.agent_steps
            assert after.learner_updates >= before.learner_updates
            assert after.ghost_at >= before.ghost_at
            assert after.generation - before.generation in (0, 1)
        assert rows[-1].agent_steps >= 10_000


def test_statistics_start_anew_after_a_reset() -> None:
    world = league_world()
    while not world.events("reset"):
        world.step()
    event = world.events("reset")[0]
    policy = PolicyId(event.subject)
    row = world.state.tables.policies[policy]
    entrant = trainee_entrant(policy, generation=row.generation)
    assert list(met(world.state.league.payoff, entrant)) == []
    former = trainee_entrant(policy, generation=row.generation - 1)
    assert list(met(world.state.league.payoff, former)) != []


@pytest.mark.slow
def test_main_agents_are_never_reset_and_their_ghosts_say_why(finished: World) -> None:
    world = finished
    mains = {name for name, role in roles_of(world).items() if role == "main"}
    assert not {event.subject for event in world.events("reset")} & mains
    for policy in mains:
        assert [row.cause for row in generations(world, PolicyId(policy))] == ["start"]
    events = world.events("ghost_created")
    reasons = {str(event.data["role"]): set[str]() for event in events}
    for event in events:
        if event.data["agent_steps"] == 0:
            assert event.data["reason"] == "its first checkpoint"
            continue
        reasons[str(event.data["role"])].add(str(event.data["reason"]).split(" ")[0])
        if str(event.data["reason"]).startswith("it beats all"):
            assert number(event.data["smallest_win_rate"]) > 0.7
            assert number(event.data["num_met"]) >= 1
    # Exploiters win before the timeout; main agents learn slowly and reset at the timeout.
    assert "it" in reasons["main_exploiter"]
    assert any(reason.replace(",", "").isdigit() for reason in reasons["main"])


@pytest.mark.slow
def test_an_exploiter_leaves_its_ghost_sooner_than_a_main_agent_that_beats_nobody() -> None:
    world = league_world()
    world.learning = lambda trainee: 4000.0 if trainee.policy in EXPLOITERS else 20.0
    world.run()
    gaps: dict[str, list[int]] = {}
    for policy, role in roles_of(world).items():
        steps = [ghost.agent_steps for ghost in ghosts_of(world, PolicyId(policy))]
        gaps.setdefault(role, []).extend(b - a for a, b in pairwise(steps))
    assert min(gaps["main_exploiter"]) < 2000 == min(gaps["main"])
    assert all(1000 <= gap <= 2000 for found in gaps.values() for gap in found)


def test_by_the_papers_constants_main_agents_leave_one_each_phase() -> None:
    world = league_world(
        matchmaking={"kind": "alphastar", "constants": "paper"},
        stop={"agent_steps_per_policy": 3000},
    )
    world.run()
    steps = [ghost.agent_steps for ghost in ghosts_of(world, PolicyId("player/p000"))]
    assert {b - a for a, b in pairwise(steps)} == {1000}


def test_a_population_of_main_agents_keeps_its_rule() -> None:
    world = make_world({**DUEL, "roles": {"timeout_phases": 9}}, joined=1)
    world.run()
    for policy in world.state.tables.policies:
        steps = [ghost.agent_steps for ghost in ghosts_of(world, policy)]
        assert {b - a for a, b in pairwise(steps)} == {1000}
    assert not world.events("reset")


def test_whom_an_exploiter_has_hardly_met_does_not_count() -> None:
    world = league_world(roles={"min_matches": 10**9}, stop={"agent_steps_per_policy": 3000})
    world.run()
    for event in world.events("ghost_created"):
        if number(event.data["agent_steps"]) > 0:
            assert event.data["num_met"] == 0
            assert event.data["smallest_win_rate"] is None
            assert "2 phases" in str(event.data["reason"])


def test_budgets_end_where_a_ghost_may_be_due() -> None:
    document = {**LEAGUE, "assignment": {"agent_steps": 10**6}, "learners": 1}
    world = make_world(document, joined=1)
    learner = stranger(world)
    for since, expected in ((0, 1000), (400, 600), (1000, 1000), (1700, 300)):
        policy = replace(
            world.state.tables.policies[MAIN_EXPLOITER],
            agent_steps=5000 + since,
            ghost_at=5000,
            ready_at=10**9,
        )
        assert budget(world.state, transaction(world), policy, learner=learner) == expected


@pytest.mark.slow
def test_league_exploiters_are_reset_as_often_as_drawn() -> None:
    world = league_world(roles={"reset_probability": 0.0})
    world.run()
    assert {event.subject for event in world.events("reset")} == {MAIN_EXPLOITER}
    kept = [event for event in world.events("kept") if event.subject == LEAGUE_EXPLOITER]
    assert kept
    assert all(event.data["probability"] == 0.0 for event in kept)
    always = league_world(roles={"reset_probability": 1.0})
    always.run()
    assert {event.subject for event in always.events("reset")} == set(EXPLOITERS)
    assert not always.events("kept")


def decisions(world: World) -> list[object]:
    kinds = ("ghost_created", "reset", "kept", "quarantined")
    return [(row.kind, row.subject, dict(row.data)) for row in world.events(*kinds)]


@pytest.mark.parametrize("reset", ["initial", "nearest_even", "player/p000"])
@pytest.mark.slow
def test_a_deterministic_run_with_kills_decides_the_same(reset: str) -> None:
    document = {**LEAGUE, "deterministic": True, "roles": {"reset": reset}}
    plain, killed = make_world(document), make_world(document)
    for world in (plain, killed):
        world.learning = lambda trainee: 100.0 if trainee.policy in EXPLOITERS else 40.0
        world.join()
    plain.run()
    num_resets = num_steps = 0
    while not killed.over:
        num_steps += 1
        killed.step()
        # The controller is killed after each reset and sometimes in between.
        if len(killed.events("reset")) > num_resets or num_steps % 40 == 0:
            num_resets = len(killed.events("reset"))
            assert fold(killed.committed) == killed.state.tables
            if not killed.over:
                killed.kill()
    assert num_resets >= 2
    assert decisions(killed) == decisions(plain)
    assert killed.state.tables.generations == plain.state.tables.generations
    assert {row.weights_digest for row in killed.state.tables.checkpoints.values()} == {
        row.weights_digest for row in plain.state.tables.checkpoints.values()
    }


@pytest.mark.slow
def test_a_reset_to_a_main_agent_takes_its_checkpoint_with_its_optimizer() -> None:
    world = league_world(roles={"reset": "player/p001"})
    world.run()
    events = [event for event in world.events("reset") if event.subject == MAIN_EXPLOITER]
    assert events
    for event in events:
        trainee = trained_after(world, event)
        assert trainee.donor == "player/p001"
        assert trainee.checkpoint is not None
        assert trainee.checkpoint.key == event.data["checkpoint"]
        assert trainee.agent_steps == event.data["agent_steps"]
    row = generations(world, MAIN_EXPLOITER)[-1]
    assert row.parent == "player/p001#0"
    assert row.parent_agent_steps is not None


def test_a_reset_to_a_ghost_takes_its_weights_and_falls_back_where_it_is_missing() -> None:
    ghost = PlayerId("player/p000@000000002000")
    world = league_world(roles={"reset": ghost}, deterministic=True)
    world.run()
    events = [event for event in world.events("reset") if event.subject == MAIN_EXPLOITER]
    for event in events:
        trainee = trained_after(world, event)
        if event.data["to"] == ghost:
            assert trainee.checkpoint is None
            assert trainee.initial_weights == world.state.tables.ghosts[ghost].weights
        else:
            assert event.data["instead_of"] == ghost
            assert event.data["because"] == "it is not there"
    targets = [event.data["to"] for event in events]
    assert targets[-1] == ghost
    assert list(check_evolution(world.state.tables)) == []


@pytest.mark.slow
def test_a_reset_to_another_runs_player_takes_the_imported_weights() -> None:
    world = league_world(roles={"reset": "runs/a:player/p003"})
    key = reset_key("player")
    world.state.settings.immigrants = {key: WeightsRef(digest=Digest("1" * 64), key=key)}
    world.run()
    events = [event for event in world.events("reset") if event.subject == MAIN_EXPLOITER]
    assert events
    for event in events:
        assert trained_after(world, event).initial_weights == world.state.settings.immigrants[key]
    assert generations(world, MAIN_EXPLOITER)[-1].parent == "runs/a:player/p003"


@pytest.mark.slow
def test_who_was_to_start_from_damaged_weights_starts_as_it_first_did() -> None:
    world = league_world(roles={"reset": "runs/a:player/p003"}, learners=1)
    key = reset_key("player")
    world.state.settings.immigrants = {key: WeightsRef(digest=Digest("1" * 64), key=key)}
    failed = None
    while failed is None:
        for learner, queue in world.given.items():
            message = queue[0] if queue else None
            if isinstance(message, Train) and message.trainees[0].initial_weights is not None:
                failed = (learner, queue.pop(0))
        if failed is None:
            world.step()
    learner, message = failed
    assert isinstance(message, Train)
    policy = message.trainees[0].policy
    fault = make_failed(
        message, kind="checkpoint", key=key, policy=policy, reason="its bytes do not match"
    )
    world.handle(AssignmentFailed(learner=learner, failed=fault, damage=fault.reason))
    row = world.state.tables.policies[policy]
    first = ghosts_of(world, policy)[0]
    assert row.checkpoint == first.checkpoint
    assert row.generation == message.trainees[0].generation + 1
    event = world.events("reset")[-1]
    assert (event.data["instead_of"], event.data["because"]) == (key, "its bytes do not match")
    world.run()
    assert list(check_evolution(world.state.tables)) == []


@pytest.mark.slow
def test_nearest_even_goes_on_from_the_exploiter_that_wins_almost_half() -> None:
    world = league_world(roles={"reset": "nearest_even"})
    world.learning = lambda trainee: 60.0 if trainee.policy in EXPLOITERS else 40.0
    world.run()
    events = [event for event in world.events("reset") if event.subject in EXPLOITERS]
    near = [event for event in events if "win_rate" in event.data]
    assert near
    for event in near:
        assert 0.2 < number(event.data["win_rate"]) < 0.5
        ghost = world.state.tables.ghosts[PlayerId(str(event.data["to"]))]
        assert ghost.role == world.state.tables.policies[PolicyId(event.subject)].role
        assert trained_after(world, event).initial_weights == ghost.weights
    for event in events:
        assert "win_rate" in event.data or event.data["instead_of"] == "nearest_even"


def test_win_rates_against_main_agents_by_hand() -> None:
    world = make_world(LEAGUE, joined=1, steps=8)
    state = world.state
    ghost = ghosts_of(world, MAIN_EXPLOITER)[0]
    mains = [PolicyId(f"player/p00{index}") for index in range(4)]
    standing = {
        policy: state.tables.checkpoints[state.tables.policies[policy].checkpoint or ""]
        for policy in mains
    }
    state.league.results = type(state.league.results)()
    state.tables.records = Table(RECORDS)
    state.league._standing.clear()
    ahead = {mains[0]: 100.0, mains[1]: -300.0}
    entrants = [ghost.weights_digest, *(standing[policy].weights_digest for policy in ahead)]
    row = make_ratings(
        entrants=tuple(Entrant(entrant) for entrant in entrants),
        ratings=(0.0, *ahead.values()),
        deviations=(1.0, 1.0, 1.0),
    )
    state.tables.ratings["player"] = row
    for policy, seats in ((mains[0], (0, 1)), (mains[1], (1, 0)), (mains[2], (1, 0))):
        pair = (Entrant(ghost.weights_digest), Entrant(standing[policy].weights_digest))
        tally = make_tally(
            pair if seats == (0, 1) else (pair[1], pair[0]), (0, 1, 6, 2, 0), length_sum=8
        )
        state.league.add_tally(
            TallyRow(sequence=1, assignment_id=AssignmentId(1), kind="evaluate", tally=tally)
        )
    (win_rate,) = win_rates_against_mains(state.fits, [ghost]).values()

    def predicted(gap: float) -> float:
        return 1.0 / (1.0 + math.pow(10.0, gap / 400.0))

    # In the lower seat it has 6 wins and 2 draws, in the upper one 2 draws and 6 losses.
    first = (7.0 + 8.0 * predicted(100.0)) / 16.0
    second = (1.0 + 8.0 * predicted(-300.0)) / 16.0
    third = 1.0 / 8.0
    assert win_rate == pytest.approx((first + second + third) / 3.0)


def test_of_many_sides_win_rates_are_those_of_the_results() -> None:
    world = make_world(
        {**LEAGUE, **CROWD, "populations": LEAGUE["populations"]}, crowd_spec(), joined=1, steps=8
    )
    state = world.state
    ghost = ghosts_of(world, MAIN_EXPLOITER)[0]
    main = next(row for row in state.tables.policies.values() if row.checkpoint is not None)
    assert main.role == "main"
    state.league.results = type(state.league.results)()
    state.tables.records = Table(RECORDS)
    state.league._standing.clear()
    state.tables.ratings = Table(RATINGS)
    weights = Entrant(state.tables.checkpoints[main.checkpoint or ""].weights_digest)
    state.league.add_tally(
        crowd_tally(Entrant(ghost.weights_digest), weights, wins=6 * 36, losses=2 * 36)
    )
    assert win_rates_against_mains(state.fits, [ghost]) == {ghost.player: pytest.approx(0.75)}


@pytest.mark.slow
def test_in_two_populations_exploiters_look_at_the_other_populations_main_agents() -> None:
    document = {
        **TAG,
        "populations": {
            "predator": {"agents": ["adversary_*"], "size": 3, "roles": {"main_exploiter": 1}},
            "prey": {"agents": ["agent_*"], "size": 3},
        },
        "matchmaking": {"kind": "alphastar"},
        "pbt": {"exploit": "none"},
        "roles": {"reset": "nearest_even"},
        "stop": {"agent_steps_per_policy": 4000},
    }
    world = make_world(document, tag_spec())
    world.learning = lambda trainee: 500.0 if trainee.policy == "predator/p002" else 20.0
    world.join(populations=("predator",))
    world.join(populations=("prey",))
    world.run()
    assert {event.subject for event in world.events("reset")} == {"predator/p002"}
    met = [
        event
        for event in world.events("ghost_created")
        if event.data["role"] == "main_exploiter" and number(event.data["agent_steps"]) > 0
    ]
    # There are three prey, however many ghosts they have.
    assert {number(event.data["num_met"]) for event in met} & {1, 2, 3}
    assert all(number(event.data["num_met"]) <= 3 for event in met)
    prey = [event for event in world.events("ghost_created") if "prey" in event.subject]
    assert all("num_met" not in event.data for event in prey)
    win_rates = win_rates_against_mains(
        world.state.fits, ghosts_of(world, PolicyId("predator/p002"))
    )
    assert all(0.0 <= win_rate <= 1.0 for win_rate in win_rates.values())


EAGER_PBT: Mapping[str, object] = {**AT_ONCE, "reference": False}


@pytest.mark.slow
def test_policies_copy_only_those_of_their_own_role() -> None:
    roles = {"main_exploiter": 2, "league_exploiter": 1}
    world = league_world(pbt=EAGER_PBT, populations={"player": {"size": 6, "roles": roles}})
    world.run()
    of = roles_of(world)
    exploits = world.events("exploited")
    assert exploits
    for event in exploits:
        assert of[event.subject] == of[str(event.data["donor"])]
    for role, size in (("main", 3), ("main_exploiter", 2), ("league_exploiter", 1)):
        members = members_of(world.state.settings.config, world.state.indexes, "player", role=role)
        assert [of[member.policy] for member in members] == [role] * size
    # A policy that is alone in its role has no other to be compared with.
    assert not [event for event in exploits if of[event.subject] == "league_exploiter"]
    assert not world.events("exploit_failed", "explore_failed")
    assert list(check_evolution(world.state.tables)) == []


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    main_exploiters=st.integers(0, 2),
    league_exploiters=st.integers(0, 2),
    probability=st.floats(0.0, 1.0),
    reset=st.sampled_from(["initial", "nearest_even", "player/p000", "player/p000@000000001000"]),
    seed=st.integers(0, 10**6),
)
@pytest.mark.slow
def test_whatever_happens_roles_and_sizes_stay(
    main_exploiters: int, league_exploiters: int, probability: float, reset: str, seed: int
) -> None:
    roles = {"main_exploiter": main_exploiters, "league_exploiter": league_exploiters}
    world = league_world(
        populations={"player": {"size": 6, "roles": roles}},
        pbt={**EAGER_PBT, "immigration": {"probability": 0.2}},
        roles={"reset": reset, "reset_probability": probability},
        stop={"agent_steps_per_policy": 3500},
        seed=seed,
    )
    dealt = roles_of(world)
    world.run()
    tables = world.state.tables
    assert roles_of(world) == dealt
    assert len(dealt) == 6
    assert all(ghost.role == dealt[ghost.policy] for ghost in tables.ghosts.values())
    assert list(check_evolution(tables)) == []
    for event in world.events("reset"):
        assert dealt[event.subject] != "main"
    for ghost in tables.ghosts.values():
        if ghost.role != "main" and ghost.agent_steps == 0:
            assert tables.checkpoints[ghost.checkpoint].state == "present"
    assert fold(world.committed) == tables
