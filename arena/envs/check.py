"""Does an environment work here, and how fast: what ``arena envs check`` looks at."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arena.config import EnvironmentConfig
from arena.envs.base import BatchedEnv
from arena.envs.batched.find import find_game, names_code
from arena.envs.batched.twins import TWINS
from arena.envs.contracts import run_contract
from arena.envs.findings import MEND_SEED, Finding, finding_of
from arena.envs.inspect import inspect_environment
from arena.envs.make import make_batched_env
from arena.envs.measure import Measured, first_difference_by_seed, measure
from arena.envs.openspiel import is_openspiel
from arena.envs.own_form import look
from arena.envs.random_play import action_layouts, populations_of
from arena.envs.registry import make_environment
from arena.envs.spec import EnvironmentSpec
from arena.errors import EnvironmentFault

NUM_ENVS = 16
MAX_STEPS = 200
"""Of each run that is compared with another, and of PettingZoo's tests; fewer of what is slow."""

MIN_STEPS = 20
PATIENCE = 10.0
"""How many times as long random play may last where no episode ends."""


@dataclass(slots=True, kw_only=True)
class EnvironmentReport:
    """What a check found.

    Attributes:
        spec: The environment's facts.
        measured: What random play shows; all zeros where it could not be played.
        turn_order: Who decides when, in words: as was seen in one episode.
        never_asked: Agents that decided nothing in the episodes that were looked at.
        aliased: The first agent one of whose observations changed after it was returned.
        deterministic: Whether two runs with one seed saw the same.
        contract: PettingZoo's tests and whether they passed; empty where there is none to test.
        problems: What must be mended; empty if the environment works.
        notes: What is worth knowing.
        twin: The batched game that trains in its place, as ``package.module:Class``. What was
            checked is the environment itself.
    """

    spec: EnvironmentSpec
    measured: Measured = field(default_factory=Measured)
    turn_order: str = "one at a time"
    never_asked: tuple[str, ...] = ()
    aliased: str | None = None
    deterministic: bool = False
    contract: dict[str, bool] = field(default_factory=dict)
    problems: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    twin: str | None = None


def check_environment(
    environment_id: str,
    *,
    kwargs: Mapping[str, object],
    launch_directory: str,
    possible_agents: Sequence[str] | None = None,
    seconds: float = 2.0,
) -> EnvironmentReport:
    """Play random legal episodes and look for what would spoil training.

    Args:
        environment_id: A PettingZoo registry id, ``openspiel:game``, or ``package.module:Name`` of
            a factory or a batched game.
        kwargs: For its factory.
        launch_directory: First on ``sys.path``.
        possible_agents: ``environment.possible_agents``.
        seconds: How long the speed is measured; the rest takes a few more.

    Raises:
        ConfigError: If there is no such environment, or Arena cannot train its agents.
        EnvironmentFault: If it cannot even be reset.
    """
    spec = inspect_environment(
        environment_id,
        kwargs=kwargs,
        launch_directory=launch_directory,
        possible_agents=possible_agents,
    )
    report = EnvironmentReport(spec=spec, twin=TWINS.get(spec.id))
    if spec.api == "parallel":
        report.turn_order = "all at once"
    subject = _Subject(spec, launch_directory=launch_directory, possible_agents=possible_agents)
    notes = _look(subject, report) if subject.is_pettingzoo() else []
    try:
        _measure(subject, report, seconds=seconds)
        report.notes += notes
    except EnvironmentFault as fault:
        # What was told of one environment already is told better there.
        if not report.problems:
            report.problems.append(finding_of(fault))
    if subject.is_pettingzoo() and not report.problems:
        _contract(subject, report)
    return report


class _Subject:
    """Makes what is checked."""

    def __init__(
        self,
        spec: EnvironmentSpec,
        *,
        launch_directory: str,
        possible_agents: Sequence[str] | None,
    ) -> None:
        self.spec = spec
        self._launch_directory = launch_directory
        self._possible_agents = None if possible_agents is None else list(possible_agents)
        self.populations = populations_of(spec)
        self.actions = action_layouts(spec, populations=self.populations)

    def is_pettingzoo(self) -> bool:
        """Whether there is a PettingZoo environment to look at, beside the batch."""
        environment_id = self.spec.id
        if is_openspiel(environment_id):
            return False
        # A twin is beside its original, a batched game of the user's own beside nothing.
        return not names_code(environment_id) or (
            find_game(environment_id, launch_directory=self._launch_directory) is None
        )

    @contextlib.contextmanager
    def batch(self) -> Iterator[BatchedEnv]:
        """A batch of `NUM_ENVS`."""
        spec = self.spec
        env = make_batched_env(
            EnvironmentConfig(
                id=spec.id,
                kwargs=dict(spec.kwargs),
                backend="pettingzoo" if spec.id in TWINS else "auto",
                possible_agents=self._possible_agents,
            ),
            spec=spec,
            sides={agent: (agent,) for agent in spec.agents},
            populations=self.populations,
            num_envs=NUM_ENVS,
            launch_directory=self._launch_directory,
        )
        try:
            yield env
        finally:
            env.close()

    def single(self) -> Any:  # noqa: ANN401
        """PettingZoo's own environment."""
        spec = self.spec
        return make_environment(
            spec.id, kwargs=spec.kwargs, api=spec.api, launch_directory=self._launch_directory
        )


def _look(subject: _Subject, report: EnvironmentReport) -> list[str]:
    """At one environment from outside; what to note of what can be used."""
    spec = report.spec
    env = subject.single()
    try:
        seen = look(env, spec=spec, num_decisions=MAX_STEPS * _deciding_at_once(spec))
    finally:
        env.close()
    report.problems += seen.problems
    report.aliased = seen.aliased
    if spec.api == "aec":
        report.turn_order = seen.turn_order
    if not seen.problems:
        report.never_asked = tuple(agent for agent in spec.agents if agent not in seen.agents)
    if seen.aliased is not None:
        report.notes.append(
            f"a returned observation of agent {seen.aliased!r} changed later (the same array, "
            "written again): Arena copies what it gets at once and is not misled, but other code "
            "that keeps observations is; return new arrays: array.copy()"
        )
    if seen.unchanging:
        report.notes.append(_of_unchanging(seen.unchanging, spec))
    return [
        f"an observation of agent {agent!r} is outside of its space, which Arena does not mind: "
        f"{what}"
        for agent, what in seen.out_of_bounds.items()
    ]


def _of_unchanging(unchanging: Mapping[str, str], spec: EnvironmentSpec) -> str:
    agent, values = next(iter(unchanging.items()))
    others = f" (and {len(unchanging) - 1} more)" if len(unchanging) > 1 else ""
    note = (
        f"agent {agent!r}{others} saw the same at each of its decisions, {values}: there is "
        "nothing to learn from, unless the game is so"
    )
    if values.startswith("uint8(") and "render_mode" not in spec.kwargs:
        note += (
            "; some environments draw their pictures only with "
            "environment.kwargs.render_mode=rgb_array"
        )
    return note


def _deciding_at_once(spec: EnvironmentSpec) -> int:
    return len(spec.agents) if spec.api == "parallel" else 1


def _measure(subject: _Subject, report: EnvironmentReport, *, seconds: float) -> None:
    report.measured = measure(
        subject.batch, actions=subject.actions, seconds=seconds, patience_s=PATIENCE * seconds
    )
    if report.measured.episodes == 0:
        report.notes.append(
            f"no episode ended within {report.measured.calls} calls of step at random: matches, "
            "and so ratings, need ends; truncate (max_cycles) what may go on for ever"
        )
    if report.measured.calls and not report.measured.rewarded_share:
        report.notes.append(
            f"nobody received any reward but 0 in {report.measured.decisions} random decisions: "
            "nothing can be learned from that"
        )
    difference = first_difference_by_seed(
        subject.batch, actions=subject.actions, num_steps=_num_steps(report, seconds=seconds)
    )
    report.deterministic = difference is None
    if difference is not None:
        report.problems.append(
            Finding(
                problem=f"two runs with one seed and the same actions differ: {difference}",
                mend=MEND_SEED,
            )
        )


def _num_steps(report: EnvironmentReport, *, seconds: float) -> int:
    """As many steps as a batch makes in the time, within limits."""
    affordable = int(report.measured.env_steps_per_s / NUM_ENVS * seconds)
    return max(MIN_STEPS, min(MAX_STEPS, affordable))


def _contract(subject: _Subject, report: EnvironmentReport) -> None:
    affordable = int(report.measured.env_steps_per_s)
    contract = run_contract(
        subject.single,
        api=report.spec.api,
        num_cycles=max(MIN_STEPS, min(MAX_STEPS, affordable)),
    )
    report.contract = contract.passed
    report.problems += contract.problems
    report.notes += contract.notes
