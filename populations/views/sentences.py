"""Events as plain English, each in one sentence with its numbers.

A sentence may include texts of users and other machines, shortened to one line but not escaped, so
readers must escape it as they escape the data.

Tests: `tests/populations/views/test_sentences.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from populations.records.rows import Document, EventRow, Json
from populations.views.texts import texts
from populations.views.wording import Data, Name, changes, fields, listed, text, told

FIXED = ("sequence", "time", "kind", "subject", "sentence")
"""Keys of an event's document that are not its data."""

# An event has the ratings of its time. Sentences are shown next to present ratings, which are on
# another scale, so a sentence with a rating says that it is by the fit of then.

_STANDING = (
    " (rank {rank} of {num_ranked}, {rating:elo} Elo by the fit of then, {num_matches:count} "
    "evaluation matches)"
)
_TESTED = (
    "; {comparison.rival:player} is ahead by {comparison.difference:number} "
    "in {comparison.measure} (standard deviation {comparison.deviation:number})"
)
_P_VALUE = "; the test's p value is {comparison.p_value:number}"
_WIN_RATE = "; its predicted win rate is {comparison.win_rate:percent}"
_COPY = (
    ", which led by {gap:elo} Elo by the fit of then ({donor_rating:elo} against {rating:elo}, "
    "standard deviation {gap_deviation:elo}, better with a probability of "
    "{probability_better:percent})"
)

SENTENCES: Mapping[str, str] = {
    # The run as a whole.
    "weights_imported": "{subject} starts from the weights of| {player:player}|~ a player| at "
    "{agent_steps:count} agent steps| ({origin})",
    "policy_created": "{subject:player} begins| as {role}|, the reference member{reference:when}"
    "|, with {hyperparameters:values}",
    "controller_started": "The run| was resumed{resumed:when}|~ began|, by controller {epoch}",
    "versions_differ": "Packages are others than at the launch: {data:pairs}",
    "code_differs": "Code is other than at the launch: {data:pairs}",
    "device_differs": "Learner {subject} computes on {device}, the run had used {before:players} "
    "until then",
    "work_lost": "The run goes on without acknowledged work that is lost: {reason}|; at least "
    "{agent_steps:count} agent steps|, {matches:count} matches",
    "configuration_changed": "The configuration was changed: {data:pairs}",
    "hyperparameters_changed": "{subject:player} follows changed start values or bounds| at "
    "{agent_steps:count} agent steps|: {changes}",
    "lesson_began": "Lesson {subject}| of {lessons:count}| began| at {agent_steps:count} agent "
    "steps|: {reason}",
    "training_stopped": "Training stopped|: {reason}|; evaluation had {evaluation_share:percent} "
    "of the learners' time",
    "tournament_assigned": "The possible champions {contenders:players} play {matches:count} "
    "final matches|, up to {matches_per_pair:count} per pair",
    "finals_stopped": "The final matches were ended| after {evaluation_s:seconds} of evaluation|, "
    "{over_s:seconds} after their time",
    "evaluation_only": "The run is evaluated for {duration_s:seconds} more|; it had ended: "
    "{before}",
    "run_finished": "The run finished|: {reason}",
    "run_stopped": "The run was interrupted|: {reason}",
    "run_failed": "The run failed|: {reason}",
    # Learners and their assignments.
    "learner_joined": "Learner {subject} joined| from {host}|, process {pid}|, on {device}|, for "
    "{populations:players} alone|; packages are others than the run's: {versions:pairs}",
    "learner_left": "Learner {subject} went away|: {reason}|; assignments {assignments:players} "
    "are given out again",
    "learner_lost": "Learner {subject} was lost|: {reason}|; assignments {assignments:players} "
    "are given out again",
    "learner_refused": "Learner {subject} was refused|: {reason}",
    "learner_dismissed": "Learner {subject} was sent away| ({times:count} times so far)|: {reason}"
    "|; it failed assignments {assignments:players}",
    "learner_start_failed": "The learner process of {subject} ended before it could work|: it "
    "{reason}",
    "start_assigned": "Learner {learner} makes the first weights of {policies:players}| "
    "(assignment {subject})",
    "train_assigned": "Learner {learner} trains {policies:players}| for {agent_steps:count} agent "
    "steps|, {episodes:count} episodes of each environment| against {rivals:players}| (assignment "
    "{subject})",
    "evaluation_assigned": "Learner {learner} plays {matches:count} evaluation matches| among "
    "{players:players}| (assignment {subject})",
    "assignment_failed": "Assignment {subject} failed| at attempt {attempt:count}| with "
    "{policy:player}|, of the kind {failure}|: {reason}",
    "episodes_dropped": "Learner {subject} dropped| {episodes:count}| episodes in flight| of "
    "{policies:players}|: {reason}",
    # The disk, and repairs of what it lost.
    "paused": "The run waits|: {reason}|~, for nothing finishes|; the next try is in "
    "{retry_in_s:seconds}",
    "continued": "The run goes on, for something has finished again| after {paused_s:seconds}| "
    "and {refusals:count} tries",
    "storage_full": "Durable data cannot be written|: {reason}|; the next try is in "
    "{retry_in_s:seconds}",
    "storage_recovered": "The disk accepts data again| after {paused_s:seconds}| and "
    "{refusals:count} refusals",
    "checkpoint_corrupt": "A checkpoint| of {subject:player}| is damaged and was set aside|: "
    "{reason}| ({key})",
    "ghost_corrupt": "The ghost {subject:player} is damaged and was set aside|: {reason}",
    "outsider_imported": "The weights of {origin} were copied to {subject}|: {player:player}| at "
    "{agent_steps:count} agent steps",
    "outsider_corrupt": "The copied weights {subject} from outside are damaged|, for population "
    "{population}|: {reason}",
    "fell_back": "{subject:player} goes on from an older checkpoint, because a newer one is "
    "damaged|: that at {agent_steps:count} agent steps",
    "journal_migrated": "The journal was brought| from format {from} to {to}|~ up to date|; the "
    "older one is kept as {copy}",
    "backup_renewed": "A repair made the damaged backup of the journal anew",
    "rows_mended": "A repair made damaged rows of the journal again",
    "journal_restored": "A repair replaced the damaged journal by its backup| of "
    "{assignments_finished:count} assignments|: {damage}|; at least "
    "{lost_assignments_at_least:count} assignments are lost",
    "checkpoint_adopted": "A repair recorded {num_checkpoints:count} unknown checkpoints of "
    "{subject:player}|~A repair recorded unknown checkpoints of {subject:player}|; it is at "
    "{agent_steps:count} agent steps, not {agent_steps_before:count}",
    "ghost_adopted": "A repair recorded the unknown ghost {subject:player}",
    "checkpoint_restored": "A repair found a checkpoint of {subject:player} intact| ({key})",
    "ghost_restored": "A repair found the ghost {subject:player} intact",
    "policy_restored": "A repair brought {subject:player} back from quarantine|, to {checkpoint}",
    # Population-based training, ghosts, ratings and alerts.
    "exploited": "{subject:player} copied {donor:player}| at {donor_agent_steps:count} agent steps"
    f"|{_COPY}|; ranks {{rank}} and {{donor_rank}} of {{num_ranked}}|{_P_VALUE}|{_WIN_RATE}|; the "
    "reason: {reason}|; hyperparameters: {changes}",
    "explored": "{subject:player} kept its weights and changed hyperparameters|: {changes}|; the "
    f"reason: {{reason}}|{_STANDING}|{_TESTED}|{_P_VALUE}|{_WIN_RATE}",
    "kept": f"{{subject:player}} stays as it is|: {{reason}}|{_STANDING}|{_TESTED}|{_P_VALUE}"
    f"|{_WIN_RATE}",
    "decision_postponed": "A decision about {subject:player} waits|: {reason}| (it has "
    "{num_matches:count})",
    "exploit_failed": "The rule that selects donors failed for {subject:player}|: {reason}",
    "explore_failed": "The rule that changes hyperparameters failed for {subject:player}, so they "
    "were perturbed|: {reason}",
    "exploit_abandoned": "{subject:player} gave up a copy|: {reason}",
    "immigrated": "{subject:player} took weights from outside, {from:player}|, in the place of a "
    "copy of {instead_of:player}| (probability {immigration_probability:percent})|; "
    "hyperparameters: {changes}",
    "replayed": "{subject:player} follows its recorded schedule| from {mark:count} agent steps on"
    "| (of {num_entries:count} entries)|: {changes}",
    "reset": "{subject:player} began again from {to:player}|, by the rule {rule}| (probability "
    "{probability:percent})",
    "rewound": "{subject:player} was put back on| its ghost {ghost:player}, with a fresh optimizer"
    "|~ its checkpoint at {checkpoint_agent_steps:count} agent steps|~ one of its checkpoints| "
    "(generation {checkpoint_generation})|, from {agent_steps:count} agent steps|, while it was "
    "{was}",
    "promoted": f"{{subject:player}} trains on|: {{reason}}|{_STANDING}",
    "retired": f"{{subject:player}} was retired|: {{reason}}|{_STANDING}",
    "quarantined": "{subject:player} was quarantined|: {reason}",
    "learning_rate_halved": "{subject:player} goes on from quarantine with half its learning rate"
    "|: {changes}",
    "ghost_created": "{policy:player} left the ghost {subject:player}|~A ghost was left: "
    "{subject:player}| at {agent_steps:count} agent steps|: {reason}",
    "ghosts_thinned": "{ghosts:size} of {before:count} ghosts of {subject} were removed|~Ghosts "
    "of {subject} were removed| by the rule {rule}|, to keep {keep:count}",
    "matchmaking_failed": "The matchmaker failed for {subject}|: {reason}|; {instead} drew",
    "thinning_failed": "The rule of thinning failed for {subject}|: {reason}|; {instead} chose",
    "results_merged": "Results of weights that are gone were added to {into:size} generations of "
    "{subject}|~Results of weights that are gone were removed from those of {subject}",
    "checkpoint_rows_removed": "Rows of| {checkpoints:size} checkpoints that nothing refers to|~ "
    "checkpoints| were removed",
    "generation_rows_removed": "Rows of| {generations:size}| old generations were removed",
    "pinned": "{subject:player} is kept for good",
    "unpinned": "{subject:player} is no longer kept for good",
    "ratings_fitted": "Ratings were fitted| to the results until tally {tallies:count}|: "
    "{leaders:text} leads",
    "champion": "{subject:player} is the champion now| with {rating:elo} Elo [{rating_low:elo}, "
    "{rating_high:elo}] by the fit of then|{open:when} with {rating_low:elo} Elo or more by the "
    "fit of then|, after {previous:player}",
    "export_due": "{subject:player} has reached a mark of export| at {agent_steps:count} agent "
    "steps|, to {to}",
    "alert": "Alert {name}| about {subject:player}: {what}|~: {what}",
    "alert_cleared": "Alert {name}| about {subject:player}| is over",
}
"""Templates of all kinds of events, for `populations.views.wording.told`."""


def sentence(event: Data, *, name: Name = str) -> str:
    """Return an event as one sentence.

    For an event of an unknown kind (of another release) the sentence has its kind and data.

    Args:
        event: Document of the event, as the view ``events`` has it.
        name: Function that shortens players' names.
    """
    kind = str(event.get("kind"))
    template = SENTENCES.get(kind, "")
    asked = {key for key, _ in fields(template)}
    known = {key: make(event, name) for key, make in DERIVED.items() if key in asked}
    return told(template, {**event, **known}, name=name) or _plain(kind, event)


def event_document(row: EventRow) -> Document:
    """Return an event as plain data: its data, the keys that every event has, and its sentence."""
    document: Document = {
        "sequence": row.sequence,
        "time": row.time,
        "kind": row.kind,
        "subject": row.subject,
        **row.data,
    }
    # An event's data may have keys `kind` and `subject`, too; the sentence needs the row's.
    about = {**document, "kind": row.kind, "subject": row.subject}
    return {**document, "sentence": sentence(about)}


def _rivals(event: Data, _: Name) -> Json:
    """Return the names of a training assignment's opponents, without duplicates."""
    policies = set(texts(event.get("policies")))
    opponents: list[str] = []
    seatings = event.get("opponents")
    for seating in seatings if isinstance(seatings, list) else ():
        others = [one for one in texts(seating) if one not in policies]
        # A policy in every seat plays itself. With other players, its own seats are no opponents.
        opponents += others or ["itself"] * (len(policies) == 1)
    return list(dict.fromkeys(opponents))


def _leaders(event: Data, name: Name) -> Json:
    """Return the champion of each population with its rating, in words; None if unknown."""
    champions = event.get("champions")
    if not isinstance(champions, Mapping):
        return None
    return [
        f"{name(str(one['champion']))} with {one['rating']:z,.0f} Elo"
        for one in champions.values()
        if isinstance(one, Mapping)
        and isinstance(one.get("rating"), int | float)
        and one.get("champion") is not None
    ]


def data_of(event: Data) -> Document:
    """Return the keys of an event's document that are its data."""
    return {key: value for key, value in event.items() if key not in FIXED}


DERIVED: Mapping[str, Callable[[Data, Name], Json]] = {
    "data": lambda event, _: data_of(event),
    "changes": lambda event, _: changes(event.get("old"), event.get("new")),
    "rivals": _rivals,
    "players": lambda event, _: list(dict.fromkeys(texts(event.get("pairings")))),
    "leaders": _leaders,
}
"""Fields of templates that are computed from several keys of an event."""


def _plain(kind: str, event: Data) -> str:
    """Return an event's kind, subject and data in words, for kinds without a template."""
    about = text(event.get("subject"))
    values = listed(f"{text(key)} {text(value) or '-'}" for key, value in data_of(event).items())
    head = text(kind.replace("_", " ")) or "event"
    return f"{head}{f' of {about}' if about else ''}{f': {values}' if values else ''}"
