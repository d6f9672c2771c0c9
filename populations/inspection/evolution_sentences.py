"""Sentences of events about policies: copies, exploration, quarantine, ghosts, ratings and alerts.

Tests: `tests/populations/inspection/test_sentences.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from populations.inspection.wording import Wording, said

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
