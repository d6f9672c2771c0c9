"""Decisions pending in one call: gathered while environments step, then written all at once.

Appending a decision to lists is cheap, and numpy stacks the arrays of the whole batch. Decisions
are checked one by one only if they cannot be stacked or are invalid. Shapes: B environments, A
agents (in the spec's order), R = B * S rows for the S agents of a population that decide at once, P
agents of a population, N decisions of one call, F features of a flattened observation, n actions, K
numbers of an action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from arena.environment_spec import ContinuousActions, EnvironmentSpec
from arena.envs.spaces.masks import MASK_KINDS, legal_choices
from arena.envs.spaces.observations import ACCEPTED_KINDS, are_bounded, fits, flatten_leaf, part_of
from arena.errors import EnvironmentFault
from arena.spaces import ActionLayout, Leaf, ObservationLayout
from arena.users_code import named, pass_interrupt

NO_DECISION = -1
"""Agent index of a slot without a decision."""

Allocate = Callable[[tuple[int, ...], npt.DTypeLike], npt.NDArray[Any]]
"""Function that returns zeros of a shape and a dtype; the first dimension is that of environments.
"""


class PendingDecisions:
    """Pending decisions of a population, and last observations of its truncated agents.

    A cell is an agent in an environment: b * A + its column. Rows without a decision keep their old
    content.

    Args:
        name: Name of the population.
        spec: Environment's spec.
        agents: The population's P agents, which have equal spaces.
        num_envs: B.
        continuous: Way of bringing numbers of actions within their bounds.
        allocate: Function that allocates what a turn shows.
        first: Index of environment 0 in the batch, for messages.

    Attributes:
        num_slots: S. Agents that take turns share one slot.
        layout: Layout of the observations.
        actions: Layout of the actions.
        mask: Place of the masks.
        reads_infos: Whether `ask` reads infos.
        agent_index: Index of the deciding agent. int64 [B, S].
        observation: Observations, float32 or uint8, as the layout says. [B, S, F].
        action_mask: Legal choices. bool [B, S, n].
        final_observation: Last observations, as observation. [B, P, F].
    """

    def __init__(
        self,
        name: str,
        *,
        spec: EnvironmentSpec,
        agents: tuple[str, ...],
        num_envs: int,
        continuous: ContinuousActions = "squashed",
        allocate: Allocate = np.zeros,
        first: int = 0,
    ) -> None:
        # The configuration's `check_equal_spaces` ensures equal spaces within a population.
        facts = spec.agent_specs[agents[0]]
        self.name = name
        self.num_slots = 1 if spec.api == "aec" else len(agents)
        self.layout = ObservationLayout.from_json(facts.observation)
        self.actions = ActionLayout.from_json(facts.action, continuous=continuous)
        self.mask = facts.mask
        self.reads_infos = facts.mask == "info"
        size, dtype, shape = self.layout.size, self.layout.dtype, (num_envs, self.num_slots)
        self.agent_index = allocate(shape, np.int64)
        self.observation = allocate((*shape, size), dtype)
        self.action_mask = allocate((*shape, self.actions.num_logits), np.bool_)
        self.final_observation = allocate((num_envs, len(agents), size), dtype)
        self.agent_index.fill(NO_DECISION)
        self.action_mask.fill(True)
        self._agents = spec.agents
        self._first = first
        # Agents of other populations have -1, because they never ask here. [B, A]
        row_of_cell = np.full((num_envs, len(spec.agents)), -1, dtype=np.int64)
        for position, agent in enumerate(agents):
            slot = position % self.num_slots
            row_of_cell[:, spec.agents.index(agent)] = np.arange(num_envs) * shape[1] + slot
        self._row_of_cell = row_of_cell.reshape(-1)
        # These are views of the contiguous arrays: [B, S, ...] -> [R, ...]. R is given, because n
        # may be 0.
        num_rows = num_envs * self.num_slots
        self._index_rows = self.agent_index.reshape(num_rows)
        self._observation_rows = self.observation.reshape(num_rows, size)
        self._mask_rows = self.action_mask.reshape(num_rows, self.actions.num_logits)
        self._everything_legal = np.ones(self.actions.num_logits, dtype=np.bool_)
        self._cells: list[int] = []
        self._observations: list[Any] = []
        self._masks: list[Any] = []

    def check(self, actions: npt.NDArray[Any]) -> list[Any]:
        """Check the actions for the pending decisions.

        Args:
            actions: Actions of its agents. int64 [B, S] or float32 [B, S, K].

        Returns:
            All actions, in the environment's own form, [B * S].

        Raises:
            ValueError: If the shape is wrong, or an action for a pending decision is not legal.
        """
        if not self.actions.is_discrete:
            return self._check_rows(actions)
        chosen = actions
        if chosen.shape != self.agent_index.shape or chosen.dtype != np.int64:
            raise ValueError(
                f"actions of {self.name} must be int64 {self.agent_index.shape}, "
                f"got {chosen.dtype} {chosen.shape}"
            )
        number = self.actions.num_logits
        legal = (chosen >= 0) & (chosen < number)
        if self.mask is not None:
            masks = self._mask_rows
            # Nonexistent choices cannot index the mask, so index 0 is read; the &= keeps them
            # illegal. [B, S] -> [B * S]
            index = np.where(legal, chosen, 0).reshape(-1)
            legal &= masks[np.arange(len(masks)), index].reshape(legal.shape)
        # Slots without a decision are ignored, as `BatchedEnv.step` promises.
        illegal = (self.agent_index >= 0) & ~legal
        if illegal.any():
            b, s = (int(index) for index in np.argwhere(illegal)[0])
            raise ValueError(
                f"actions of {self.name} must be legal and in [0, {number}), "
                f"got {chosen[b, s]} in environment {b}"
            )
        return self.actions.actions(chosen.reshape(-1))

    def _check_rows(self, chosen: npt.NDArray[Any]) -> list[Any]:
        shape = (*self.agent_index.shape, *self.actions.row_shape)
        if chosen.shape != shape or chosen.dtype != np.float32:
            raise ValueError(
                f"actions of {self.name} must be float32 {shape}, got {chosen.dtype} {chosen.shape}"
            )
        asked = self._index_rows >= 0
        # [B, S, K] -> [B * S, K]. Rows without a decision may be NaN, so they become zeros.
        rows = np.where(asked[:, None], chosen.reshape(len(asked), -1), np.float32(0.0))
        masks = None
        if self.mask is not None:
            masks = self._mask_rows
        illegal = asked & ~self.actions.are_legal(rows, masks)
        if illegal.any():
            at = int(illegal.argmax())
            raise ValueError(
                f"actions of {self.name} must be finite, and legal choices of "
                f"{list(self.actions.branches)}, got {rows[at].tolist()} in environment "
                f"{at // self.num_slots}"
            )
        return self.actions.actions(rows)

    def ask(self, cell: int, observation: Any, info: Mapping[str, Any] | None) -> None:  # noqa: ANN401
        """Add a pending decision; at most one of each cell until they are written.

        Args:
            cell: Agent and environment.
            observation: Observation from the environment, not to be changed until it is written.
            info: Info of the agent.
        """
        if self.mask == "observation":
            # Both are read before either is kept, because one of them may be missing.
            seen, mask = observation["observation"], observation["action_mask"]
            self._masks.append(mask)
            observation = seen
        elif self.mask == "info":
            mask = None if info is None else info.get("action_mask")
            # In PettingZoo masks in infos are optional: without one, everything is legal.
            self._masks.append(self._everything_legal if mask is None else mask)
        elif self.mask == "beside":
            # The mask stays in the observation, because the layout selects the other keys.
            self._masks.append(observation["action_mask"])
        self._cells.append(cell)
        self._observations.append(observation)

    def clear(self) -> None:
        """Drop all pending decisions, and everything that has not been written."""
        self.agent_index.fill(NO_DECISION)
        self._forget()

    def forget(self, b: int) -> None:
        """Drop the decisions of environment b, written or not."""
        # The cells of environment b are [b * A, (b + 1) * A).
        first, end = (number * len(self._agents) for number in (b, b + 1))
        kept = [at for at, cell in enumerate(self._cells) if not first <= cell < end]
        if self._masks:
            self._masks = [self._masks[at] for at in kept]
        self._observations = [self._observations[at] for at in kept]
        self._cells = [self._cells[at] for at in kept]
        rows = self._row_of_cell[first:end]
        # Rows of -1 belong to agents of other populations.
        self._index_rows[rows[rows >= 0]] = NO_DECISION

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
            for leaf in self.layout.leaves:
                self._write_observations(rows, leaf)
            if self.mask is not None:
                self._write_masks(rows)
        except _Misfit as misfit:
            # cell = b * A + column
            b, column = divmod(int(cells[misfit.at]), len(self._agents))
            raise DecisionFault(
                f"at {self._first + b} in the batch: agent {self._agents[column]!r}: {misfit}",
                environment=b,
            ) from misfit.__cause__
        # Agent indices are written last, so that no row looks like a decision before all are
        # valid.
        self._index_rows[rows] = cells % len(self._agents)
        self._forget()
        return cells

    def _write_observations(self, rows: npt.NDArray[np.int64], leaf: Leaf) -> None:
        """Write one part of all observations."""
        written = self._observation_rows
        if leaf.size != self.layout.size:
            # The view covers the columns of this leaf.
            written = written[:, leaf.place]
        if leaf.kind == "Box" or leaf.kind == "MultiBinary":
            flat = _flat_numbers(self._observations, leaf=leaf, dtype=self.layout.dtype)
            if flat is not None:
                written[rows] = flat
                return
        # Decisions are written one by one here: choices become one-hots, and numbers that did not
        # stack are converted or rejected.
        for index, (row, observation) in enumerate(zip(rows, self._observations, strict=True)):
            try:
                flatten_leaf(leaf, written[row], part_of(leaf, observation))
            except BaseException as error:
                pass_interrupt(error)
                raise _misfit(index, error) from error

    def _write_masks(self, rows: npt.NDArray[np.int64]) -> None:
        shape = self._mask_rows.shape[1:]
        legal = _stacked(self._masks, shape=shape, kinds=MASK_KINDS)
        if legal is None:
            # Some mask has another shape, so each is checked alone to find the faulty one.
            legal = np.stack(
                [
                    _checked_mask(index, mask, actions=self.actions)
                    for index, mask in enumerate(self._masks)
                ]
            )
        legal = legal.astype(np.bool_, copy=False)
        allows = self.actions.allows(legal)
        if not allows.all():
            raise _Misfit("an action mask must allow an action, got none", at=int(allows.argmin()))
        self._mask_rows[rows] = legal


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


def _misfit(index: int, error: BaseException) -> _Misfit:
    """Return the error as a misfit: users' observations may raise anything when read."""
    if isinstance(error, EnvironmentFault):
        return _Misfit(str(error), at=index)
    return _Misfit(f"an observation raised {named(error)}", at=index)


def _stacked(
    values: Sequence[object], *, shape: tuple[int, ...], kinds: str
) -> npt.NDArray[Any] | None:
    """Stack values to one array [N, ...]; return None if one has another shape or kind."""
    try:
        stacked = np.array(values)
    except BaseException as error:
        pass_interrupt(error)
        # The values have no common shape or dtype, or one of them cannot be read.
        return None
    # The common dtype is of the widest kind among all values: if it is accepted, each one's is.
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
        # Each observation is then checked alone, which finds the faulty one.
        return None
    stacked = _stacked(values, shape=leaf.shape, kinds=ACCEPTED_KINDS[leaf.dtype.kind])
    if stacked is None:
        return None
    flat = stacked.reshape(len(values), leaf.size)
    return flat if fits(flat, dtype) and are_bounded(flat) else None


def _checked_mask(index: int, mask: object, *, actions: ActionLayout) -> npt.NDArray[np.bool_]:
    try:
        return legal_choices(actions, mask)
    except EnvironmentFault as fault:
        raise _Misfit(str(fault), at=index) from fault.__cause__
