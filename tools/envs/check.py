"""`arena envs check` without --against: inspect, try, suggest, report.

Tests: `tests/tools/envs/test_command.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..terminal.output import say
from .suggested_preset import preset_text

if TYPE_CHECKING:
    from arena.config import LearnerSetup
    from arena.envs.checks.check import EnvironmentReport
    from arena.envs.checks.measure import Measured
    from arena.envs.checks.time_limit import TimeLimit
    from arena.envs.findings import Finding
    from arena.learners.smoke_training import SmokeTraining
    from arena.types import Hyperparameters

# The sizes are small, so that some thousand steps make several updates.
TRIAL_ENVS = 16
TRIAL_ROLLOUT = 16
TRIAL_MATCHES = 16
TRAINING = "training for a moment"
MAX_AGENTS = 8
"""Most agents that have a line of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Findings about an environment.

    Attributes:
        report: Findings about the environment.
        trial: Trial training in it; None: not tried.
        given: The section ``environment`` as it was given.
    """

    report: EnvironmentReport
    trial: SmokeTraining | None
    given: Mapping[str, object]

    @property
    def preset(self) -> str:
        """A configuration, as YAML; where there are problems, as far as it is known."""
        # A configuration that does not train has no speed.
        trial = None if self.trial is None or self.trial.problem else self.trial
        return preset_text(self.report, environment=self.given, trial=trial, problems=self.problems)

    @property
    def problems(self) -> list[Finding]:
        """Findings that must be mended."""
        from arena.envs.findings import Finding

        found = list(self.report.problems)
        if self.trial is not None and self.trial.problem:
            found.append(
                Finding(
                    problem=f"training: {self.trial.problem}",
                    mend="random play showed nothing, so look at what a trained policy meets first",
                )
            )
        return found

    def document(self) -> dict[str, object]:
        """Return a document for programs."""
        document = asdict(self.report)
        measured = document.pop("measured")
        document["environment"] = document.pop("spec")
        document["problems"] = [asdict(finding) for finding in self.problems]
        document["works"] = not self.problems
        document["trial"] = None if self.trial is None else asdict(self.trial)
        document["preset"] = None if self.problems else self.preset
        return {**document, **measured}


def check_and_try(
    given: Mapping[str, object], *, seconds: float, agent_steps: int, limit: TimeLimit
) -> Checked:
    """Look at an environment and, if nothing is wrong with it, train in it for a moment.

    Args:
        given: The section ``environment`` of a configuration.
        seconds: Seconds of measuring its speed.
        agent_steps: Agent steps of the trial; 0: no trial.
        limit: Time limit of all stages.

    Raises:
        ConfigError: If there is no such environment, or Arena cannot train in it.
        EnvironmentFault: If it cannot even be reset.
    """
    from arena.config import EnvironmentConfig
    from arena.environment_spec import EnvironmentRequest
    from arena.envs.checks.check import check_environment
    from arena.learners.smoke_training import run_smoke_training
    from arena.resolve import code_directory

    environment = EnvironmentConfig.model_validate(given)
    report = check_environment(
        EnvironmentRequest(
            environment.id,
            kwargs=environment.kwargs,
            launch_directory=code_directory(),
            possible_agents=environment.possible_agents,
        ),
        seconds=seconds,
        limit=limit,
    )
    # Training would fail for the same reasons with a less clear message.
    if report.problems:
        return Checked(report=report, trial=None, given=given)
    # The trial trains by the very configuration that is suggested.
    untried = preset_text(report, environment=given)
    setup, hyperparameters = _trial_setup(untried, report)
    # `_trial_setup` comes first, so that an invalid configuration is refused without a trial, too.
    if not agent_steps:
        return Checked(report=report, trial=None, given=given)
    # The trial stays None where the time limit leaves the stage (`TimeLimit.stage`).
    trial = None
    with limit.stage(TRAINING):
        trial = run_smoke_training(
            setup,
            hyperparameters=hyperparameters,
            agent_steps=agent_steps,
            # Matches end with episodes. Where no episode ended in random play, matches might not
            # end either.
            matches=TRIAL_MATCHES if report.measured.episodes else 0,
        )
    return Checked(report=report, trial=trial, given=given)


def _trial_setup(
    preset: str, report: EnvironmentReport
) -> tuple[LearnerSetup, dict[str, Hyperparameters]]:
    """Return a learner's setup in a run of this configuration, made small.

    Raises:
        ConfigError: If the configuration and the environment do not fit.
    """
    from arena.resolve import code_directory
    from populations.config.run_config import validate_config
    from populations.config.run_file import learner_setup, new_run_file
    from populations.yaml_documents import read_document

    config = validate_config(read_document(preset, name="the suggested configuration"))
    run_file = new_run_file(
        config, report.spec, name=report.spec.id, launch_directory=code_directory()
    )
    setup = learner_setup(run_file, root=Path.cwd())
    num_envs = min(setup.num_envs, TRIAL_ENVS)
    environment = setup.environment.model_copy(update={"num_envs": num_envs})
    hyperparameters: dict[str, Hyperparameters] = {
        name: {
            **population.start_values,
            "rollout_length": min(TRIAL_ROLLOUT, int(population.start_values["rollout_length"])),
        }
        for name, population in run_file.config.populations.items()
    }
    # The CPU is always available and supports float32.
    small = {"environment": environment, "device": "cpu", "precision": "float32"}
    return setup.model_copy(update=small), hyperparameters


def print_checked(checked: Checked) -> None:
    """Print a report for people."""
    for line in _report_lines(checked):
        say(line)
    for finding in checked.problems:
        say(f"  problem: {finding.problem}")
        say(f"     mend: {finding.mend}")
    for what, when in checked.report.cut_off.items():
        say(f"  cut off {when}: {what}")
    for note in checked.report.notes:
        say(f"  note: {note}")
    # A configuration that does not train is not suggested; --write writes it with its problems.
    if not checked.problems:
        say("  a configuration for it (--write FILE writes it):")
        for line in checked.preset.splitlines():
            say(f"    {line}")


def _report_lines(checked: Checked) -> Iterator[str]:
    report, measured = checked.report, checked.report.measured
    spec = report.spec
    yield f"{spec.id} ({spec.api}): {'problems' if checked.problems else 'works'}"
    yield from _agent_lines(report)
    yield f"  turn order: {report.turn_order}"
    if report.never_asked:
        yield f"  never asked at random: {', '.join(report.never_asked)}"
    # Nothing is measured if the check stops before it plays.
    if measured.calls:
        yield from _measured_lines(measured)
        yield f"  deterministic by seed: {'yes' if report.deterministic else 'no'}"
    yield f"  observations alias: {'no' if report.aliased is None else 'yes'}"
    for name, passed in report.contract.items():
        yield f"  PettingZoo's {name}: {'passed' if passed else 'not passed'}"
    yield from _trial_lines(checked.trial)
    if report.twin is not None:
        yield f"  native twin: {report.twin}; arena envs check {spec.id} --against {report.twin}"


def _measured_lines(measured: Measured) -> Iterator[str]:
    length = "-" if measured.mean_length is None else f"{measured.mean_length:.1f}"
    yield f"  episodes {measured.episodes}, mean length {length} calls of step"
    if measured.reward_low is not None:
        yield (
            f"  rewards from {measured.reward_low:.4g} to {measured.reward_high:.4g}, in "
            f"{measured.rewarded_share:.1%} of a game's steps"
        )
    if measured.return_low is not None:
        yield f"  returns from {measured.return_low:.4g} to {measured.return_high:.4g}"
    for name, mean in measured.legal_mean.items():
        yield f"  legal actions of {name}: {mean:.1f} on average"
    yield (
        f"  {measured.env_steps_per_s:,.0f} environment steps/s, "
        f"{measured.agent_steps_per_s:,.0f} agent steps/s on one core"
    )


def _agent_lines(report: EnvironmentReport) -> Iterator[str]:
    spec = report.spec
    for count, agent in enumerate(spec.agents):
        if count == MAX_AGENTS:
            yield f"  and {len(spec.agents) - MAX_AGENTS} agents more"
            return
        facts = spec.agent_specs[agent]
        mask = f", mask in {facts.mask}" if facts.mask else ""
        yield f"  {agent}: sees {_space(facts.observation)}, does {_space(facts.action)}{mask}"


def _trial_lines(trial: SmokeTraining | None) -> Iterator[str]:
    if trial is None or trial.problem:
        return
    entropy = ", ".join(f"{name} {value:.2f}" for name, value in trial.entropy.items())
    yield (
        f"  trained for {trial.agent_steps:,} agent steps in {trial.learner_updates} updates, "
        f"{trial.agent_steps_per_s:,.0f} agent steps/s; entropy of actions: {entropy or '-'}"
    )
    if trial.matches:
        score = "" if trial.score is None else f"score {trial.score:.2f}, "
        yield (
            f"  then, against bot:random in {trial.matches} matches: {score}mean return "
            f"{trial.mean_return:.4g}"
        )


def _space(space: object) -> str:
    assert isinstance(space, dict)
    match space["kind"]:
        case "Discrete":
            return f"Discrete({space['n']})"
        case "MultiDiscrete":
            return f"MultiDiscrete({space['nvec']})"
        case "MultiBinary":
            return f"MultiBinary({'x'.join(map(str, space['shape']))})"
        case "Dict":
            parts = (f"{name}: {_space(part)}" for name, part in sorted(space["spaces"].items()))
            return f"Dict({', '.join(parts)})"
        case "Tuple":
            return f"Tuple({', '.join(_space(part) for part in space['spaces'])})"
    return f"Box({'x'.join(map(str, space['shape']))}, {space['dtype']})"
