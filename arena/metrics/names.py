"""Metrics that learners measure: their names and meanings.

``<...>`` in a name stands for its subject. A metric that cannot be measured is not published; there
are no zeros in its place. The controller's metrics are in
`populations.controller.monitoring.metric_names`.

Tests: `tests/docs/test_reference.py` compares the names with those in the code.
"""

from __future__ import annotations

from collections.abc import Mapping

TRAFFIC_METRICS: Mapping[str, str] = {
    "store/fetched_bytes": "Bytes of checkpoints that came over the network.",
    "store/given_bytes": "Bytes of new checkpoints that went over the network.",
    "store/requests": "Requests to the store that these took.",
    "time/fetch_s": "Seconds until all that the assignment names was there.",
    "time/give_s": "Seconds until the store had the new checkpoints.",
}
"""Metrics of each assignment of a learner that does not see the run's directory."""

TRAINING_METRICS: Mapping[str, str] = {
    "loss/policy": "PPO's clipped surrogate, negated; advantages are normalized.",
    "loss/value": "Mean squared error of the value, in units of its normalized target.",
    "loss/total": (
        "The minimized loss: policy + value_coef * value - entropy_coef * entropy, and KL "
        "divergences with their weights."
    ),
    "policy/entropy": (
        "Mean entropy of the action distribution, in nats; near 0 early on: collapsed."
    ),
    "policy/kl": (
        "Mean KL divergence from the policy that collected the rollout, estimated from samples."
    ),
    "policy/kl_max": "Highest of these of one update: that of a rollout.",
    "policy/magnet_kl": "Mean KL divergence from the policy's magnet, where it has one.",
    "policy/old_kl": (
        "Mean KL divergence from the policy before the update, where `kl_coef` is not 0."
    ),
    "policy/clip_fraction": (
        "Share of decisions whose probability ratio left [1 - clip_coef, 1 + clip_coef]."
    ),
    "policy/ratio_min": (
        "Lowest probability ratio of a decision, current policy to the one that played, in "
        "any optimizer step."
    ),
    "policy/ratio_max": "Highest of these ratios.",
    "advantage/min": "Lowest advantage of a decision before normalization, in units of reward.",
    "advantage/max": "Highest advantage of a decision before normalization.",
    "value/explained_variance": (
        "1 - Var(return - value) / Var(return); 1 is perfect, 0 no better than the mean."
    ),
    "gradient/norm": "Length of the gradient before clipping, mean over minibatches.",
    "gradient/skipped": "Updates that were skipped because a number was not finite.",
    "optimizer/learning_rate": "Learning rate in use, which follows the KL with `desired_kl`.",
    "optimizer/updates": "Optimizer steps in this assignment.",
    "episode/return_mean": (
        "Undiscounted return of the trainee's agents in finished episodes. Episodes in which "
        "it plays itself and the returns of its seats cancel are left out: their mean is 0, "
        "whatever the policy."
    ),
    "episode/return_deviation": "Standard deviation of these returns.",
    "episode/length_mean": "Calls of `step` in finished episodes.",
    "episode/count": "Finished episodes.",
    "episode/void": (
        "Episodes that count for nothing because their environment broke; only if there were any."
    ),
    "episode/dropped": (
        "Episodes in flight that the learner dropped for lack of memory, of any policy; only "
        "if there were any."
    ),
    "reward/min": (
        "Lowest reward of the trainee's agents in one step; 0 where they were not on turn or "
        "absent."
    ),
    "reward/max": "Highest reward of the trainee's agents in one step.",
    "observation/spread": (
        "Largest range of any number of the observations; 0: all observations were equal."
    ),
    "rollout/steps_count": "Calls of `step` of each environment.",
    "rollout/trained_share": (
        "Share of the decisions of the trainee's population in its rollouts that it was "
        "trained on; the rest are of opponents of that population, random openings and void "
        "episodes, or had no known successor yet."
    ),
    "environment/<figure>_mean": (
        'Mean of a figure that environments report in `infos[agent]["metrics"]`, over '
        "the trainee's agents and ended episodes."
    ),
    "environment/<figure>_min": "Lowest value of such a figure.",
    "environment/<figure>_max": "Highest value of such a figure.",
    "environment/<figure>_deviation": "Standard deviation of such a figure.",
    "environment/ignored_count": (
        "Reported figures that were no finite numbers, or too many names; only if there were any."
    ),
    "throughput/agent_steps_per_s": "Decisions of trainees per second, of the whole assignment.",
    "time/collect_s": "Seconds spent playing.",
    "time/update_s": "Seconds spent learning.",
    "time/publish_s": "Seconds spent writing the checkpoint.",
}
"""Metrics of each training assignment."""

EVALUATION_METRICS: Mapping[str, str] = {
    "episode/count": "Finished episodes.",
    "episode/games_left_out": "Games that were too long to be kept.",
    "episode/length_mean": "Calls of `step` in finished episodes.",
    "time/play_s": "Seconds spent playing.",
    "throughput/matches_per_s": "Evaluation matches per second.",
}
"""Metrics of each evaluation assignment; they are in the journal alone."""
