"""Rules of exploring: a step from the old hyperparameters, or a fresh draw.

Source: Jaderberg et al., "Population based training of neural networks" (2017), section 3: perturb
and resample. Values stay within the bounds of the search space however many steps are made.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from arena.config import Model
from arena.types import Hyperparameters, Value
from populations.choices import Categories, is_known
from populations.core import Exploration, SearchSpace
from populations.fields import Share
from populations.records.rows import GenerationRow
from populations.rule_kinds import RuleKind
from populations.search_space import (
    UNIFORM_RULE,
    Choices,
    Dimension,
    Range,
    parse_search_space,
    spans_one,
)

PERTURB_FACTORS = (0.8, 1.2)


class PerturbSettings(Model):
    """Settings of ``perturb``, and of rules that fall back to it."""

    perturb_factors: tuple[float, ...] = Field(PERTURB_FACTORS, min_length=1, max_length=16)
    """Factors, one of which multiplies a hyperparameter that has no ``factors`` of its own."""

    perturb_uniform: tuple[float, float] | None = None
    """Range from which factors are drawn uniformly, in place of `perturb_factors`."""

    resample_probability: Share = 0.25
    """Probability that a hyperparameter is drawn anew from its range instead."""

    mutation_probability: Share = 1.0
    """Probability that ``perturb`` changes a hyperparameter."""

    reset_probability: Share = 0.0
    """Probability that ``perturb`` resets a hyperparameter to its start value."""

    @field_validator("perturb_factors")
    @classmethod
    def _positive(cls, factors: tuple[float, ...]) -> tuple[float, ...]:
        if any(factor <= 0.0 for factor in factors):
            raise ValueError("every factor must be greater than 0")
        return factors

    @field_validator("perturb_uniform")
    @classmethod
    def _spans_one(
        cls, ends: tuple[float, float] | None, info: ValidationInfo
    ) -> tuple[float, float] | None:
        if ends is not None and not spans_one(ends):
            raise ValueError(UNIFORM_RULE)
        # A dumped configuration has both keys, so the default value of the other one is accepted.
        factors = info.data.get("perturb_factors", PERTURB_FACTORS)
        if ends is not None and factors != PERTURB_FACTORS:
            raise ValueError(f"must be null where perturb_factors are {list(factors)}")
        return ends


class Perturb:
    """Rule: each hyperparameter of the search space moves a little, or is sometimes drawn anew.

    A range may have factors of its own, which multiply 1 - x with ``complement``; choices move to a
    neighbour, integers by at least 1. A value that does not move may stay outside its bounds, if it
    began there; a reset to the start value (that of the first generation) respects the bounds.
    """

    def __init__(self, settings: PerturbSettings | None = None) -> None:
        self.settings = settings or PerturbSettings()

    def explore(
        self,
        hyperparameters: Hyperparameters,
        search_space: SearchSpace,
        *,
        history: Sequence[GenerationRow] = (),
        rng: np.random.Generator,
        **_: object,
    ) -> Exploration:
        """Perturb each hyperparameter; one without a value yet is drawn from its range."""
        # The first generation of the population has the configured start values.
        start = history[0].hyperparameters if history else {}
        new, moves = dict(hyperparameters), dict[str, str]()
        for name, dimension in parse_search_space(search_space, start=hyperparameters).items():
            new[name], moves[name] = self._move(
                dimension,
                old=hyperparameters.get(name),
                start=start.get(name),
                rng=rng,
            )
        return Exploration(old=dict(hyperparameters), new=new, moves=moves)

    def _move(
        self,
        dimension: Dimension,
        *,
        old: Value | None,
        start: Value | None,
        rng: np.random.Generator,
    ) -> tuple[Value, str]:
        settings = self.settings
        # All random numbers are drawn before any is used, so that how many are drawn depends only
        # on the settings, and later hyperparameters get the same ones.
        is_anew = bool(rng.random() < settings.resample_probability)
        factor = self._factor(dimension, rng)
        is_kept = (
            settings.mutation_probability < 1.0 and rng.random() >= settings.mutation_probability
        )
        is_reset = settings.reset_probability > 0.0 and rng.random() < settings.reset_probability
        # A hyperparameter without a value (null in YAML) cannot be kept, reset or multiplied.
        if not is_known(old):
            return dimension.sample(rng), "resampled"
        if is_kept:
            # The old value is not fitted: a start value outside the bounds stays until it moves.
            return old, "kept"
        if is_reset and is_known(start):
            new = dimension.fit(start)
            return new, "kept" if new == old else "reset"
        if is_anew:
            return dimension.sample(rng), "resampled"
        new = dimension.perturb(old, factor=factor, rng=rng)
        return new, _move(dimension, old=old, new=new, factor=factor)

    def _factor(self, dimension: Dimension, rng: np.random.Generator) -> float:
        factors, uniform = self.settings.perturb_factors, self.settings.perturb_uniform
        # Only a range may have factors of its own; choices use those of the settings.
        if isinstance(dimension, Range) and (dimension.factors or dimension.uniform):
            factors, uniform = dimension.factors or (), dimension.uniform
        if uniform is not None:
            return float(rng.uniform(*uniform))
        return factors[int(rng.integers(len(factors)))]


def _move(dimension: Dimension, *, old: Value, new: Value, factor: float) -> str:
    if new == old:
        return "kept"
    if isinstance(dimension, Categories):
        return "switched"
    if not isinstance(dimension, Choices):
        return f"x{factor:g}"
    # An old value that is none of the choices has no neighbour, so `Choices.perturb` drew anew.
    if dimension.place(old) is None:
        return "resampled"
    return "next" if factor > 1.0 else "previous"


class Resample:
    """Rule: each hyperparameter of the search space is drawn from its range (random search)."""

    def explore(
        self,
        hyperparameters: Hyperparameters,
        search_space: SearchSpace,
        *,
        rng: np.random.Generator,
        **_: object,
    ) -> Exploration:
        """Draw all hyperparameters of the search space anew."""
        dimensions = parse_search_space(search_space, start=hyperparameters)
        drawn = {name: dimension.sample(rng) for name, dimension in dimensions.items()}
        return Exploration(
            old=dict(hyperparameters),
            # Hyperparameters outside the search space never change.
            new={**hyperparameters, **drawn},
            moves=dict.fromkeys(drawn, "resampled"),
        )


class NoExplore:
    """Rule: hyperparameters never change, so PBT only selects weights."""

    def explore(
        self, hyperparameters: Hyperparameters, search_space: SearchSpace, **_: object
    ) -> Exploration:
        """Change nothing."""
        return Exploration(
            old=dict(hyperparameters),
            new=dict(hyperparameters),
            moves=dict.fromkeys(search_space, "kept"),
        )


def initial_hyperparameters(
    hyperparameters: Hyperparameters,
    search_space: SearchSpace,
    *,
    rng: np.random.Generator,
) -> dict[str, Value]:
    """Return start values of one member: the configured values after one `Perturb`.

    Raises:
        ConfigError: If the search space is not valid.
    """
    # Start values differ under every rule of exploring, as equal ones give selection no choice.
    return dict(Perturb().explore(hyperparameters, search_space, rng=rng).new)


def spread_hyperparameters(
    hyperparameters: Hyperparameters,
    search_space: SearchSpace,
    *,
    num_members: int,
    rng: np.random.Generator,
) -> list[dict[str, Value]]:
    """Draw start values of all members but the first, which has the configured ones.

    The range of each hyperparameter is divided into as many equal parts as there are members, and
    each member gets a value from a different part, so that even three or four members cover a wide
    range (Latin hypercube sampling: McKay, Beckman and Conover, "A comparison of three methods for
    selecting values of input variables", 1979).

    Raises:
        ConfigError: If the search space is not valid.
    """
    drawn = [dict(hyperparameters) for _ in range(num_members - 1)]
    for name, dimension in parse_search_space(search_space, start=hyperparameters).items():
        parts = [int(part) for part in rng.permutation(num_members)]
        start = hyperparameters.get(name)
        if is_known(start):
            middles = [dimension.quantile((part + 0.5) / num_members) for part in parts]
            unit = dimension.to_unit(start)
            # The first member's part is taken, so no other member draws from it.
            del parts[int(np.argmin([abs(dimension.to_unit(m) - unit) for m in middles]))]
        for values, part in zip(drawn, parts, strict=False):
            values[name] = dimension.quantile((part + float(rng.random())) / num_members)
    return drawn


PERTURB = RuleKind(name="perturb", settings=PerturbSettings, make=Perturb)
RESAMPLE = RuleKind(name="resample", settings=Model, make=lambda _: Resample())
NONE = RuleKind(name="none", settings=Model, make=lambda _: NoExplore())
