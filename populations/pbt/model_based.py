"""Rules of exploring that draw from a model of past generations' gains, by Optuna's samplers.

Sources: TPE, Bergstra et al., "Algorithms for hyper-parameter optimization" (2011); CMA-ES started
from past results, Nomura et al., "Warm starting CMA-ES for hyperparameter optimization" (2021); the
implementations are Optuna's (Akiba et al., 2019).

Optuna is imported where it is used, because the import takes a second. `GPSampler` imports torch,
so a controller with ``explore: gp`` has torch in memory, though it never loads a policy's weights.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from arena.types import Hyperparameters, Value
from populations.choices import number_of
from populations.core import Exploration, SearchSpace
from populations.pbt.explore import Perturb, PerturbSettings
from populations.pbt.gaussian_process import MIN_NOISE, FloatArray, Posterior, fit_kernel
from populations.pbt.generations import Improvement, believed_leads, finished, leads, running
from populations.records.rows import GenerationRow
from populations.rule_kinds import RuleKind
from populations.search_space import (
    Choices,
    Dimension,
    optuna_distributions,
    parse_search_space,
)

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

SamplerKind = Literal["tpe", "gp", "cma_es", "random"]

MIN_GENERATIONS = 10
"""Minimum number of finished generations; with fewer a model knows too little."""

MAX_GENERATIONS = {"tpe": 1000, "gp": 200, "cma_es": 1000, "random": 0}
"""Maximum number of newest generations for each sampler; time of ``gp`` grows with its cube."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBased:
    """Rule that asks one of Optuna's samplers, built anew from all finished generations.

    A finished generation is a trial whose value is the rise of its rating per million agent steps,
    relative to generations of the same time. A running one is a pending trial, so that policies get
    different values. Each decision makes a new study in memory: all state is in the journal's
    generations, so a resume changes nothing.

    Attributes:
        sampler: Kind of the sampler.
        fallback: Settings of ``perturb``, which is used while finished generations are too few.
        min_generations: Required number of finished generations; ``random`` requires none.
    """

    sampler: SamplerKind
    fallback: PerturbSettings
    min_generations: int = MIN_GENERATIONS

    def explore(
        self,
        hyperparameters: Hyperparameters,
        search_space: SearchSpace,
        *,
        history: Sequence[GenerationRow] = (),
        rng: np.random.Generator,
        **_: object,
    ) -> Exploration:
        """Draw all hyperparameters of the search space from the model."""
        dimensions = parse_search_space(search_space, start=hyperparameters)
        known = finished(history, names=list(dimensions))
        if self.sampler != "random" and len(known) < self.min_generations:
            reason = f"{self.sampler} has {len(known)} of {self.min_generations} generations"
            perturbed = Perturb(self.fallback).explore(
                hyperparameters, search_space, history=history, rng=rng
            )
            return with_reason(perturbed, reason)
        # Optuna's samplers have their own random state, so the controller's generator seeds it.
        seed = int(rng.integers(2**31 - 1))
        # The start is bounded by 0; for `random`, known[len(known):] is empty.
        newest = known[max(len(known) - MAX_GENERATIONS[self.sampler], 0) :]
        asked = _ask(
            self.sampler,
            optuna_distributions(dimensions),
            finished_ones=[(_to_optuna(i.row.hyperparameters, dimensions), i) for i in newest],
            running_ones=[
                _to_optuna(row.hyperparameters, dimensions)
                for row in running(history, names=list(dimensions))
            ],
            dimensions=dimensions,
            seed=seed,
        )
        new = {**hyperparameters, **_from_optuna(asked, dimensions)}
        moves = {
            name: "kept" if new[name] == hyperparameters.get(name) else self.sampler
            for name in dimensions
        }
        return Exploration(old=dict(hyperparameters), new=new, moves=moves)


def with_reason(exploration: Exploration, reason: str) -> Exploration:
    """Append to each move of a fallback rule the reason for using that rule."""
    moves = {name: f"{move}; {reason}" for name, move in exploration.moves.items()}
    return replace(exploration, moves=moves)


def _ask(
    kind: SamplerKind,
    distributions: Mapping[str, BaseDistribution],
    *,
    finished_ones: Sequence[tuple[Hyperparameters, Improvement]],
    running_ones: Sequence[Hyperparameters],
    dimensions: Mapping[str, Dimension],
    seed: int,
) -> dict[str, Value]:
    """Make a study of the given generations, and return one set of parameters that it suggests."""
    import optuna
    from optuna.trial import TrialState, create_trial

    logging.getLogger("optuna").setLevel(logging.ERROR)
    values = _values(kind, finished_ones, dimensions).tolist() if finished_ones else []
    known = [
        create_trial(params=dict(params), distributions=dict(distributions), value=value)
        for (params, _), value in zip(finished_ones, values, strict=True)
    ]
    with warnings.catch_warnings():
        # Some samplers are experimental, which is acceptable: versions are pinned and tested.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(
            direction="maximize", sampler=_make_sampler(kind, known, distributions, seed=seed)
        )
        study.add_trials(known)
        study.add_trials(
            create_trial(
                state=TrialState.RUNNING, params=dict(params), distributions=dict(distributions)
            )
            for params in running_ones
        )
        # The study is used once: the next decision makes another from the journal's generations.
        return dict(study.ask(dict(distributions)).params)


def _values(
    kind: SamplerKind,
    finished_ones: Sequence[tuple[Hyperparameters, Improvement]],
    dimensions: Mapping[str, Dimension],
) -> FloatArray:
    """Return the trials' values, shrunken by their noise, which samplers ignore. float64 [N]."""
    known = [one for _, one in finished_ones]
    if kind != "gp":
        return believed_leads(known)
    # Expected improvement is measured from the best value, which among noisy ones is the luckiest:
    # no point near it would improve on it, and the sampler would only visit corners. So each value
    # is smoothed by its neighbours: it is the mean of a Gaussian process at its own point.
    x = np.array(
        [
            [
                dimension.to_unit(one.row.hyperparameters[name])
                for name, dimension in dimensions.items()
            ]
            for one in known
        ]
    )
    steps = np.array([one.row.agent_steps_begin for one in known], dtype=np.float64)
    t = steps / float(np.median([one.num_steps for one in known]))
    measured, variances, signal = leads(known)
    y = measured / math.sqrt(signal)
    noise = np.maximum(variances / signal, MIN_NOISE)
    process = Posterior.of(fit_kernel(x, t, y, noise=noise), x, t, y, noise=noise)
    # All means are at the latest time, so that an old value counts as far as it still applies.
    return process.mean(x, np.full_like(t, t.max()))


def _make_sampler(
    kind: SamplerKind,
    known: Sequence[FrozenTrial],
    distributions: Mapping[str, BaseDistribution],
    *,
    seed: int,
) -> BaseSampler:
    from optuna.samplers import CmaEsSampler, GPSampler, RandomSampler, TPESampler

    if kind == "gp":
        # Optuna's own random start is switched off, because `min_generations` serves that purpose.
        return GPSampler(seed=seed, n_startup_trials=0)
    if kind == "random":
        return RandomSampler(seed=seed)
    sources = _numbers_only(known, distributions) if kind == "cma_es" else []
    if sources:
        # Optuna stores the state of CMA-ES pickled in its trials. A sampler that is started anew
        # from past results needs no state: it draws from the normal distribution of the best tenth.
        return CmaEsSampler(
            seed=seed,
            source_trials=sources,
            warn_independent_sampling=False,
            independent_sampler=RandomSampler(seed=seed),
        )
    # TPE also replaces CMA-ES where fewer than two hyperparameters are numbers. constant_liar
    # counts running trials as bad, so that policies get different values.
    return TPESampler(seed=seed, n_startup_trials=0, constant_liar=True)


def _numbers_only(
    known: Sequence[FrozenTrial], distributions: Mapping[str, BaseDistribution]
) -> list[FrozenTrial]:
    """Return the trials without choices and fixed values, which CMA-ES cannot use.

    Empty if fewer than two numbers are left, because CMA-ES needs two.
    """
    from optuna.distributions import CategoricalDistribution
    from optuna.trial import create_trial

    names = [
        name
        for name, distribution in distributions.items()
        if not isinstance(distribution, CategoricalDistribution) and not distribution.single()
    ]
    if len(names) < 2:
        return []
    return [
        create_trial(
            params={name: trial.params[name] for name in names},
            distributions={name: distributions[name] for name in names},
            value=trial.value,
        )
        for trial in known
    ]


def _to_optuna(
    hyperparameters: Hyperparameters, dimensions: Mapping[str, Dimension]
) -> dict[str, Value]:
    """Return the nearest values in Optuna's distributions; 1 - x for ranges with ``complement``."""
    fitted = dict[str, Value]()
    for name, dimension in dimensions.items():
        # Optuna refuses values out of bounds, where start values and values of older bounds may be.
        value = dimension.fit(hyperparameters[name])
        if not isinstance(dimension, Choices) and dimension.complement:
            low, high = dimension.complement_bounds
            value = min(max(1.0 - number_of(value), low), high)
        fitted[name] = value
    return fitted


def _from_optuna(params: Hyperparameters, dimensions: Mapping[str, Dimension]) -> dict[str, Value]:
    values = {}
    for name, dimension in dimensions.items():
        value = params[name]
        if not isinstance(dimension, Choices) and dimension.complement:
            value = 1.0 - number_of(value)
        # Rounding of 1 - x may leave the bounds.
        values[name] = dimension.fit(value)
    return values


def _kind(sampler: SamplerKind) -> RuleKind[PerturbSettings, ModelBased]:
    return RuleKind(
        name=sampler,
        settings=PerturbSettings,
        make=lambda settings: ModelBased(sampler=sampler, fallback=settings),
    )


TPE, GP, CMA_ES, RANDOM = _kind("tpe"), _kind("gp"), _kind("cma_es"), _kind("random")
