"""Whole runs, each against the same learners without a controller."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path

from msgspec import structs

from arena.codec import to_json
from arena.errors import ConfigError
from populations.config.resolve import usable_cores
from populations.config.run_config import RunConfig

from .children import rate_of_children
from .launched import launched_rate
from .loop import LoopSettings
from .measure import Effort, Stage
from .subject import Subject, with_changes

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
        # All limits are null, because the measurement decides when a run ends.
        limits = type(subject.config.stop).model_fields.keys() - {"members"}
        self._changes: dict[str, object] = {"stop": dict.fromkeys(sorted(limits))}

    def run(self) -> Iterator[Stage]:
        """Measure all of Arena against hand-written loops; where there are none, its learners
        unmanaged.
        """
        settings = self._subject.loop_settings
        if settings is None:
            yield self._beside_unmanaged("run", {})
            return
        yield Stage(
            name="run",
            rate=partial(self._launch, {}),
            bound_name=f"{self._num_learners} hand-written float32 loops",
            bound=partial(self._loops, settings),
        )

    def orchestration(self) -> Iterator[Stage]:
        """Measure the league's cost: a run without evaluation against its learners unmanaged."""
        yield self._beside_unmanaged("orchestration", {"evaluation.share": 0.0})

    def policies(self) -> Iterator[Stage]:
        """Measure the cost of many policies."""
        # With fewer policies than learners, learners would have nothing to do.
        num_few = max(FEW_POLICIES, self._num_learners)
        many, few = (
            partial(self._launch, {self._size_key: size}) for size in (MANY_POLICIES, num_few)
        )
        name = f"policies/{MANY_POLICIES}"
        yield Stage(name=name, rate=many, bound_name=f"{num_few} policies", bound=few)

    def cores(self) -> Iterator[Stage]:
        """Measure what all cores give a lone policy, against one of them."""
        number = usable_cores()
        several, one = (
            partial(self._launch, {self._size_key: 1, "learner_cores": cores}, num_learners=1)
            for cores in (number, 1)
        )
        bound_name = "one core of a lone policy"
        yield Stage(name=f"cores/{number}", rate=several, bound_name=bound_name, bound=one)

    @property
    def _size_key(self) -> str:
        return f"populations.{self._subject.population}.size"

    def _beside_unmanaged(self, name: str, changes: Mapping[str, object]) -> Stage:
        # The bound trains on the last run's journal, so there must be one before the first round.
        self._launch(changes)
        return Stage(
            name=name,
            rate=partial(self._launch, changes),
            bound_name=f"the same {self._num_learners} learners unmanaged",
            bound=self._unmanaged,
        )

    def _launch(self, changes: Mapping[str, object], *, num_learners: int | None = None) -> float:
        config: RunConfig = with_changes(self._subject.config, {**self._changes, **changes})
        # Each run needs a new directory, because a launch refuses one that exists.
        run_dir = self._directory / f"run{next(self._numbers)}"
        self._say(f"a run of {self._effort.run_seconds:g} s")
        rate = launched_rate(
            config,
            run_dir=run_dir,
            num_learners=num_learners or self._num_learners,
            run_seconds=self._effort.run_seconds,
        )
        # The directory is stored after the run, because a failed run has no assignments to train
        # on.
        self._last = run_dir
        return rate

    def _unmanaged(self) -> float:
        return self._children(
            "unmanaged",
            "learners unmanaged",
            lambda index: (str(self._last), str(index), str(self._num_learners)),
        )

    def _loops(self, settings: LoopSettings) -> float:
        return self._children(
            "loop",
            "hand-written loops",
            lambda index: (to_json(structs.replace(settings, seed=index)),),
        )

    def _children(self, module: str, what: str, given: Callable[[int], Sequence[str]]) -> float:
        seconds, number = self._effort.run_seconds, self._num_learners
        self._say(f"{number} {what} for {seconds:g} s")
        arguments = [[str(seconds), *given(index)] for index in range(number)]
        return rate_of_children(f"{__package__}.{module}", arguments)


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
