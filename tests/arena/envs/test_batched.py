"""The batched view of real environments against PettingZoo's own loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from arena.envs.batch import episode_seed
from arena.errors import ConfigError

# Fixtures and the plain loop are in conftest.py, which pytest hands out by name.
Batches = Any

REAL = [
    ("classic/connect_four-v3", 130, {}),
    ("classic/tictactoe-v3", 40, {}),
    ("classic/rps-v2", 40, {}),
    ("pettingzoo.classic.rps.rps:env", 80, {}),
    ("mpe2/simple_spread_v3", 25, {"max_cycles": 8}),
    ("mpe2.simple_spread_v3:env", 70, {"max_cycles": 8}),
    ("mpe2/simple_tag_v3", 25, {"max_cycles": 8}),
    ("mpe2.simple_tag_v3:env", 90, {"max_cycles": 8}),
]
