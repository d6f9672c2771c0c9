"""Decisions pending in one call: gathered while environments step, then written all at once.

Appending a decision to lists is cheap, and numpy stacks the arrays of the whole batch. Decisions
are looked at one by one only if they do not fit together or something is wrong. Shapes: B
environments, A agents (in the spec's order), R = B * S rows for the S agents of a population that
decide at once, N decisions of one call, F features of a flattened observation, n actions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from arena.environment_spec import MaskPlace
from arena.envs.spaces.actions import MASK_KINDS, ActionLayout
from arena.envs.spaces.leaves import Leaf
from arena.envs.spaces.observations import (
    ACCEPTED_KINDS,
    ObservationLayout,
    are_bounded,
    fits,
    flatten_leaf,
    part_of,
)
from arena.errors import EnvironmentFault
from arena.users_code import named, pass_interrupt


class DecisionBatch:
    """Pending decisions of a population, in all environments of the batch.

    A cell is an agent in an environment: b * A + its column. Rows without a decision keep their old
    content.

    Args:
        agents: All A agents, for messages.
        layout: Layout of the observations.
        actions: Layout of the actions.
        mask: Place of the masks.
        first: Index of environment 0 in the batch, for messages.
        row_of_cell: Row of each cell. int64 [B * A].
        agent_index: Output: index of the deciding agent. int64 [R].
        observation: Output: observations, float32 or uint8, as the layout says. [R, F].
        action_mask: Output: legal choices. bool [R, n].

    Attributes:
        reads_infos: Whether `ask` reads infos.
    """

    __slots__ = (
        "_action_mask",
        "_actions",
        "_agent_index",
        "_agents",
        "_cells",
        "_everything_legal",
        "_first",
        "_layout",
        "_mask",
        "_masks",
        "_observation",
        "_observations",
        "_row_of_cell",
        "reads_infos",
    )

    def __init__(
        self,
        agents: tuple[str, ...],
        *,
        layout: ObservationLayout,
        actions: ActionLayout,
        mask: MaskPlace | None,
        first: int = 0,
        row_of_cell: npt.NDArray[np.int64],
        agent_index: npt.NDArray[np.int64],
        observation: npt.NDArray[Any],
        action_mask: npt.NDArray[np.bool_],
    ) -> None:
        self._agents = agents
        self._layout = layout
        self._actions = actions
        self._mask = mask
        self._first = first
        self._row_of_cell = row_of_cell
        self._agent_index = agent_index
        self._observation = observation
        self._action_mask = action_mask
        self._everything_legal = np.ones(action_mask.shape[1], dtype=np.bool_)
        self._cells: list[int] = []
        self._observations: list[Any] = []
        self._masks: list[Any] = []
        self.reads_infos = mask == "info"

    def ask(self, cell: int, observation: Any, info: Mapping[str, Any] | None) -> None:  # noqa: ANN401
        """Add a pending decision; at most one of each cell until they are written.

        Args:
            cell: Agent and environment.
            observation: Observation from the environment, not to be changed until it is written.
            info: Info of the agent.
        """
        if self._mask == "observation":
            # Both are read before either is kept: one of them may be missing.
            seen, mask = observation["observation"], observation["action_mask"]
            self._masks.append(mask)
            observation = seen
        elif self._mask == "info":
            mask = None if info is None else info.get("action_mask")
            # PettingZoo's masks in info are optional: without one, everything is legal.
            self._masks.append(self._everything_legal if mask is None else mask)
        elif self._mask == "beside":
            # The mask stays in the observation: the layout selects the other keys.
            self._masks.append(observation["action_mask"])
        self._cells.append(cell)
        self._observations.append(observation)

    def clear(self) -> None:
        """Drop all pending decisions, and everything that has not been written."""
        self._agent_index.fill(-1)
        self._forget()

    def forget(self, b: int) -> None:
        """Drop the decisions of environment b, written or not."""
        # The cells of environment b: [b * A, (b + 1) * A)
        first, end = (number * len(self._agents) for number in (b, b + 1))
        kept = [at for at, cell in enumerate(self._cells) if not first <= cell < end]
        if self._masks:
            self._masks = [self._masks[at] for at in kept]
        self._observations = [self._observations[at] for at in kept]
        self._cells = [self._cells[at] for at in kept]
        rows = self._row_of_cell[first:end]
        # Rows of -1 are agents of other populations.
        self._agent_index[rows[rows >= 0]] = -1

    def _forget(self) -> None:
        self._cells.clear()
        self._observations.clear()
        self._masks.clear()

    def write(self) -> npt.NDArray[np.int64]:
        """Write all decisions, and return their cells. int64 [N].

        Raises:
            DecisionFault: If an observation or a mask is not in the space, an observation is not
                finite, or a mask allows nothing. The message begins with agent and place. No
                decision is dropped: without those of that environment (`forget`) the method can be
                called again.
        """
        cells = np.array(self._cells, dtype=np.int64)
        if not len(cells):
            return cells
        rows = self._row_of_cell[cells]
        try:
            for leaf in self._layout.leaves:
                self._write_observations(rows, leaf)
            if self._mask is not None:
                self._write_masks(rows)
        except _Misfit as misfit:
            # cell = b * A + column
            b, column = divmod(int(cells[misfit.at]), len(self._agents))
            raise DecisionFault(
                f"at {self._first + b} in the batch: agent {self._agents[column]!r}: {misfit}",
                environment=b,
            ) from misfit.__cause__
        # Last: until everything is valid, no row looks like a decision.
        self._agent_index[rows] = cells % len(self._agents)
        self._forget()
        return cells

    def _write_observations(self, rows: npt.NDArray[np.int64], leaf: Leaf) -> None:
        """Write one part of all observations."""
        written = self._observation
        if leaf.size != self._layout.size:
            # A view of the columns of this part
            written = written[:, leaf.place]
        if leaf.kind == "Box" or leaf.kind == "MultiBinary":
            flat = _flat_numbers(self._observations, leaf=leaf, dtype=self._layout.dtype)
            if flat is not None:
                written[rows] = flat
                return
        # One by one: choices become one-hots, and numbers that did not stack are converted or
        # blamed.
        for index, (row, observation) in enumerate(zip(rows, self._observations, strict=True)):
            try:
                flatten_leaf(leaf, written[row], part_of(leaf, observation))
            except BaseException as error:
                pass_interrupt(error)
                raise _misfit(index, error, what="an observation") from error

    def _write_masks(self, rows: npt.NDArray[np.int64]) -> None:
        shape = self._action_mask.shape[1:]
        legal = _stacked(self._masks, shape=shape, kinds=MASK_KINDS)
        if legal is None:
            # Some mask has another form: each is checked alone, which names the faulty one.
            legal = np.stack(
                [
                    _checked_mask(index, mask, actions=self._actions)
                    for index, mask in enumerate(self._masks)
                ]
            )
        legal = legal.astype(np.bool_, copy=False)
        allows = self._actions.allows(legal)
        if not allows.all():
            raise _Misfit("an action mask must allow an action, got none", at=int(allows.argmin()))
        self._action_mask[rows] = legal


class DecisionFault(EnvironmentFault):
    """Error: an environment's decision is invalid.

    Attributes:
        environment: Index in the batch.
    """

    def __init__(self, text: str, *, environment: int) -> None:
        super().__init__(text)
        self.environment = environment


class _Misfit(Exception):
    """Error: one of the N decisions is invalid."""

    def __init__(self, why: str, *, at: int) -> None:
        super().__init__(why)
        self.at = at


def _misfit(index: int, error: BaseException, *, what: str) -> _Misfit:
    """Describe an error: a user's observation or mask may raise anything when it is read."""
    if isinstance(error, EnvironmentFault):
        return _Misfit(str(error), at=index)
    return _Misfit(f"{what} raised {named(error)}", at=index)


def _stacked(
    values: Sequence[object], *, shape: tuple[int, ...], kinds: str
) -> npt.NDArray[Any] | None:
    """Stack values to one array [N, ...], or return None where one has another shape or kind."""
    try:
        stacked = np.array(values)
    except BaseException as error:
        pass_interrupt(error)
        # They have no common shape or dtype, or one cannot be read.
        return None
    # The common dtype of all is of the widest kind among them: if it is accepted, each one's is.
    if stacked.shape != (len(values), *shape) or stacked.dtype.kind not in kinds:
        return None
    return stacked


def _flat_numbers(
    observations: Sequence[Any], *, leaf: Leaf, dtype: np.dtype[Any]
) -> npt.NDArray[Any] | None:
    """Return one part of all observations, [N, size], or None where each must be checked alone."""
    try:
        values = [leaf.select(value) for value in observations] if leaf.keys else observations
    except BaseException as error:
        pass_interrupt(error)
        # Each is then looked at alone, which finds the fault.
        return None
    stacked = _stacked(values, shape=leaf.shape, kinds=ACCEPTED_KINDS[leaf.dtype.kind])
    if stacked is None:
        return None
    flat = stacked.reshape(len(values), leaf.size)
    return flat if fits(flat, dtype) and are_bounded(flat) else None


def _checked_mask(index: int, mask: object, *, actions: ActionLayout) -> npt.NDArray[np.bool_]:
    if not actions.is_discrete:
        try:
            return actions.flatten_mask(mask)
        except BaseException as error:
            pass_interrupt(error)
            raise _misfit(index, error, what="an action mask") from error
    shape = (actions.num_logits,)
    try:
        values = np.asarray(mask)
    except BaseException as error:
        pass_interrupt(error)
        raise _misfit(index, error, what="an action mask") from error
    if values.shape != shape or values.dtype.kind not in MASK_KINDS:
        raise _Misfit(
            f"an action mask must be integers or bool of shape {shape}, "
            f"got {values.dtype} {values.shape}",
            at=index,
        )
    return values.astype(np.bool_)
