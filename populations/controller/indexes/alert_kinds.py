"""Alerts: their kinds, the rules that measure a policy's training, and the active alerts.

A kind defines how many measurements raise and clear an alert, and advises what to do. A rule is a
pure function of an assignment's metrics: it returns what is wrong, an empty text if nothing is, or
None if the metrics do not show it (with another algorithm, or a simulated learner).

The journal has a row of each active alert (`AlertRow`), so alerts outlast the controller.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct, field

from arena.types import PolicyId
from populations.hooks.findings import Finding
from populations.records.rows import AlertRow, Json, PolicyRow


class Kind(Struct, frozen=True, kw_only=True):
    """Kind of alert: how it is raised and cleared, and what to do about it.

    Attributes:
        begins: Condition under which the alert is raised.
        ends: Condition under which it is cleared.
        advice: Remedy, in words.
        raise_after: Measurements in a row that something is wrong.
        clear_after: Measurements in a row that all is well.
    """

    begins: str
    ends: str
    advice: str
    raise_after: int = 1
    clear_after: int = 1


KINDS: Mapping[str, Kind] = {
    "no_episode_ended": Kind(
        begins="No training episode of a policy has ended in 5,000 calls of `step` of each "
        "environment (or in 3 mean lengths, if that is more), or of its population "
        "in 300 s on all learners.",
        ends="One ends.",
        advice="If episodes are longer than that, wait, or lower environment.num_envs, so that "
        "each environment gets further in the same time. Else the environment does not end: it "
        "must set terminations or truncations; arena envs check shows how long its episodes are.",
    ),
    "reward_constant": Kind(
        begins="Over 3 assignments and 200 episodes all rewards were equal, and not 0 with "
        "returns that differ; once they differ it never begins.",
        ends="Rewards differ.",
        advice="Nothing can be learned from it. Check what the environment pays, and when; if the "
        "goal is reached too rarely, pay for steps towards it or begin episodes nearer to it.",
    ),
    "observations_constant": Kind(
        begins="In 3 assignments in a row all observations were equal.",
        ends="They differ.",
        # The metric is of one assignment, so this and the next three kinds count assignments.
        raise_after=3,
        advice="Right for a game without a state. Else check the environment: often observe() "
        "returns what was computed at the reset.",
    ),
    "entropy_collapsed": Kind(
        begins="In 5 assignments in a row entropy was below 1% of that of uniform choices, "
        "or -3 nats for each continuous number.",
        ends="3 in a row above 2%, or -2.5.",
        raise_after=5,
        clear_after=3,
        advice="The policy hardly tries anything any more. Unless it plays as well as can be, "
        "raise entropy_coef or lower learning_rate.",
    ),
    "loss_high": Kind(
        begins="In 5 assignments in a row `loss/value` was above 10.",
        ends="3 in a row below 5.",
        raise_after=5,
        clear_after=3,
        advice="The value does not follow the returns. Lower learning_rate, or scale rewards so "
        "that returns are of the size of 1.",
    ),
    "kl_high": Kind(
        begins="In 5 assignments in a row `policy/kl` was above 0.2.",
        ends="3 in a row below 0.1.",
        raise_after=5,
        clear_after=3,
        advice="Each update changes the policy too much. Lower learning_rate or num_epochs, or set "
        "target_kl (0.02, for example).",
    ),
    "policy_destroyed": Kind(
        begins="An update had a KL divergence above 1 (`policy/kl_max`).",
        ends="3 assignments in a row in which none is above 0.5.",
        clear_after=3,
        advice="Little is left of what the policy had learned. Lower learning_rate, and its bound "
        "in the search space, or set target_kl (0.02, for example). arena rewind puts the policy "
        "back on a checkpoint of before.",
    ),
    "assignments_failing": Kind(
        begins="3 of the last 100 attempts at assignments failed; one that is held against its "
        "learner counts once that works again.",
        ends="None of the last 100 has.",
        advice="Nothing is held against a policy as long as others fail alike, and the run goes on "
        "as long as anything finishes. The events assignment_failed and learner_lost have the "
        "reasons, and the learners' logs all of it.",
    ),
    "void_episodes": Kind(
        begins="An episode was void.",
        ends="20 assignments in a row without one.",
        clear_after=20,
        advice="The environment raised or broke its contract, and those episodes count for "
        "nothing. The log of the learner, in the run's logs/, has the traceback.",
    ),
    "learner_failing": Kind(
        begins="A learner was dismissed: it fails assignments that others can do.",
        ends="It, or its next process, finishes one.",
        advice="Others do the same work, so it is the learner or its machine: its log, in the "
        "run's logs/ where the launcher started it, has the traceback.",
    ),
    "learners_idle": Kind(
        begins="For 30 s some learner has had nothing to do while policies train.",
        ends="For 10 s all have been busy.",
        # Learners are checked once a second (`alerts.IDLE_S`), and one between two assignments must
        # not count as idle.
        raise_after=30,
        clear_after=10,
        advice="There is nothing that they may do: train more policies (populations.NAME.size) or "
        "start fewer learners (learners).",
    ),
    "explore_fell_back": Kind(
        begins="A rule of exploring failed, and values were perturbed instead.",
        ends="It worked for 5 decisions in a row.",
        clear_after=5,
        advice="Values are perturbed instead. Mend pbt.explore; the traceback is in "
        "logs/controller.log, the values that were refused are in the events (explore_failed).",
    ),
    "exploit_fell_back": Kind(
        begins="A rule of selection failed, so nothing was copied.",
        ends="It worked for 5 decisions in a row.",
        clear_after=5,
        advice="Nothing is copied meanwhile. Mend pbt.exploit; the traceback is in "
        "logs/controller.log.",
    ),
    "matchmaking_fell_back": Kind(
        begins="A matchmaker of one's own failed, and `uniform` drew instead.",
        ends="It worked for 5 draws in a row.",
        clear_after=5,
        advice="Opponents are drawn by the kind uniform instead. Mend matchmaking.kind; the "
        "traceback is in logs/controller.log.",
    ),
    "thinning_fell_back": Kind(
        begins="A user's own rule of thinning failed, and `spread` chose instead.",
        ends="The rule works.",
        advice="The rule spread has chosen instead. Mend ghosts.thinning; the traceback is in "
        "logs/controller.log.",
    ),
    "pbt_undecided": Kind(
        begins="A policy is due for a decision since 2 intervals of its clock, and too "
        "little is known: it or all others have too few matches, or ratings lag behind.",
        ends="The decision is made.",
        advice="Too few evaluation matches were played since the last changes. Raise "
        "evaluation.share, lower pbt.min_matches, or raise pbt.ready_agent_steps.",
    ),
    "no_steps": Kind(
        begins="The run finished without an agent step.",
        ends="A resume makes some.",
        advice="Raise the stop condition, or see the events (arena league RUN events) for "
        "what kept learners from finishing anything.",
    ),
    "hook_failed": Kind(
        begins="A hook raised, ended its process, ended with another exit code than 0 or "
        "took longer than `hooks.time_limit_s`.",
        ends="The hook works.",
        advice="The run goes on without it, and it is called again for the next event. What it "
        "printed, and its traceback, is in the run's logs/hooks.log.",
    ),
    "hooks_behind": Kind(
        begins="Calls of hooks were dropped: more than `hooks.queue` waited.",
        ends="Half as many wait.",
        advice="Hooks take longer than events come. Make them faster, hook fewer kinds of events, "
        "or raise hooks.queue.",
    ),
    "export_failed": Kind(
        begins="An export by `checkpoints.export_every_agent_steps` failed.",
        ends="One succeeds.",
        advice="The run goes on, and the next export is tried. What arena export said is in the "
        "run's logs/exports.log.",
    ),
    "sink_failed": Kind(
        begins="A sink raised; it is left alone for 1 s, then 2, up to 60 s.",
        ends="It accepts metrics again.",
        advice="It gets no figures until it works again; it is tried again after a while, at most "
        "a minute. Mend it, or take it out of metrics.sinks.",
    ),
}


LONGEST_STEPS = 5000
"""Calls of ``step`` of each environment without an ended episode that raise an alert; episodes of
known environments have up to 3,000."""

LONGEST_LENGTHS = 3.0
"""Multiple of the mean episode length that replaces `LONGEST_STEPS` if it is more."""

LONGEST_S = 300.0
"""Seconds of a population's training per learner without an ended episode that raise an alert, for
environments too slow to reach `LONGEST_STEPS` soon."""

MIN_EPISODES = 200
MIN_ASSIGNMENTS = 3
"""Least episodes and assignments with equal rewards that raise an alert."""

SMALL = 1e-6
"""Relative difference up to which returns in float32 count as equal."""

COLLAPSED_SHARE, LIVELY_SHARE = 0.01, 0.02
"""Shares of the entropy of uniform choices below which entropy has collapsed, above which not."""

COLLAPSED_NATS, LIVELY_NATS = -3.0, -2.5
"""The same limits in nats for each continuous number; -3 is a deviation of about 0.01."""

HIGH_LOSS, GOOD_LOSS = 10.0, 5.0
"""Limits of the value loss for raising and clearing, in units of the target's variance: a loss of
1 is no better than predicting the mean."""

HIGH_KL, GOOD_KL = 0.2, 0.1

DESTROYED_KL, WHOLE_KL = 1.0, 0.5
"""Limits of a single update's KL divergence, in nats; in healthy runs it stays below 0.1."""


class Window(Struct):
    """Measurements of one policy over several assignments, since the controller started.

    Attributes:
        unended_steps: Calls of ``step`` of each environment since an episode ended.
        assignments: Number of assignments that reported rewards.
        episodes: Number of episodes that ended in these.
        reward: Lowest and highest reward so far.
        returns: Lowest mean - deviation and highest mean + deviation of returns; the first is above
            the second if none was reported.
    """

    unended_steps: float = 0.0
    assignments: int = 0
    episodes: float = 0.0
    reward: tuple[float, float] = (math.inf, -math.inf)
    returns: tuple[float, float] = (math.inf, -math.inf)

    def record(self, metrics: Mapping[str, float]) -> None:
        """Add the metrics of an assignment."""
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
    """Input of a rule: a policy's training in one assignment.

    Attributes:
        policy: Policy after the assignment.
        metrics: Metrics of the assignment, without those of other trainees.
        window: Measurements of the policy, including this assignment.
        unended_s: Seconds of the population's training per learner without an ended episode.
        episode_length: Mean length of ended episodes, or that measured at launch; 0: not known.
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
    """Return what is wrong if no training episode has ended for long; "" if one has."""
    if "episode/count" not in trained.metrics or "rollout/steps_count" not in trained.metrics:
        return None
    steps = trained.window.unended_steps
    # An episode may last longer if known episodes are that long.
    longest = max(LONGEST_STEPS, LONGEST_LENGTHS * trained.episode_length)
    if steps and (steps > longest or trained.unended_s > LONGEST_S):
        return (
            f"no episode has ended in {steps:,.0f} calls of step of each of {trained.num_envs} "
            "environments"
        )
    return ""


def reward_constant(trained: Trained) -> str | None:
    """Return what is wrong if all rewards were equal; "" if they differ."""
    window = trained.window
    low, high = window.reward
    # Weighted rewards are not those of the environment, and a window without reported rewards has
    # a lowest one above the highest.
    if trained.weighs_rewards or low > high:
        return None
    is_sure = window.episodes >= MIN_EPISODES and window.assignments >= MIN_ASSIGNMENTS
    if low != high or not is_sure:
        return ""
    least, most = window.returns
    # Equal rewards other than 0 still teach something if lengths of episodes, and with them
    # returns, differ; unreported returns may differ.
    if low != 0.0 and (least > most or most - least > SMALL * max(abs(least), abs(most))):
        return ""
    return f"in {window.episodes:,.0f} episodes every reward was {low:g}"


def observations_constant(trained: Trained) -> str | None:
    """Return what is wrong if all observations of the assignment were equal; "" if they differ."""
    spread = trained.metrics.get("observation/spread")
    if spread is None:
        return None
    return "every observation of an assignment was the same" if spread == 0.0 else ""


def entropy_collapsed(trained: Trained) -> str | None:
    """Return what is wrong if a policy's entropy has collapsed; "" if it clearly has not."""
    entropy = trained.metrics.get("policy/entropy")
    bounds = entropy_bounds(trained.action)
    if entropy is None or bounds is None or trained.metrics.get("optimizer/updates") == 0.0:
        return None
    collapsed, lively = bounds
    if entropy < collapsed:
        return f"its entropy is {entropy:.4g} nats (collapsed: below {collapsed:.4g})"
    # Between the two limits nothing is reported, so that the alert does not flicker.
    return "" if entropy > lively else None


def entropy_bounds(action: Mapping[str, object]) -> tuple[float, float] | None:
    """Return the entropies (nats) below which entropy has collapsed and above which it has not.

    None if the space has only one action, and so no entropy.

    Args:
        action: Space of actions, as `arena.envs.spaces.observations.describe` gives it.
    """
    shape = action.get("shape")
    size = math.prod(shape) if isinstance(shape, list | tuple) else 1
    most = 0.0
    match action.get("kind"):
        case "Discrete":
            # The entropy of a uniform choice is log n; entropies of independent choices add up.
            most = math.log(_integer(action["n"]))
        case "MultiDiscrete":
            most = sum(math.log(number) for number in _flat(action["nvec"]))
        case "MultiBinary":
            most = size * math.log(2.0)
        case "Box" if not str(action["dtype"]).startswith(("int", "uint", "bool")):
            # The entropy of a normal density is log(sigma sqrt(2 pi e)), -3 at sigma = 0.012.
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
    """Return what is wrong if the value predicts far worse than the mean return does."""
    loss = trained.metrics.get("loss/value")
    text = "its value loss is {:.3g}, in units of its target's variance"
    return _too_high(loss, high=HIGH_LOSS, good=GOOD_LOSS, text=text)


def kl_high(trained: Trained) -> str | None:
    """Return what is wrong if the updates of an assignment change the policy too much."""
    divergence = trained.metrics.get("policy/kl")
    text = "its updates move it by a KL divergence of {:.3g}"
    return _too_high(divergence, high=HIGH_KL, good=GOOD_KL, text=text)


def policy_destroyed(trained: Trained) -> str | None:
    """Return what is wrong if a single update changed the policy almost completely."""
    divergence = trained.metrics.get("policy/kl_max")
    text = "an update moved it by a KL divergence of {:.3g}"
    return _too_high(divergence, high=DESTROYED_KL, good=WHOLE_KL, text=text)


def _too_high(value: float | None, *, high: float, good: float, text: str) -> str | None:
    # Between the two limits nothing is reported, so that the alert does not flicker.
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


class Alerts(Struct):
    """Active alerts, and the measurements that raise them. Owned by the controller's thread.

    Attributes:
        fail: Kinds that fail the run.
        raised: By kind and subject, the active alerts: what is wrong, by source.
        windows: Measurements of each policy.
        unended_s: By population, learner seconds of training since an episode ended.
        idle_at_s: When learners were last checked for being idle.
        advice: By kind and subject, the remedy of the last finding; empty: that of the kind.
    """

    fail: Collection[str] = ()
    raised: dict[tuple[str, str], dict[str, str]] = {}
    windows: defaultdict[PolicyId, Window] = field(default_factory=lambda: defaultdict(Window))
    unended_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    idle_at_s: float = float("-inf")
    advice: dict[tuple[str, str], str] = {}
    _streaks: dict[tuple[str, str, str], int] = {}
    """By kind, subject and source, measurements in a row: above 0 if wrong, below 0 if well."""

    def documents(self) -> list[Json]:
        """Return the active alerts as data for programs and displays."""
        return [
            document(
                kind,
                subject,
                "; ".join(list(texts.values())[:3]),
                sources=list(texts),
                advice=self.advice.get((kind, subject), ""),
            )
            for (kind, subject), texts in self.raised.items()
        ]

    def measure(
        self,
        policy: PolicyId,
        population: str,
        metrics: Mapping[str, float],
        *,
        duration_s: float,
    ) -> None:
        """Add the metrics of an assignment to a policy's and its population's measurements."""
        self.windows[policy].record(metrics)
        ended = metrics.get("episode/count", 0.0) > 0.0
        self.unended_s[population] = 0.0 if ended else self.unended_s[population] + duration_s

    def record(self, finding: Finding) -> bool | None:
        """Add a finding, which may raise or clear an alert.

        Returns:
            True if it raises an alert, or adds a source to an active one; False if it clears one;
            None if it does neither.
        """
        kind, subject, source, what, advice = finding
        before = self._streaks.get((kind, subject, source), 0)
        streak = max(before, 0) + 1 if what else min(before, 0) - 1
        self._streaks[kind, subject, source] = streak
        texts = self.raised.get((kind, subject), {})
        # A source that is in the alert already updates its text at once.
        if what and (streak >= KINDS[kind].raise_after or source in texts):
            self.raised.setdefault((kind, subject), {})[source] = what
            self.advice[kind, subject] = advice
            # Only the begin of an alert, and a further source, return True.
            return True if not texts or streak == KINDS[kind].raise_after else None
        if source in texts and -streak >= KINDS[kind].clear_after:
            return self.forget(kind, subject, source)
        return None

    def forget(self, kind: str, subject: str, source: str) -> bool | None:
        """Remove a source from an alert; return False if that clears the alert, else None."""
        self._streaks.pop((kind, subject, source), None)
        texts = self.raised.get((kind, subject), {})
        # The alert stays active while it has another source.
        if texts.pop(source, None) is None or texts:
            return None
        del self.raised[kind, subject]
        self.advice.pop((kind, subject), None)
        return False


def document(
    kind: str, subject: str, what: str, *, sources: Iterable[str] = (), advice: str = ""
) -> dict[str, Json]:
    """Return an alert as data for ``status.json`` and ``arena league RUN status``."""
    return {
        "name": kind,
        "subject": subject,
        "what": what,
        "advice": advice or KINDS[kind].advice,
        "sources": list(sources),
    }


def resumed(rows: Iterable[AlertRow], *, fail: Collection[str] = ()) -> Alerts:
    """Return the alerts that are active when a run is resumed.

    Args:
        rows: Rows of active alerts in the journal.
        fail: Kinds that fail the run.
    """
    alerts = Alerts(fail=fail)
    for row in rows:
        # The next measurement of the source replaces the text.
        alerts.raised[row.name, row.subject] = {row.source: row.what}
        alerts.advice[row.name, row.subject] = row.advice
    return alerts
