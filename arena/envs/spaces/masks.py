"""Action masks of environments, as flat rows. Torch-free.

Shapes: n numbers of an action mask.

Tests: `tests/arena/envs/spaces/test_actions.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from arena.errors import EnvironmentFault
from arena.spaces import ActionLayout, Leaf
from arena.users_code import named, pass_interrupt

MASK_KINDS = "bui"
"""Kinds of dtype that a mask may have."""


def legal_choices(layout: ActionLayout, mask: object) -> npt.NDArray[np.bool_]:
    """Return the legal choices of a user's mask. bool [n].

    Raises:
        EnvironmentFault: If its shape or kind of dtype is not the space's, or reading it raises.
    """
    try:
        if not layout.is_discrete:
            return flatten_mask(layout, mask)
        values = np.asarray(mask)
    except BaseException as error:
        pass_interrupt(error)
        raise EnvironmentFault(f"an action mask raised {named(error)}") from error
    shape = (layout.num_logits,)
    if values.shape != shape or values.dtype.kind not in MASK_KINDS:
        raise EnvironmentFault(
            f"an action mask must be integers or bool of shape {shape}, "
            f"got {values.dtype} {values.shape}"
        )
    return values.astype(np.bool_)


def flatten_mask(layout: ActionLayout, mask: object) -> npt.NDArray[np.bool_]:
    """Return one flat mask of all categories side by side.

    Args:
        layout: Layout of the actions.
        mask: Mask that is flat already, or one mask per category in sequences and dictionaries
            that nest like the space; None: everything is legal in that part.

    Returns:
        Legal choices. bool [n].

    Raises:
        ValueError: If the mask has neither form.
    """
    flat = _as_array(mask)
    # Flat masks are tested first, because most environments have them.
    if flat is not None and flat.shape == (layout.num_logits,):
        return flat.astype(np.bool_)
    # The parts are in the order of the branches, which is that of the leaves.
    parts = [_leaf_mask(leaf, _found(mask, leaf)) for leaf in layout.leaves if not leaf.is_box]
    return np.concatenate(parts) if parts else np.ones(0, dtype=np.bool_)


def _found(mask: Any, leaf: Leaf) -> object:  # noqa: ANN401
    """Return a leaf's part of nested masks; None where a part above it is None."""
    for key in leaf.keys:
        if mask is None:
            return None
        try:
            mask = mask[key]
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"an action mask must have a part {key!r}, it has none") from error
    found: object = mask
    return found


def _leaf_mask(leaf: Leaf, mask: object) -> npt.NDArray[np.bool_]:
    width = sum(leaf.choices)
    if mask is None:
        return np.ones(width, dtype=np.bool_)
    parts = list(_flat_masks(mask))
    flat = np.concatenate(parts) if parts else np.zeros(0, dtype=np.bool_)
    if len(flat) != width:
        raise ValueError(
            f"an action mask must have {width} entries, for choices {list(leaf.choices)}, "
            f"got {len(flat)}"
        )
    return flat


def _flat_masks(mask: Any) -> Iterator[npt.NDArray[np.bool_]]:  # noqa: ANN401
    """Yield the arrays in nested sequences, each flattened."""
    array = _as_array(mask)
    if array is not None:
        yield array.astype(np.bool_).reshape(-1)
        return
    # The parts of a text are texts again, which would never end.
    if isinstance(mask, Mapping) or not hasattr(mask, "__iter__") or isinstance(mask, str):
        raise ValueError(f"an action mask must be integers or bool, got {mask!r}")
    for part in mask:
        yield from _flat_masks(part)


def _as_array(mask: object) -> npt.NDArray[Any] | None:
    """Return a mask as an array; None if it is none, or nests arrays of different lengths."""
    if mask is None or isinstance(mask, Mapping):
        return None
    try:
        array = np.asarray(mask)
    except ValueError:
        return None
    return array if array.dtype.kind in MASK_KINDS else None
