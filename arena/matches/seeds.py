"""Everything random in an assignment or tournament, derived from its one seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import numpy as np
import torch


class Stream(IntEnum):
    """Purpose of a derived seed; streams of one seed are independent."""

    ENVIRONMENTS = 0
    ACTIONS = 1
    WEIGHTS = 2
    BLOCKS = 3
    RANKS = 4


def derived_seed(seed: int, stream: Stream, *index: int) -> int:
    """Return a seed in [0, 2**63) for one purpose."""
    return _seeds(seed, stream, *index, count=1)[0]


def environment_seeds(seed: int, *, num_envs: int, wave: int = 0) -> list[int]:
    """Return one seed per environment, a function of (seed, wave, environment index) alone.

    Args:
        seed: Seed of the assignment.
        num_envs: Number of environments.
        wave: Number of earlier resets of the environments.
    """
    return _seeds(seed, Stream.ENVIRONMENTS, wave, count=num_envs)


def seed_everything(seed: int, *, device: torch.device) -> torch.Generator:
    """Seed the global generators, which users' code may draw from; return the one for actions."""
    derived = derived_seed(seed, Stream.ACTIONS)
    torch.manual_seed(derived)
    # NumPy accepts only seeds of 32 bits.
    np.random.seed(derived % 2**32)
    random.seed(derived)
    return torch.Generator(device).manual_seed(derived)


@contextmanager
def generators_kept(*, num_devices: int = 0) -> Iterator[None]:
    """Restore the states of the global generators afterwards, those of so many GPUs too."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=range(num_devices)):
        try:
            yield
        finally:
            random.setstate(of_python)
            np.random.set_state(of_numpy)


def _seeds(seed: int, *key: int, count: int) -> list[int]:
    # The first words of a SeedSequence do not depend on the number of words.
    state = np.random.SeedSequence((seed, *key)).generate_state(count, np.uint64)
    # Seeds travel as signed integers, so they have 63 bits.
    return [int(word) for word in state >> np.uint64(1)]
