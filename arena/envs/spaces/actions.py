"""Actions as flat rows: first the choices, then the numbers.

A row holds a policy's draw. A choice is its index, from 0. A number u of a Box with bounds l and h
becomes, ``squashed``, (l + h) / 2 + (h - l) / 2 * tanh(u); ``clipped``, or where a side has no
bound, u clipped to [l, h]. The probability of a row is thus that of the draw. Torch-free. Shapes: N
rows, K numbers in a row, n numbers of an action mask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from arena.environment_spec import ContinuousActions, SpaceJson
from arena.envs.spaces.leaves import Leaf, Nest, bounds, leaf_spaces, make_leaf, nest_of, nested
from arena.errors import ConfigError

MAX_TANH = 1.0 - 1e-6
"""Largest argument of atanh: the bounds themselves would be infinitely far."""

MASK_KINDS = "bui"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionLayout:
    """Conversion between actions of one space and rows.

    Attributes:
        branches: Number of choices of each category: a Discrete has one category, a MultiDiscrete
            and a MultiBinary one per element, a Dict or Tuple those of its leaves.
        low: Lower bounds of the numbers of all Boxes.
        high: Upper bounds of the numbers.
        continuous: Way of bringing numbers within their bounds.
        leaves: Parts of an action; their offsets are columns of a row.
        nest: Nesting of the leaves in an action.
    """

    branches: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    continuous: ContinuousActions
    leaves: tuple[Leaf, ...]
    nest: Nest = field(hash=False)

    @classmethod
    def from_json(cls, space: SpaceJson, *, continuous: ContinuousActions) -> ActionLayout:
        """Make a layout from the output of `arena.envs.spaces.observations.describe`.

        Raises:
            ConfigError: If the space has no choice, or a Box has no usable bounds.
        """
        spaces = list(leaf_spaces(space))
        # First without places: the numbers begin after the choices of all leaves, wherever they
        # stand.
        leaves = [make_leaf(keys, member, offset=0, one_hot=False) for keys, member in spaces]
        branches = tuple(number for leaf in leaves for number in leaf.choices)
        column = {"choices": 0, "numbers": len(branches)}
        placed = []
        low: list[float] = []
        high: list[float] = []
        for leaf, (keys, member) in zip(leaves, spaces, strict=True):
            # Columns of a row: choices of all leaves, then numbers of all leaves.
            part = "numbers" if leaf.is_box else "choices"
            placed.append(make_leaf(keys, member, offset=column[part], one_hot=False))
            column[part] += leaf.size
            if leaf.is_box:
                lowest, highest = _usable_bounds(member)
                low += lowest
                high += highest
        if not branches and not low:
            raise ConfigError(f"action space {dict(space)} must have an action, it has none")
        return cls(
            branches=branches,
            low=tuple(low),
            high=tuple(high),
            continuous=continuous,
            leaves=tuple(placed),
            nest=nest_of(space, count()),
        )

    @property
    def num_continuous(self) -> int:
        """Number of continuous numbers, which follow the choices in a row."""
        return len(self.low)

    @property
    def num_logits(self) -> int:
        """n, the length of an action mask: one entry for each choice of each category."""
        return sum(self.branches)

    @property
    def is_discrete(self) -> bool:
        """Whether the space is Discrete, not nested."""
        return self.nest == 0 and self.leaves[0].kind == "Discrete"

    @property
    def row_shape(self) -> tuple[int, ...]:
        """() where the space is Discrete: rows are int64 [N]. Else (K,): float32 [N, K]."""
        # A category takes one column, whatever the number of its choices.
        return () if self.is_discrete else (len(self.branches) + self.num_continuous,)

    @property
    def row_dtype(self) -> np.dtype[Any]:
        """Dtype of rows."""
        return np.dtype(np.int64 if self.is_discrete else np.float32)

    @property
    def squashed(self) -> npt.NDArray[np.bool_]:
        """Mask of the numbers that are squashed into their bounds. bool [num_continuous]."""
        if self.continuous == "clipped":
            return np.zeros(self.num_continuous, dtype=np.bool_)
        # tanh needs two bounds; a number with fewer is clipped.
        squashed: npt.NDArray[np.bool_] = np.isfinite(self.low) & np.isfinite(self.high)
        return squashed

    def are_legal(
        self, rows: npt.NDArray[Any], action_mask: npt.NDArray[np.bool_] | None
    ) -> npt.NDArray[np.bool_]:
        """Return which rows are valid: choices exist and are legal, numbers are finite.

        Args:
            rows: Rows [N] or [N, K].
            action_mask: True for legal choices. bool [N, n].

        Returns:
            Validity of each row. bool [N].
        """
        columns = rows.reshape(len(rows), -1)
        legal: npt.NDArray[np.bool_] = np.isfinite(columns).all(axis=1)
        first = 0
        # A choice must be an integer in float32, exact far beyond any number of choices.
        for branch, number in enumerate(self.branches):
            choice = columns[:, branch]
            exists = (choice >= 0) & (choice < number) & (choice == np.floor(choice))
            legal &= exists
            if action_mask is not None:
                # A choice that does not exist would index past the mask; `exists` has refused it
                # above.
                index = first + np.where(exists, choice, 0).astype(np.int64)
                legal &= action_mask[np.arange(len(rows)), index]
            first += number
        return legal

    def to_environment(self, rows: npt.NDArray[Any]) -> Any:  # noqa: ANN401
        """Return the environment's own actions, each leaf with a leading axis of N.

        Args:
            rows: Rows int64 [N] or float32 [N, K].

        Returns:
            An array, or arrays nested in dictionaries and tuples.
        """
        if self.is_discrete:
            start = self.leaves[0].starts[0]
            return rows + start if start else rows
        numbers = self._within_bounds(rows[:, len(self.branches) :].astype(np.float64))
        return nested(self.nest, [self._given(leaf, rows, numbers) for leaf in self.leaves])

    def actions(self, rows: npt.NDArray[Any]) -> list[Any]:
        """Return the environment's own actions, one by one.

        Args:
            rows: Rows int64 [N] or float32 [N, K].
        """
        if self.is_discrete:
            listed: list[Any] = self.to_environment(rows).tolist()
            return listed
        numbers = self._within_bounds(rows[:, len(self.branches) :].astype(np.float64))
        parts = [_one_by_one(leaf, self._given(leaf, rows, numbers)) for leaf in self.leaves]
        return [nested(self.nest, [part[at] for part in parts]) for at in range(len(rows))]

    def _given(
        self, leaf: Leaf, rows: npt.NDArray[Any], numbers: npt.NDArray[np.float64]
    ) -> npt.NDArray[Any]:
        """Return the actions of one leaf. Shape [N, ...]."""
        if leaf.is_box:
            # `numbers` begins at the first column after the choices.
            first = leaf.offset - len(self.branches)
            values: npt.NDArray[Any] = numbers[:, first : first + leaf.size]
            # A Box of integers gets the nearest one.
            values = np.rint(values) if leaf.dtype.kind in "iub" else values
        else:
            # Indices from 0 -> numbers of the environment
            values = rows[:, leaf.place].astype(np.int64) + np.array(leaf.starts, dtype=np.int64)
        return values.reshape(len(rows), *leaf.shape).astype(leaf.dtype)

    def _within_bounds(self, drawn: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Bring drawn numbers within their bounds. float64 [N, num_continuous]."""
        # In place: the callers' astype has made a copy of the rows.
        low, high, squashed = np.array(self.low), np.array(self.high), self.squashed
        if squashed.any():
            at, to = low[squashed], high[squashed]
            # (l + h) / 2 + (h - l) / 2 * tanh(u), halved first: the bounds' sum and difference may
            # exceed a float.
            drawn[:, squashed] = at / 2 + to / 2 + (to / 2 - at / 2) * np.tanh(drawn[:, squashed])
        # Squashed numbers too: rounding may step over a bound.
        return np.clip(drawn, low, high)

    def from_environment(self, actions: Any) -> npt.NDArray[Any]:  # noqa: ANN401
        """Return the rows of the environment's own actions: the inverse of `to_environment`.

        Args:
            actions: Actions as from `to_environment`.

        Returns:
            Rows int64 [N] or float32 [N, K].

        Raises:
            ValueError: If a part is missing, has another shape, or holds no numbers.
        """
        parts = [_flat_part(leaf, actions) for leaf in self.leaves]
        if len({len(part) for part in parts}) > 1:
            raise ValueError(f"all parts need as many rows, got {[len(part) for part in parts]}")
        if self.is_discrete:
            discrete: npt.NDArray[Any] = (parts[0][:, 0] - self.leaves[0].starts[0]).astype(
                np.int64
            )
            return discrete
        rows = np.zeros((len(parts[0]), *self.row_shape), dtype=np.float64)
        for leaf, part in zip(self.leaves, parts, strict=True):
            # In float64, as atanh below loses digits near the bounds.
            rows[:, leaf.place] = part - (0 if leaf.is_box else np.array(leaf.starts))
        # A view, changed in place
        self._undo_bounds(rows[:, len(self.branches) :])
        return rows.astype(np.float32)

    def _undo_bounds(self, numbers: npt.NDArray[np.float64]) -> None:
        squashed = self.squashed
        if not squashed.any():
            return
        low, high = np.array(self.low)[squashed], np.array(self.high)[squashed]
        # An empty range has no inverse; its number is always the bound.
        half = high / 2 - low / 2
        # u = atanh((a - mid) / half), clipped because the bounds themselves are infinitely far.
        share = (numbers[:, squashed] - (low / 2 + high / 2)) / np.where(half > 0, half, 1.0)
        numbers[:, squashed] = np.arctanh(np.clip(share, -MAX_TANH, MAX_TANH))

    def flatten_mask(self, mask: object) -> npt.NDArray[np.bool_]:
        """Return one flat mask of all categories side by side.

        Args:
            mask: Mask that is flat already, or one mask per category in sequences and dictionaries
                that nest like the space; None: everything is legal in that part.

        Returns:
            Legal choices. bool [n].

        Raises:
            ValueError: If it is neither.
        """
        flat = _as_array(mask)
        # First, as a flat mask is what most environments have.
        if flat is not None and flat.shape == (self.num_logits,):
            return flat.astype(np.bool_)
        # In the order of the branches, which is that of the leaves.
        parts = [_leaf_mask(leaf, _found(mask, leaf)) for leaf in self.leaves if not leaf.is_box]
        return np.concatenate(parts) if parts else np.ones(0, dtype=np.bool_)

    def allows(self, masks: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return which masks allow a choice in every category.

        Args:
            masks: Masks bool [N, n].

        Returns:
            Usability of each mask. bool [N].
        """
        allowed: npt.NDArray[np.bool_]
        if len(self.branches) == 1:
            allowed = np.logical_or.reduce(masks, axis=1)
        else:
            # reduceat ORs each branch's slice of the mask.
            first = np.concatenate([[0], np.cumsum(self.branches)[:-1]]).astype(np.int64)
            by_branch = np.logical_or.reduceat(masks, first, axis=1)
            allowed = np.logical_and.reduce(by_branch, axis=1)
        return allowed


def _one_by_one(leaf: Leaf, values: npt.NDArray[Any]) -> Sequence[Any]:
    if leaf.kind == "Discrete":
        listed: list[Any] = values.tolist()
        return listed
    # Iterating over one axis gives numpy scalars; zero-dimensional arrays are wanted.
    return list(values) if leaf.shape else [np.asarray(value) for value in values]


def _usable_bounds(space: SpaceJson) -> tuple[list[float], list[float]]:
    low, high = bounds(space)
    # NaN compares false. Bounds of inf or -inf on the wrong side leave no number.
    usable = (low <= high) & (low < np.inf) & (high > -np.inf)
    if not usable.all():
        at = int(usable.argmin())
        raise ConfigError(
            f"a Box of actions must have lower bounds that are at most the upper ones, "
            f"got {low[at]} and {high[at]} at position {at}"
        )
    return low.tolist(), high.tolist()


def _flat_part(leaf: Leaf, actions: Any) -> npt.NDArray[Any]:  # noqa: ANN401
    """Return a leaf's part of actions. Shape [N, size]."""
    where = "".join(f"[{key!r}]" for key in leaf.keys)
    try:
        part = np.asarray(leaf.select(actions))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"actions{where} must be there: {type(error).__name__}") from error
    kinds = "biuf" if leaf.is_box else "biu"
    if part.ndim != 1 + len(leaf.shape) or part.shape[1:] != leaf.shape:
        shape = ", ".join(str(length) for length in leaf.shape)
        raise ValueError(
            f"actions{where} must have shape (N,{shape and ' ' + shape}), got {part.shape}"
        )
    if part.dtype.kind not in kinds:
        what = "numbers" if leaf.is_box else "integers"
        raise ValueError(f"actions{where} must be {what}, got {part.dtype}")
    return part.reshape(len(part), leaf.size)


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


def _flat_masks(mask: Any) -> Any:  # noqa: ANN401
    """Yield the arrays in nested sequences, each flattened."""
    array = _as_array(mask)
    if array is not None:
        yield array.astype(np.bool_).reshape(-1)
        return
    # The parts of a text are texts again, for ever.
    if isinstance(mask, Mapping) or not hasattr(mask, "__iter__") or isinstance(mask, str):
        raise ValueError(f"an action mask must be integers or bool, got {mask!r}")
    for part in mask:
        yield from _flat_masks(part)


def _as_array(mask: object) -> npt.NDArray[Any] | None:
    """Return a mask as an array; None where it is none, or nests arrays of different lengths."""
    if mask is None or isinstance(mask, Mapping):
        return None
    try:
        array = np.asarray(mask)
    except ValueError:
        return None
    return array if array.dtype.kind in MASK_KINDS else None
