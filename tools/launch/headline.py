"""Progress of a run in words: its phase, what follows, each learner's work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from populations.league.names import short_name

from ..terminal.quantities import count, duration

if TYPE_CHECKING:
    from populations.config.run_config import RunConfig
    from populations.controller.state.leases import Learner
    from populations.controller.state.state import ControllerState
    from populations.records.rows import Json

MAX_LEARNERS = 8
"""Most learners that have a line each."""

MAX_NAME_CHARS = 16
"""Most characters of the name of a learner in no slot of the launcher."""


class Moment(NamedTuple):
    """Live figures of a run, not yet committed.

    Attributes:
        elapsed_s: Seconds of the run, over all of its epochs.
        agent_steps: Those of running assignments included.
        speed: Agent steps per second.
        now_s: Time on the controller's clock.
    """

    elapsed_s: float
    agent_steps: int
    speed: float
    now_s: float

    @classmethod
    def of(cls, state: ControllerState, status: Mapping[str, Json]) -> Moment:
        """Return the live figures of a state and its status."""
        elapsed_s = float(str(status["elapsed_s"]))
        # Uncommitted: by the learners' heartbeats.
        running = sum(learner.agent_steps for learner in state.learners.values())
        return cls(
            elapsed_s=elapsed_s,
            agent_steps=state.tables.run.agent_steps + running,
            speed=float(str(status["agent_steps_per_s"] or 0.0)),
            # elapsed_s = elapsed_before_s + (now_s - started_s)
            now_s=state.started_s + elapsed_s - state.elapsed_before_s,
        )


def what_happens(state: ControllerState, moment: Moment) -> str:
    """Return the phase of a run, how long it lasts, and what follows."""
    if state.phase == "over":
        return "ended"
    if state.phase == "stopping":
        # Learners that have not published by then are given up.
        grace_s = state.patience.grace_s - (moment.now_s - state.stopping_s)
        waits = f"{len(state.learners)} learners publish what they have, "
        return f"saving: {waits if state.learners else ''}{_at_most(grace_s)}"
    if state.phase == "evaluating":
        return _finals(state)
    if not state.learners:
        return "starting learners, then training"
    share, left_s = training_progress(state, moment)
    left = "" if left_s is None else f"{duration(left_s)} left, "
    finals_s = finals_after(state, left_s)
    finals = "finals" if finals_s is None else f"finals ({_at_most(finals_s)})"
    return f"training: {share:.0%}, {_lesson(state)}{left}then {finals} and saving"


def _lesson(state: ControllerState) -> str:
    lessons = state.config.environment.curriculum
    return f"lesson {state.tables.run.lesson + 1} of {len(lessons)}, " if lessons else ""


def _finals(state: ControllerState) -> str:
    if state.evaluation_only is not None:
        left_s = state.evaluation_only.left_s
        if not state.learners:
            return "starting learners, then evaluation only"
        left = "the last matches" if left_s <= 0.0 else _at_most(left_s)
        return f"evaluation only: {left}, then saving"
    # Finals begin when the last weights are committed.
    if any(row.kind == "train" for row in state.tables.assignments.values()):
        return "the last assignments of training, then finals and saving"
    if state.finals is None:
        return "finals: matches until ratings are sure, then saving"
    if state.finals.left_s <= 0.0:
        return "finals: the last matches, then saving"
    return f"finals: {_at_most(state.finals.left_s)}, then saving"


def training_progress(state: ControllerState, moment: Moment) -> tuple[float, float | None]:
    """Return the share of training done, and the seconds left, by the limit that comes first.

    None while unknown: nothing was trained yet, or only a rating ends the run.
    """
    from populations.controller.phases import agent_steps_left

    stop = state.config.stop
    # Each limit gives a share and a time; the run ends at the largest share, the shortest time.
    shares, left = [0.0], list[float]()
    if stop.duration_s is not None:
        trained_s = moment.elapsed_s - state.tables.run.closing_s
        shares.append(trained_s / stop.duration_s)
        left.append(stop.duration_s - trained_s)
    in_flight = moment.agent_steps - state.tables.run.agent_steps
    for goal, missing in agent_steps_left(state):
        # Rows are committed work, so steps in flight come off.
        missing -= in_flight
        shares.append(1.0 - missing / goal if goal else 1.0)
        # Until the first speed is known no time is promised.
        if moment.speed > 0.0:
            left.append(missing / moment.speed)
    # Running assignments may take both beyond the limit.
    return min(max(shares), 1.0), max(min(left), 0.0) if left else None


def finals_after(state: ControllerState, training_left_s: float | None) -> float | None:
    """Return the most seconds that finals may take after training; None: unknown."""
    from populations.controller.evaluation.finals import longest_s

    if state.config.deterministic or training_left_s is None:
        return None
    num_learners = max(len(state.learners), 1)
    share = state.config.evaluation.share
    # Of the seconds left, evaluation gets its share.
    training_s = state.tables.run.training_s + training_left_s * num_learners * (1.0 - share)
    return longest_s(training_s=training_s, num_learners=num_learners)


def counts(state: ControllerState, moment: Moment) -> str:
    """Say how much a run has done so far."""
    run = state.tables.run
    return (
        f"{duration(moment.elapsed_s)}  {count(moment.agent_steps)} agent steps, "
        f"{count(round(moment.speed))}/s  {count(run.matches)} matches  "
        f"{count(len(state.tables.ghosts))} ghosts  {count(run.exploits)} copies"
    )


def shares(state: ControllerState) -> str:
    """Say which share of learner seconds evaluation has, and which decisions PBT made."""
    from populations.controller.evaluation.share import reached

    parts = []
    asked = state.config.evaluation.share
    if asked > 0.0:
        # After training the share is that at its end: finals would raise it.
        share = reached(state) if state.share_reached is None else state.share_reached
        parts.append(f"evaluation has {share or 0.0:.1%} of {asked:.1%}")
    pbt = {name: state.pbt(name) for name in state.setup.populations}
    if any(settings.exploit != "none" for settings in pbt.values()):
        decisions = state.pbt_decisions
        due = decisions.due(state.tables, pbt=pbt)
        made = f"made {count(decisions.made)} of {count(due)} decisions that were due"
        parts.append(f"PBT {made if due else 'has no decision due yet'}")
    return "  ".join(parts)


def learner_lines(state: ControllerState, moment: Moment) -> Iterator[str]:
    """Yield a line for each learner: its work, its progress, its time."""
    learners = list(state.learners.items())
    for name, learner in learners[:MAX_LEARNERS]:
        who = f"learner {learner.slot}" if learner.slot is not None else name[:MAX_NAME_CHARS]
        yield f"{who}: {_work(state, learner, moment)}"
    if len(learners) > MAX_LEARNERS:
        yield f"and {len(learners) - MAX_LEARNERS} more learners"


def _work(state: ControllerState, learner: Learner, moment: Moment) -> str:
    from arena.wire.messages import Train

    # The first that it holds is the one it works at; the next one is queued.
    row = state.tables.assignments.get(learner.held[0].assignment_id) if learner.held else None
    if row is None:
        return "idle"
    began_s = learner.held[0].started_s
    since = f"for {duration(max(moment.now_s - began_s, 0.0))}" if began_s is not None else "begins"
    if isinstance(row.message, Train):
        policies = ", ".join(
            short_name(trainee.policy, populations=state.setup.populations)
            for trainee in row.message.trainees
        )
        # An assignment without steps only publishes weights.
        if row.message.agent_steps == 0:
            return f"publishes the first weights of {policies}, {since}"
        # Of the last rollout all steps count.
        planned = max(row.message.agent_steps, learner.agent_steps)
        done = f"{count(learner.agent_steps)} of {count(planned)} steps"
        return f"trains {policies}, {done}, {since}"
    matches = sum(pairing.num_matches for pairing in row.message.pairings)
    return f"evaluates, {count(matches)} matches of {len(row.message.pairings)} pairings, {since}"


def _at_most(seconds: float) -> str:
    return f"at most {duration(max(seconds, 0.0))}"


def finals_line(config: RunConfig, *, num_learners: int) -> str:
    """Say that final matches follow when a limit is reached, and for how long at most."""
    from populations.controller.evaluation.finals import FINAL_S, FINAL_SHARE

    begin = "when a limit of stop is reached, training ends and final matches follow"
    if config.deterministic:
        return f"{begin}, until all ratings are sure (deterministic: no limit in seconds)"
    least_s = FINAL_S / num_learners
    text = f"{begin}: for at most {FINAL_SHARE:.0%} of the time that training took"
    longest_s = config.stop.duration_s
    if longest_s is not None:
        # Learners share them: each takes the run's seconds times its share.
        most_s = max(FINAL_SHARE * longest_s, least_s)
        return f"{text}, here {duration(most_s)}"
    return f"{text}, or {duration(least_s)} if that is more"
