"""Alerts: findings of each event, which raise and clear them.

An alert is raised after as many findings of trouble in a row as its kind defines, and cleared after
its number of good ones. It is reported only then. Its subject is a population, a sink or the run,
and it names the sources of the findings.
"""

from __future__ import annotations

from collections.abc import Iterator

from arena.types import PolicyId
from arena.users_code import encodable
from arena.wire.messages import Train
from populations.config.run_config import RunConfig
from populations.controller.indexes.alert_kinds import KINDS, RULES, Trained
from populations.controller.indexes.trainee_metrics import metrics_of_trainee
from populations.controller.state.epoch import Measured, Phase
from populations.controller.state.leases import Pause
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction
from populations.hooks.findings import Finding
from populations.league.league import League
from populations.pbt.scheduler import interval, mark_of
from populations.records.rows import AlertRow, AssignmentRow, EventRow, PolicyRow
from populations.records.tables import Tables

IDLE_S = 1.0
"""Seconds between two checks for learners without work, which `Kind.raise_after` counts."""

OVERDUE = 2.0
"""Delay of a decision of PBT that raises an alert, in units of its clock's interval."""

FELL_BACK = {"explore_failed": "explore_fell_back", "exploit_failed": "exploit_fell_back"}
"""Kind of the alert that an event about a failed rule of PBT raises."""

OWN_RULE = "pbt.exploit is a class of your own, whose reason this is."
UNRATED = (
    "There are enough matches, but the last fit of ratings does not cover its newest weights. "
    "Raise evaluation.share, so that these play sooner, or raise pbt.ready_agent_steps."
)
"""Remedies of ``pbt_undecided`` if there are enough matches."""


def watch(state: ControllerState, tx: Transaction) -> None:
    """Update alerts by the rows of an event, and by learners that have nothing to do."""
    # Findings are listed first, because recording one adds rows to those that are searched.
    for finding in list(_findings(state, tx)):
        record(state.measured, tx, finding)
    for row in tx.rows:
        if isinstance(row, EventRow) and row.kind == "quarantined":
            # A quarantined policy is not measured any more, so its alerts would never be cleared.
            alerts = state.measured.alerts
            for kind, subject in list(alerts.raised):
                _tell(tx, kind, subject, alerts.forget(kind, subject, row.subject))


def record(measured: Measured, tx: Transaction, finding: Finding) -> None:
    """Update an alert; report its begin and end, and fail the run if it is in `alerts.fail`."""
    kind, subject, _, what, advice = finding
    alerts = measured.alerts
    was_raised = (kind, subject) in alerts.raised
    change = alerts.record(finding)
    # An active alert is not reported again for a further source.
    if not (change and was_raised):
        _tell(tx, kind, subject, change, finding)
    if change and kind in alerts.fail:
        reason = f"alerts.fail: {kind}: {what}. {advice or KINDS[kind].advice}"
        measured.phase.fail(tx, reason=reason)


def record_end(measured: Measured, tx: Transaction) -> None:
    """Clear the alert about idle learners at a run's end, and raise one if it trained nothing."""
    phase, alerts = measured.phase, measured.alerts
    # At the end of a run it is normal that learners have no work.
    change = alerts.forget("learners_idle", "", "learners")
    _tell(tx, "learners_idle", "", change)
    if tx.tables.run.agent_steps == 0 and not (phase.interrupted or phase.failed):
        what = f"the run ended without a single agent step ({phase.reason})"
        record(measured, tx, Finding("no_steps", "", "run", what))
        if "no_steps" in alerts.fail:
            phase.reason = f"alerts.fail: no_steps: {what}"
    elif tx.tables.run.agent_steps:
        record(measured, tx, Finding("no_steps", "", "run", ""))


def _tell(
    tx: Transaction,
    kind: str,
    subject: str,
    change: bool | None,
    finding: Finding | None = None,
) -> None:
    if change and finding is not None:
        # The text may come from users' code, so characters that cannot be stored are replaced.
        what, advice = encodable(finding.what), finding.advice or KINDS[kind].advice
        tx.put(
            AlertRow(name=kind, subject=subject, what=what, advice=advice, source=finding.source)
        )
        tx.add_event(
            "alert", subject, name=kind, what=what, advice=advice, sources=[finding.source]
        )
    elif change is False:
        tx.delete(tx.tables.alerts[kind, subject])
        tx.add_event("alert_cleared", subject, name=kind)


def _findings(state: ControllerState, tx: Transaction) -> Iterator[Finding]:
    for row in tx.rows:
        if isinstance(row, AssignmentRow) and row.status == "finished":
            void = row.metrics.get("episode/void", 0.0)
            what = f"{void:.0f} episodes of assignment {row.assignment_id} were void"
            yield Finding("void_episodes", "", "episodes", what if void else "")
            if isinstance(row.message, Train) and row.agent_steps:
                yield from _trained(state, row, row.message)
    yield from _decided(state.tables, tx)
    yield from _idle(state.measured, state.blame.pause, tx)


def _trained(state: ControllerState, row: AssignmentRow, message: Train) -> Iterator[Finding]:
    measured, setup = state.measured.alerts, state.settings.setup
    for trainee in message.trainees:
        policy = state.tables.policies[trainee.policy]
        metrics = metrics_of_trainee(row.metrics, message.trainees, of=trainee.policy)
        measured.measure(policy.policy, policy.population, metrics, duration_s=row.duration_s)
        trained = Trained(
            policy=policy,
            metrics=metrics,
            window=measured.windows[policy.policy],
            # The seconds are of all learners together, so they are divided by their number.
            unended_s=measured.unended_s[policy.population] / max(len(state.crew.learners), 1),
            episode_length=policy.episode_length or state.measured.episode_length,
            num_envs=setup.num_envs,
            action=setup.spec.agent_specs[setup.populations[policy.population].agents[0]].action,
            weighs_rewards=bool(state.settings.config.environment.reward_weights),
        )
        for kind, rule in RULES.items():
            what = rule(trained)
            if what is not None:
                said = f"{policy.policy}: {what}" if what else ""
                yield Finding(kind, policy.population, policy.policy, said)
        yield from _overdue(state.settings.config, state.league, state.phase, policy)


def _overdue(
    config: RunConfig, league: League, phase: Phase, policy: PolicyRow
) -> Iterator[Finding]:
    """Yield whether a decision of PBT about a policy is long overdue."""
    pbt = config.pbt_of(policy.population)
    others = [
        row
        for row in league.tables.policies.values()
        if (row.population, row.role, row.state) == (policy.population, policy.role, "active")
        and row.policy != policy.policy
    ]
    is_asked = pbt.exploit != "none" and not config.populations[policy.population].schedule
    # Nothing is due if no rule is called, a decision is pending, or there is no policy to copy.
    if not is_asked or policy.pending or not others or phase.name != "training":
        return
    waited = policy.agent_steps - mark_of(policy, pbt)
    what, advice = "", ""
    if waited >= OVERDUE * interval(policy, pbt):
        own = league.matches_in_generation(policy)
        theirs = [league.matches_in_generation(row) for row in others]
        waiting = league.tables.postponed.get(policy.policy)
        reason = "its team is not there" if waiting is None else waiting.reason
        what = (
            f"{policy.policy}: PBT could not decide about it for {waited:,} agent steps "
            f"(decisions are due every {interval(policy, pbt):,}): {reason}; evaluation matches of "
            f"its generation: {own:,}, of the others': at most {max(theirs):,} (pbt.min_matches "
            f"{pbt.min_matches:,})"
        )
        if ":" in pbt.exploit:
            advice = OWN_RULE
        elif min(own, max(theirs)) >= pbt.min_matches:
            # With enough matches, the decision waits for a fit that covers the newest weights.
            advice = UNRATED
    yield Finding("pbt_undecided", policy.population, policy.policy, what, advice)


def _decided(tables: Tables, tx: Transaction) -> Iterator[Finding]:
    """Yield whether the rules of PBT worked, population by population."""
    failed: dict[tuple[str, str], str] = {}
    worked: set[tuple[str, str]] = set()
    for row in tx.rows:
        if not isinstance(row, EventRow):
            continue
        policy = tables.policies.get(PolicyId(row.subject))
        if policy is None:
            continue
        name = policy.population
        if row.kind in FELL_BACK:
            failed[FELL_BACK[row.kind], name] = f"{row.subject}: {row.data['reason']}"
        elif row.kind in ("exploited", "explored", "kept"):
            worked.add(("exploit_fell_back", name))
            # Only an event with moves shows that the rule for exploring worked.
            if row.data.get("moves"):
                worked.add(("explore_fell_back", name))
    # If a rule both worked and failed, the failure counts. Keys are sorted, because the order of a
    # set differs between processes, and a deterministic run must not.
    for key in sorted(worked - set(failed)):
        yield Finding(*key, key[1], "")
    for key, reason in failed.items():
        yield Finding(*key, key[1], f"the rule failed for {reason}")


def _idle(measured: Measured, pause: Pause | None, tx: Transaction) -> Iterator[Finding]:
    """Yield, at most once a second, whether learners have nothing to do."""
    phase, alerts, now_s = measured.phase, measured.alerts, tx.now.monotonic_s
    if now_s - alerts.idle_at_s < IDLE_S:
        return
    alerts.idle_at_s = now_s
    idle = [learner for learner in phase.crew.learners.values() if not learner.held]
    # While a run ends or is paused, nothing is given out, so idle learners are no trouble.
    may_work = phase.name == "training" and pause is None
    what = ""
    if idle and may_work:
        kind = KINDS["learners_idle"]
        what = (
            f"{len(idle)} of {len(phase.crew.learners)} learners have nothing to do, for "
            f"{kind.raise_after * IDLE_S:.0f} s at least"
        )
    yield Finding("learners_idle", "", "learners", what)
