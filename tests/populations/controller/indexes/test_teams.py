"""Several populations on one side: teams of equal index learn, are rated and copied as one."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from arena.errors import ConfigError
from arena.types import Digest, PolicyId, trainee_entrant
from arena.wire.messages import Evaluate, Train
from populations.audit.verify import check_evolution
from populations.controller.assignments.failures import set_aside
from populations.controller.indexes.trainee_metrics import metrics_of_trainee
from populations.controller.state.events import AssignmentFailed
from populations.league.standings import champion, standings
from populations.records.rows import AssignmentRow, TallyRow
from tests.populations.controller.eager import transaction
from tests.populations.controller.simulated import (
    DUET,
    World,
    by_rate,
    duet_spec,
    fold,
    make_config,
    make_world,
)
from tests.populations.controller.state.test_state import decisions
from tests.populations.rows import make_failed


def duet_world(**sections: object) -> World:
    """A world in which learning rates make a difference, so that teams exploit."""
    return make_world({**DUET, "seed": 3, **sections}, duet_spec(), joined=1, learning=by_rate)


def finished_run() -> World:
    world = duet_world()
    world.join()
    world.run()
    return world


@pytest.fixture(scope="module")
def duet() -> World:
    """A run that has ended; nobody changes it."""
    return finished_run()


def trained(world: World) -> list[Train]:
    return world.messages(Train, "finished")


def index_of(player: str) -> str:
    """``p003`` of ``speaker/p003`` and of its ghosts."""
    return player.split("/")[1].split("@")[0]


def origins(world: World) -> dict[str, int]:
    """The assignment that made each weights digest: the same for those who learned together."""
    return {
        row.weights_digest: row.assignment_id for row in world.state.tables.checkpoints.values()
    }


def test_policies_of_equal_index_learn_in_the_same_assignments(duet: World) -> None:
    messages = trained(duet)
    assert len(messages) > 40
    for message in messages:
        speaker, listener = message.trainees
        assert (speaker.policy.split("/")[0], listener.policy.split("/")[0]) == (
            "speaker",
            "listener",
        )
        assert index_of(speaker.policy) == index_of(listener.policy)
        for seating in message.opponents:
            names: list[str] = [player.player for player in seating.players]
            assert names == [speaker.policy, listener.policy] * 2
    made = Counter(row.assignment_id for row in duet.state.tables.checkpoints.values())
    assert set(made.values()) == {2}, "each assignment commits a checkpoint of both"


def test_everybody_reaches_the_limit_and_agents_share_the_budget(duet: World) -> None:
    policies = duet.state.tables.policies.values()
    assert all(row.agent_steps >= 6000 for row in policies if row.population == "speaker")
    # Two listeners decide for every speaker.
    for row in policies:
        if row.population == "listener":
            mate = duet.state.tables.policies[PolicyId(f"speaker/{index_of(row.policy)}")]
            assert row.agent_steps == pytest.approx(2 * mate.agent_steps, rel=0.01)
    run = duet.state.tables.run
    assert run.state == "finished"
    assert run.agent_steps == sum(row.agent_steps for row in policies)


def test_teams_meet_teams_and_each_scale_has_every_match_once(duet: World) -> None:
    for row in duet.committed:
        if isinstance(row, TallyRow) and row.kind == "evaluate":
            # Home's speaker is compared with away's speaker, and listener with listener.
            assert [(pair.first, pair.second) for pair in row.tally.pairs] == [(0, 2), (1, 3)]
    made_by = origins(duet)
    for message in (row.message for row in duet.committed if isinstance(row, AssignmentRow)):
        for pairing in message.pairings if isinstance(message, Evaluate) else ():
            home, away = pairing.seating.players[:2], pairing.seating.players[2:]
            for team in (home, away):
                made = {made_by[p.weights.digest] if p.weights else None for p in team}
                assert len(made) == 1, "who plays together has learned together"


@pytest.mark.slow
def test_a_team_has_one_rating_and_one_champion(duet: World) -> None:
    league, tables = duet.state.league, duet.state.tables
    found = standings(league)
    made_by = origins(duet)
    rated = {
        population: {
            made_by[line.weights or ""]: (line.rating, line.matches, line.wins)
            for line in lines
            if line.kind != "bot"
        }
        for population, lines in found.items()
    }
    assert rated["speaker"].keys() == rated["listener"].keys()
    # A ghost may have no match; a policy has one at the end.
    policies = [line for lines in found.values() for line in lines if line.kind == "policy"]
    assert policies
    assert all(line.rating is not None and line.matches > 0 for line in policies)
    for team, (rating, matches, wins) in rated["speaker"].items():
        other_rating, *other = rated["listener"][team]
        assert (matches, wins) == tuple(other)
        assert (rating is None) == (other_rating is None) == (matches == 0)
        if rating is not None:
            assert rating == pytest.approx(other_rating, abs=1.0)
    best = [champion(lines) for lines in found.values()]
    assert len({made_by[line.weights or ""] for line in best if line is not None}) == 1
    # A team's rating is that of both members together, so the best pair by mean skill must win.
    skills: dict[int, float] = {}
    for row in tables.policies.values():
        digest = tables.checkpoints[row.checkpoint or ""].weights_digest
        skills[row.index] = skills.get(row.index, 0.0) + duet.skills[Digest(digest)] / 2.0
    ratings = {
        line.player: line.rating or 0.0 for line in found["speaker"] if line.kind == "policy"
    }
    strongest = max(ratings, key=lambda player: ratings[player])
    assert skills[int(index_of(strongest)[1:])] > max(skills.values()) - 60.0


def test_ghosts_are_left_together(duet: World) -> None:
    tables = duet.state.tables
    origins = Counter(
        tables.checkpoints[ghost.checkpoint].assignment_id for ghost in tables.ghosts.values()
    )
    assert set(origins.values()) == {2}
    assert len(tables.ghosts) >= 2 * 4 * 5


def test_a_team_copies_a_team_and_explores_each_in_its_own_search_space(duet: World) -> None:
    exploits = duet.events("exploited")
    assert exploits
    for event in exploits:
        assert event.subject.split("/")[0] == str(event.data["donor"]).split("/")[0]
    by_team = Counter((index_of(e.subject), index_of(str(e.data["donor"]))) for e in exploits)
    assert all(number % 2 == 0 for number in by_team.values()), by_team
    generations = Counter(
        (row.index, row.generation) for row in duet.state.tables.policies.values()
    )
    assert set(generations.values()) == {2}
    assert list(check_evolution(duet.state.tables)) == []


@pytest.mark.parametrize("kill_at", [(2, 9, 40)])
@pytest.mark.slow
def test_a_deterministic_run_of_teams_survives_kills(kill_at: tuple[int, ...]) -> None:
    sections: dict[str, object] = {"deterministic": True, "stop": {"agent_steps_per_policy": 3000}}
    plain = duet_world(**sections)
    plain.run()
    world = duet_world(**sections)
    world.run(kill_at=kill_at)
    assert decisions(world) == decisions(plain) != []
    assert [row.tally for row in world.committed if isinstance(row, TallyRow)] == [
        row.tally for row in plain.committed if isinstance(row, TallyRow)
    ]
    assert fold(world.committed) == world.state.tables


def fail_training(world: World, *, kind: str) -> Train:
    """Let the next training assignment fail."""
    for _ in range(200):
        for learner, queue in world.given.items():
            if queue and isinstance(message := queue[0], Train) and message.agent_steps:
                queue.pop(0)
                failed = make_failed(message, kind=kind, policy=message.trainees[1].policy)
                world.handle(AssignmentFailed(learner=learner, failed=failed))
                return message
        world.step()
    raise AssertionError("nobody trains")


def test_one_members_broken_numbers_quarantine_the_team_once() -> None:
    world = duet_world(pbt={"exploit": "none"})
    message = fail_training(world, kind="non_finite")
    names = {trainee.policy for trainee in message.trainees}
    quarantined = Counter(event.subject for event in world.events("quarantined"))
    assert quarantined == dict.fromkeys(names, 1)
    for name in names:
        policy = world.state.tables.policies[name]
        assert (policy.state, policy.rescues) == ("active", 1)


def test_a_failure_is_that_of_a_teams_leader() -> None:
    world = duet_world(pbt={"exploit": "none"}, learners=1)
    message = fail_training(world, kind="error")
    (failure,) = (one for one in world.state.blame.ledger.outcomes if one.is_failure)
    assert failure.suspects == (trainee_entrant(message.trainees[0].policy, generation=0),)


@pytest.mark.slow
def test_a_member_without_checkpoint_keeps_its_team_from_training() -> None:
    world = duet_world(ghosts={"every_agent_steps": 10**6}, checkpoints={"keep": 1})
    for _ in range(30):
        world.beat(next(iter(world.state.crew.learners)))
        world.step()
    tables = world.state.tables
    tx = transaction(world)
    for row in [r for r in tables.checkpoints.values() if r.policy == "listener/p001"]:
        set_aside(world.state, tx, row.key, reason="a bit has flipped")
    world.committed += tx.rows
    lost = {
        name: tables.policies[PolicyId(f"{name}/p001")].state for name in ("speaker", "listener")
    }
    assert lost == {"speaker": "quarantined", "listener": "quarantined"}
    before = tables.policies[PolicyId("speaker/p001")].agent_steps
    world.run()
    assert tables.policies[PolicyId("speaker/p001")].agent_steps <= before + 1000
    assert tables.run.state == "finished"


def test_a_trainees_metrics_are_its_own_and_what_all_share() -> None:
    world = duet_world()
    trainees = next(m for queue in world.given.values() for m in queue if isinstance(m, Train))
    metrics = {
        "speaker/p000/loss/policy": 1.0,
        "listener/p000/loss/policy": 2.0,
        "time/update_s": 3.0,
    }
    pair = tuple(
        replace(trainees.trainees[0], policy=PolicyId(f"{name}/p000"))
        for name in ("speaker", "listener")
    )
    assert metrics_of_trainee(metrics, pair, of=PolicyId("listener/p000")) == {
        "loss/policy": 2.0,
        "time/update_s": 3.0,
    }
    single = {"loss/policy": 1.0, "time/update_s": 3.0}
    assert metrics_of_trainee(single, pair[:1], of=PolicyId("speaker/p000")) == single


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"populations": {"speaker": {"size": 2}, "listener": {"size": 3}}},
         "must have equal sizes where the environment has one side"),
        ({"learners": {"speaker": 1, "listener": 1}},
         "learners must be a number where the environment has one side"),
    ],
)  # fmt: skip
def test_what_makes_no_teams_is_refused(section: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_config({**DUET, **section}, duet_spec())
