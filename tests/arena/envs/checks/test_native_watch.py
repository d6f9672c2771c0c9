from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from arena.envs.checks.native_watch import _outside

BOX = Box(0.0, 1.0, (2,), np.float32)


def test_a_wrong_dtype_is_named() -> None:
    text = _outside(np.array([0, 1]), BOX)
    assert text.endswith("; is int64, its space float32: array.astype(np.float32)")


def test_a_wrong_dtype_within_a_dictionary_has_its_key() -> None:
    space = Dict({"board": BOX, "turn": Discrete(2), "mask": Box(0, 1, (2,), np.int8)})
    seen = {"board": np.array([0.0, 1.0]), "turn": 1, "mask": np.ones(2, np.int8)}
    text = _outside(seen, space)
    assert "'board' is float64, its space float32: array.astype(np.float32)" in text
    assert "'mask' is" not in text


def test_a_value_out_of_bounds_has_the_right_dtype() -> None:
    text = _outside(np.array([0.0, 5.0], np.float32), BOX)
    assert "float32(2,) in [0.0, 5.0]" in text
    assert "astype" not in text
    # What float32 takes without loss is inside.
    assert "astype" not in _outside(np.array([0, 5], np.int8), BOX)
