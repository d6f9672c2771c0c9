"""PBT in the run: decisions that wait for new hyperparameters, and what they leave behind."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import structs

from arena.types import PolicyId, trainee_entrant
from arena.wire.messages import Train
from populations.audit.verify import check_evolution
from populations.choices import number_of
from populations.controller import result_merging
from populations.controller.assignments.failures import set_aside
from populations.controller.evolution.exploring import answer, are_open
from populations.controller.rating_fit import fit_ratings
from populations.controller.rating_input import fit_input
from populations.controller.state.events import (
    Event,
    HyperparametersExplored,
    LearnerLeft,
    RatingsFitted,
    Ticked,
)
from populations.records.rows import GenerationRow, PolicyRow
from tests.populations.controller.eager import (
    EAGER,
    PBT,
    eager_world,
    pending_world,
    run_until_pending,
    step_without_answers,
    transaction,
)
from tests.populations.controller.simulated import TAG, World, by_rate, fold, make_world, tag_spec
from tests.populations.controller.state.test_state import decisions


@pytest.mark.slow
def test_a_policy_waits_for_its_hyperparameters_and_is_not_trained_meanwhile() -> None:
    world = pending_world("exploit")
    policy = run_until_pending(world, "exploit")
    for _ in range(12):
        step_without_answers(world)
        trained = {
            trainee.policy
            for queue in world.given.values()
            for message in queue
            if isinstance(message, Train)
            for trainee in message.trainees
        }
        assert policy.policy not in trained
    assert world.state.tables.policies[policy.policy] == policy
    world.explore()
    after = world.state.tables.policies[policy.policy]
    assert after.pending == {}
    assert after.checkpoint == policy.pending["checkpoint"]
    assert after.generation == policy.generation + 1
    assert after.agent_steps == policy.agent_steps
    (event,) = (row for row in world.events("exploited") if row.subject == policy.policy)
    assert {"donor", "rank", "gap", "gap_deviation", "probability_better", "old", "new", "moves",
            "donor_hyperparameters", "checkpoint", "weights", "generation", "agent_steps",
            "donor_rank", "donor_rating", "num_donors", "num_matches"
            } <= set(event.data)  # fmt: skip
    assert event.data["old"] == dict(policy.hyperparameters)
    assert event.data["new"] == dict(after.hyperparameters)
    assert event.data["donor_hyperparameters"] == policy.pending["hyperparameters"]


@pytest.mark.slow
def test_the_donors_checkpoint_is_kept_though_the_donor_trains_on() -> None:
    world = pending_world("exploit", checkpoints={"keep": 1}, ghosts={"every_agent_steps": 10**6})
    policy = run_until_pending(world, "exploit")
    donor, key = str(policy.pending["donor"]), str(policy.pending["checkpoint"])
    for _ in range(20):
        step_without_answers(world)
    assert world.state.tables.policies[PolicyId(donor)].checkpoint != key
    assert world.state.tables.checkpoints[key].state == "present"
    world.explore()
    assert world.state.tables.policies[policy.policy].checkpoint == key
    (row,) = (
        row
        for row in world.state.tables.generations.values()
        if row.policy == policy.policy and row.generation == policy.generation + 1
    )
    assert row.parent_agent_steps == world.state.tables.checkpoints[key].agent_steps
    world.run()
    assert list(check_evolution(world.state.tables)) == []


def test_an_exploit_whose_checkpoint_turns_out_corrupt_is_given_up() -> None:
    world = pending_world("exploit")
    policy = run_until_pending(world, "exploit")
    set_aside(
        world.state, transaction(world), str(policy.pending["checkpoint"]), reason="bits flipped"
    )
    world.explore()
    after = world.state.tables.policies[policy.policy]
    assert after == structs.replace(policy, pending={})
    (event,) = world.events("exploit_abandoned")
    assert event.subject == policy.policy
    assert "is corrupt" in str(event.data["reason"])


@pytest.mark.slow
def test_a_resume_asks_the_same_question_again() -> None:
    world = pending_world("exploit")
    policy = run_until_pending(world, "exploit")
    (before,) = (q for q in world.questions if q.policy == policy.policy)
    world.kill()
    assert world.questions == []  # the deviation of gains is known only after the next fit
    world.fit()
    (after,) = (q for q in world.questions if q.policy == policy.policy)
    assert structs.replace(after, rule=before.rule) == before
    assert answer(after) == answer(before)
    world.run()
    assert list(check_evolution(world.state.tables)) == []


@pytest.mark.slow
def test_a_deterministic_run_that_is_killed_at_each_decision_decides_the_same() -> None:
    document = {**EAGER, "deterministic": True, "stop": {"agent_steps_per_policy": 4000}}
    plain, killed = make_world(document), make_world(document)
    for world in (plain, killed):
        world.learning = by_rate
        world.join()
    plain.run()
    num_kills = 0
    for _ in range(2000):
        if killed.over:
            break
        if killed.state.phase.name == "training":
            step_without_answers(killed)
        else:
            killed.step()
        if killed.questions:
            assert len(killed.questions) == 1
            num_kills += 1
            killed.kill()
            killed.fit()
            killed.explore()
    assert num_kills >= 4
    assert decisions(killed) == decisions(plain)
    assert killed.state.tables.generations == plain.state.tables.generations
    assert {row.weights_digest for row in killed.state.tables.checkpoints.values()} == {
        row.weights_digest for row in plain.state.tables.checkpoints.values()
    }


def kill_at_random(world: World, rng: np.random.Generator, *, chance: float) -> int:
    """Go on until the run is over; controller and learners die between events again and again."""
    num_kills = 0

    def handle(event: Event) -> bool:
        """Take an event in; return whether everything died after it."""
        nonlocal num_kills
        world.handle(event)
        if world.over or rng.random() >= chance:
            return False
        num_kills += 1
        world.kill()
        return True

    for _ in range(20_000):
        if world.over:
            return num_kills
        world.now_s += 1.0
        for learner in list(world.given):
            known = world.state.crew.learners.get(learner)
            if known is not None:
                known.last_heard_s = world.now_s
            event = world.work(learner)
            if event is not None and handle(event):
                break
            if event is None and learner in world.stops:
                world.stops.discard(learner)
                world.handle(LearnerLeft(learner=learner, reason="stopped"))
        if world.fits:
            handle(RatingsFitted(ratings=fit_ratings(fit_input(world.fits.pop(0)))))
        if world.questions:
            handle(answer(world.questions.pop(0)))
        world.handle(Ticked())
    raise AssertionError("the run is not over")


@pytest.mark.slow
@pytest.mark.parametrize(("thins", "share"), [(False, "even"), (True, "even"), (False, "halving")])
def test_a_deterministic_run_that_is_killed_anywhere_comes_to_the_same(
    thins: bool, share: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_merging, "BATCH", 1)
    if thins:
        # A fit only has room for players that are needed.
        monkeypatch.setattr(result_merging, "MAX_ENTRANTS", 0)
        monkeypatch.setattr(result_merging, "SLACK", 0)
    document = {
        **EAGER,
        "ghosts": {"every_agent_steps": 250, "keep": 16 if thins else None},
        "populations": {"player": {"size": 6}},
        "deterministic": True,
        # Evaluation is scarce, so that several decisions wait for one rating fit.
        "evaluation": {"share": 0.3 if thins else 0.1},
        "stop": {"agent_steps_per_policy": 8000 if thins else 4000},
        "pbt": {**PBT, "reference": False, "min_matches": 40, "explore": "pb2", "share": share},
    }

    def started() -> World:
        return make_world(document, joined=1, learning=by_rate)

    plain = started()
    plain.run()
    for kind in ("ghosts_thinned", "results_merged"):
        assert bool(plain.events(kind)) == thins
    for seed in range(3):
        killed = started()
        num_kills = kill_at_random(killed, np.random.default_rng(seed), chance=0.2)
        assert num_kills >= 10
        assert decisions(killed) == decisions(plain)
        # The order of the rows is compared, too: it is the order of decisions.
        ours, theirs = killed.state.tables, plain.state.tables
        assert list(ours.generations.values()) == list(theirs.generations.values())
        assert list(ours.ratings.values()) == list(theirs.ratings.values())


def test_a_stop_leaves_the_decision_for_the_next_start() -> None:
    from populations.controller.state.events import StopRequested

    world = pending_world("exploit")
    policy = run_until_pending(world, "exploit")
    world.handle(StopRequested(reason="interrupted"))
    for _ in range(3):
        world.now_s += 20.0
        step_without_answers(world)
    for learner in list(world.state.crew.learners):
        from populations.controller.state.events import LearnerLeft

        world.handle(LearnerLeft(learner=learner, reason="stopped"))
    assert world.state.tables.run.state == "stopped"
    assert world.state.tables.policies[policy.policy].pending
    assert list(check_evolution(world.state.tables)) == []
    world.over = False
    world.kill()
    world.run()
    assert not any(row.pending for row in world.state.tables.policies.values())


def test_the_final_matches_wait_for_decisions_that_are_under_way() -> None:
    world = eager_world(stop={"agent_steps_per_policy": None, "agent_steps": 4000})
    for _ in range(100):
        step_without_answers(world)
    assert not any(world.given.values()), "nothing is left to play"
    assert world.state.phase.name == "evaluating"
    assert are_open(world.state.tables, world.state.indexes.members, world.state.phase)
    world.run()
    assert world.state.tables.run.state == "finished"
    assert list(check_evolution(world.state.tables)) == []


def test_a_quarantined_policy_is_active_again_once_its_donors_weights_are_there() -> None:
    from populations.controller.evolution.quarantine import quarantine

    world = pending_world("exploit")
    world.explore()
    victim = max(
        (row for row in world.state.tables.policies.values() if not row.pending),
        key=lambda row: row.index,
    )
    quarantine(world.state, transaction(world), victim.policy, reason="its loss was not finite")
    # The copy stays pending until the donor has finished another assignment.
    while not world.state.tables.policies[victim.policy].pending:
        step_without_answers(world)
    waiting = world.state.tables.policies[victim.policy]
    assert (waiting.state, waiting.pending["kind"]) == ("quarantined", "exploit")
    world.explore()
    after = world.state.tables.policies[victim.policy]
    assert after.state == "active"
    assert after.parent == waiting.pending["donor"] != victim.policy


def test_without_pbt_a_quarantined_policy_begins_a_generation_with_half_the_rate() -> None:
    from populations.controller.evolution.quarantine import quarantine

    world = eager_world(pbt={**PBT, "exploit": "none"})
    world.steps(12)
    victim = world.state.tables.policies[PolicyId("player/p001")]
    quarantine(world.state, transaction(world), victim.policy, reason="its loss was not finite")
    after = world.state.tables.policies[victim.policy]
    rate = number_of(victim.hyperparameters["learning_rate"])
    assert after.hyperparameters["learning_rate"] == rate / 2
    row = world.state.tables.generations[trainee_entrant(victim.policy, generation=1)]
    assert (row.cause, row.parent) == ("quarantine", f"{victim.policy}#0")
    assert row.agent_steps_begin == row.parent_agent_steps == victim.agent_steps
    assert list(check_evolution(world.state.tables)) == []


@pytest.mark.slow
def test_generations_say_who_came_from_whom_and_how_it_went() -> None:
    world = eager_world()
    world.run()
    tables = world.state.tables
    assert list(check_evolution(tables)) == []
    assert fold(world.committed).generations == tables.generations
    exploited = {(e.subject, e.data["generation"]): e.data for e in world.events("exploited")}
    explored = {(e.subject, e.data["generation"]): e.data for e in world.events("explored")}
    assert exploited
    assert explored
    for row in tables.generations.values():
        data = {"start": {}, "exploit": exploited, "explore": explored}[row.cause]
        if row.cause == "start":
            assert (row.generation, row.parent, row.agent_steps_begin) == (0, None, 0)
            continue
        event = data[row.policy, row.generation]
        assert dict(row.hyperparameters) == event["new"]
        assert row.agent_steps_begin == event["agent_steps"]
        if row.cause == "exploit":
            assert row.parent == f"{event['donor']}#{event['donor_generation']}"
            assert row.parent_agent_steps == event["donor_agent_steps"]
            # The donor has the better rating, and this generation begins with its weights.
            before = tables.generations[trainee_entrant(row.policy, generation=row.generation - 1)]
            began = next(
                made
                for made in world.committed
                if isinstance(made, GenerationRow) and made.entrant == row.entrant
            )
            assert began.rating_begin is not None
            assert before.rating_end is not None
            assert began.rating_begin > before.rating_end
        else:
            assert row.parent == f"{row.policy}#{row.generation - 1}"


@pytest.mark.slow
def test_a_question_comes_with_all_generations_its_own_one_ended() -> None:
    world = pending_world("exploit")
    policy = run_until_pending(world, "exploit")
    (question,) = (q for q in world.questions if q.policy == policy.policy)
    assert [row.entrant for row in question.history] == list(world.state.tables.generations)
    own = trainee_entrant(policy.policy, generation=policy.generation)
    for row in question.history:
        is_own = row.entrant == own
        assert (row.agent_steps_end == policy.agent_steps) == is_own or row.entrant != own
        assert (row.agent_steps_end is not None) >= is_own
        assert (row.rating_end is not None) >= is_own
    assert question.agent_steps == policy.agent_steps
    assert dict(question.hyperparameters) == policy.pending["hyperparameters"]


def test_an_answer_that_nobody_waits_for_changes_nothing() -> None:
    world = pending_world("exploit")
    policy = run_until_pending(world, "exploit")
    event = answer(world.questions[0])
    world.explore()
    before = fold(world.committed)
    world.handle(HyperparametersExplored(policy=policy.policy, exploration=event.exploration))
    assert fold(world.committed).policies == before.policies


@pytest.mark.slow
def test_each_population_evolves_by_its_own_settings() -> None:
    populations = {
        "predator": {"agents": ["adversary_*"], "size": 3, "pbt": {"exploit": "none"}},
        "prey": {"agents": ["agent_*"], "size": 3, "pbt": {"ready_agent_steps": 2000}},
    }
    world = make_world({**TAG, "populations": populations, "learners": 1}, tag_spec())
    world.learning = by_rate
    assert world.state.settings.config.pbt_of("prey").min_matches == 20
    world.join()
    world.run()
    events = world.events("exploited", "explored", "kept")
    assert {str(event.subject).split("/")[0] for event in events} == {"prey"}
    last: dict[str, int] = {}
    for event in events:
        policy = event.subject
        steps = next(
            row.agent_steps
            for row in reversed(world.committed[: world.committed.index(event)])
            if isinstance(row, PolicyRow) and row.policy == policy
        )
        assert steps - last.get(policy, 0) >= 2000 or policy not in last
        last[policy] = steps
