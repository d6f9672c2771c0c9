"""The controller as a conversation: events in, decisions out, no socket, clock or file."""

from __future__ import annotations

from typing import cast

import pytest
from msgspec.structs import replace

from arena.types import Digest, LearnerId, Player, PlayerId, WeightsRef
from arena.wire.messages import Evaluate, Train
from populations.config.run_config import validate_config
from populations.controller.assignments.failures import set_aside
from populations.controller.evaluation.finals import TOURNAMENT_MATCHES
from populations.controller.evaluation.pairings import validated_by
from populations.controller.lineups import draw_lineup
from populations.controller.state.events import (
    AssignmentFailed,
    KillLearner,
    LearnerExited,
    Now,
    StopRequested,
    Ticked,
)
from populations.controller.state.state import external_players, make_state
from populations.league.standings import standings
from populations.matchmaking.external_players import ExternalPlayer
from populations.records.rows import AssignmentRow, PolicyRow, TallyRow
from tests.populations.controller.simulated import (
    DUEL,
    TAG,
    World,
    by_rate,
    fold,
    make_world,
    tag_spec,
)
from tests.populations.rows import make_failed


def test_a_run_trains_evaluates_snapshots_evolves_and_ends() -> None:
    world = make_world(joined=2, learning=by_rate)
    world.run()
    run = world.state.tables.run
    assert run.state == "finished"
    assert all(row.agent_steps >= 6000 for row in world.state.tables.policies.values())
    assert run.agent_steps == sum(row.agent_steps for row in world.state.tables.policies.values())
    assert {ghost.agent_steps for ghost in world.state.tables.ghosts.values()} >= {0, 1000, 2000}
    assert world.events("exploited"), "learning rates differ, so somebody is far behind"
    assert set(world.linked) == set(world.state.tables.ghosts)


def test_an_exploit_takes_the_donors_checkpoint_and_keeps_the_policys_own_counters() -> None:
    world = make_world(joined=1, learning=by_rate)
    before: dict[str, PolicyRow] = {}
    for _ in range(400):
        before = dict(world.state.tables.policies)  # type: ignore[arg-type]
        world.beat(LearnerId("learner-1"))
        world.step()
        if world.events("exploited"):
            break
    event = world.events("exploited")[0]
    policy = world.state.tables.policies[event.subject]  # type: ignore[index]
    checkpoint = world.state.tables.checkpoints[policy.checkpoint or ""]
    assert checkpoint.policy == event.data["donor"] != event.subject
    assert policy.parent == event.data["donor"]
    assert policy.generation == before[event.subject].generation + 1
    assert policy.agent_steps >= before[event.subject].agent_steps
    assert event.data["old"] == dict(before[event.subject].hyperparameters)
    assert event.data["new"] == dict(policy.hyperparameters)
    assert float(str(event.data["gap"])) >= 10.0


def test_the_next_assignment_after_an_exploit_starts_from_the_donors_checkpoint() -> None:
    world = make_world(joined=2, learning=by_rate)
    world.run()
    exploits = {event.subject: event for event in world.events("exploited")}
    assert exploits
    donated = [
        trainee
        for row in world.committed
        if isinstance(row, AssignmentRow) and isinstance(row.message, Train)
        for trainee in row.message.trainees
        if trainee.donor is not None
    ]
    assert donated
    for trainee in donated:
        assert trainee.checkpoint is not None
        assert f"/{trainee.donor}/" in trainee.checkpoint.key


def test_no_policy_waits_behind_another_while_a_learner_has_none_to_train() -> None:
    populations = {"player": {**DUEL["populations"]["player"], "size": 2}}  # type: ignore[index]
    document = {**DUEL, "populations": populations, "evaluation": {"share": 0.3}}
    world = make_world(document)
    learners = [world.join(), world.join()]
    for turn in range(80):
        # The second learner is slower: it still trains when the first one has evaluated.
        learner = learners[turn % 3 // 2]
        event = world.work(learner)
        if event is None:
            continue
        world.handle(event)
        world.fit()
        world.explore()
        held = [world.state.crew.learners[learner].held for learner in learners]
        training = [
            sum(world.state.tables.assignments[h.assignment_id].kind == "train" for h in of_one)
            for of_one in held
        ]
        started = all(row.checkpoint for row in world.state.tables.policies.values())
        if started and world.state.phase.name == "training":
            assert sorted(training) in ([1, 1], [0, 1]), training


@pytest.mark.slow
def test_bound_learners_only_ever_train_their_own_population() -> None:
    world = make_world(TAG, tag_spec())
    predator = world.join(populations=("predator",))
    prey = world.join(populations=("prey",))
    world.run()
    trained = set()
    for event in world.events("train_assigned"):
        policies = event.data["policies"]
        assert isinstance(policies, list)
        trained |= {(event.data["learner"], str(policy).split("/")[0]) for policy in policies}
    assert trained == {(predator, "predator"), (prey, "prey")}


def test_a_lost_learners_assignment_is_given_out_again_with_the_next_attempt() -> None:
    world = make_world()
    first = world.join(slot=0)
    second = world.join(slot=1)
    lost = world.given[first][0]
    late = world.work(first)
    assert late is not None
    for mine in world.given[second]:
        world.state.crew.learners[second].release(mine.assignment_id, attempt=1, now_s=world.now_s)
        del world.state.crew.holders[mine.assignment_id]
    world.given[second].clear()
    world.handle(LearnerExited(slot=0, code=-9))
    again = next(m for m in world.given[second] if m.assignment_id == lost.assignment_id)
    assert again.attempt == 2
    assert again.seed == lost.seed
    before = world.state.tables.run
    world.handle(late)
    assert world.state.tables.run.matches == before.matches
    assert world.state.tables.run.assignments_finished == before.assignments_finished
    assert [(a.assignment_id, a.attempt) for a in world.acknowledged][-1] == (
        lost.assignment_id,
        1,
    )


def test_a_duplicate_finished_is_acknowledged_and_counted_once() -> None:
    world = make_world()
    learner = world.join()
    event = world.work(learner)
    assert event is not None
    world.handle(event)
    counted = world.state.tables.run.assignments_finished
    world.handle(event)
    assert world.state.tables.run.assignments_finished == counted
    assert len(world.acknowledged) == 2


def test_a_silent_learner_is_given_up_and_a_gap_in_the_controllers_own_loop_is_forgiven() -> None:
    world = make_world()
    learner = world.join(slot=0)
    world.beat(learner)
    world.now_s += 1000.0  # the machine slept, so no message could arrive
    world.handle(Ticked())
    assert learner in world.state.crew.learners
    commands = []
    for _ in range(30):
        world.now_s += 1.0
        commands += world.handle(Ticked()).commands
    assert learner not in world.state.crew.learners
    assert commands[0] == KillLearner(slot=0, dump_stacks=True)
    assert "silent" in str(world.events("learner_lost")[0].data["reason"])


def test_processes_that_never_say_hello_fail_the_run() -> None:
    world = make_world()
    world.now_s += 1.0
    world.handle(Ticked())
    for _ in range(40):
        for slot in range(2):
            world.handle(LearnerExited(slot=slot, code=1))
        world.now_s += 40.0
        world.handle(Ticked())
    assert world.over
    assert world.state.tables.run.state == "failed"
    assert "learner processes" in world.state.tables.run.reason


def test_a_stop_request_ends_with_everything_saved_and_the_run_resumable() -> None:
    world = make_world(joined=1, steps=10)
    world.handle(StopRequested(reason="interrupted by SIGINT"))
    world.run()
    assert world.state.tables.run.state == "stopped"
    resumed = make_state(world.state.settings.config, world.setup, fold(world.committed))
    assert resumed.tables.run.reason == "interrupted by SIGINT"


@pytest.mark.slow
def test_evaluation_gets_its_share_and_only_frozen_players() -> None:
    document = {**DUEL, "evaluation": {"share": 0.05}, "stop": {"agent_steps_per_policy": 20000}}
    world = make_world(document, joined=2)
    world.run()
    # The share refers to training; the time of finals has its own limit.
    (stopped,) = world.events("training_stopped")
    assert stopped.data["evaluation_share"] == pytest.approx(0.05, abs=0.02)
    assert world.state.tables.run.share_reached == stopped.data["evaluation_share"]
    for row in world.committed:
        if isinstance(row, AssignmentRow) and isinstance(row.message, Evaluate):
            for pairing in row.message.pairings:
                assert any(player.weights is not None for player in pairing.seating.players)
                for player in pairing.seating.players:
                    assert player.weights is not None or player.player == "bot:random"


@pytest.mark.parametrize(("num_envs", "at_most"), [(8, 128), (600, 600)])
def test_an_evaluation_has_a_match_for_every_environment(num_envs: int, at_most: int) -> None:
    environment = {"id": "tests.duel:env", "num_envs": num_envs}
    # The debt of evaluation is worth this many matches.
    world = make_world({**DUEL, "environment": environment, "evaluation": {"share": 0.1}}, joined=1)
    for _ in range(30):
        if world.state.phase.name == "training":
            world.step()
    evaluations = world.messages(Evaluate)
    assert evaluations
    for message in evaluations:
        if list(validated_by(world.state.league, iter([message]))):
            continue
        # Pairs play whole shares, so the remainder is left out.
        total = sum(pairing.num_matches for pairing in message.pairings)
        assert 0.7 * at_most < total <= at_most


def decisions(world: World) -> list[object]:
    """What was decided, without who did it and when."""
    kinds = ("exploited", "explored", "ghost_created", "quarantined")
    return [(row.kind, row.subject, dict(row.data)) for row in world.events(*kinds)]


@pytest.mark.parametrize("kill_at", [(), (7, 30), (1, 2, 3, 50)])
@pytest.mark.slow
def test_a_deterministic_run_decides_the_same_with_kills_and_resumes(
    kill_at: tuple[int, ...],
) -> None:
    document = {**DUEL, "deterministic": True, "evaluation": {"share": 0.3}}
    plain = make_world(document, joined=1)
    plain.run()
    world = make_world(document, joined=1)
    world.run(kill_at=kill_at)
    assert decisions(world) == decisions(plain)
    assert [row.tally for row in world.committed if isinstance(row, TallyRow)] == [
        row.tally for row in plain.committed if isinstance(row, TallyRow)
    ]
    assert world.state.tables.records == plain.state.tables.records
    assert world.state.tables.pairs == plain.state.tables.pairs
    assert {c.weights_digest for c in world.state.tables.checkpoints.values()} == {
        c.weights_digest for c in plain.state.tables.checkpoints.values()
    }


def test_every_decision_draws_anew_and_a_resumed_run_draws_what_it_would_have_drawn() -> None:
    world = make_world()
    now = Now(monotonic_s=0.0, utc="")
    tx = world.state.begin(now)
    drawn = [float(tx.draw().random()) for _ in range(3)]
    assert len(set(drawn)) == 3
    assert world.state.tables.run.decisions == 3
    resumed = make_state(
        world.state.settings.config, world.setup, fold([*world.committed, *tx.rows])
    )
    again = resumed.begin(now)
    following = float(tx.draw().random())
    assert float(again.draw().random()) == following


def test_evaluations_that_take_their_learners_with_them_end_the_run() -> None:
    world = make_world({**DUEL, "learners": 1})
    crashes = 0
    for _ in range(400):
        if world.over or world.state.phase.failed:
            break
        slot = world.state.crew.slots[0]
        learner = slot.learner or world.join(slot=0)
        queue = world.given[learner]
        if queue and isinstance(queue[0], Evaluate):
            world.given.pop(learner)
            world.handle(LearnerExited(slot=0, code=-11))
            crashes += 1
        else:
            world.step()
    assert world.state.phase.failed
    # Training continues to its end with ever fewer evaluations, until only evaluation is left.
    assert crashes <= 40
    assert world.state.phase.reason.startswith("learners crash or hang: nothing has finished since")
    assert world.state.phase.reason.endswith("killed by signal 11")
    assert not world.events("quarantined")


def test_a_corrupt_checkpoint_is_set_aside_and_its_policy_goes_on_from_an_older_one() -> None:
    world = make_world({**DUEL, "learners": 1, "checkpoints": {"keep": None}})
    learner = world.join()
    for _ in range(200):
        queue = world.given[learner]
        message = queue[0]
        trainee = message.trainees[0] if isinstance(message, Train) else None
        ref = trainee.checkpoint if trainee is not None else None
        if trainee is not None and ref is not None and trainee.agent_steps >= 1000:
            break
        world.step()
    assert trainee is not None
    assert ref is not None
    queue.pop(0)
    failed = make_failed(
        message,
        kind="checkpoint",
        reason="weights.safetensors: sha256 differs",
        policy=trainee.policy,
        key=ref.key,
    )
    world.handle(AssignmentFailed(learner=learner, failed=failed, damage="a byte differs"))
    assert world.state.tables.checkpoints[ref.key].state == "corrupt"
    policy = world.state.tables.policies[trainee.policy]
    assert policy.checkpoint is not None
    older = world.state.tables.checkpoints[policy.checkpoint]
    assert older.state == "present"
    assert older.agent_steps < trainee.agent_steps
    assert policy.agent_steps == trainee.agent_steps  # counters never fall
    assert message.assignment_id not in world.state.tables.assignments
    kinds = [event.kind for event in world.events("checkpoint_corrupt", "fell_back")]
    assert kinds == ["checkpoint_corrupt", "fell_back"]
    world.run()
    assert world.state.tables.run.state == "finished"


def test_what_the_last_fit_knows_of_differences_outlasts_a_merge() -> None:
    world = make_world(joined=1, steps=40)
    state = world.state
    row, known = state.tables.ratings["player"], state.fits.ratings("player")
    assert known.spread is not None
    pair = row.entrants[0], row.entrants[-1]
    # A merge removes the records of merged players from the count: see `result_merging`.
    merged = replace(row, num_records=row.num_records - 1)
    state.tables.ratings["player"] = merged
    assert state.fits.ratings("player").row is merged
    assert state.fits.ratings("player").difference(*pair) == known.difference(*pair)
    # A row of another fit does not contain this fit's differences.
    state.tables.ratings["player"] = replace(
        row, entrants=row.entrants[1:], ratings=row.ratings[1:], deviations=row.deviations[1:]
    )
    assert state.fits.ratings("player").spread is None


def test_players_from_outside_have_shares_or_are_rated_where_they_have_weights() -> None:
    config = validate_config(
        {
            "environment": {"id": "a:b"},
            "populations": {"predator": {}, "prey": {}},
            "matchmaking": {"bots": {"bot:a:B": 0.25, "one": 0.5}},
            "evaluation": {"bots": ["bot:random", "one", "two"]},
        }
    )
    # The positions are those among all four imported players.
    weights = WeightsRef(digest=Digest("f" * 64), key="outsiders/001/predator")
    copied = {key: weights for key in ("outsiders/001/predator", "outsiders/003/prey")}
    bots = (
        ExternalPlayer(player=PlayerId("bot:a:B"), share=0.25),
        ExternalPlayer(player=PlayerId("bot:random"), is_rated=True),
    )
    one = ExternalPlayer(player=PlayerId("outsider:one"), share=0.5, weights=weights, is_rated=True)
    two = ExternalPlayer(player=PlayerId("outsider:two"), weights=weights, is_rated=True)
    assert external_players(config, copied) == {
        "predator": (bots[0], one, bots[1]),
        "prey": (*bots, two),
    }


def test_who_has_a_population_alone_is_the_only_opponent_and_rated() -> None:
    config = validate_config(
        {
            "environment": {"id": "a:b"},
            "populations": {"predator": {}, "prey": {"player": "bot:a:Prey"}},
            "matchmaking": {"bots": {"bot:a:B": 0.25}},
        }
    )
    assert (config.populations["prey"].num_policies, config.learning) == (0, ("predator",))
    found = external_players(config, {})
    only = ExternalPlayer(player=PlayerId("bot:a:Prey"), share=1.0, is_rated=True)
    anchor = ExternalPlayer(player=PlayerId("bot:random"), is_rated=True)
    assert found["prey"] == (only, anchor)
    assert found["predator"] == (
        ExternalPlayer(player=PlayerId("bot:a:B"), share=0.25),
        anchor,
    )


def test_a_population_with_a_player_trains_nobody_and_is_met_by_all() -> None:
    prey = PlayerId("bot:tests.tag:Prey")
    document = {
        **TAG,
        "populations": {
            "predator": {"agents": ["adversary_*"], "size": 3},
            "prey": {"agents": ["agent_*"], "player": prey},
        },
        "learners": 2,
        "evaluation": {"share": 0.3, "bots": ["bot:random", prey]},
        # Only the learning population must reach the goal.
        "stop": {"evaluation": {"player": prey, "score": 0.6}},
    }
    world = make_world(document, tag_spec())
    for _ in range(2):
        world.join()
    world.run()
    state = world.state
    assert state.phase.reason.startswith("stop.evaluation: ")
    assert {row.population for row in state.tables.policies.values()} == {"predator"}
    seats = [seat.population for seat in state.settings.setup.seats]
    tallies = [row for row in world.committed if isinstance(row, TallyRow)]
    met: set[str] = {
        row.tally.entrants[seats.index("prey")] for row in tallies if row.kind == "train"
    }
    assert met == {prey}
    lines = {line.player: line for line in standings(state.league)["prey"]}
    assert set(lines) == {prey, "bot:random"}
    assert lines[prey].rating is not None
    assert [line.champion for line in lines.values()] == [False, False]


def test_contenders_meet_the_player_of_another_side_in_the_finals() -> None:
    document = {
        **TAG,
        "populations": {
            "predator": {"agents": ["adversary_*"], "size": 3},
            "prey": {"agents": ["agent_*"], "player": "bot:tests.tag:Prey"},
        },
        "learners": 2,
        "evaluation": {"share": 0.01},
        "stop": {"agent_steps_per_policy": 1000},
    }
    world = make_world(document, tag_spec())
    for _ in range(2):
        world.join()
    world.run()
    state = world.state
    (best,) = [line for line in standings(state.league)["predator"] if line.champion]
    met = sum(
        row.tally.matches
        for row in world.committed
        if isinstance(row, TallyRow)
        and row.kind == "evaluate"
        and {best.weights, "bot:tests.tag:Prey"} <= set(row.tally.entrants)
    )
    assert met >= TOURNAMENT_MATCHES
    (event, *_) = world.events("tournament_assigned")
    contenders = cast("list[str]", event.data["contenders"])
    assert all(name.startswith("predator/") for name in contenders)


def test_a_run_without_anybody_for_a_population_fails() -> None:
    copied = WeightsRef(digest=Digest("f" * 64), key="outsiders/000/prey")
    document = {**TAG, "populations": {
        "predator": {"agents": ["adversary_*"], "size": 3},
        "prey": {"agents": ["agent_*"], "player": "exports/prey"},
    }, "learners": 2}  # fmt: skip
    world = make_world(document, tag_spec())
    state = world.state
    state.settings.external_players = external_players(state.settings.config, {copied.key: copied})
    world.join()
    policy = next(iter(state.tables.policies.values()))
    (seating, *_) = draw_lineup(
        state, state.begin(Now(monotonic_s=0.0, utc="")), (policy,)
    ).seatings
    assert Player(player=PlayerId("outsider:exports/prey"), weights=copied) in seating.players
    tx = state.begin(Now(monotonic_s=0.0, utc=""))
    set_aside(state, tx, copied.key, reason="bytes do not match")
    world.handle(Ticked())
    assert state.phase.failed
    assert (
        state.phase.reason
        == "prey has no active policy, ghost or player: others have nobody to meet"
    )
