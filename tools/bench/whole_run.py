"""Whole runs, each against the same learners without a controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path

from arena.errors import ConfigError
from populations.config.resolve import usable_cores
from populations.config.run_config import RunConfig

from .children import rate_of_children
from .launched import launched_rate
from .loop import LoopSettings
from .measure import Effort, Measurement, Rate, compare
from .subject import Subject, with_changes

AGENT_STEPS = "agent steps/s"
MANY_POLICIES, FEW_POLICIES = 32, 2


class WholeRuns:
    """Measurements of runs, launched in a directory of their own.

    Args:
        subject: Configuration to launch; only its limits are changed.
        effort: Effort of the measurements.
        num_learners: Learner processes, and processes of the bound.
        directory: Empty; holds the runs.
        say: Function that takes each step's name.
    """

    def __init__(
        self,
        subject: Subject,
        *,
        effort: Effort,
        num_learners: int,
        directory: Path,
        say: Callable[[str], None],
    ) -> None:
        self._subject = subject
        self._effort = effort
        self._num_learners = num_learners
        self._directory = directory
        self._say = say
        self._numbers = count()
        self._last: Path | None = None
        # The measurement decides when a run ends, not its own limits.
        # All limits null: none is left.
        limits = type(subject.config.stop).model_fields.keys() - {"members"}
        self._changes: dict[str, object] = {"stop": dict.fromkeys(sorted(limits))}

    def run(self) -> list[Measurement]:
        """Measure all of Arena against hand-written loops; where there are none, its learners
        unmanaged.
        """
        settings = self._subject.loop_settings
        if settings is None:
            bound, bound_name = self._unmanaged, self._unmanaged_name
            # `_unmanaged` trains on the last run's journal, so there must be one before the first
            # round.
            self._launch({})
        else:
            bound = self._loops(settings)
            bound_name = f"{self._num_learners} hand-written float32 loops"
        return [self._compare("run", lambda: self._launch({}), bound, bound_name=bound_name)]

    def orchestration(self) -> list[Measurement]:
        """Measure the league's cost: a run without evaluation against its learners unmanaged."""
        changes = {"evaluation.share": 0.0}
        # The run whose opponents the first of the others play against.
        self._launch(changes)
        return [
            self._compare(
                "orchestration",
                lambda: self._launch(changes),
                self._unmanaged,
                bound_name=self._unmanaged_name,
            )
        ]

    def policies(self) -> list[Measurement]:
        """Measure the cost of many policies."""
        # With fewer policies than learners, learners would have nothing to do.
        num_few = max(FEW_POLICIES, self._num_learners)
        size_key = f"populations.{self._subject.population}.size"
        many, few = ({size_key: size} for size in (MANY_POLICIES, num_few))
        return [
            self._compare(
                f"policies/{MANY_POLICIES}",
                lambda: self._launch(many),
                lambda: self._launch(few),
                bound_name=f"{num_few} policies",
            )
        ]

    def cores(self) -> list[Measurement]:
        """Measure what all cores give a lone policy, against one of them."""
        number = usable_cores()
        lone: dict[str, object] = {f"populations.{self._subject.population}.size": 1}
        several, one = ({**lone, "learner_cores": cores} for cores in (number, 1))
        return [
            self._compare(
                f"cores/{number}",
                lambda: self._launch(several, num_learners=1),
                lambda: self._launch(one, num_learners=1),
                bound_name="one core of a lone policy",
            )
        ]

    @property
    def _unmanaged_name(self) -> str:
        return f"the same {self._num_learners} learners unmanaged"

    def _compare(self, name: str, rate: Rate, bound: Rate, *, bound_name: str) -> Measurement:
        return compare(
            name,
            unit=AGENT_STEPS,
            rate=rate,
            bound_name=bound_name,
            bound=bound,
            rounds=self._effort.rounds,
        )

    def _launch(self, changes: Mapping[str, object], *, num_learners: int | None = None) -> float:
        config: RunConfig = with_changes(self._subject.config, {**self._changes, **changes})
        # A new one each time: a run is not launched into a directory that exists.
        run_dir = self._directory / f"run{next(self._numbers)}"
        self._say(f"a run of {self._effort.run_seconds:g} s")
        rate = launched_rate(
            config,
            run_dir=run_dir,
            num_learners=num_learners or self._num_learners,
            run_seconds=self._effort.run_seconds,
        )
        # Not before: a run that failed has no assignments to train on.
        self._last = run_dir
        return rate

    def _unmanaged(self) -> float:
        assert self._last is not None
        effort = self._effort
        self._say(f"{self._num_learners} learners unmanaged for {effort.run_seconds:g} s")
        given = [
            [
                *("--run-dir", str(self._last), "--seconds", str(effort.run_seconds)),
                *("--learner", str(index), "--learners", str(self._num_learners)),
            ]
            for index in range(self._num_learners)
        ]
        return rate_of_children(f"{__package__}.unmanaged", given)

    def _loops(self, settings: LoopSettings) -> Rate:
        def rate() -> float:
            effort = self._effort
            self._say(f"{self._num_learners} hand-written loops for {effort.run_seconds:g} s")
            given = [
                [
                    *("--json", "--wait", "--seconds", str(effort.run_seconds)),
                    *("--seed", str(index), "--num-games", str(settings.num_games)),
                    *("--rollout-length", str(settings.rollout_length)),
                    *("--num-epochs", str(settings.num_epochs)),
                    *("--num-minibatches", str(settings.num_minibatches)),
                    *("--hidden-sizes", ",".join(map(str, settings.hidden_sizes))),
                ]
                for index in range(self._num_learners)
            ]
            return rate_of_children(f"{__package__}.loop", given)

        return rate


def number_of_learners(subject: Subject, wanted: int | None) -> int:
    """Return the number of learner processes: as wanted, or as the configuration says.

    Raises:
        ConfigError: If the configuration gives each population its own: a bound has no populations.
    """
    if wanted is not None:
        return wanted
    learners = subject.config.learners
    if not isinstance(learners, int):
        raise ConfigError(f"a measured run needs --learners, its configuration has {learners!r}")
    return learners
