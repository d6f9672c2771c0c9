"""Random numbers as a function of an environment's seed, the episode and the number of draws
before.

A hash replaces a generator's state, so that B environments draw at once and each still depends on
its own seed alone. SplitMix64's finalizer: Steele, Lea and Flood, "Fast Splittable Pseudorandom
Number Generators" (OOPSLA 2014). Every function exists twice: for whole tensors, and in plain
integers for environments that step one by one; both give the same numbers. Importing this module
does not import torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

MASK = 2**64 - 1
# SplitMix64's constants: the increment is 2^64 over the golden ratio, the others are its
# finalizer's.
GOLDEN = 0x9E3779B97F4A7C15
FIRST = 0xBF58476D1CE4E5B9
SECOND = 0x94D049BB133111EB

MAX_SEED = 2**63

UNIT = 2.0**-53
"""Factor from 53 random bits to a number in [0, 1)."""


def check_seeds(seeds: Sequence[int], *, num_envs: int) -> None:
    """Check for one seed in [0, 2**63) for each environment.

    Raises:
        ValueError: If the check fails.
    """
    if len(seeds) != num_envs:
        raise ValueError(f"{num_envs} environments need as many seeds, got {len(seeds)}")
    for seed in seeds:
        if not 0 <= seed < MAX_SEED:
            raise ValueError(f"a seed must be in [0, 2**63), got {seed}")


def episode_seed(seed: int, *, episode: int) -> int:
    """Return the seed of an environment's k-th episode, in [0, 2**31), valid for any environment.

    Args:
        seed: Environment's seed, in [0, 2**63).
        episode: k, from 0.
    """
    # The seed is mixed first, because consecutive seeds must not give overlapping streams. Only
    # the top 31 bits remain, because many environments accept no larger seed.
    return _mix(_mix(seed) + episode * GOLDEN) >> 33


def seed_of_episode(seed: int, *, episode: int) -> int:
    """Return a seed in [0, 2**63) whose first episode is the k-th of another one.

    Args:
        seed: Environment's seed, in [0, 2**63).
        episode: k, from 0.
    """
    wanted = episode_seed(seed, episode=episode)
    # The low 33 bits of the mixed seed are dropped, so they are free: about every second choice of
    # them comes from a seed below 2**63.
    return next(
        found for low in range(1 << 33) if (found := _unmix(_unmix(wanted << 33 | low))) < MAX_SEED
    )


def uniform(key: int, *, draw: int) -> float:
    """Return the draw-th number of an episode, uniform in [0, 1).

    Args:
        key: Episode's seed.
        draw: Number of the draw, from 0.
    """
    # A float64 in [0, 1) holds at most 53 bits.
    return float((_mix(_mix(key) + (draw + 1) * GOLDEN) >> 11) * UNIT)


def episode_seeds(seeds: torch.Tensor, *, episodes: torch.Tensor) -> torch.Tensor:
    """Return `episode_seed` of many environments. int64 [B] and int64 [B] to int64 [B]."""
    # 63 bits of the seed fit int64; 31 bits remain, so the result is not negative.
    return _shifted(_mixed(_mixed(seeds) + episodes * _signed(GOLDEN)), 33)


def uniforms(keys: torch.Tensor, *, draw: int) -> torch.Tensor:
    """Return `uniform` of many episodes. int64 [B] to float64 [B]."""
    bits = _shifted(_mixed(_mixed(keys) + _signed((draw + 1) * GOLDEN)), 11)
    return bits.double() * UNIT


def first_uniforms(keys: torch.Tensor, *, num_draws: int) -> torch.Tensor:
    """Return `uniforms` of draws 0, 1, ... at once. int64 [B] to float64 [B, num_draws]."""
    import torch

    draws = torch.arange(1, num_draws + 1, dtype=torch.int64, device=keys.device)
    bits = _shifted(_mixed(_mixed(keys)[:, None] + draws * _signed(GOLDEN)), 11)
    return bits.double() * UNIT


def _mix(value: int) -> int:
    value &= MASK
    value = ((value ^ (value >> 30)) * FIRST) & MASK
    value = ((value ^ (value >> 27)) * SECOND) & MASK
    return value ^ (value >> 31)


def _unmix(value: int) -> int:
    """Invert `_mix`: each xor with a shift, and each product with an odd number, has an inverse."""
    value = _unshift(value, 31)
    value = _unshift(value * pow(SECOND, -1, 2**64) & MASK, 27)
    return _unshift(value * pow(FIRST, -1, 2**64) & MASK, 30)


def _unshift(value: int, bits: int) -> int:
    """Solve x ^ (x >> bits) = value for x, of 64 bits."""
    found = value
    # Each round makes ``bits`` more upper bits right; with 27 or more, two rounds are enough.
    for _ in range(2):
        found = value ^ (found >> bits)
    return found


def _mixed(values: torch.Tensor) -> torch.Tensor:
    """Compute `_mix` in int64, whose products wrap around as unsigned ones do."""
    values = (values ^ _shifted(values, 30)) * _signed(FIRST)
    values = (values ^ _shifted(values, 27)) * _signed(SECOND)
    return values ^ _shifted(values, 31)


def _shifted(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Shift right and fill with zeros, where torch fills with the sign."""
    # torch's >> copies the sign, so the upper bits are masked off.
    return (values >> bits) & ((1 << (64 - bits)) - 1)


def _signed(value: int) -> int:
    """Return the int64 with the same 64 bits."""
    value &= MASK
    return value - 2**64 if value >= 2**63 else value
