"""Rules for alerts about a policy's training, by its assignments' metrics; pure.

A rule says what is wrong, an empty text if all is well, or None if the metrics say nothing about it
(another algorithm, a simulated learner).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from msgspec import Struct

from populations.records.rows import PolicyRow

LONGEST_STEPS = 5000
"""Calls of ``step`` of each environment without an end; known environments of 3,000 do end."""

LONGEST_LENGTHS = 3.0
"""The same in lengths of episodes, where these are known."""

LONGEST_S = 300.0
"""Seconds of a population's training without an end, for each learner: slow environments do not
reach `LONGEST_STEPS` in the time in which somebody wants to know."""

MIN_EPISODES = 200
MIN_ASSIGNMENTS = 3
"""Episodes and assignments with equal rewards before that is told."""

SMALL = 1e-6
"""Relative difference of equal returns in float32."""

COLLAPSED_SHARE, LIVELY_SHARE = 0.01, 0.02
"""Shares of the entropy of uniformly random choices: below it is collapsed, above it is not."""

COLLAPSED_NATS, LIVELY_NATS = -3.0, -2.5
"""Limits of the entropy of each continuous number: a deviation of about 0.01."""

HIGH_LOSS, GOOD_LOSS = 10.0, 5.0
"""Losses of the value, in units of its normalized target, where 1 is no better than the mean."""

HIGH_KL, GOOD_KL = 0.2, 0.1

DESTROYED_KL, WHOLE_KL = 1.0, 0.5
"""The same of a single update, in nats; those of healthy runs stay below 0.1."""


class Window(Struct):
    """Measurements of one policy since they last were otherwise.

    Attributes:
        unended_steps: Calls of ``step`` of each environment since an episode ended.
        assignments: Assignments since the controller started that told of rewards.
        episodes: Episodes that ended in these.
        reward: Lowest and highest so far.
        returns: Lowest and highest mean -+ deviation of returns; lowest above highest: not told.
    """

    unended_steps: float = 0.0
    assignments: int = 0
    episodes: float = 0.0
    reward: tuple[float, float] = (math.inf, -math.inf)
    returns: tuple[float, float] = (math.inf, -math.inf)

    def record(self, metrics: Mapping[str, float]) -> None:
        """Take in an assignment."""
        ended = metrics.get("episode/count", 0.0)
        # Steps are counted over assignments, because an episode may take longer than one.
        self.unended_steps = (
            0.0 if ended else self.unended_steps + metrics.get("rollout/steps_count", 0.0)
        )
        low, high = metrics.get("reward/min"), metrics.get("reward/max")
        if low is not None and high is not None:
            self.assignments += 1
            self.episodes += ended
            self.reward = min(self.reward[0], low), max(self.reward[1], high)
        mean, spread = metrics.get("episode/return_mean"), metrics.get("episode/return_deviation")
        if mean is not None and spread is not None:
            # The bounds stay equal only while no return differs.
            low, high = mean - spread, mean + spread
            self.returns = min(self.returns[0], low), max(self.returns[1], high)


class Trained(Struct, frozen=True, kw_only=True):
    """Input of a rule.

    Attributes:
        policy: Policy after the assignment.
        metrics: Metrics of the assignment, those of the policy alone.
        window: Window with the assignment in it.
        unended_s: Seconds of the population without an ended episode, for each learner.
        episode_length: Length of ended episodes, or as it was measured before; 0: not known.
        num_envs: Environments of a learner.
        action: Space of the policy's actions, as JSON.
        weighs_rewards: Whether policies learn from other rewards than the environment's.
    """

    policy: PolicyRow
    metrics: Mapping[str, float]
    window: Window
    unended_s: float
    episode_length: float
    num_envs: int
    action: Mapping[str, object]
    weighs_rewards: bool


def no_episode_ended(trained: Trained) -> str | None:
    """Return whether episodes end at all."""
    if "episode/count" not in trained.metrics or "rollout/steps_count" not in trained.metrics:
        return None
    steps = trained.window.unended_steps
    # Long episodes are no fault where their length is known.
    longest = max(LONGEST_STEPS, LONGEST_LENGTHS * trained.episode_length)
    if steps and (steps > longest or trained.unended_s > LONGEST_S):
        return (
            f"no episode has ended in {steps:,.0f} calls of step of each of {trained.num_envs} "
            "environments"
        )
    return ""


def reward_constant(trained: Trained) -> str | None:
    """Return whether every reward and every return was the same."""
    window = trained.window
    low, high = window.reward
    # The environment's rewards are not those that the policy learns from, or are not told (the
    # bounds of a new window).
    if trained.weighs_rewards or low > high:
        return None
    is_sure = window.episodes >= MIN_EPISODES and window.assignments >= MIN_ASSIGNMENTS
    if low != high or not is_sure:
        return ""
    least, most = window.returns
    # Equal rewards other than 0 still tell episodes of different lengths apart: then the returns
    # differ, or are not told.
    if low != 0.0 and (least > most or most - least > SMALL * max(abs(least), abs(most))):
        return ""
    return f"in {window.episodes:,.0f} episodes every reward was {low:g}"


def observations_constant(trained: Trained) -> str | None:
    """Return whether a policy saw the same all the time."""
    spread = trained.metrics.get("observation/spread")
    if spread is None:
        return None
    return "every observation of an assignment was the same" if spread == 0.0 else ""


def entropy_collapsed(trained: Trained) -> str | None:
    """Return whether a policy hardly chooses any more."""
    entropy = trained.metrics.get("policy/entropy")
    bounds = entropy_bounds(trained.action)
    if entropy is None or bounds is None or trained.metrics.get("optimizer/updates") == 0.0:
        return None
    collapsed, lively = bounds
    if entropy < collapsed:
        return f"its entropy is {entropy:.4g} nats (collapsed: below {collapsed:.4g})"
    # An entropy in between is neither wrong nor well, so that an alert does not come and go.
    return "" if entropy > lively else None


def entropy_bounds(action: Mapping[str, object]) -> tuple[float, float] | None:
    """Return the entropies below which it is collapsed and above which it is not.

    Args:
        action: A space of actions, as `arena.envs.spaces.observations.describe` gives it.
    """
    shape = action.get("shape")
    size = math.prod(shape) if isinstance(shape, list | tuple) else 1
    most = 0.0
    match action.get("kind"):
        case "Discrete":
            # H of uniform choices: log n; of several independent ones their sum
            most = math.log(_integer(action["n"]))
        case "MultiDiscrete":
            most = sum(math.log(number) for number in _flat(action["nvec"]))
        case "MultiBinary":
            most = size * math.log(2.0)
        case "Box" if not str(action["dtype"]).startswith(("int", "uint", "bool")):
            # A normal density has log(sigma sqrt(2 pi e)) nats, -3 at a sigma of 0.012.
            return COLLAPSED_NATS * size, LIVELY_NATS * size
    # A space of one action has no entropy to lose.
    return (COLLAPSED_SHARE * most, LIVELY_SHARE * most) if most > 0.0 else None


def _integer(value: object) -> int:
    return value if isinstance(value, int) else 1


def _flat(values: object) -> list[int]:
    if isinstance(values, list | tuple):
        return [number for value in values for number in _flat(value)]
    return [_integer(values)]


def loss_high(trained: Trained) -> str | None:
    """Return whether the value is far worse than the mean of returns."""
    loss = trained.metrics.get("loss/value")
    text = "its value loss is {:.3g}, in units of its target's variance"
    return _too_high(loss, high=HIGH_LOSS, good=GOOD_LOSS, text=text)


def kl_high(trained: Trained) -> str | None:
    """Return whether updates go too far."""
    divergence = trained.metrics.get("policy/kl")
    text = "its updates move it by a KL divergence of {:.3g}"
    return _too_high(divergence, high=HIGH_KL, good=GOOD_KL, text=text)


def policy_destroyed(trained: Trained) -> str | None:
    """Return whether an update left little of a policy."""
    divergence = trained.metrics.get("policy/kl_max")
    text = "an update moved it by a KL divergence of {:.3g}"
    return _too_high(divergence, high=DESTROYED_KL, good=WHOLE_KL, text=text)


def _too_high(value: float | None, *, high: float, good: float, text: str) -> str | None:
    # An alert neither begins nor ends in between, as with the entropy.
    if value is None or good <= value <= high:
        return None
    return f"{text.format(value)} (too high: above {high:g})" if value > high else ""


RULES: Mapping[str, Callable[[Trained], str | None]] = {
    "no_episode_ended": no_episode_ended,
    "reward_constant": reward_constant,
    "observations_constant": observations_constant,
    "entropy_collapsed": entropy_collapsed,
    "loss_high": loss_high,
    "kl_high": kl_high,
    "policy_destroyed": policy_destroyed,
}
