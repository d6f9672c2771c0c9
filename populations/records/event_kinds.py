"""Kinds of events: every name that an event of the journal can have, and its meaning.

Names never change, because scripts and hooks of users depend on them. The numbers of an event are
in `EventRow.data`.

Tests: `tests/docs/test_reference.py` compares the names with those in the code.
"""

from __future__ import annotations

from collections.abc import Mapping

RUN_EVENTS: Mapping[str, str] = {
    "weights_imported": "A population starts from the weights of a player (`--init-from`).",
    "policy_created": "A policy exists, with its role and first hyperparameters.",
    "controller_started": "A controller has begun or resumed the run; `epoch` counts them.",
    "versions_differ": "A resume found other versions of packages than the launch.",
    "code_differs": "A resume found other code of the user's than the launch; digests by module.",
    "device_differs": "After a resume a learner computes on a device that the run had not used.",
    "work_lost": "Acknowledged work is lost, and the run goes on without it (`--accept-loss`, "
    "`--repair`); the numbers are the least ones.",
    "configuration_changed": "A resume changed a key; the value before and the value after.",
    "hyperparameters_changed": "A resume changed start values or bounds: a policy follows.",
    "lesson_began": "Training went on to the next lesson of `environment.curriculum`.",
    "training_stopped": "A stop condition was reached; final matches follow.",
    "tournament_assigned": "The possible champions play the matches that they lack.",
    "finals_stopped": "The time for final matches is over, and they were ended.",
    "evaluation_only": "A stopped run is evaluated further (`arena evaluate --into`).",
    "run_finished": "The run has reached a stop condition, and everything is saved.",
    "run_stopped": "The run was interrupted, and everything is saved.",
    "run_failed": "The run cannot go on; `reason` says why.",
}
"""Events of the run as a whole."""

LEARNER_EVENTS: Mapping[str, str] = {
    "learner_joined": "A learner process has connected; `proof` is that of its results, `versions` "
    "are packages that differ from the run's.",
    "learner_left": "A learner has left by itself.",
    "learner_lost": "A learner was silent for too long, or died; its work is given out again.",
    "learner_refused": "A learner may not join: `reason` says why.",
    "learner_dismissed": "A learner fails assignments that others can do, and was sent away.",
    "learner_start_failed": "A learner process ended before it could work.",
    "start_assigned": "A learner makes the initial weights of policies.",
    "train_assigned": "A learner trains policies against the opponents that are named.",
    "evaluation_assigned": "Evaluation matches were given to a learner; results have no event.",
    "assignment_failed": "An assignment was given back; `failure` is its kind.",
    "episodes_dropped": "A learner dropped episodes in flight for lack of memory.",
}
"""Events of learners and their assignments."""

EVOLUTION_EVENTS: Mapping[str, str] = {
    "exploited": "A policy copied a donor's weights, with the numbers that decided.",
    "explored": "A policy kept its weights and changed its hyperparameters.",
    "kept": "A decision was due and left the policy as it is.",
    "decision_postponed": "A decision is due and too little is known for it.",
    "exploit_failed": "The rule that selects donors failed.",
    "explore_failed": "The rule that changes hyperparameters failed; they were perturbed instead.",
    "exploit_abandoned": "A copy was given up, because the donor's checkpoint is gone.",
    "immigrated": "A policy from outside took the place of a copy.",
    "replayed": "A policy moved on in its recorded schedule of hyperparameters.",
    "reset": "An exploiter began again.",
    "rewound": "A policy was put back on one of its checkpoints or ghosts (`arena rewind`).",
    "promoted": "A policy is in the better half, and trains on with a larger share.",
    "retired": "A policy is in the worse half: it trains no more, and others train instead.",
    "quarantined": "A policy is trained, rated and copied no more; `reason` says why.",
    "learning_rate_halved": "A quarantined policy goes on with half its learning rate.",
}
"""Events of population-based training: changes of a policy, with their reasons."""

LEAGUE_EVENTS: Mapping[str, str] = {
    "ghost_created": "A policy left a frozen copy as an opponent.",
    "ghosts_thinned": "A population had too many ghosts, and some were removed.",
    "matchmaking_failed": "A user's matchmaker failed, and another one drew opponents.",
    "thinning_failed": "A user's rule of thinning failed, and another one chose.",
    "results_merged": "Results of weights that are gone were added to those of their generation.",
    "checkpoint_rows_removed": "Rows of checkpoints that nothing refers to were removed.",
    "generation_rows_removed": "Rows of old generations were removed; the event has them.",
    "pinned": "A user keeps a player for good (`arena pin`).",
    "unpinned": "A user has given a pinned player free.",
    "ratings_fitted": "Ratings were fitted to new evaluation matches.",
    "champion": "Another player leads its population.",
    "export_due": "A policy has reached a mark of `checkpoints.export_every_agent_steps`.",
    "alert": "A state that needs attention began.",
    "alert_cleared": "That state is over.",
}
"""Events of ghosts, ratings and alerts."""

STORAGE_EVENTS: Mapping[str, str] = {
    "paused": "Nothing finishes any more, and nobody is to blame; the run waits and tries again.",
    "continued": "Something has finished again, and the run goes on.",
    "storage_full": "Durable data cannot be written: the run waits and tries again.",
    "storage_recovered": "The disk accepts data again.",
    "checkpoint_corrupt": "A checkpoint's bytes differ from those published; it was set aside.",
    "ghost_corrupt": "A ghost's bytes differ from those published; it was set aside.",
    "outsider_imported": "The weights of a player of another run were copied, to be met.",
    "outsider_corrupt": "The copied weights of a player from outside are damaged.",
    "fell_back": "A policy goes on from an older checkpoint, because a newer one is damaged.",
    "journal_migrated": "This release brought the journal of an older one up to date.",
    "backup_renewed": "A repair made the journal's backup anew, because it was damaged.",
    "rows_mended": "A repair made damaged rows of the journal again.",
    "journal_restored": "A repair replaced a damaged journal by its last backup.",
    "checkpoint_adopted": "A repair recorded a checkpoint that the journal did not know.",
    "ghost_adopted": "A repair recorded a ghost that the journal did not know.",
    "checkpoint_restored": "A repair found a checkpoint intact that was marked as damaged.",
    "ghost_restored": "A repair found a ghost intact that was marked as damaged.",
    "policy_restored": "A repair brought a quarantined policy back to an intact checkpoint.",
}
"""Events of pauses, of the disk, and of repairs after damage."""

EVENT_KINDS: Mapping[str, str] = {
    **RUN_EVENTS,
    **LEARNER_EVENTS,
    **EVOLUTION_EVENTS,
    **LEAGUE_EVENTS,
    **STORAGE_EVENTS,
}
"""Meanings of all kinds of events, by name."""
