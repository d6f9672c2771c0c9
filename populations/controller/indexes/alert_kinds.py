"""The kinds of alerts: how often something must be wrong, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Kind(Struct, frozen=True, kw_only=True):
    """How a kind of alert is raised and cleared.

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
        # Assignments in a row: the metric is of one. So it is with the next three kinds.
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
        # Looks, one a second (`alerts.IDLE_S`): a learner between two assignments is not idle.
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
