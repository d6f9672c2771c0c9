"""Events as plain English, each in one sentence with its numbers.

An event's document is data: what users and other machines wrote stands in its sentence as they
wrote it, on one line and cut off where it is long. Readers escape it as they escape the data.

Tests: `tests/populations/views/test_sentences.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from populations.records.rows import Document, EventRow, Json
from populations.views.wording import Data, Name, Wording, changes, listed, said, text

FIXED = ("sequence", "time", "kind", "subject", "sentence")
"""Keys of an event's document that are not its data."""

RUN: Mapping[str, Wording] = {
    "weights_imported": said(
        "{subject} starts from the weights of {player:player}",
        "{subject} starts from the weights of a player",
        then=(" at {agent_steps:count} agent steps", " ({origin})"),
    ),
    "policy_created": said(
        "{subject:player} begins as {role}",
        "{subject:player} begins",
        then=(", the reference member{reference:when}", ", with {hyperparameters:values}"),
    ),
    "controller_started": said(
        "The run was resumed{resumed:when}",
        "The run began{resumed:unless}",
        then=(", by controller {epoch}",),
    ),
    "versions_differ": said("Packages are others than at the launch: {data:pairs}"),
    "code_differs": said("Code is other than at the launch: {data:pairs}"),
    "device_differs": said(
        "Learner {subject} computes on {device}, the run had used {before:players} until then"
    ),
    "work_lost": said(
        "The run goes on without acknowledged work that is lost: {reason}",
        then=("; at least {agent_steps:count} agent steps", ", {matches:count} matches"),
    ),
    "configuration_changed": said("The configuration was changed: {data:pairs}"),
    "hyperparameters_changed": said(
        "{subject:player} follows changed start values or bounds",
        then=(" at {agent_steps:count} agent steps", ": {changes}"),
    ),
    "lesson_began": said(
        "Lesson {subject} of {lessons:count} began",
        "Lesson {subject} began",
        then=(" at {agent_steps:count} agent steps", ": {reason}"),
    ),
    "training_stopped": said(
        "Training stopped: {reason}",
        "Training stopped",
        then=("; evaluation had {evaluation_share:percent} of the learners' time",),
    ),
    "tournament_assigned": said(
        "The possible champions {contenders:players} play {matches:count} final matches",
        then=(", up to {matches_per_pair:count} per pair",),
    ),
    "finals_stopped": said(
        "The final matches were ended",
        then=(" after {evaluation_s:seconds} of evaluation", ", {over_s:seconds} after their time"),
    ),
    "evaluation_only": said(
        "The run is evaluated for {duration_s:seconds} more", then=("; it had ended: {before}",)
    ),
    "run_finished": said("The run finished: {reason}", "The run finished"),
    "run_stopped": said("The run was interrupted: {reason}", "The run was interrupted"),
    "run_failed": said("The run failed: {reason}", "The run failed"),
}
"""The run as a whole."""

LEARNERS: Mapping[str, Wording] = {
    "learner_joined": said(
        "Learner {subject} joined",
        then=(
            *(" from {host}", ", process {pid}", ", on {device}"),
            ", for {populations:players} alone",
            "; packages are others than the run's: {versions:pairs}",
        ),
    ),
    "learner_left": said(
        "Learner {subject} went away",
        then=(": {reason}", "; assignments {assignments:players} are given out again"),
    ),
    "learner_lost": said(
        "Learner {subject} was lost",
        then=(": {reason}", "; assignments {assignments:players} are given out again"),
    ),
    "learner_refused": said(
        "Learner {subject} was refused: {reason}", "Learner {subject} was refused"
    ),
    "learner_dismissed": said(
        "Learner {subject} was sent away",
        then=(
            *(" ({times:count} times so far)", ": {reason}"),
            "; it failed assignments {assignments:players}",
        ),
    ),
    "learner_start_failed": said(
        "The learner process of {subject} ended before it could work", then=(": it {reason}",)
    ),
    "start_assigned": said(
        "Learner {learner} makes the first weights of {policies:players}",
        then=(" (assignment {subject})",),
    ),
    "train_assigned": said(
        "Learner {learner} trains {policies:players}",
        then=(
            *(
                " for {agent_steps:count} agent steps",
                ", {episodes:count} episodes of each environment",
            ),
            *(" against {rivals:players}", " (assignment {subject})"),
        ),
    ),
    "evaluation_assigned": said(
        "Learner {learner} plays {matches:count} evaluation matches",
        then=(" among {players:players}", " (assignment {subject})"),
    ),
    "assignment_failed": said(
        "Assignment {subject} failed",
        then=(
            *(" at attempt {attempt:count}", " with {policy:player}", ", of the kind {failure}"),
            ": {reason}",
        ),
    ),
    "episodes_dropped": said(
        "Learner {subject} dropped {episodes:count} episodes in flight",
        "Learner {subject} dropped episodes in flight",
        then=(" of {policies:players}", ": {reason}"),
    ),
}
"""Learners and their assignments."""

STORAGE: Mapping[str, Wording] = {
    "paused": said(
        "The run waits: {reason}",
        "The run waits, for nothing finishes",
        then=("; the next try is in {retry_in_s:seconds}",),
    ),
    "continued": said(
        "The run goes on, for something has finished again",
        then=(" after {paused_s:seconds}", " and {refusals:count} tries"),
    ),
    "storage_full": said(
        "Durable data cannot be written: {reason}",
        "Durable data cannot be written",
        then=("; the next try is in {retry_in_s:seconds}",),
    ),
    "storage_recovered": said(
        "The disk accepts data again",
        then=(" after {paused_s:seconds}", " and {refusals:count} refusals"),
    ),
    "checkpoint_corrupt": said(
        "A checkpoint of {subject:player} is damaged and was set aside",
        "A checkpoint is damaged and was set aside",
        then=(": {reason}", " ({key})"),
    ),
    "ghost_corrupt": said(
        "The ghost {subject:player} is damaged and was set aside", then=(": {reason}",)
    ),
    "outsider_imported": said(
        "The weights of {origin} were copied to {subject}",
        then=(": {player:player}", " at {agent_steps:count} agent steps"),
    ),
    "outsider_corrupt": said(
        "The copied weights {subject} from outside are damaged",
        then=(", for population {population}", ": {reason}"),
    ),
    "fell_back": said(
        "{subject:player} goes on from an older checkpoint, because a newer one is damaged",
        then=(": that at {agent_steps:count} agent steps",),
    ),
    "journal_migrated": said(
        "The journal was brought from format {from} to {to}",
        "The journal was brought up to date",
        then=("; the older one is kept as {copy}",),
    ),
    "backup_renewed": said("A repair made the damaged backup of the journal anew"),
    "rows_mended": said("A repair made damaged rows of the journal again"),
    "journal_restored": said(
        "A repair replaced the damaged journal by its backup",
        then=(
            *(" of {assignments_finished:count} assignments", ": {damage}"),
            "; at least {lost_assignments_at_least:count} assignments are lost",
        ),
    ),
    "checkpoint_adopted": said(
        "A repair recorded {num_checkpoints:count} unknown checkpoints of {subject:player}",
        "A repair recorded unknown checkpoints of {subject:player}",
        then=("; it is at {agent_steps:count} agent steps, not {agent_steps_before:count}",),
    ),
    "ghost_adopted": said("A repair recorded the unknown ghost {subject:player}"),
    "checkpoint_restored": said(
        "A repair found a checkpoint of {subject:player} intact", then=(" ({key})",)
    ),
    "ghost_restored": said("A repair found the ghost {subject:player} intact"),
    "policy_restored": said(
        "A repair brought {subject:player} back from quarantine", then=(", to {checkpoint}",)
    ),
}
"""The disk, and repairs of what it lost."""

# An event keeps the numbers that decided. Sentences stand beside ratings of now, on another scale,
# so each that has a rating says which fit it is of.

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

EVOLUTION: Mapping[str, Wording] = {
    "exploited": said(
        "{subject:player} copied {donor:player}",
        then=(
            *(" at {donor_agent_steps:count} agent steps", _COPY),
            "; ranks {rank} and {donor_rank} of {num_ranked}",
            *(_P_VALUE, _WIN_RATE, "; the reason: {reason}"),
            "; hyperparameters: {changes}",
        ),
    ),
    "explored": said(
        "{subject:player} kept its weights and changed hyperparameters",
        then=(": {changes}", "; the reason: {reason}", _STANDING, _TESTED, _P_VALUE, _WIN_RATE),
    ),
    "kept": said(
        "{subject:player} stays as it is: {reason}",
        "{subject:player} stays as it is",
        then=(_STANDING, _TESTED, _P_VALUE, _WIN_RATE),
    ),
    "decision_postponed": said(
        "A decision about {subject:player} waits: {reason}",
        "A decision about {subject:player} waits",
        then=(" (it has {num_matches:count})",),
    ),
    "decisions_counted": said("{made:count} decisions before are in the archive"),
    "exploit_failed": said(
        "The rule that selects donors failed for {subject:player}", then=(": {reason}",)
    ),
    "explore_failed": said(
        "The rule that changes hyperparameters failed for {subject:player}, so they were perturbed",
        then=(": {reason}",),
    ),
    "exploit_abandoned": said("{subject:player} gave up a copy", then=(": {reason}",)),
    "immigrated": said(
        "{subject:player} took weights from outside, {from:player}",
        then=(
            ", in the place of a copy of {instead_of:player}",
            " (probability {immigration_probability:percent})",
            "; hyperparameters: {changes}",
        ),
    ),
    "replayed": said(
        "{subject:player} follows its recorded schedule",
        then=(
            *(" from {mark:count} agent steps on", " (of {num_entries:count} entries)"),
            ": {changes}",
        ),
    ),
    "reset": said(
        "{subject:player} began again from {to:player}",
        then=(", by the rule {rule}", " (probability {probability:percent})"),
    ),
    "rewound": said(
        "{subject:player} was put back on its ghost {ghost:player}, with a fresh optimizer",
        "{subject:player} was put back on its checkpoint at {checkpoint_agent_steps:count} agent "
        "steps",
        "{subject:player} was put back on one of its checkpoints",
        then=(
            " (generation {checkpoint_generation})",
            ", from {agent_steps:count} agent steps",
            ", while it was {was}",
        ),
    ),
    "promoted": said("{subject:player} trains on", then=(": {reason}", _STANDING)),
    "retired": said("{subject:player} was retired", then=(": {reason}", _STANDING)),
    "quarantined": said("{subject:player} was quarantined", then=(": {reason}",)),
    "learning_rate_halved": said(
        "{subject:player} goes on from quarantine with half its learning rate",
        then=(": {changes}",),
    ),
    "ghost_created": said(
        "{policy:player} left the ghost {subject:player}",
        "A ghost was left: {subject:player}",
        then=(" at {agent_steps:count} agent steps", ": {reason}"),
    ),
    "ghosts_thinned": said(
        "{ghosts:size} of {before:count} ghosts of {subject} were removed",
        "Ghosts of {subject} were removed",
        then=(" by the rule {rule}", ", to keep {keep:count}"),
    ),
    "thinning_failed": said(
        "The rule of thinning failed for {subject}", then=(": {reason}", "; {instead} chose")
    ),
    "results_merged": said(
        "Results of weights that are gone were added to {into:size} generations of {subject}",
        "Results of weights that are gone were removed from those of {subject}",
    ),
    "checkpoint_rows_removed": said(
        "Rows of {checkpoints:size} checkpoints that nothing refers to were removed",
        "Rows of checkpoints were removed",
    ),
    "generation_rows_removed": said(
        "Rows of {generations:size} old generations were removed",
        "Rows of old generations were removed",
    ),
    "pinned": said("{subject:player} is kept for good"),
    "unpinned": said("{subject:player} is no longer kept for good"),
    "ratings_fitted": said(
        "Ratings were fitted to the results until tally {tallies:count}",
        "Ratings were fitted",
        then=(": {leaders:text} leads",),
    ),
    "champion": said(
        "{subject:player} is the champion now",
        then=(
            " with {rating:elo} Elo [{rating_low:elo}, {rating_high:elo}] by the fit of then",
            "{open:when} with {rating_low:elo} Elo or more by the fit of then",
            ", after {previous:player}",
        ),
    ),
    "export_due": said(
        "{subject:player} has reached a mark of export",
        then=(" at {agent_steps:count} agent steps", ", to {to}"),
    ),
    "alert": said(
        "Alert {name} about {subject:player}: {what}", "Alert {name}: {what}", "Alert {name}"
    ),
    "alert_cleared": said("Alert {name} about {subject:player} is over", "Alert {name} is over"),
}
"""Population-based training, ghosts, ratings and alerts."""

SENTENCES: Mapping[str, Wording] = {**RUN, **LEARNERS, **EVOLUTION, **STORAGE}
"""Wordings of all kinds of events."""


def sentence(event: Data, *, name: Name = str) -> str:
    """Return an event as one sentence.

    An event of an unknown kind (of another release) is told by its kind and data.

    Args:
        event: Document of the event, as the view ``events`` has it.
        name: Function that shortens players' names.
    """
    kind = str(event.get("kind"))
    wording = SENTENCES.get(kind)
    if wording is None:
        return _plain(kind, event)
    asked = {key for key, _ in wording.fields}
    known = {key: make(event, name) for key, make in DERIVED.items() if key in asked}
    return wording.render({**event, **known}, name=name) or _plain(kind, event)


def event_document(row: EventRow) -> Document:
    """Return an event as plain data: its data beside what every event has, and its sentence."""
    document: Document = {
        "sequence": row.sequence,
        "time": row.time,
        "kind": row.kind,
        "subject": row.subject,
        **row.data,
    }
    # Of the row's own kind and subject: data may have such keys, too.
    about = {**document, "kind": row.kind, "subject": row.subject}
    return {**document, "sentence": sentence(about)}


def _rivals(event: Data, _: Name) -> Json:
    """Return the opponents of a training assignment, each once."""
    policies = set(_texts(event.get("policies")))
    opponents: list[str] = []
    seatings = event.get("opponents")
    for seating in seatings if isinstance(seatings, list) else ():
        others = [one for one in _texts(seating) if one not in policies]
        # In every seat it plays itself; beside others its own seats are no opponents.
        opponents += others or ["itself"] * (len(policies) == 1)
    return list(dict.fromkeys(opponents))


def _texts(value: Json) -> Iterator[str]:
    """Yield the texts of nested lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Sequence):
        for one in value:
            yield from _texts(one)


def _leaders(event: Data, name: Name) -> Json:
    """Return the champions of populations with their ratings, in words."""
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
    """Return the data of an event's document."""
    return {key: value for key, value in event.items() if key not in FIXED}


DERIVED: Mapping[str, Callable[[Data, Name], Json]] = {
    "data": lambda event, _: data_of(event),
    "changes": lambda event, _: changes(event.get("old"), event.get("new")),
    "rivals": _rivals,
    "players": lambda event, _: list(dict.fromkeys(_texts(event.get("pairings")))),
    "leaders": _leaders,
}
"""Fields that are made of several keys of an event."""


def _plain(kind: str, event: Data) -> str:
    """Return an event's kind, subject and data."""
    about = text(event.get("subject"))
    values = listed(f"{text(key)} {text(value) or '-'}" for key, value in data_of(event).items())
    head = text(kind.replace("_", " ")) or "event"
    return f"{head}{f' of {about}' if about else ''}{f': {values}' if values else ''}"
