"""Hyperparameters from a model of past generations' gains, by Optuna's samplers.

Sources: TPE, Bergstra et al., "Algorithms for hyper-parameter optimization" (2011); CMA-ES started
from past results, Nomura et al., "Warm starting CMA-ES for hyperparameter optimization" (2021); the
implementations are Optuna's (Akiba et al., 2019).

Optuna is imported where it is used, because it takes a second; `GPSampler` imports torch, so a
controller with ``explore: gp`` holds torch in memory. It never touches a policy's weights.
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
"""With fewer a model knows less than a step from what works now."""

MAX_GENERATIONS = {"tpe": 1000, "gp": 200, "cma_es": 1000, "random": 0}
"""The newest so many are told: a Gaussian process takes time with the third power."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBased:
    """Ask one of Optuna's samplers, which is told all finished generations each time.

    A finished generation is a trial whose value is the rise of its rating per million agent steps,
    compared with generations of its time; a running one is a pending trial, so that policies
    spread. The study lives in memory for one question only: the journal's generations are all the
    state there is, so a resume changes nothing.

    Attributes:
        sampler: Kind of the sampler.
        fallback: Settings of ``perturb``, for too few finished generations.
        min_generations: Finished generations that are needed (not for ``random``).
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
        """Draw all of them from the model."""
        dimensions = parse_search_space(search_space, start=hyperparameters)
        known = finished(history, names=list(dimensions))
        if self.sampler != "random" and len(known) < self.min_generations:
            reason = f"{self.sampler} has {len(known)} of {self.min_generations} generations"
            perturbed = Perturb(self.fallback).explore(
                hyperparameters, search_space, history=history, rng=rng
            )
            return with_reason(perturbed, reason)
        # The controller's generator decides all: Optuna's samplers have random states of their own.
        seed = int(rng.integers(2**31 - 1))
        # `random` is told none: known[len(known):].
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
    """Say in each move of another rule why it was used."""
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
    """Ask one question of a study that is made for it."""
    import optuna
    from optuna.trial import TrialState, create_trial

    logging.getLogger("optuna").setLevel(logging.ERROR)
    values = _values(kind, finished_ones, dimensions).tolist() if finished_ones else []
    known = [
        create_trial(params=dict(params), distributions=dict(distributions), value=value)
        for (params, _), value in zip(finished_ones, values, strict=True)
    ]
    with warnings.catch_warnings():
        # That samplers are experimental is known here; versions are pinned and tested.
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
        # The study is dropped with the answer; the next question begins with the journal again.
        return dict(study.ask(dict(distributions)).params)


def _values(
    kind: SamplerKind,
    finished_ones: Sequence[tuple[Hyperparameters, Improvement]],
    dimensions: Mapping[str, Dimension],
) -> FloatArray:
    """Return values that can be believed: samplers take all as equally sure. float64 [N]."""
    known = [one for _, one in finished_ones]
    if kind != "gp":
        return believed_leads(known)
    # Expected improvement is over the best value told, which among noisy ones is the luckiest: then
    # nothing near it improves, and the sampler visits corners for ever. So each is told what its
    # neighbours make of it: the mean of a process at its own place.
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
    # All at one time, the latest: an old value counts as much as it says of now.
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
        # Optuna's own random start is off: `min_generations` takes its place.
        return GPSampler(seed=seed, n_startup_trials=0)
    if kind == "random":
        return RandomSampler(seed=seed)
    sources = _numbers_only(known, distributions) if kind == "cma_es" else []
    if sources:
        # Optuna keeps the state of CMA-ES pickled in its trials. Started anew from past results
        # each time, it needs none: it draws from the normal distribution of the best tenth.
        return CmaEsSampler(
            seed=seed,
            source_trials=sources,
            warn_independent_sampling=False,
            independent_sampler=RandomSampler(seed=seed),
        )
    # TPE also serves CMA-ES with fewer than two numbers. constant_liar counts running trials as
    # bad, so that policies spread.
    return TPESampler(seed=seed, n_startup_trials=0, constant_liar=True)


def _numbers_only(
    known: Sequence[FrozenTrial], distributions: Mapping[str, BaseDistribution]
) -> list[FrozenTrial]:
    """Return the trials without choices and fixed values, of which CMA-ES knows nothing.

    None if a single number is left: CMA-ES needs two.
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
    """Return the nearest values of the distributions; 1 - x for those with ``complement``."""
    fitted = dict[str, Value]()
    for name, dimension in dimensions.items():
        # Optuna refuses values outside a distribution; start values and old bounds can be there.
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
        # 1 - x rounds, and may leave the bounds by that.
        values[name] = dimension.fit(value)
    return values


def _kind(sampler: SamplerKind) -> RuleKind[PerturbSettings, ModelBased]:
    return RuleKind(
        name=sampler,
        settings=PerturbSettings,
        make=lambda settings: ModelBased(sampler=sampler, fallback=settings),
    )


TPE, GP, CMA_ES, RANDOM = _kind("tpe"), _kind("gp"), _kind("cma_es"), _kind("random")
