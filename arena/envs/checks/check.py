"""Check whether an environment works, and how fast: the work of ``arena envs check``."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from arena.environment_spec import EnvironmentRequest, EnvironmentSpec
from arena.envs.base import BatchedEnv
from arena.envs.batched.find import find_game, names_code
from arena.envs.checks.measure import Measured, first_difference_by_seed, measure
from arena.envs.checks.native_play import first_difference, look
from arena.envs.checks.native_watch import Look
from arena.envs.checks.pettingzoo_tests import run_contract
from arena.envs.checks.time_limit import TimeLimit
from arena.envs.describe import mask_like
from arena.envs.findings import MEND_EMPTY, MEND_SEED, Finding, finding_of, some
from arena.envs.inspect import inspect_environment
from arena.envs.make import PlainEnvs
from arena.envs.openspiel.game import is_openspiel
from arena.envs.registry import TWINS, make_of_spec
from arena.errors import EnvironmentFault
from arena.processes.settings import SETTINGS
from arena.users_code import split_lines

NUM_ENVS = 16
"""Environments in the batch; fewer if they are slow."""

MIN_ENVS = 2
MAX_OUTSIDE = 4
"""Most agents whose observations outside their spaces are listed."""

MAX_STEPS = 200
"""Most steps of each compared run, and of PettingZoo's tests; fewer if steps are slow.
"""

MIN_STEPS = 20
INSPECTING_S = 60.0
"""Time limit for making an environment and looking at its spaces."""

LOOKING = 5.0
"""Time limit for examining one environment, as a multiple of the time for measuring speed."""

LARGE_REWARD = 10.0
"""Absolute reward above which rewards are noted as large."""

SLOW_STEP_S = 1e-3
"""Seconds per step above which worker processes are recommended."""

PATIENCE = 10.0
"""Time limit of random play where no episode ends, as a multiple of the usual time."""


@dataclass(slots=True, kw_only=True)
class EnvironmentReport:
    """Findings of a check.

    Attributes:
        spec: Environment's spec.
        measured: Measurements of random play; all zeros where it could not be played.
        turn_order: Order of turns in words, as observed in one episode.
        same_views: Groups of agents with equal spaces and always equal observations.
        never_asked: Agents without a decision in the observed episodes.
        aliased: First agent with an observation that changed after it was returned.
        deterministic: Whether two runs with one seed were equal.
        contract: Results of PettingZoo's tests; empty where there is no environment to test.
        problems: Findings that must be fixed; empty if the environment works.
        notes: Remarks worth knowing.
        cut_off: Parts that were cut off for lack of time, with when and where.
        twin: Batched game that trains in its place, as ``package.module:Class``. The check concerns
            the environment itself.
    """

    spec: EnvironmentSpec
    measured: Measured = field(default_factory=Measured)
    turn_order: str = "one at a time"
    same_views: tuple[tuple[str, ...], ...] = ()
    never_asked: tuple[str, ...] = ()
    aliased: str | None = None
    deterministic: bool = False
    contract: dict[str, bool] = field(default_factory=dict)
    problems: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    cut_off: dict[str, str] = field(default_factory=dict)
    twin: str | None = None


def check_environment(
    request: EnvironmentRequest, *, seconds: float = 2.0, limit: TimeLimit | None = None
) -> EnvironmentReport:
    """Play random legal episodes and look for anything that would spoil training.

    Play goes on after a fault, so that as many problems as possible are found at once.

    Args:
        request: Environment to check.
        seconds: Time for measuring the speed; the rest takes a few seconds more.
        limit: Time limit of the whole check. None: no limit.

    Raises:
        ConfigError: If there is no such environment, or Arena cannot train its agents.
        EnvironmentFault: If it cannot even be reset. The text says how to fix it.
    """
    limit = TimeLimit() if limit is None else limit
    spec = _inspected(request, limit=limit)
    report = EnvironmentReport(spec=spec, twin=TWINS.get(spec.id), cut_off=limit.cut_off)
    if spec.api == "parallel":
        report.turn_order = "all at once"
    subject = _Subject(spec, request)
    if not subject.is_pettingzoo():
        _play_batch(subject, report, seconds=seconds, limit=limit)
        return report
    # The object is made here, so that its findings survive a stage that runs out of time.
    seen = Look()
    with limit.stage("playing one environment by itself", share=0.25):
        # In a parallel environment all agents decide in one call of step, otherwise one agent.
        num_decisions = MAX_STEPS * (len(spec.agents) if spec.api == "parallel" else 1)
        SETTINGS.run(
            look,
            subject.single,
            spec=spec,
            num_decisions=num_decisions,
            seconds=LOOKING * seconds,
            seen=seen,
        )
    _note_look(seen, report)
    if not seen.calls and not report.problems and report.cut_off:
        report.problems.append(_stuck(report))
        return report
    if report.problems:
        # A batch would stop at the first fault, so it is played only without earlier problems.
        with limit.stage("comparing two runs with one seed", share=0.5):
            compare = partial(first_difference, num_calls=MAX_STEPS, seconds=LOOKING * seconds)
            _note_difference(SETTINGS.run(compare, subject.single, spec=spec), report)
        return report
    # The number is chosen only now, because the single play has measured the cost of a step.
    subject.num_envs = _affordable_envs(seen, seconds=seconds)
    _play_batch(subject, report, seconds=seconds, limit=limit)
    if not report.problems:
        with limit.stage("running PettingZoo's own tests", share=0.5):
            SETTINGS.run(_contract, subject, report)
    return report


def _stuck(report: EnvironmentReport) -> Finding:
    """Return the finding that no call returned in time."""
    (when,) = list(report.cut_off.values())[-1:]
    return Finding(
        problem=f"no call of step had returned when the time for it was up, {when}",
        mend="a step of an environment worth training in takes less than a second; if this one "
        "does not hang, raise --time-limit",
    )


def _inspected(request: EnvironmentRequest, *, limit: TimeLimit) -> EnvironmentSpec:
    # At most half of the time is used, because play needs the rest.
    left_s = INSPECTING_S if limit.left_s is None else max(1.0, limit.left_s / 2)
    try:
        with limit.stage("making it and looking at its spaces"):
            return inspect_environment(
                replace(request, lenient=True), timeout_s=min(INSPECTING_S, left_s)
            )
    except EnvironmentFault as fault:
        # The advice goes before the lines of the user's code.
        told, lines = split_lines(str(fault))
        raise EnvironmentFault(f"{told}. To mend it: {finding_of(fault).mend}{lines}") from fault
    # This line is reached if the stage ran out of time, because `TimeLimit.stage` swallows its own
    # interruption.
    raise EnvironmentFault(f"environment {request.environment_id} was not made and reset in time")


class _Subject:
    """Factory of the environments to check."""

    def __init__(self, spec: EnvironmentSpec, request: EnvironmentRequest) -> None:
        self.spec = spec
        self._launch_directory = request.launch_directory
        self._plain = PlainEnvs(
            spec=spec,
            launch_directory=request.launch_directory,
            possible_agents=request.possible_agents,
        )
        self.actions = self._plain.actions
        self.num_envs = NUM_ENVS
        """Number of environments in the batch."""
        self.unclosed: EnvironmentFault | None = None
        """Fault of the last batch that could not be closed."""

    def is_pettingzoo(self) -> bool:
        """Return whether there is a PettingZoo environment to examine besides the batch."""
        environment_id = self.spec.id
        if is_openspiel(environment_id):
            return False
        # A twin has an original; a user's own batched game has no counterpart.
        return not names_code(environment_id) or (
            find_game(environment_id, launch_directory=self._launch_directory) is None
        )

    @contextlib.contextmanager
    def batch(self) -> Iterator[BatchedEnv]:
        """Make a batch of ``num_envs``."""
        env = self._plain.make(num_envs=self.num_envs)
        try:
            yield env
        finally:
            try:
                env.close()
            except EnvironmentFault as fault:
                # The fault is stored instead of raised, so that earlier findings are kept.
                self.unclosed = fault

    def single(self) -> Any:  # noqa: ANN401
        """Make PettingZoo's own environment."""
        return make_of_spec(self.spec, launch_directory=self._launch_directory)


def _note_look(seen: Look, report: EnvironmentReport) -> None:
    """Report the findings of one environment."""
    spec = report.spec
    report.problems += seen.problems
    report.aliased = seen.aliased
    if spec.api == "aec":
        report.turn_order = seen.turn_order
    report.notes += _nameless_masks(spec)
    # After a fault, agents may have missed their decisions.
    if not seen.problems and seen.calls:
        report.never_asked = tuple(agent for agent in spec.agents if agent not in seen.agents)
    if seen.aliased is not None:
        report.notes.append(
            f"a returned observation of agent {seen.aliased!r} changed later (the same array, "
            "written again): Arena copies what it gets at once and is not misled, but other code "
            "that keeps observations is; return new arrays: array.copy()"
        )
    report.same_views = seen.same_views
    report.notes += [
        f"{some(agents)} have equal spaces and saw the same at each moment: a policy "
        "that plays them all does not know which one it is; network.agent_id: true tells it (it "
        "is in the configuration where they share policies), or give each a population of its own"
        for agents in seen.same_views
    ]
    if seen.unchanging:
        report.notes.append(_of_unchanging(seen.unchanging, spec))
    report.notes += [
        f"an observation of agent {agent!r} is outside of its space, which Arena does not mind: "
        f"{what}"
        for agent, what in list(seen.out_of_bounds.items())[:MAX_OUTSIDE]
    ]
    if report.problems:
        # Without problems a batch is played as well, which sees more rewards.
        _note_scale(seen.reward_low, seen.reward_high, report)


def _nameless_masks(spec: EnvironmentSpec) -> Iterator[str]:
    """Yield a note about a part of an observation that looks like an action mask, by its key."""
    found: dict[str, list[str]] = {}
    for agent, facts in spec.agent_specs.items():
        if facts.mask is None and (key := mask_like(facts.observation, facts.action)):
            found.setdefault(key, []).append(agent)
    for key, agents in found.items():
        yield (
            f"the part {key!r} of observations of {', '.join(map(repr, agents[:MAX_OUTSIDE]))} has "
            "a 0 or 1 for each action: if it says what is legal, call it action_mask, or every "
            "action is taken for legal"
        )


def _note_scale(low: float | None, high: float | None, report: EnvironmentReport) -> None:
    """Note large rewards."""
    if low is None or high is None:
        return
    size = max(abs(low), abs(high))
    if size > LARGE_REWARD:
        report.notes.append(
            f"rewards are best at most {LARGE_REWARD:g} in size, these go from {low:.4g} to "
            f"{high:.4g}: training divides returns by their deviation, but what is paid seldom "
            f"outweighs all else; divide rewards by {_round_up(size / LARGE_REWARD):g} or so"
        )


def _round_up(number: float) -> float:
    """Round up to one digit."""
    unit = 10.0 ** math.floor(math.log10(number))
    # 10^floor(log10 x) is the unit of the first digit.
    return math.ceil(number / unit) * unit


def _note_difference(difference: str | None, report: EnvironmentReport) -> None:
    report.deterministic = difference is None
    if difference is not None:
        report.problems.append(
            Finding(
                problem=f"two runs with one seed and the same actions differ: {difference}",
                mend=MEND_SEED,
            )
        )


def _affordable_envs(seen: Look, *, seconds: float) -> int:
    """Return how many environments can step a dozen times while speed is measured."""
    step_s = seen.stepping_s / max(1, seen.calls)
    # 12 steps of n environments take 12 n step_s.
    affordable = int(seconds / (12 * step_s)) if step_s else NUM_ENVS
    return max(MIN_ENVS, min(NUM_ENVS, affordable))


def _play_batch(
    subject: _Subject, report: EnvironmentReport, *, seconds: float, limit: TimeLimit
) -> None:
    try:
        with limit.stage("measuring random play", share=0.4):
            _measure(subject, report, seconds=seconds)
        with limit.stage("comparing two runs with one seed", share=0.5):
            difference = first_difference_by_seed(
                subject.batch,
                actions=subject.actions,
                num_steps=_num_steps(subject, report, seconds),
            )
            _note_difference(difference, report)
    except EnvironmentFault as fault:
        report.problems.append(finding_of(fault))
    if subject.unclosed is not None:
        report.problems.append(finding_of(subject.unclosed))


def _of_unchanging(unchanging: Mapping[str, str], spec: EnvironmentSpec) -> str:
    agent, values = next(iter(unchanging.items()))
    others = f" (and {len(unchanging) - 1} more)" if len(unchanging) > 1 else ""
    note = (
        f"agent {agent!r}{others} saw the same at each of its decisions, {values}: there is "
        "nothing to learn from, unless the game is so"
    )
    # Bytes are most likely a picture, so advice on rendering helps.
    if values.startswith("uint8(") and "render_mode" not in spec.kwargs:
        note += (
            "; some environments draw their pictures only with "
            "environment.kwargs.render_mode=rgb_array"
        )
    return note


def _measure(subject: _Subject, report: EnvironmentReport, *, seconds: float) -> None:
    report.measured = measure(
        subject.batch, actions=subject.actions, seconds=seconds, patience_s=PATIENCE * seconds
    )
    _note_emptiness(report)
    _note_scale(report.measured.reward_low, report.measured.reward_high, report)
    _note_stakes(report)
    _note_slowness(report)


def _note_slowness(report: EnvironmentReport) -> None:
    """Note steps that cost more than handing them to another process."""
    speed = report.measured.env_steps_per_s
    if speed and 1.0 / speed >= SLOW_STEP_S:
        report.notes.append(
            f"a step takes {1e3 / speed:.3g} ms: where learners leave cores free, or steps wait "
            "for a simulator, environment.num_env_workers makes them in processes of their own"
        )


def _note_emptiness(report: EnvironmentReport) -> None:
    """Note if random play saw no end or no reward; without both there is no game."""
    measured = report.measured
    ends, pays = measured.episodes > 0, measured.rewarded_share > 0.0
    endless = f"no episode ended within {measured.calls:,} calls of step at random"
    unpaid = f"nobody received any reward but 0 in {measured.decisions:,} random decisions"
    if measured.calls and not ends and not pays:
        problem = f"{endless}, and {unpaid}: there is nothing to learn, and no match to rate"
        report.problems.append(Finding(problem=problem, mend=MEND_EMPTY))
        return
    if not ends:
        report.notes.append(
            f"{endless}: matches, and so ratings, need ends; truncate (max_cycles) what may go on "
            "for ever"
        )
    if measured.calls and not pays:
        report.notes.append(f"{unpaid}: nothing can be learned from that")


def _note_stakes(report: EnvironmentReport) -> None:
    """Note if returns contain more than the winner."""
    measured = report.measured
    # Agents with always equal rewards count as one side.
    if measured.has_stakes and len(measured.same_rewards) > 1:
        report.notes.append(
            f"returns are not only -1, 0 and 1 (from {measured.return_low:.4g} to "
            f"{measured.return_high:.4g}): by default a match is won by the higher one, whatever "
            "the difference; environment.outcome: {margin: auto} rates by how much"
        )


def _num_steps(subject: _Subject, report: EnvironmentReport, seconds: float) -> int:
    """Return how many steps a batch makes in the time, within limits."""
    affordable = int(report.measured.env_steps_per_s / subject.num_envs * seconds)
    return max(MIN_STEPS, min(MAX_STEPS, affordable))


def _contract(subject: _Subject, report: EnvironmentReport) -> None:
    affordable = int(report.measured.env_steps_per_s)
    run_contract(
        subject.single,
        api=report.spec.api,
        num_cycles=max(MIN_STEPS, min(MAX_STEPS, affordable)),
        passed=report.contract,
        problems=report.problems,
        notes=report.notes,
    )
