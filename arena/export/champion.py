"""A trained policy, or a mixture of policies. Needs numpy and onnxruntime, nothing else.

    champion = Champion("path/to/this/directory")
    champion.reset()
    action = champion.act(observation, action_mask)
    champion.value(observation)

``reset`` begins an episode: it clears the state of a recurrent policy, and draws the member of a
mixture that plays the episode. ``Champion(directory, level=3)`` is one of the levels on the card,
where there are some, the weakest being 1.

``observation`` is the PettingZoo environment's observation, its dictionary with an ``action_mask``
included, and ``action`` is the environment's action. Where each array has a leading axis of N, they
are a batch of N observations, masks and actions. Run as a script, it plays PettingZoo's own
environment against uniformly random moves::

    python champion.py --games 100

Of PettingZoo's chess, ``python champion.py --uci`` is an engine for any chess program.

Environments of PettingZoo and mpe2 are made by their names. Where the card names other code, it is
imported only with ``--trust``, or where ``--env`` names it: a card may come from anywhere.

In an export this file imports nothing of Arena: its module of spaces stands between the two marks
(`arena.export.write`). Shapes: N rows, n choices of all categories of an action, C continuous
numbers.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnxruntime

# --- arena/spaces.py ---
from arena.spaces import ActionLayout, Leaf, ObservationLayout, nested

# --- arena/spaces.py ---

_SCHEMA = 1
_ERRORS_ONLY = 3
_EQUAL = 1e-6  # relative; returns are sums of rewards, so rounding must not decide a game
_Choose = Callable[[str, Any, Mapping[str, Any]], Any]  # of an agent, its observation and info
_PARAMETERS = ("logits", "mean", "log_std")


class Inputs:
    """Check of all that a player is given: observations, masks, agents.

    Args:
        facts: As for `GraphPlayer`. The place of the mask is ``observation`` (the environment gives
            a dictionary of both), ``beside`` (among the keys of the observation), ``info``, or
            None.
        has_agent_id: Whether the policy must know which agent decides.

    Attributes:
        agents: Agents that the player can play.
        layout: Layout of observations, without the mask.
        actions: Converter of actions.
    """

    def __init__(self, facts: Mapping[str, Any], *, has_agent_id: bool = False) -> None:
        space = facts["observation"]["space"]
        self.agents: list[str] = list(facts["agents"])
        self.layout = ObservationLayout.from_json(space)
        self.actions = Actions(facts["action"]["space"], continuous=continuous_of(facts))
        self._is_dict = space["kind"] == "Dict"
        self._mask: str | None = facts["mask"]
        self._has_agent_id = has_agent_id

    def checked(
        self,
        observation: object,
        action_mask: object,
        *,
        agent: str | None,
        needs_mask: bool = True,
    ) -> tuple[dict[str, npt.NDArray[Any]], bool]:
        """Return the inputs of a graph but for the state, and whether they are one observation's.

        Args:
            observation: As for `GraphPlayer.act`; so are the others.
            action_mask: Mask, or None.
            agent: Agent, or None.
            needs_mask: Whether a mask must be there; if not, all choices are legal.

        Raises:
            ValueError: If one does not fit.
        """
        if agent is not None and agent not in self.agents:
            raise ValueError(f"agent must be one of {self.agents}, got {agent!r}")
        observation, found = self._unwrapped(observation)
        mask = found if action_mask is None else action_mask
        if mask is not None and self._mask is None:
            raise ValueError("this policy's environment has no action masks")
        inputs, is_one = self._parts(observation)
        num_rows = len(next(iter(inputs.values())))
        if self._mask is not None and not needs_mask:
            inputs["action_mask"] = np.tile(self.actions.everything, (num_rows, 1))
        elif self._mask is not None:
            if mask is None:
                raise ValueError("action_mask is needed: this policy's environment has masks")
            rows = None if is_one else num_rows
            inputs["action_mask"] = self.actions.flat_masks(mask, num_rows=rows)
        if self._has_agent_id:
            inputs["agent_id"] = np.full(num_rows, self._place(agent), dtype=np.int64)
        return inputs, is_one

    def _place(self, agent: str | None) -> int:
        if agent is None and len(self.agents) > 1:
            raise ValueError(
                f"agent is needed: the policy must know which of {self.agents} decides"
            )
        return 0 if agent is None else self.agents.index(agent)

    def _unwrapped(self, observation: Any) -> tuple[Any, object]:  # noqa: ANN401
        """Return the observation proper, and the mask that came with it."""
        if not isinstance(observation, Mapping):
            return observation, None
        if self._mask == "beside":
            return observation, observation.get("action_mask")
        # An observation may itself be a dictionary with a key of this name, and no mask beside it.
        is_pair = self._mask == "observation" and "action_mask" in observation
        if "observation" in observation and (is_pair or not self._is_dict):
            return observation["observation"], observation.get("action_mask")
        return observation, None

    def _parts(self, observation: Any) -> tuple[dict[str, npt.NDArray[Any]], bool]:  # noqa: ANN401
        """Return one float32 array [N, ...] for each part, and whether it is one observation.

        Raises:
            ValueError: If a part is missing, or its shape or its values are not the space's.
        """
        parts = {
            leaf.name_in("observation"): _part(leaf, observation) for leaf in self.layout.leaves
        }
        is_one = {
            part.ndim == len(leaf.shape)
            for part, leaf in zip(parts.values(), self.layout.leaves, strict=True)
        }
        inputs = {
            name: part.reshape(-1, *leaf.shape)
            for (name, part), leaf in zip(parts.items(), self.layout.leaves, strict=True)
        }
        if len(is_one) > 1 or len({len(rows) for rows in inputs.values()}) > 1:
            shapes = {name: part.shape for name, part in parts.items()}
            raise ValueError(f"all parts of a batch must have as many rows, got {shapes}")
        return inputs, is_one.pop()


class GraphPlayer:
    """Player by graphs: a policy, or a mixture of policies. Not thread-safe.

    Args:
        facts: Entries ``agents``, ``mask``, ``observation``, ``action`` and ``environment`` of a
            card.
        sessions: Graph of each member of the mixture, with the methods of an onnxruntime session;
            one of a policy.
        probabilities: Probability of each member.
        temperature: Temperature of the probabilities; all actions are sampled then. None: they are
            as ``sample`` says.
        seed: Seed of all random draws. None: different draws each time.

    Attributes:
        agents: Agents that it can play.
        has_value: Whether it has a value function.
        is_recurrent: Whether it keeps a state, which `reset` clears.
        member: Member of the mixture that plays this episode, from 0; 0 without a mixture.
    """

    def __init__(
        self,
        facts: Mapping[str, Any],
        sessions: Sequence[Any],
        *,
        probabilities: Sequence[float] = (1.0,),
        temperature: float | None = None,
        seed: int | None = None,
    ) -> None:
        # Below this, logits may leave float32.
        if temperature is not None and not 1e-6 <= temperature < math.inf:
            raise ValueError(f"temperature must be 0.000001 or more and finite, got {temperature}")
        self._temperature = temperature
        self._sessions = list(sessions)
        # Members are policies of one population, so their graphs have equal inputs and outputs.
        inputs = {graph.name for graph in self._sessions[0].get_inputs()}
        self._inputs = Inputs(facts, has_agent_id="agent_id" in inputs)
        self.agents = self._inputs.agents
        outputs = {graph.name for graph in self._sessions[0].get_outputs()}
        self._parameters = [name for name in _PARAMETERS if name in outputs]
        self.has_value = "value" in outputs
        self._state_size = state_size_of(self._sessions[0])
        self.is_recurrent = self._state_size > 0
        self._states: dict[str | None, npt.NDArray[np.float32]] = {}
        masses = np.array(probabilities)
        # numpy wants a sum closer to 1 than a card must have.
        self._shares = masses / masses.sum()
        self._actions = self._inputs.actions
        # Overwritten by `reset` if there is a seed; that also draws the first member.
        self._rng = np.random.default_rng()
        self.member = 0
        self.reset(seed=seed)

    def act(
        self,
        observation: object,
        action_mask: object = None,
        *,
        agent: str | None = None,
        sample: bool = False,
        seed: int | None = None,
    ) -> Any:  # noqa: ANN401  (whatever the environment takes)
        """Choose an action, or one for each observation of a batch.

        Args:
            observation: Observation from the environment: an array, a number (Discrete),
                dictionaries and tuples of these, or a dictionary with ``observation`` and
                ``action_mask``. In a batch each array has a leading axis of N.
            action_mask: Non-zero for legal choices, one per choice, of several categories side by
                side or nested as in the environment; in a batch each with a leading axis of N.
                Needed where the environment has masks and ``observation`` does not contain it.
            agent: Agent that decides; it must be one that the policy can play. Needed by a policy
                with an agent id (``network.agent_id`` on the card), and where a recurrent policy
                (``network.core``) plays several agents in one game: it keeps a state for each.
            sample: Sample an action instead of taking the likeliest one. A level, or a player at a
                temperature, always samples.
            seed: Seed that restarts the random numbers, for this and later calls. The member of a
                mixture stays.

        Returns:
            The action in the environment's form; in a batch each array has a leading axis of N,
                and the choices of a Discrete are int64 [N].

        Raises:
            ValueError: If an argument does not fit the card.
        """
        inputs, is_one = self._inputs.checked(observation, action_mask, agent=agent)
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        return self._decide(inputs, agent=agent, sample=sample, is_one=is_one)

    def probabilities(
        self, observation: object, action_mask: object = None, *, agent: str | None = None
    ) -> npt.NDArray[np.float64]:
        """Return the probability of each choice if actions are sampled; illegal ones have 0.

        A recurrent policy stays in its state. Of a mixture the member that plays answers.

        Args:
            observation: As for `act`.
            action_mask: As for `act`.
            agent: As for `act`.

        Returns:
            Probabilities of all categories side by side, each of which sums to 1. float64 [n], or
                [N, n] of a batch.

        Raises:
            ValueError: If an argument does not fit the card, or actions are numbers alone.
        """
        inputs, is_one = self._inputs.checked(observation, action_mask, agent=agent)
        rows = self._actions.probabilities(self._run(inputs, agent=agent))
        return rows[0] if is_one else rows

    def value(
        self, observation: object, *, agent: str | None = None
    ) -> float | npt.NDArray[np.float32]:
        """Return the expected discounted return, in units of reward; no mask is needed.

        A recurrent policy stays in its state. Of a mixture the member that plays answers.

        Args:
            observation: As for `act`.
            agent: As for `act`.

        Returns:
            A number, or float32 [N] of a batch.

        Raises:
            ValueError: If an argument does not fit the card, or there is no value function.
        """
        if not self.has_value:
            raise ValueError("the graph must have the output value: this policy has no value")
        inputs, is_one = self._inputs.checked(observation, None, agent=agent, needs_mask=False)
        values: npt.NDArray[np.float32] = self._run(inputs, agent=agent, outputs=["value"])["value"]
        return float(values[0]) if is_one else values

    def reset(self, *, seed: int | None = None) -> None:
        """Begin a new episode: clear recurrent states, and draw the member of a mixture that plays.

        Neither a mixture nor recurrent: no effect.

        Args:
            seed: Seed that restarts the random numbers, before the draw.
        """
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.clear()
        if len(self._sessions) > 1:
            self.member = int(self._rng.choice(len(self._sessions), p=self._shares))

    def clear(self) -> None:
        """Clear recurrent states; the member of a mixture stays."""
        self._states.clear()

    def _decide(
        self,
        inputs: dict[str, npt.NDArray[Any]],
        *,
        agent: str | None,
        sample: bool,
        is_one: bool,
    ) -> Any:  # noqa: ANN401
        """Return the action of the only row, or those of a batch."""
        values = self._run(inputs, agent=agent)
        if self._state_size:
            self._states[agent] = values["state_out"]
        samples = sample or self._temperature is not None
        return self._actions.chosen(values, rng=self._rng if samples else None, is_one=is_one)

    def _run(
        self,
        inputs: dict[str, npt.NDArray[Any]],
        *,
        agent: str | None,
        outputs: Sequence[str] | None = None,
    ) -> dict[str, npt.NDArray[Any]]:
        """Return outputs of the graph by name; None: the parameters, and the next state if any."""
        if self._state_size:
            num_rows = len(next(iter(inputs.values())))
            state = self._states.get(agent)
            if state is None:
                state = np.zeros((num_rows, self._state_size), dtype=np.float32)
            if len(state) != num_rows:
                raise ValueError(
                    f"a batch must have the rows of the one before, {len(state)}, until reset, got "
                    f"{num_rows}"
                )
            inputs = {**inputs, "state_in": state}
        if outputs is None:
            outputs = [*self._parameters, *(["state_out"] if self._state_size else [])]
        values = self._sessions[self.member].run(outputs, inputs)
        return at_temperature(dict(zip(outputs, values, strict=True)), self._temperature or 1.0)


class Champion(GraphPlayer):
    """Player of an export. Not thread-safe.

    Args:
        directory: Directory with ``card.json`` and the files that it names.
        level: Level of the card to play at, from 1. None: the champion.
        temperature: As for `GraphPlayer`; a level has its own.
        seed: Seed of all random draws. None: different draws each time.

    Attributes:
        card: Content of ``card.json``.
        member: Member of the mixture that plays this episode, from 0; 0 without a mixture.

    Raises:
        ValueError: If the card is of another schema or has no such level, or a graph is not the
            file that it names.
        RuntimeError: If onnxruntime is too old for it.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        level: int | None = None,
        temperature: float | None = None,
        seed: int | None = None,
    ) -> None:
        path = Path(directory)
        self.card: dict[str, Any] = json.loads((path / "card.json").read_text(encoding="utf-8"))
        if self.card.get("schema") != _SCHEMA:
            raise ValueError(f"card.json must have schema {_SCHEMA}, got {self.card.get('schema')}")
        members = self.card.get("members", [])
        _require_onnxruntime(self.card.get("versions", {}).get("onnxruntime_at_least", "0"))
        # Without members the export is one policy, in a file beside the card.
        policies = [f"{member['directory']}/policy.onnx" for member in members] or ["policy.onnx"]
        if level is not None:
            chosen = level_of(self.card, level)
            if temperature is not None:
                raise ValueError(f"level {level} has its own temperature, got {temperature}")
            policies, temperature = [chosen["graph"]], chosen["temperature"]
        super().__init__(
            self.card,
            [make_session(self._verified(path, policy)) for policy in policies],
            probabilities=[member["probability"] for member in members] or [1.0],
            temperature=temperature,
            seed=seed,
        )

    def _verified(self, path: Path, name: str) -> bytes:
        data = (path / name).read_bytes()
        # The bytes that are checked are those that are loaded: the file may change in between.
        digest = hashlib.sha256(data).hexdigest()
        if digest != self.card["files"][name]["sha256"]:
            raise ValueError(f"{name} is not the file of card.json: its sha256 is {digest}")
        return data


class NoLevel(ValueError):
    """An export has no level of a number."""


def level_of(card: Mapping[str, Any], level: int) -> Mapping[str, Any]:
    """Return a level of a card: its ``graph``, ``temperature``, ``rating`` and more.

    Raises:
        NoLevel: If there is none of that number.
    """
    levels: list[Mapping[str, Any]] = card.get("levels", [])
    for one in levels:
        if one["level"] == level:
            return one
    has = f"it has 1 to {len(levels)}" if levels else "arena export --levels N writes some"
    raise NoLevel(f"there is no level {level!r} in this export: {has}")


def at_temperature(
    values: Mapping[str, npt.NDArray[Any]], temperature: float
) -> dict[str, npt.NDArray[Any]]:
    """Return outputs of a graph whose probabilities are those to the power of 1 / temperature."""
    changed = dict(values)
    if temperature == 1.0:
        return changed
    if "logits" in values:
        # An illegal choice stays at the minimum, where a legal one cannot get.
        least = np.finfo(np.float32).min
        logits = np.maximum(values["logits"].astype(np.float64) / temperature, least)
        changed["logits"] = np.where(values["logits"] > least, logits, least).astype(np.float32)
    if "log_std" in values:
        # p(x)^(1 / T) of a normal density has T times its variance.
        changed["log_std"] = values["log_std"] + np.float32(0.5 * math.log(temperature))
    return changed


def continuous_of(card: Mapping[str, Any]) -> Literal["squashed", "clipped"]:
    """Return how numbers are brought within their bounds."""
    how = card["environment"].get("continuous_actions", "squashed")
    return "squashed" if how == "squashed" else "clipped"


def _part(leaf: Leaf, value: Any) -> npt.NDArray[np.float32]:  # noqa: ANN401
    """Return a part of one observation, or of a batch with a leading axis."""
    name = leaf.name_in("observation")
    try:
        for key in leaf.keys:
            value = value[key]
    except (KeyError, IndexError, TypeError):
        raise ValueError(f"{name} is needed: the observation has no such part") from None
    try:
        part: npt.NDArray[np.float32] = np.asarray(value, dtype=np.float32)
    except TypeError:
        raise ValueError(f"{name} must be numbers, got {type(value).__name__}") from None
    is_batch = part.ndim == len(leaf.shape) + 1 and part.shape[1:] == leaf.shape and len(part) > 0
    if part.shape != leaf.shape and not is_batch:
        raise ValueError(
            f"{name} must have shape {leaf.shape}, got {part.shape}; a batch has a leading axis"
        )
    # A NaN would go through the graph and choose an action by chance.
    if not np.isfinite(part).all():
        raise ValueError(f"{name} must be finite")
    # A number that is no choice would be a one-hot of zeros in the graph.
    if leaf.choices:
        chosen = part.reshape(-1, len(leaf.choices)) - np.array(leaf.starts)
        exists = (chosen >= 0) & (chosen < leaf.choices) & (chosen == np.floor(chosen))
        if not exists.all():
            raise ValueError(f"{name} must be one of the space's choices, got {value}")
    return part


class Actions:
    """Converter from the graph's outputs to the environment's actions.

    Args:
        space: Space as the card describes it.
        continuous: Way of bringing numbers within their bounds: ``squashed`` by tanh, or
            ``clipped``.

    Attributes:
        layout: Layout of actions in rows.
    """

    def __init__(
        self, space: Mapping[str, Any], *, continuous: Literal["squashed", "clipped"]
    ) -> None:
        self.layout = ActionLayout.from_json(space, continuous=continuous)

    def chosen(
        self,
        parameters: Mapping[str, npt.NDArray[np.float32]],
        *,
        rng: np.random.Generator | None,
        is_one: bool,
    ) -> Any:  # noqa: ANN401
        """Return the likeliest actions, or sampled ones.

        Args:
            parameters: ``logits`` float32 [N, n], ``mean`` and ``log_std`` float32 [N, C], where
                present.
            rng: Generator to sample with. None: the likeliest actions.
            is_one: Whether the only row's action is wanted, not a batch.
        """
        num_rows = len(next(iter(parameters.values())))
        nothing = np.zeros((num_rows, 0), dtype=np.float32)
        choices = [
            _drawn(part, rng) if rng is not None else part.argmax(axis=1)
            for part in self.layout.by_branch(parameters.get("logits", nothing))
        ]
        # float64, because a bound of a float64 space may have no neighbour in float32.
        numbers = parameters.get("mean", nothing).astype(np.float64)
        if rng is not None and numbers.size:
            std = np.exp(parameters["log_std"].astype(np.float64))
            # u = mean + std * z with z ~ N(0, 1)
            numbers = numbers + std * rng.standard_normal(numbers.shape)
        columns = np.stack(choices, axis=1) if choices else nothing.astype(np.int64)
        parts = self.layout.in_units(columns, self.layout.within_bounds(numbers))
        return self._given(parts, is_one=is_one)

    def probabilities(
        self, parameters: Mapping[str, npt.NDArray[np.float32]]
    ) -> npt.NDArray[np.float64]:
        """Return the probabilities of all choices, those of the categories side by side.

        float64 [N, n].

        Raises:
            ValueError: If there are no choices.
        """
        if "logits" not in parameters:
            raise ValueError(
                "the actions must have choices: these are numbers, which have no probabilities"
            )
        return np.concatenate(
            [_probabilities(part) for part in self.layout.by_branch(parameters["logits"])], axis=1
        )

    def uniform(
        self, masks: npt.NDArray[np.bool_], *, rng: np.random.Generator, is_one: bool
    ) -> Any:  # noqa: ANN401
        """Draw as `ActionLayout.uniform` does; arguments beside its own are as for `chosen`."""
        return self._given(self.layout.uniform(masks, rng), is_one=is_one)

    def flat_masks(self, mask: object, *, num_rows: int | None) -> npt.NDArray[np.bool_]:
        """Return the masks of a batch, those of all categories side by side. bool [N, n].

        Args:
            mask: As for `GraphPlayer.act`.
            num_rows: N. None: a single mask, which becomes a batch of one.

        Raises:
            ValueError: If its shape is not the space's, or a category has no legal choice.
        """
        size = self.layout.num_logits
        rows, shape = (1, (size,)) if num_rows is None else (num_rows, (num_rows, size))
        try:
            flat = np.asarray(mask).astype(np.bool_)
        except ValueError:  # masks of different lengths
            flat = np.zeros(0, dtype=np.bool_)
        # Nested as in the environment, or with masks of different lengths.
        if flat.shape != shape and not self.layout.is_discrete:
            parts = [
                _leaf_masks(leaf, mask, rows=rows) for leaf in self.layout.leaves if leaf.choices
            ]
            flat = np.concatenate([np.zeros((rows, 0), dtype=np.bool_), *parts], axis=1)
        elif flat.shape != shape:
            raise ValueError(f"action_mask must have shape {shape}, got {flat.shape}")
        flat = flat.reshape(rows, size)
        if not all(part.any(axis=1).all() for part in self.layout.by_branch(flat)):
            raise ValueError("action_mask must have a legal action")
        return flat

    @property
    def everything(self) -> npt.NDArray[np.bool_]:
        """Mask that allows all choices. bool [n]."""
        return np.ones(self.layout.num_logits, dtype=np.bool_)

    def _given(self, parts: list[npt.NDArray[Any]], *, is_one: bool) -> Any:  # noqa: ANN401
        return self.layout.one_by_one(parts)[0] if is_one else nested(self.layout.nest, parts)


def _probabilities(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    # In float64 a masked-out logit (float32's minimum) has weight exp(-3.4e38) = 0 exactly.
    weights = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    shares: npt.NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return shares


def _drawn(logits: npt.NDArray[np.float32], rng: np.random.Generator) -> npt.NDArray[np.int64]:
    cumulative = _probabilities(logits).cumsum(axis=1)
    # The division makes the last value exactly 1 in spite of rounding, so every draw is below it.
    cumulative /= cumulative[:, -1:]
    drawn: npt.NDArray[np.int64] = (cumulative <= rng.random((len(logits), 1))).sum(axis=1)
    return drawn


def _leaf_masks(leaf: Leaf, mask: Any, *, rows: int) -> npt.NDArray[np.bool_]:  # noqa: ANN401
    """Return a part's masks, those of its categories side by side; None: everything is legal.

    bool [rows, n of the part].
    """
    for key in leaf.keys:
        try:
            mask = None if mask is None else mask[key]
        except (KeyError, IndexError, TypeError):
            raise ValueError(f"action_mask must have the part {'.'.join(leaf.path)!r}") from None
    size = sum(leaf.choices)
    if mask is None:
        return np.ones((rows, size), dtype=np.bool_)
    try:
        flat = np.concatenate(list(_flattened(mask, rows=rows)), axis=1)
    except ValueError:
        flat = np.zeros((rows, 0), dtype=np.bool_)
    if flat.shape[1] != size:
        raise ValueError(f"action_mask must have {size} entries, got {flat.shape[1]}")
    return flat


def _flattened(mask: Any, *, rows: int) -> Iterator[npt.NDArray[np.bool_]]:  # noqa: ANN401
    """Yield the masks of categories, [rows, n of the category], however they are nested."""
    if isinstance(mask, (list, tuple)):
        for part in mask:
            yield from _flattened(part, rows=rows)
    else:
        yield np.asarray(mask).astype(np.bool_).reshape(rows, -1)


def state_size_of(session: onnxruntime.InferenceSession) -> int:
    """Return the size of a recurrent state; 0: the policy is not recurrent."""
    shapes = {node.name: node.shape for node in session.get_inputs()}
    return int(shapes["state_in"][1]) if "state_in" in shapes else 0


def _require_onnxruntime(least: str) -> None:
    """Refuse a release of onnxruntime that cannot read the graph; its own words name no release."""
    found = onnxruntime.__version__
    if _numbers(found) < _numbers(least):
        raise RuntimeError(
            f"this export needs onnxruntime {least} or newer, this is {found}: "
            f"pip install 'onnxruntime>={least}'"
        )


def _numbers(version: str) -> list[int]:
    """Return the first two numbers of a version."""
    return [int(part) for part in re.findall(r"\d+", version)[:2]]


def make_session(model: bytes) -> onnxruntime.InferenceSession:
    """Open a model whose weights are inline."""
    options = onnxruntime.SessionOptions()
    # Products of one row are too small for threads, which would only compete with learners.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = _ERRORS_ONLY
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class NotTrusted(ValueError):
    """A card names code, and the user has not said that it may be imported."""


def make_environment(
    environment_id: str, kwargs: Mapping[str, Any], *, api: str = "aec", trust: bool = False
) -> Any:  # noqa: ANN401
    """Make PettingZoo's own environment.

    Args:
        environment_id: ``classic/connect_four-v3``, ``mpe2/simple_tag_v3``, or
            ``package.module:factory``.
        kwargs: For its factory.
        api: ``aec``, turn by turn, or ``parallel``; what a factory makes is taken as it is.
        trust: Whether code that ``package.module:factory`` names may be imported and called.

    Raises:
        ValueError: If it is a game of OpenSpiel: those are no PettingZoo environments.
        NotTrusted: If it is code that may not be imported.
    """
    # The variable is set before pygame can open a window; a driver that the user chose is kept.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    path, colon, factory = environment_id.partition(":")
    if path == "openspiel":
        raise ValueError(f"{environment_id} is no PettingZoo environment: arena evaluate plays it")
    if colon:
        if not trust:
            raise NotTrusted(
                f"card.json names code: {environment_id} (environment.id). It would run with all "
                "rights of yours: look at it, then add --trust, or --env with an environment of "
                "yours"
            )
        return getattr(importlib.import_module(path), factory)(**kwargs)
    # The version at the end excludes the package's other modules.
    mpe = re.fullmatch(r"mpe2?/(\w+)[-_]v(\d+)", environment_id)
    if mpe is not None:
        module = importlib.import_module(f"mpe2.{mpe[1]}_v{mpe[2]}")
        return (module.env if api == "aec" else module.parallel_env)(**kwargs)
    return importlib.import_module("pettingzoo").make(api, environment_id, **kwargs)


def play_game(
    champion: Champion,
    env: Any,  # noqa: ANN401
    *,
    agents: Sequence[str],
    seed: int,
    rng: np.random.Generator,
    sample: bool = False,
) -> dict[str, float]:
    """Play one game, the other agents moving uniformly at random among their legal actions.

    Args:
        champion: Player of ``agents``.
        env: A PettingZoo environment, AEC or Parallel.
        agents: The champion's agents.
        seed: Seed of the environment's reset.
        rng: Generator of the random moves.
        sample: Sample the champion's actions too.

    Returns:
        The return of every agent.
    """
    specs = champion.card["environment"]["agent_specs"]
    continuous = continuous_of(champion.card)
    spaces = {name: Actions(spec["action"], continuous=continuous) for name, spec in specs.items()}

    def choose(agent: str, observation: Any, info: Mapping[str, Any]) -> Any:  # noqa: ANN401
        # The card names agents by text, while an environment may have numbers.
        agent = str(agent)
        everything, mask = spaces[agent].everything, None
        if specs[agent]["mask"] == "info":
            mask = info.get("action_mask")
            # In PettingZoo masks in infos are optional; without one, all actions are legal.
            mask = everything if mask is None else mask
        # `observation` and `beside` have the mask under the same key.
        elif specs[agent]["mask"] is not None:
            mask = observation["action_mask"]
        if agent in agents:
            return champion.act(observation, mask, agent=agent, sample=sample)
        legal = spaces[agent].flat_masks(everything if mask is None else mask, num_rows=None)
        return spaces[agent].uniform(legal, rng=rng, is_one=True)

    # Each episode clears recurrent states, and a mixture draws its member.
    champion.reset()
    returns = dict.fromkeys(champion.card["environment"]["agents"], 0.0)
    play = _play_in_turn if hasattr(env, "agent_iter") else _play_at_once
    for agent, reward in play(env, choose, seed=seed):
        returns[str(agent)] += float(reward)
    return returns


def _play_in_turn(env: Any, choose: _Choose, *, seed: int) -> Iterator[tuple[str, float]]:  # noqa: ANN401
    """Yield agents and rewards, turn by turn."""
    env.reset(seed=seed)
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, info = env.last()
        # These are the rewards since the agent's last turn; an ended agent gets its last ones
        # here.
        yield agent, reward
        is_over = terminated or truncated
        # PettingZoo requires the action None for an agent that has ended.
        env.step(None if is_over else choose(agent, observation, info))


def _play_at_once(env: Any, choose: _Choose, *, seed: int) -> Iterator[tuple[str, float]]:  # noqa: ANN401
    """Yield agents and rewards, step by step."""
    observations, infos = env.reset(seed=seed)
    ended: set[str] = set()
    # An environment may list agents that have ended, or give no observation to waiting agents.
    while deciding := [a for a in env.agents if a in observations and a not in ended]:
        chosen = {a: choose(a, observations[a], infos.get(a, {})) for a in deciding}
        observations, rewards, terminations, truncations, infos = env.step(chosen)
        yield from rewards.items()
        ended = {agent for ends in (terminations, truncations) for agent in ends if ends[agent]}


def results_of(
    card: Mapping[str, Any], returns: Mapping[str, float], agents: Sequence[str]
) -> list[float]:
    """Score a game for the champion's agents, against each other side.

    The card's rule applies where it is a threshold on a return or a margin between two; otherwise
    the higher mean return wins.

    Returns:
        Above 0.5 won, 0.5 drawn, below 0.5 lost, one for each other side; none in cooperation.
    """
    sides = card["environment"]["sides"]
    mine = [agent for side in sides.values() if set(side) & set(agents) for agent in side]
    others = [side for side in sides.values() if not set(side) & set(agents)]
    outcome = card["environment"]["outcome"]
    if isinstance(outcome, Mapping) and "threshold" in outcome:
        side = sides[outcome["side"]]
        reached = _mean(returns, side) >= outcome["threshold"]
        # This side wins if it reaches the threshold; otherwise all others win.
        return [float(reached == bool(set(side) & set(agents)))] * len(others)
    scale = float(outcome["margin"]) if isinstance(outcome, Mapping) and "margin" in outcome else 0
    return [_result(_mean(returns, mine), _mean(returns, side), scale) for side in others]


def _result(mine: float, other: float, scale: float) -> float:
    """Score by win or loss (scale 0), or by margin: 1/2 + (mine - other) / (4 scale)."""
    if math.isclose(mine, other, rel_tol=_EQUAL, abs_tol=_EQUAL):
        return 0.5
    if not scale:
        return float(mine > other)
    return min(max(0.5 + (mine - other) / (4.0 * scale), 0.0), 1.0)


def _mean(returns: Mapping[str, float], agents: Sequence[str]) -> float:
    return float(np.mean([returns[agent] for agent in agents]))


def play_record(
    champion: Champion,
    *,
    environment_id: str,
    games: int,
    seed: int,
    sample: bool,
    trust: bool = False,
) -> dict[str, Any]:
    """Play ``games`` games in each seat against uniformly random moves, and count.

    With more than two sides each game has a result against every other side. Wins, draws, losses
    and score are None in cooperation.
    """
    card = champion.card
    environment = card["environment"]
    env = make_environment(
        environment_id, environment["kwargs"], api=environment["api"], trust=trust
    )
    rng = np.random.default_rng(seed)
    # One seed decides all draws, including the champion's.
    champion.reset(seed=int(rng.integers(2**31)))
    seats = []
    for seat in card["seats"]:
        agents = seat["agents"]
        scores: list[float] = []
        own_returns = []
        for _ in range(games):
            game_seed = int(rng.integers(2**31))
            returns = play_game(
                champion, env, agents=agents, seed=game_seed, rng=rng, sample=sample
            )
            scores += results_of(card, returns, agents)
            own_returns.append(_mean(returns, agents))
        results = {
            "wins": sum(score > 0.5 for score in scores),
            "draws": sum(score == 0.5 for score in scores),
            "losses": sum(score < 0.5 for score in scores),
            "score": float(np.mean(scores)) if scores else None,
        }
        seats.append(
            {
                "seat": seat["name"],
                "matches": games,
                **{key: number if scores else None for key, number in results.items()},
                "mean_return": float(np.mean(own_returns)),
            }
        )
    env.close()
    return {"schema": _SCHEMA, "player": card["player"], "opponent": "bot:random", "seats": seats}


def main(arguments: Sequence[str] | None = None) -> None:
    """Play against random moves and print the record as JSON."""
    parser = argparse.ArgumentParser(description="Play this policy against random moves.")
    parser.add_argument("--directory", default=Path(__file__).parent, help="default: this file's")
    parser.add_argument("--env", help="default: the environment of the card")
    parser.add_argument("--games", type=int, default=100, help="in each seat")
    parser.add_argument("--level", type=int, help="of the card; default: the champion")
    parser.add_argument("--sample", action="store_true", help="draw actions instead of the best")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--uci", action="store_true", help="be a chess engine, by UCI")
    parser.add_argument(
        "--trust", action="store_true", help="import the code that the card names: it runs as you"
    )
    options = parser.parse_args(arguments)
    if options.games < 1:
        parser.error(f"--games must be at least 1, got {options.games}")
    try:
        champion = Champion(options.directory, level=options.level)
    except (RuntimeError, ValueError) as error:
        parser.error(str(error))
    environment_id = options.env or champion.card["environment"]["id"]
    if options.uci:
        if not environment_id.startswith("classic/chess"):
            parser.error(f"--uci is for PettingZoo's chess; this export plays {environment_id}")
        try:
            # The module is beside this file only in exports of chess.
            uci = importlib.import_module("uci")
        except ModuleNotFoundError as error:
            parser.error(f"--uci needs {error.name}: pip install 'pettingzoo[classic]'")
        engine = uci.Engine(
            lambda level: Champion(options.directory, level=level or None),
            champion.card,
            level=options.level or 0,
            sample=options.sample,
        )
        uci.serve(engine)
        return
    # Naming an environment on the command line counts as trust, too.
    trust = options.trust or options.env is not None
    if trust:
        # As with `python -m`, a user's game is found in the working directory.
        sys.path.append(str(Path.cwd()))
    try:
        record = play_record(
            champion,
            environment_id=environment_id,
            games=options.games,
            seed=options.seed,
            sample=options.sample,
            trust=trust,
        )
    except NotTrusted as error:
        parser.error(str(error))
    except ModuleNotFoundError as error:
        parser.error(f"{environment_id} cannot be made: {error}; run this where it is found")
    sys.stdout.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
