"""Metrics that the controller publishes: their names and meanings.

``<...>`` in a name stands for its subject. Those that learners measure are in
`arena.metrics.names`.

Tests: `tests/docs/test_reference.py` compares the names with those in the code.
"""

from __future__ import annotations

from collections.abc import Mapping

SETTING_METRICS: Mapping[str, str] = {
    "hyperparameter/<name>": "Each hyperparameter in use.",
    "hyperparameter/<name>_factor": (
        "Factor by which PBT has moved a hyperparameter that has a schedule."
    ),
    "pbt/generation_count": "Replacements of the policy's weights or hyperparameters so far.",
    "pbt/copies_count": "Copies of other policies' weights so far (exploits).",
    "league/ghosts_count": "Ghosts of the policy so far.",
}
"""Settings of a training assignment, beside what its learner measured."""

CHECKPOINT_METRICS: Mapping[str, str] = {
    "rating/mean_elo": "Rating of the weights; `bot:random` is at 0.",
    "rating/low_elo": "Lower end of the rating's 95% interval.",
    "rating/high_elo": "Upper end of its 95% interval.",
    "evaluation/matches_count": "Evaluation matches of these weights.",
    "evaluation/score_mean": (
        "Points a match (1, 1/2, 0) over all its evaluation matches; opponents change from point "
        "to point."
    ),
    "evaluation/return_mean": "Mean undiscounted return over all its evaluation matches.",
    "evaluation/score_vs_<bot>": (
        "Points a match against a bot of `evaluation.bots`; only once these weights have met it."
    ),
    "evaluation/return_vs_<bot>": "Undiscounted return against a bot of `evaluation.bots`.",
}
"""Metrics of each evaluated checkpoint, published when a fit of ratings includes its matches."""

RUN_METRICS: Mapping[str, str] = {
    "run/elapsed_s": "Duration of the run in seconds, over all resumes.",
    "run/assignments_count": "Assignments that were committed.",
    "run/matches_count": "Matches, in training and evaluation.",
    "run/generations_count": "Generations of all policies.",
    "run/copies_count": "Copies of weights (exploits).",
    "run/ghosts_count": "Ghosts of all policies.",
    "run/quarantined_count": "Policies in quarantine.",
    "run/evaluation_share": "Share of learner seconds spent on evaluation.",
    "hyperparameter/<population>_<name>_mean": (
        "Mean over active policies of a hyperparameter in the search space."
    ),
    "rating/<population>_cyclicity": "Share of strong players' results that no rating can express.",
    "champion/<population>_mean_elo": "The champion's rating.",
    "champion/<population>_low_elo": "Lower end of its 95% interval, by which it is champion.",
    "champion/<population>_high_elo": "Upper end of its 95% interval.",
    "champion/<population>_score_vs_<bot>": (
        "Points a match against a bot that these weights have met."
    ),
    "champion/<population>_return_vs_<bot>": "Undiscounted return against such a bot.",
}
"""Metrics of the run, every few seconds and at its end."""
