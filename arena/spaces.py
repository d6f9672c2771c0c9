"""Layouts of spaces: observations and actions as flat rows, and back.

A row of an observation holds leaf after leaf: a Box flattened, a Discrete one-hot, a MultiDiscrete
as one-hots side by side, a MultiBinary as zeros and ones.

A row of an action holds a policy's draw: first the choices, then the numbers. A choice is its
index, from 0. A number u of a Box with bounds l and h becomes, ``squashed``,
(l + h) / 2 + (h - l) / 2 * tanh(u); ``clipped``, or where a side has no bound, u clipped to [l, h].
The probability of a row is thus that of the draw.

Needs numpy and nothing else: `arena.export.write` puts this file into ``champion.py``. It blames
nobody; callers know who made a space or a value. Shapes: N rows, F numbers of a flattened
observation, K numbers of an action's row, B categories, C continuous numbers, n numbers of an
action mask.

Tests: `tests/arena/envs/spaces/test_observations.py`, `tests/arena/envs/spaces/test_actions.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these, are"

MAX_TANH = 1.0 - 1e-6
"""Largest argument of atanh, which is infinite at the bounds themselves."""

UINT8 = np.dtype(np.uint8)
FLOAT32 = np.dtype(np.float32)

AGENT_ID = ("agent id",)
"""Name of the leaf; no environment uses it."""

SpaceJson = Mapping[str, Any]
"""Space as plain data, written by `arena.envs.spaces.observations.describe`."""

Keys = tuple[str | int, ...]
"""Keys that lead from a nested value to a part, one after the other."""

Nest = int | dict[str, Any] | tuple[Any, ...]
"""Nesting of leaves: the index of a leaf, or nests by the keys of a Dict or in a Tuple."""

Floats = npt.NDArray[np.float64]

LeafKind = Literal["Box", "Discrete", "MultiDiscrete", "MultiBinary"]


class UnusableSpace(ValueError):
    """A space that has no layout. The text names the rule and the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """Space that is no Dict or Tuple, and its place in a row.

    Attributes:
        keys: Keys that lead from the whole value to this part.
        kind: Kind of space.
        shape: Shape of a value from the environment; () for Discrete.
        dtype: Dtype of a value from the environment.
        offset: Place of its first number in the row.
        size: Number of its numbers in the row.
        low: Lower bound of all its numbers.
        high: Upper bound of all its numbers.
        choices: Numbers of choices of its categories, in order; none for Box.
        starts: Number of each category's first choice in the environment.
    """

    keys: Keys
    kind: LeafKind
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    size: int
    low: float
    high: float
    choices: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()

    @property
    def path(self) -> tuple[str, ...]:
        """Keys as names: elements of a Tuple are "0", "1" and so on."""
        return tuple(str(key) for key in self.keys)

    @property
    def is_box(self) -> bool:
        """Return whether the leaf holds numbers, not choices."""
        return self.kind == "Box"

    @property
    def place(self) -> slice:
        """Slice of the leaf in a row."""
        return slice(self.offset, self.offset + self.size)

    def name_in(self, whole: str) -> str:
        """Return the name of this part of a value: ``whole``, and the keys after it, with dots."""
        return ".".join((whole, *self.path))

    def select(self, value: Any) -> Any:  # noqa: ANN401
        """Return the leaf's part of a nested value."""
        for key in self.keys:
            value = value[key]
        return value

    def shaped(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return numbers [N, size] in the environment's shape and dtype; whole ones are rounded."""
        values = np.rint(values) if self.is_box and self.dtype.kind in "iub" else values
        return values.reshape(len(values), *self.shape).astype(self.dtype)


def leaf_spaces(space: SpaceJson, keys: Keys = ()) -> Iterator[tuple[Keys, SpaceJson]]:
    """Yield the leaves of a described space: those of a Dict by name, whatever their order there.

    Raises:
        UnusableSpace: If a kind of space is not supported.
    """
    match space["kind"]:
        case "Dict":
            # Keys are sorted, because rows must not depend on their order in the space.
            for name in sorted(space["spaces"]):
                yield from leaf_spaces(space["spaces"][name], (*keys, name))
        case "Tuple":
            for index, member in enumerate(space["spaces"]):
                yield from leaf_spaces(member, (*keys, index))
        case "Box" | "Discrete" | "MultiDiscrete" | "MultiBinary":
            yield keys, space
        case kind:
            raise UnusableSpace(f"space {kind} is not supported: {SUPPORTED}")


def nest_of(space: SpaceJson, number: Iterator[int]) -> Nest:
    """Return the nesting of a described space's leaves, numbered by ``number``."""
    match space["kind"]:
        case "Dict":
            # The order is that of `leaf_spaces`, so that the numbers are indices of its leaves.
            return {
                name: nest_of(space["spaces"][name], number) for name in sorted(space["spaces"])
            }
        case "Tuple":
            return tuple(nest_of(member, number) for member in space["spaces"])
    return next(number)


def nested(nest: Nest, values: Sequence[Any]) -> Any:  # noqa: ANN401
    """Return the values of the leaves, nested as their space is."""
    if isinstance(nest, int):
        return values[nest]
    if isinstance(nest, dict):
        return {name: nested(member, values) for name, member in nest.items()}
    return tuple(nested(member, values) for member in nest)


def make_leaf(keys: Keys, space: SpaceJson, *, offset: int, one_hot: bool) -> Leaf:
    """Lay out a leaf.

    Args:
        keys: Keys that lead to it.
        space: Description of its space.
        offset: Place of its first number in the row.
        one_hot: Whether a choice is a one-hot; else it is one number.
    """
    kind, dtype = space["kind"], space.get("dtype", "int64")
    shape: tuple[int, ...] = tuple(space.get("shape", ()))
    numbers: tuple[int, ...] = ()
    start: tuple[int, ...] = ()
    size = math.prod(shape)
    if kind == "Box":
        # The initial values handle a Box without numbers.
        low, high = bounds(space)
        least, most = float(low.min(initial=math.inf)), float(high.max(initial=-math.inf))
    else:
        if kind == "MultiBinary":
            numbers, start, dtype = (2,) * size, (0,) * size, "int8"
        else:
            both = ("n", "start") if kind == "Discrete" else ("nvec", "start")
            nvec, first = (np.asarray(space[name]) for name in both)
            shape = nvec.shape
            numbers, start = (tuple(one.reshape(-1).tolist()) for one in (nvec, first))
        # A bit of a MultiBinary is a number already, so it takes one column instead of two.
        size = sum(numbers) if one_hot and kind != "MultiBinary" else len(numbers)
        least = min(start, default=0)
        most = max((s + n - 1 for s, n in zip(start, numbers, strict=True)), default=0)
    return Leaf(
        keys=keys,
        kind=kind,
        shape=shape,
        dtype=np.dtype(dtype),
        offset=offset,
        size=size,
        low=least,
        high=most,
        choices=numbers,
        starts=start,
    )


def bounds(space: SpaceJson) -> tuple[Floats, Floats]:
    """Return the lowest and highest value of each number of a Box, flattened. float64 [size]."""
    # astype also converts text such as "inf".
    low, high = (np.asarray(space[name]).astype(np.float64) for name in ("low", "high"))
    shape = tuple(space["shape"])
    return np.broadcast_to(low, shape).reshape(-1), np.broadcast_to(high, shape).reshape(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationLayout:
    """Conversion between observations of one space and rows of F numbers.

    Attributes:
        leaves: Parts of an observation, in the order of a row.
        size: F.
        dtype: Dtype of rows: uint8 where every leaf is a Box of uint8, else float32.
        nest: Nesting of the leaves in an observation.
    """

    leaves: tuple[Leaf, ...]
    size: int
    dtype: np.dtype[Any]
    nest: Nest = field(hash=False)

    @classmethod
    def from_json(cls, space: SpaceJson) -> ObservationLayout:
        """Make a layout from a described space.

        Raises:
            UnusableSpace: If a kind of space is not supported.
        """
        leaves: list[Leaf] = []
        for keys, member in leaf_spaces(space):
            # Leaves follow each other without gaps.
            end = leaves[-1].offset + leaves[-1].size if leaves else 0
            leaves.append(make_leaf(keys, member, offset=end, one_hot=True))
        # A row has one dtype, and leaves other than bytes need float32.
        bytes_only = bool(leaves) and all(leaf.is_box and leaf.dtype == UINT8 for leaf in leaves)
        return cls(
            leaves=tuple(leaves),
            size=sum(leaf.size for leaf in leaves),
            dtype=UINT8 if bytes_only else FLOAT32,
            nest=nest_of(space, count()),
        )

    def to_environment(self, flat: Any) -> Any:  # noqa: ANN401
        """Undo the flattening: return the environment's own form, each leaf with a leading axis of
        N.

        Args:
            flat: Rows, an array or a tensor on the CPU. ``dtype`` [N, F].

        Returns:
            An array, or arrays nested in dictionaries and tuples.
        """
        rows = np.asarray(flat)
        return nested(self.nest, [unflattened(leaf, rows[:, leaf.place]) for leaf in self.leaves])


def unflattened(leaf: Leaf, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return one part of observations as the environment gives it.

    Args:
        leaf: Leaf of the observation space.
        rows: Its part of rows. [N, size].

    Returns:
        Values of shape [N, ...].
    """
    if leaf.kind in ("Discrete", "MultiDiscrete") and leaf.choices:
        parts = np.split(rows, np.cumsum(leaf.choices)[:-1], axis=1)
        chosen = np.stack([part.argmax(axis=1) for part in parts], axis=1)
        return leaf.shaped(chosen + np.array(leaf.starts))
    # Rows are float32, so integers get their dtype back.
    return leaf.shaped(rows)


def is_agent_id(leaf: Leaf) -> bool:
    """Return whether a part of a row is an agent id."""
    return leaf.keys == AGENT_ID


def with_agent_id(layout: ObservationLayout, *, num_agents: int) -> ObservationLayout:
    """Return the layout of rows that end with an agent id.

    Args:
        layout: Layout of the rows without it.
        num_agents: Number of agents of the population.
    """
    # The numbers are a one-hot, so the leaf is a Discrete; it is last, so that all other leaves
    # keep their places.
    space = {"kind": "Discrete", "n": num_agents, "start": 0}
    leaf = make_leaf(AGENT_ID, space, offset=layout.size, one_hot=True)
    return replace(layout, leaves=(*layout.leaves, leaf), size=layout.size + num_agents)


@dataclass(frozen=True, kw_only=True)
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
    continuous: Literal["squashed", "clipped"]
    leaves: tuple[Leaf, ...]
    nest: Nest = field(hash=False)

    @classmethod
    def from_json(
        cls, space: SpaceJson, *, continuous: Literal["squashed", "clipped"]
    ) -> ActionLayout:
        """Make a layout from a described space.

        Raises:
            UnusableSpace: If the space has no choice, or a Box has no usable bounds.
        """
        spaces = list(leaf_spaces(space))
        # Leaves are made without offsets first, because numbers come after the choices of all
        # leaves.
        leaves = [make_leaf(keys, member, offset=0, one_hot=False) for keys, member in spaces]
        branches = tuple(number for leaf in leaves for number in leaf.choices)
        column = {"choices": 0, "numbers": len(branches)}
        placed = []
        low: list[float] = []
        high: list[float] = []
        for leaf, (_, member) in zip(leaves, spaces, strict=True):
            # The columns of a row are the choices of all leaves, then the numbers of all leaves.
            part = "numbers" if leaf.is_box else "choices"
            placed.append(replace(leaf, offset=column[part]))
            column[part] += leaf.size
            if leaf.is_box:
                lowest, highest = _usable_bounds(member)
                low += lowest
                high += highest
        if not branches and not low:
            raise UnusableSpace(f"action space {dict(space)} must have an action, it has none")
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
        """C, the number of continuous numbers, which follow the choices in a row."""
        return len(self.low)

    @property
    def num_logits(self) -> int:
        """n, the length of an action mask: one entry for each choice of each category."""
        return sum(self.branches)

    @property
    def is_discrete(self) -> bool:
        """Return whether the space is Discrete, not nested."""
        return self.nest == 0 and self.leaves[0].kind == "Discrete"

    @property
    def row_shape(self) -> tuple[int, ...]:
        """() where the space is Discrete: rows are int64 [N]. Else (K,): float32 [N, K]."""
        # A category takes one column, whatever its number of choices.
        return () if self.is_discrete else (len(self.branches) + self.num_continuous,)

    @property
    def row_dtype(self) -> np.dtype[Any]:
        """Dtype of rows."""
        return np.dtype(np.int64 if self.is_discrete else np.float32)

    @property
    def squashed(self) -> npt.NDArray[np.bool_]:
        """Mask of the numbers that are squashed into their bounds. bool [C]."""
        return self._limits[2].copy()

    @cached_property
    def _limits(self) -> tuple[Floats, Floats, npt.NDArray[np.bool_]]:
        """Bounds of the numbers, and which of them are squashed. float64 [C], bool [C]."""
        low, high = np.array(self.low), np.array(self.high)
        # tanh needs two bounds, so a number with fewer is clipped.
        squashed = np.isfinite(low) & np.isfinite(high)
        return low, high, squashed & (self.continuous == "squashed")

    def by_branch(self, rows: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """Split numbers of all choices, [N, n], into those of each category."""
        return np.split(rows, np.cumsum(self.branches)[:-1], axis=1) if self.branches else []

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
        # A choice must be an integer in float32, which is exact far beyond any number of choices.
        for branch, number in enumerate(self.branches):
            choice = columns[:, branch]
            exists = (choice >= 0) & (choice < number) & (choice == np.floor(choice))
            legal &= exists
            if action_mask is not None:
                # A nonexistent choice would index past the mask; `exists` has refused it above.
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
        return nested(self.nest, self._parts(rows))

    def actions(self, rows: npt.NDArray[Any]) -> list[Any]:
        """Return the environment's own actions, one by one.

        Args:
            rows: Rows int64 [N] or float32 [N, K].
        """
        if self.is_discrete:
            listed: list[Any] = self.to_environment(rows).tolist()
            return listed
        return self.one_by_one(self._parts(rows))

    def _parts(self, rows: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        at = len(self.branches)
        numbers = self.within_bounds(rows[:, at:].astype(np.float64))
        return self.in_units(rows[:, :at].astype(np.int64), numbers)

    def in_units(self, choices: npt.NDArray[np.int64], numbers: Floats) -> list[npt.NDArray[Any]]:
        """Return the actions of each leaf, [N, ...].

        Args:
            choices: Index of each category's choice, from 0. [N, B].
            numbers: Numbers within their bounds. [N, C].
        """
        parts = []
        for leaf in self.leaves:
            if leaf.is_box:
                # `numbers` begins at the first column after the choices.
                first = leaf.offset - len(self.branches)
                values: npt.NDArray[Any] = numbers[:, first : first + leaf.size]
            else:
                values = choices[:, leaf.place] + np.array(leaf.starts, dtype=np.int64)
            parts.append(leaf.shaped(values))
        return parts

    def one_by_one(self, parts: Sequence[npt.NDArray[Any]]) -> list[Any]:
        """Return the actions of N rows from those of each leaf, [N, ...]."""
        apart = [_one_by_one(*pair) for pair in zip(self.leaves, parts, strict=True)]
        return [nested(self.nest, values) for values in zip(*apart, strict=True)]

    def uniform(
        self, masks: npt.NDArray[np.bool_], rng: np.random.Generator
    ) -> list[npt.NDArray[Any]]:
        """Draw legal choices uniformly, and numbers uniformly within their bounds.

        The distance of a number from its only bound is that of a standard normal one from 0; a
        number without bounds is standard normal.

        Args:
            masks: Legal choices. bool [N, n].
            rng: Generator to draw from.

        Returns:
            Actions of each leaf, [N, ...].
        """
        choices = [
            [int(rng.choice(np.flatnonzero(row))) for row in part] for part in self.by_branch(masks)
        ]
        low, high, _ = self._limits
        shape = (len(masks), self.num_continuous)
        share, normal = rng.random(shape), rng.standard_normal(shape)
        # Interpolating infinite bounds gives NaN, which is not selected below.
        with np.errstate(invalid="ignore"):
            # `low + share * (high - low)` could overflow, because the bounds' difference may
            # exceed a float.
            within = (1.0 - share) * low + share * high
        below, above = np.isfinite(low), np.isfinite(high)
        beside = [within, low + np.abs(normal), high - np.abs(normal)]
        numbers = np.select([below & above, below, above], beside, normal)
        return self.in_units(np.array(choices, dtype=np.int64).T.reshape(len(masks), -1), numbers)

    def within_bounds(self, drawn: Floats) -> Floats:
        """Bring drawn numbers [N, C] within their bounds; ``drawn`` is overwritten."""
        low, high, squashed = self._limits
        if squashed.any():
            at, to = low[squashed], high[squashed]
            # (l + h) / 2 + (h - l) / 2 * tanh(u) is computed with halves, because the bounds' sum
            # and difference may overflow.
            drawn[:, squashed] = at / 2 + to / 2 + (to / 2 - at / 2) * np.tanh(drawn[:, squashed])
        # Squashed numbers are clipped, too, because rounding may exceed a bound.
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
        # float64 is used, because atanh below loses digits near the bounds.
        rows = np.zeros((len(parts[0]), len(self.branches) + self.num_continuous))
        for leaf, part in zip(self.leaves, parts, strict=True):
            rows[:, leaf.place] = part - (0 if leaf.is_box else np.array(leaf.starts))
        # The slice is a view, which is changed in place.
        self._undo_bounds(rows[:, len(self.branches) :])
        return rows.astype(self.row_dtype).reshape(len(rows), *self.row_shape)

    def _undo_bounds(self, numbers: Floats) -> None:
        lowest, highest, squashed = self._limits
        low, high = lowest[squashed], highest[squashed]
        # An empty range has no inverse; its number always equals the bound.
        half = high / 2 - low / 2
        # u = atanh((a - mid) / half), clipped because atanh is infinite at the bounds.
        share = (numbers[:, squashed] - (low / 2 + high / 2)) / np.where(half > 0, half, 1.0)
        numbers[:, squashed] = np.arctanh(np.clip(share, -MAX_TANH, MAX_TANH))

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
            # reduceat applies OR to each branch's slice of the mask.
            first = np.concatenate([[0], np.cumsum(self.branches)[:-1]]).astype(np.int64)
            by_branch = np.logical_or.reduceat(masks, first, axis=1)
            allowed = np.logical_and.reduce(by_branch, axis=1)
        return allowed


def _one_by_one(leaf: Leaf, values: npt.NDArray[Any]) -> Sequence[Any]:
    if leaf.kind == "Discrete":
        listed: list[Any] = values.tolist()
        return listed
    # Iterating over one axis gives numpy scalars, but zero-dimensional arrays are required.
    return list(values) if leaf.shape else [np.asarray(value) for value in values]


def _usable_bounds(space: SpaceJson) -> tuple[list[float], list[float]]:
    low, high = bounds(space)
    # Comparisons with NaN are false. Bounds of inf or -inf on the wrong side allow no number.
    usable = (low <= high) & (low < np.inf) & (high > -np.inf)
    if not usable.all():
        at = int(usable.argmin())
        raise UnusableSpace(
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
