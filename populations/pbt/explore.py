"""What changes about hyperparameters: a step from the old ones, or a fresh draw.

Source: Jaderberg et al., "Population based training of neural networks" (2017), section 3: perturb
and resample. Bounds hold for ever, however many steps follow one another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from populations.core import Exploration, Explore, SearchSpace
from populations.pbt.search_space import Choices, Dimension, parse_search_space

KINDS = ("perturb", "resample", "none")
PERTURB_FACTORS = (0.8, 1.2)
RESAMPLE_PROBABILITY = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Perturb:
    """Each hyperparameter of the search space moves a little, or sometimes anywhere.

    Attributes:
        factors: One of them, drawn uniformly, multiplies the value (1 - x with ``complement``);
            choices move to a neighbour, integers by at least 1.
        resample_probability: How often a value is drawn from its range instead.
    """

    factors: tuple[float, ...] = PERTURB_FACTORS
    resample_probability: float = RESAMPLE_PROBABILITY

    def explore(
        self,
        hyperparameters: Mapping[str, float],
        search_space: SearchSpace,
        *,
        rng: np.random.Generator,
    ) -> Exploration:
        """Perturb; what has no value yet is drawn from its range."""
        new, moves = dict(hyperparameters), dict[str, str]()
        for name, dimension in parse_search_space(search_space, start=hyperparameters).items():
            # Two draws in any case, so that hyperparameters do not shift each other's randomness.
            is_anew = bool(rng.random() < self.resample_probability)
            factor = self.factors[int(rng.integers(len(self.factors)))]
            old = hyperparameters.get(name, math.nan)
            if is_anew or not math.isfinite(old):
                new[name], moves[name] = dimension.sample(rng), "resampled"
            else:
                new[name] = dimension.perturb(old, factor=factor, rng=rng)
                moves[name] = _move(dimension, old=old, new=new[name], factor=factor)
        return Exploration(old=dict(hyperparameters), new=new, moves=moves)


def _move(dimension: Dimension, *, old: float, new: float, factor: float) -> str:
    if new == old:
        return "kept"
    if not isinstance(dimension, Choices):
        return f"x{factor:g}"
    if old not in dimension.choices:
        return "resampled"
    return "next" if factor > 1.0 else "previous"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resample:
    """Each hyperparameter of the search space is drawn from its range: random search."""

    def explore(
        self,
        hyperparameters: Mapping[str, float],
        search_space: SearchSpace,
        *,
        rng: np.random.Generator,
    ) -> Exploration:
        """Draw all of them anew."""
        dimensions = parse_search_space(search_space, start=hyperparameters)
        drawn = {name: dimension.sample(rng) for name, dimension in dimensions.items()}
        return Exploration(
            old=dict(hyperparameters),
            new={**hyperparameters, **drawn},
            moves=dict.fromkeys(drawn, "resampled"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NoExplore:
    """Hyperparameters stay as they are: only weights are selected."""

    def explore(
        self,
        hyperparameters: Mapping[str, float],
        search_space: SearchSpace,
        *,
        rng: np.random.Generator,
    ) -> Exploration:
        """Change nothing."""
        del rng
        return Exploration(
            old=dict(hyperparameters),
            new=dict(hyperparameters),
            moves=dict.fromkeys(search_space, "kept"),
        )


def make_explore(
    kind: str,
    *,
    perturb_factors: tuple[float, ...] = PERTURB_FACTORS,
    resample_probability: float = RESAMPLE_PROBABILITY,
) -> Explore:
    """Make the exploration rule of a run.

    Args:
        kind: One of ``KINDS``.
        perturb_factors: Of ``perturb``.
        resample_probability: Of ``perturb``.

    Raises:
        ValueError: If there is no such kind.
    """
    match kind:
        case "perturb":
            return Perturb(factors=perturb_factors, resample_probability=resample_probability)
        case "resample":
            return Resample()
        case "none":
            return NoExplore()
    raise ValueError(f"pbt.explore must be one of {', '.join(KINDS)}, got {kind!r}")


def initial_hyperparameters(
    hyperparameters: Mapping[str, float], search_space: SearchSpace, *, rng: np.random.Generator
) -> dict[str, float]:
    """Start values of one member: one exploration away from the configured ones.

    So a population does not start as clones of one setting.

    Raises:
        ConfigError: If the search space is not valid.
    """
    return dict(Perturb().explore(hyperparameters, search_space, rng=rng).new)
