"""Next assignments of free learners: which policy trains, or which players are evaluated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import replace

import numpy as np
from msgspec import structs

from arena.types import AssignmentId, LearnerId, WeightsRef
from arena.wire.messages import Evaluate, Pairing, Train, Trainee
from populations.config.message_sizes import fitted
from populations.controller.assignments import carried_episodes
from populations.controller.assignments.budgets import team_budget
from populations.controller.assignments.learner_faults import is_left_to_others, serves
from populations.controller.assignments.next_team import next_team
from populations.controller.evaluation import share
from populations.controller.evaluation.finals import more_pairings
from populations.controller.evaluation.games import num_to_report
from populations.controller.evaluation.pairings import draw_pairings, is_worth_it
from populations.controller.evaluation.prices import is_left_to_cheaper
from populations.controller.opponents.learning_rivals import team_seatings
from populations.controller.opponents.seatings import knowledge
from populations.controller.state.commands import SendMessage
from populations.controller.state.episode_lengths import expected_length
from populations.controller.state.leases import Held, Learner
from populations.controller.state.pauses import may_give
from populations.controller.state.state import ControllerState, is_for_now
from populations.controller.state.teams import Team
from populations.controller.state.transaction import Transaction
from populations.records.rows import AssignmentRow, PolicyRow


def fill(state: ControllerState, tx: Transaction) -> None:
    """Give every learner with credit something to do, as long as there is something."""
    if state.phase not in ("training", "evaluating"):
        return
    # In deterministic mode each decision knows all results before it, so it waits for ratings.
    waits = state.fitting or state.ratings_are_stale() or state.is_evolving
    if state.config.deterministic and waits:
        return
    free = {
        learner_id: learner
        for learner_id, learner in state.learners.items()
        if len(learner.held) < learner.credit
    }
    if not free or (state.config.deterministic and state.holders):
        return
    # Lost, failed, or left by the epoch before: they go out again, the oldest first.
    unheld = sorted(
        assignment_id
        for assignment_id in state.tables.assignments.keys() - state.holders.keys()
        if is_for_now(state, state.tables.assignments[assignment_id])
    )
    # What there is to do depends on the populations that a learner serves, but for those learners
    # that leave a policy to the one that holds its episodes.
    idle: set[tuple[str, ...]] = set()
    content: set[LearnerId] = set()
    while may_give(state) and (learner_id := _next_learner(state, free, idle)) is not None:
        learner = free[learner_id]
        row = _redo(state, learner_id, unheld, content) or _decide(state, tx, learner_id, content)
        if row is None and learner_id in content:
            del free[learner_id]
            continue
        if row is None:
            idle.add(learner.hello.populations)
            continue
        _give(state, tx, learner_id, row)
        if len(learner.held) >= learner.credit:
            del free[learner_id]
        if state.config.deterministic:
            # One assignment is open at a time, so that each decision knows all earlier results.
            return


def _next_learner(
    state: ControllerState, free: Mapping[LearnerId, Learner], idle: Set[tuple[str, ...]]
) -> LearnerId | None:
    """Return the learner with the most credit, of those that have any.

    Not one of those that serve populations for which there is nothing to do. In a pause those come
    first that have not failed, then those that have not for longest: with the same one each time a
    run would end in which others can work.
    """
    failed_s = {} if state.pause is None else state.pause.failed_s
    # A learner that only evaluates comes first: with no more policies than learners, a policy that
    # is queued where another one trains would be missing where nobody trains. The id is last, so
    # that equal learners come in one order.
    ranked = (
        (
            failed_s.get(learner.place, -math.inf),
            _num_training(state, learner),
            len(learner.held),
            learner_id,
        )
        for learner_id, learner in free.items()
        if learner.hello.populations not in idle
    )
    return min(ranked, default=(0.0, 0, 0, None))[-1]


def _num_training(state: ControllerState, learner: Learner) -> int:
    """Return how many of the assignments that a learner has are training."""
    held = [state.tables.assignments.get(held.assignment_id) for held in learner.held]
    return sum(row is not None and isinstance(row.message, Train) for row in held)


def _redo(
    state: ControllerState,
    learner_id: LearnerId,
    unheld: list[AssignmentId],
    content: set[LearnerId],
) -> AssignmentRow | None:
    """Take out the oldest open assignment that nobody has and a learner may do.

    One that failed on the learner is left to others.
    """
    learner = state.learners[learner_id]
    for assignment_id in unheld:
        row = state.tables.assignments[assignment_id]
        if not serves(learner.hello.populations, row):
            continue
        # It failed here; another place will tell whose fault that was.
        if is_left_to_others(state, learner, row):
            content.add(learner_id)
            continue
        unheld.remove(assignment_id)
        return row
    return None


def _is_start(message: Train) -> bool:
    """Return whether it only makes initial weights, which any learner may."""
    return message.agent_steps == 0


def _give(
    state: ControllerState, tx: Transaction, learner_id: LearnerId, row: AssignmentRow
) -> None:
    # A lease of its own: a result of an earlier attempt no longer fits.
    attempt = row.attempt + 1
    message = structs.replace(row.message, attempt=attempt)
    tx.put_assignment(replace(row, attempt=attempt, message=message))
    held = Held(
        assignment_id=row.assignment_id,
        attempt=attempt,
        given_s=tx.now.monotonic_s,
        sent_s=tx.now.monotonic_s,
    )
    state.learners[learner_id].held.append(held)
    state.holders[row.assignment_id] = learner_id
    if state.pause is not None:
        state.pause.failed_s[state.learners[learner_id].place] = tx.now.monotonic_s
    tx.commands.append(SendMessage(learner=learner_id, message=message))
    _explain(state, tx, learner_id, message)


def _explain(
    state: ControllerState, tx: Transaction, learner_id: LearnerId, message: Train | Evaluate
) -> None:
    slot = state.learners[learner_id].slot
    who = {"learner": learner_id, "slot": slot, "attempt": message.attempt}
    if isinstance(message, Train):
        tx.add_event(
            "start_assigned" if _is_start(message) else "train_assigned",
            str(message.assignment_id),
            **who,
            policies=[trainee.policy for trainee in message.trainees],
            generation=[trainee.generation for trainee in message.trainees],
            agent_steps=message.agent_steps,
            episodes=message.episodes,
            carried=len(message.carried),
            opponents=[
                [player.player for player in seating.players] for seating in message.opponents
            ],
            **knowledge(state, message),
        )
    else:
        tx.add_event(
            "evaluation_assigned",
            str(message.assignment_id),
            **who,
            pairings=[
                [player.player for player in pairing.seating.players]
                for pairing in message.pairings
            ],
            matches=sum(pairing.num_matches for pairing in message.pairings),
        )


def _decide(
    state: ControllerState, tx: Transaction, learner_id: LearnerId, content: set[LearnerId]
) -> AssignmentRow | None:
    """Make a new assignment for a learner, or None if there is nothing for it to do now.

    Args:
        state: State of the controller.
        tx: Transaction that takes the rows.
        learner_id: The learner.
        content: Takes the learner in if what there is to do is left to others.
    """
    learner = state.learners[learner_id]
    if state.phase == "evaluating":
        final = more_pairings(state, tx, learner)
        return _evaluate(state, tx, final) if final else None
    # A second evaluation of one learner comes after a policy: that would wait behind another one.
    trains_first = _num_evaluations(state, learner) > 0 or is_left_to_cheaper(state, learner)
    row = None if trains_first else _evaluate_if_due(state, tx, learner_id)
    if row is not None:
        return row
    team = next_team(state, tx, learner_id)
    if team is None:
        content.add(learner_id)
    elif team:
        return _train(state, tx, learner_id, team)
    return _evaluate_if_due(state, tx, learner_id) if trains_first else None


def assignment_seed(state: ControllerState, assignment_id: int) -> int:
    """Return the seed of an assignment, a function of the run's seed and its number."""
    # Streams of the run's seed: 0 decisions, 1 assignments, 2 restarts, 3 first hyperparameters.
    words = np.random.SeedSequence([state.config.seed, 1, assignment_id]).generate_state(2)
    # Two words of 32 bits that overlap in one bit: below 2**63, which SQLite can store.
    return int(words[0]) << 31 ^ int(words[1])


def _new_row(state: ControllerState, tx: Transaction, message: Train | Evaluate) -> AssignmentRow:
    # Nothing is journaled that cannot be sent: each resume would try to send it again.
    message = fitted(message, setup=state.setup)
    run = state.tables.run
    tx.put(replace(run, next_assignment=run.next_assignment + 1))
    row = AssignmentRow(
        assignment_id=message.assignment_id,
        kind="train" if isinstance(message, Train) else "evaluate",
        message=message,
        metrics={},
    )
    tx.put_assignment(row)
    return row


def _train(
    state: ControllerState, tx: Transaction, learner_id: LearnerId, team: Team
) -> AssignmentRow:
    """Let a team learn; if somebody has no checkpoint yet, let it be made first."""
    # Weights that do not exist yet cannot learn or be seated: they are published first.
    starting = tuple(row for row in team if row.checkpoint is None)
    assignment_id = AssignmentId(state.tables.run.next_assignment)
    message = Train(
        assignment_id=assignment_id,
        attempt=0,
        trainees=tuple(_trainee(state, row) for row in starting or team),
        opponents=() if starting else team_seatings(state, tx, team),
        carried=() if starting else carried_episodes.carried(state, learner_id, team),
        agent_steps=0
        if starting
        else team_budget(state, tx, team, learner=state.learners[learner_id]),
        episodes=state.config.assignment.episodes,
        episode_length=expected_length(state, team[0]),
        lesson=state.tables.run.lesson,
        seed=assignment_seed(state, assignment_id),
        # How far it has come when it is told to stop depends on its speed.
        may_stop_early=not state.config.deterministic,
    )
    return _new_row(state, tx, message)


def _trainee(state: ControllerState, policy: PolicyRow) -> Trainee:
    tables = state.tables
    checkpoint = tables.checkpoints[policy.checkpoint] if policy.checkpoint is not None else None
    return Trainee(
        policy=policy.policy,
        generation=policy.generation,
        agent_steps=policy.agent_steps,
        learner_updates=policy.learner_updates,
        checkpoint=checkpoint.ref if checkpoint is not None else None,
        donor=(
            checkpoint.policy
            if checkpoint is not None and checkpoint.policy != policy.policy
            else None
        ),
        initial_weights=initial_weights(state, policy),
        hyperparameters=dict(policy.hyperparameters),
    )


def initial_weights(state: ControllerState, policy: PolicyRow) -> WeightsRef | None:
    """Return the weights of a policy without a checkpoint; None: fresh random ones."""
    # Empty after an immigration without a source, None for the start of the whole population.
    if policy.checkpoint is not None or policy.initial_weights == "":
        return None
    if policy.initial_weights is None:
        return state.initial_weights.get(policy.population)
    return _immigrant(state, policy.initial_weights)


def _immigrant(state: ControllerState, key: str) -> WeightsRef:
    """Return weights below a key: those of a ghost of this run, or imported ones."""
    # A reset names the directory of a ghost of this run; all other keys are imported.
    ghosts = state.tables.ghosts.values()
    own = next((ghost.weights for ghost in ghosts if ghost.key == key), None)
    return state.immigrants[key] if own is None else own


def _num_evaluations(state: ControllerState, learner: Learner) -> int:
    """Return how many of the assignments that a learner has are evaluations."""
    return len(learner.held) - _num_training(state, learner)


def _evaluate_if_due(
    state: ControllerState, tx: Transaction, learner_id: LearnerId
) -> AssignmentRow | None:
    """Make an evaluation if there is less than its share; None: it has that, or nothing to play.

    What its share has not earned yet, not even with the time of a training assignment ahead, waits.
    """
    if state.config.evaluation.share <= 0.0:
        return None
    short = share.short_of(state)
    # While evaluations fail there is one at a time, so that it is known whose fault it is, and ever
    # fewer of them.
    is_open = state.ledger.failed_evaluations and state.pending_matches.num_open
    if short <= 0.0 or is_open or state.ledger.evaluation_waits:
        return None
    learner = state.learners[learner_id]
    num_matches = share.earned_matches(state, learner, short)
    if not is_worth_it(state, learner, num_matches=num_matches):
        return None
    # After all reasons to wait: a draw takes a decision number.
    pairings = draw_pairings(state, tx, num_matches=num_matches)
    return _evaluate(state, tx, pairings) if pairings else None


def _evaluate(
    state: ControllerState, tx: Transaction, pairings: tuple[Pairing, ...]
) -> AssignmentRow:
    assignment_id = AssignmentId(state.tables.run.next_assignment)
    message = Evaluate(
        assignment_id=assignment_id,
        attempt=0,
        pairings=pairings,
        seed=assignment_seed(state, assignment_id),
        games=num_to_report(state),
    )
    return _new_row(state, tx, message)
