"""A trained policy, or a mixture of policies. Needs numpy and onnxruntime, nothing else.

    champion = Champion("path/to/this/directory")
    champion.reset()
    action = champion.act(observation, action_mask)

``reset`` begins an episode: it clears the state of a recurrent policy, and draws the member of a
mixture that plays the episode.

``observation`` is the PettingZoo environment's observation, its dictionary with an ``action_mask``
included, and ``action`` is the environment's action. Run as a script, it plays PettingZoo's own
environment against uniformly random moves::

    python champion.py --games 100

The file is copied unchanged into every export and imports nothing of Arena. Shapes: n choices of
all categories of an action, C continuous numbers.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

_SCHEMA = 1
_EQUAL = 1e-6  # relative; returns are sums of rewards, so rounding must not decide a game
_PARAMETERS = ("logits", "mean", "log_std")


class Champion:
    """Player of an export: a policy, or a mixture of policies. Not thread-safe.

    Args:
        directory: Directory with ``card.json`` and the files that it names.
        seed: Seed of all random draws. None: different draws each time.

    Attributes:
        card: Content of ``card.json``.
        member: Member of the mixture that plays this episode, from 0; 0 without a mixture.

    Raises:
        ValueError: If the card is of another schema, or a ``policy.onnx`` is not the file it names.
    """

    def __init__(self, directory: str | Path, *, seed: int | None = None) -> None:
        path = Path(directory)
        self.card: dict[str, Any] = json.loads((path / "card.json").read_text(encoding="utf-8"))
        if self.card.get("schema") != _SCHEMA:
            raise ValueError(f"card.json must have schema {_SCHEMA}, got {self.card.get('schema')}")
        members = self.card.get("members", [])
        # Without members the export is one policy, in a file beside the card.
        policies = [f"{member['directory']}/policy.onnx" for member in members] or ["policy.onnx"]
        self._sessions = [_session(self._verified(path, policy)) for policy in policies]
        # Members are policies of one population, so their graphs have equal inputs and outputs.
        self._inputs = {graph.name for graph in self._sessions[0].get_inputs()}
        outputs = {graph.name for graph in self._sessions[0].get_outputs()}
        self._parameters = [name for name in _PARAMETERS if name in outputs]
        self._state_size = _state_size(self._sessions[0])
        self._states: dict[str | None, npt.NDArray[np.float32]] = {}
        masses = np.array([member["probability"] for member in members] or [1.0])
        # numpy wants a sum closer to 1 than a card must have.
        self._probabilities = masses / masses.sum()
        self._observations = Observations(self.card["observation"]["space"], self.card["mask"])
        self._actions = Actions(self.card["action"]["space"], continuous=continuous_of(self.card))
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
        """Choose an action.

        Args:
            observation: Observation from the environment: an array, a number (Discrete),
                dictionaries and tuples of these, or a dictionary with ``observation`` and
                ``action_mask``.
            action_mask: Non-zero for legal choices, one per choice, of several categories side by
                side or nested as in the environment. Needed where the environment has masks and
                ``observation`` does not contain it.
            agent: Agent that decides; it must be one that the policy can play. Needed by a policy
                with an agent id (``network.agent_id`` on the card), and where a recurrent policy
                (``network.core``) plays several agents in one game: it keeps a state for each.
            sample: Sample an action instead of taking the likeliest one.
            seed: Seed that restarts the random numbers, for this and later calls. The member of a
                mixture stays.

        Returns:
            The action in the environment's form.

        Raises:
            ValueError: If an argument does not fit the card.
        """
        if agent is not None and agent not in self.card["agents"]:
            raise ValueError(f"agent must be one of {self.card['agents']}, got {agent!r}")
        observation, found = self._observations.unwrapped(observation)
        mask = self._checked_mask(found if action_mask is None else action_mask)
        inputs = self._observations.inputs(observation)
        if mask is not None:
            # [n] -> [1, n]: a batch of one
            inputs["action_mask"] = mask[np.newaxis]
        if "agent_id" in self._inputs:
            inputs["agent_id"] = np.array([self._place(agent)], dtype=np.int64)
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        outputs = list(self._parameters)
        if self._state_size:
            nothing = np.zeros((1, self._state_size), dtype=np.float32)
            inputs["state_in"] = self._states.get(agent, nothing)
            outputs.append("state_out")
        values = self._sessions[self.member].run(outputs, inputs)
        if self._state_size:
            # state_out is the last of the outputs.
            self._states[agent] = values.pop()
        parameters = {name: row[0] for name, row in zip(self._parameters, values, strict=True)}
        return self._actions.chosen(parameters, rng=self._rng if sample else None)

    def reset(self, *, seed: int | None = None) -> None:
        """Begin a new episode: clear recurrent states, and draw the member of a mixture that plays.

        Neither a mixture nor recurrent: no effect.

        Args:
            seed: Seed that restarts the random numbers, before the draw.
        """
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._states.clear()
        if len(self._sessions) > 1:
            self.member = int(self._rng.choice(len(self._sessions), p=self._probabilities))

    def _verified(self, path: Path, name: str) -> bytes:
        data = (path / name).read_bytes()
        # The bytes that are checked are those that are loaded: the file may change in between.
        digest = hashlib.sha256(data).hexdigest()
        if digest != self.card["files"][name]["sha256"]:
            raise ValueError(f"{name} is not the file of card.json: its sha256 is {digest}")
        return data

    def _place(self, agent: str | None) -> int:
        agents: list[str] = self.card["agents"]
        if agent is None and len(agents) > 1:
            raise ValueError(f"agent is needed: the policy must know which of {agents} decides")
        return 0 if agent is None else agents.index(agent)

    def _checked_mask(self, action_mask: object) -> npt.NDArray[np.bool_] | None:
        if self.card["mask"] is None:
            if action_mask is not None:
                raise ValueError("this policy's environment has no action masks")
            return None
        if action_mask is None:
            raise ValueError("action_mask is needed: this policy's environment has masks")
        return self._actions.flat_mask(action_mask)


@dataclass(frozen=True)
class Leaf:
    """Space that is no Dict or Tuple, as the card describes it.

    Attributes:
        keys: Keys that lead from the whole value to this part.
        kind: ``Box``, ``Discrete``, ``MultiDiscrete`` or ``MultiBinary``.
        shape: Shape of a value.
        dtype: Dtype of a value.
        low: Lowest number of each element, or the number of its first choice. [size].
        high: Highest number of each element of a Box. [size].
        choices: Number of choices of each element; none for Box.
    """

    keys: tuple[str | int, ...]
    kind: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    low: npt.NDArray[Any]
    high: npt.NDArray[Any]
    choices: tuple[int, ...]

    @property
    def name(self) -> str:
        """Name in messages and in the graph's inputs."""
        return "".join(f".{key}" for key in self.keys)


def leaves_of(space: Mapping[str, Any], keys: tuple[str | int, ...] = ()) -> Iterator[Leaf]:
    """Yield the parts of a space, those of a Dict by name."""
    kind = space["kind"]
    if kind in ("Dict", "Tuple"):
        for key, member in _members(space):
            yield from leaves_of(member, (*keys, key))
        return
    shape, dtype = tuple(space.get("shape", ())), space.get("dtype", "int64")
    choices: Any = ()
    if kind == "Box":
        # The card writes infinities as text, which astype converts.
        low, high = (np.asarray(space[name]).astype(np.float64) for name in ("low", "high"))
    else:
        choices = space["n"] if kind == "Discrete" else space.get("nvec", np.full(shape, 2))
        # Choices of the graph count from 0, those of the space from its start.
        low = high = np.asarray(space.get("start", 0))
        shape = np.shape(choices)
        dtype = "int8" if kind == "MultiBinary" else dtype
    yield Leaf(
        keys=keys,
        kind=kind,
        shape=shape,
        dtype=np.dtype(dtype),
        low=np.broadcast_to(low, shape).reshape(-1),
        high=np.broadcast_to(high, shape).reshape(-1),
        choices=tuple(np.reshape(choices, -1).astype(np.int64).tolist()),
    )


def _members(space: Mapping[str, Any]) -> list[tuple[str | int, Any]]:
    members = space["spaces"]
    # Parts of a row are in the order of sorted keys.
    return list(enumerate(members)) if space["kind"] == "Tuple" else sorted(members.items())


def nested(space: Mapping[str, Any], values: Iterator[Any]) -> Any:  # noqa: ANN401
    """Return the values of the leaves, nested as their space is."""
    if space["kind"] not in ("Dict", "Tuple"):
        return next(values)
    parts = {key: nested(member, values) for key, member in _members(space)}
    return tuple(parts.values()) if space["kind"] == "Tuple" else parts


def continuous_of(card: Mapping[str, Any]) -> str:
    """Return how numbers are brought within their bounds: ``squashed`` or ``clipped``."""
    return str(card["environment"].get("continuous_actions", "squashed"))


class Observations:
    """Converter from the environment's observations to the graph's inputs.

    Args:
        space: Space as the card describes it, without the mask.
        mask: Place of the mask: ``observation`` (the environment gives a dictionary of both),
            ``beside`` (among the keys of the observation), ``info``, or None.
    """

    def __init__(self, space: Mapping[str, Any], mask: str | None) -> None:
        self._is_dict = space["kind"] == "Dict"
        self._mask = mask
        self._leaves = list(leaves_of(space))

    def unwrapped(self, observation: Any) -> tuple[Any, object]:  # noqa: ANN401
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

    def inputs(self, observation: Any) -> dict[str, npt.NDArray[Any]]:  # noqa: ANN401
        """Return one float32 array [1, ...] for each part."""
        return {
            f"observation{leaf.name}": _checked_part(leaf, observation)[np.newaxis]
            for leaf in self._leaves
        }


def _checked_part(leaf: Leaf, value: Any) -> npt.NDArray[np.float32]:  # noqa: ANN401
    name = f"observation{leaf.name}"
    try:
        for key in leaf.keys:
            value = value[key]
    except (KeyError, IndexError, TypeError):
        raise ValueError(f"{name} is needed: the observation has no such part") from None
    part: npt.NDArray[np.float32] = np.asarray(value, dtype=np.float32)
    if part.shape != leaf.shape:
        raise ValueError(f"{name} must have shape {leaf.shape}, got {part.shape}")
    # A NaN would go through the graph and choose an action by chance.
    if not np.isfinite(part).all():
        raise ValueError(f"{name} must be finite")
    # A number that is no choice would be a one-hot of zeros in the graph.
    chosen = part.reshape(-1) - leaf.low if leaf.choices else np.zeros(0)
    if leaf.choices and not ((chosen >= 0) & (chosen < leaf.choices)).all():
        raise ValueError(f"{name} must be one of the space's choices, got {value}")
    return part


class Actions:
    """Converter from the graph's outputs to the environment's actions.

    Args:
        space: Space as the card describes it.
        continuous: Way of bringing numbers within their bounds: ``squashed`` by tanh, or
            ``clipped``.
    """

    def __init__(self, space: Mapping[str, Any], *, continuous: str) -> None:
        self._space = space
        self._leaves = list(leaves_of(space))
        self._branches = [number for leaf in self._leaves for number in leaf.choices]
        boxes = [leaf for leaf in self._leaves if leaf.kind == "Box"]
        self._low = np.concatenate([np.zeros(0), *(leaf.low for leaf in boxes)])
        self._high = np.concatenate([np.zeros(0), *(leaf.high for leaf in boxes)])
        self._bounded = np.isfinite(self._low) & np.isfinite(self._high)
        # A number with one bound or none has nothing to be squashed into: it is clipped.
        self._squashed = self._bounded & (continuous == "squashed")

    def chosen(
        self, parameters: Mapping[str, npt.NDArray[np.float32]], *, rng: np.random.Generator | None
    ) -> Any:  # noqa: ANN401
        """Return the likeliest action, or a sampled one.

        Args:
            parameters: ``logits`` float32 [n], ``mean`` and ``log_std`` float32 [C], where present.
            rng: Generator to sample with. None: the likeliest action.
        """
        parts = self._by_category(parameters.get("logits", np.zeros(0, dtype=np.float32)))
        choices = [_drawn(part, rng) if rng is not None else int(part.argmax()) for part in parts]
        # float64, because a bound of a float64 space may have no neighbour in float32.
        numbers = parameters.get("mean", np.zeros(0)).astype(np.float64)
        if rng is not None and len(numbers):
            std = np.exp(parameters["log_std"].astype(np.float64))
            # u = mean + std * z with z ~ N(0, 1)
            numbers = numbers + std * rng.standard_normal(len(numbers))
        at, to, squashed = self._low[self._squashed], self._high[self._squashed], self._squashed
        # (l + h) / 2 + (h - l) / 2 * tanh(u), halved first: the sum and difference of the bounds
        # may exceed a float.
        numbers[squashed] = at / 2 + to / 2 + (to / 2 - at / 2) * np.tanh(numbers[squashed])
        return self._in_units(choices, np.clip(numbers, self._low, self._high))

    def random(self, mask: object, *, rng: np.random.Generator) -> Any:  # noqa: ANN401
        """Draw legal choices uniformly, and numbers uniformly within their bounds.

        The distance of a number from its only bound is that of a standard normal one from 0.
        """
        legal = self.everything if mask is None else self.flat_mask(mask)
        choices = [int(rng.choice(np.flatnonzero(part))) for part in self._by_category(legal)]
        numbers = rng.standard_normal(len(self._low))
        for at, (low, high) in enumerate(zip(self._low, self._high, strict=True)):
            if self._bounded[at]:
                # Not low + share * (high - low): the difference of the bounds may exceed a float.
                share = rng.random()
                numbers[at] = (1 - share) * low + share * high
            elif math.isfinite(low):
                numbers[at] = low + abs(numbers[at])
            elif math.isfinite(high):
                numbers[at] = high - abs(numbers[at])
        return self._in_units(choices, numbers)

    def flat_mask(self, mask: object) -> npt.NDArray[np.bool_]:
        """Return the masks of all categories side by side. bool [n].

        Raises:
            ValueError: If its shape is not the space's, or a category has no legal choice.
        """
        size = sum(self._branches)
        try:
            flat = np.asarray(mask).astype(np.bool_)
        except ValueError:  # masks of different lengths
            flat = np.zeros(0, dtype=np.bool_)
        # Nested as in the environment, or with masks of different lengths.
        if flat.shape != (size,) and self._space["kind"] != "Discrete":
            parts = [_leaf_mask(leaf, mask) for leaf in self._leaves if leaf.choices]
            flat = np.concatenate([np.zeros(0, dtype=np.bool_), *parts])
        if flat.shape != (size,):
            raise ValueError(f"action_mask must have shape ({size},), got {flat.shape}")
        if not all(part.any() for part in self._by_category(flat)):
            raise ValueError("action_mask must have a legal action")
        return flat

    @property
    def everything(self) -> npt.NDArray[np.bool_]:
        """Mask that allows all choices. bool [n]."""
        return np.ones(sum(self._branches), dtype=np.bool_)

    def _by_category(self, values: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        return np.split(values, np.cumsum(self._branches)[:-1]) if self._branches else []

    def _in_units(self, choices: Sequence[int], numbers: npt.NDArray[np.float64]) -> Any:  # noqa: ANN401
        return nested(self._space, self._values(iter(choices), iter(numbers.tolist())))

    def _values(self, choices: Iterator[int], numbers: Iterator[float]) -> Iterator[Any]:
        for leaf in self._leaves:
            if leaf.kind == "Discrete":
                yield next(choices) + int(leaf.low[0])
                continue
            source: Iterator[float] = numbers if leaf.kind == "Box" else choices
            values = np.array([next(source) for _ in leaf.low]).reshape(leaf.shape)
            if leaf.kind != "Box":
                values = values + leaf.low.reshape(leaf.shape)
            rounded = np.rint(values) if leaf.dtype.kind in "iub" else values
            # A zero-dimensional array: numpy would give a number instead.
            yield np.asarray(rounded, dtype=leaf.dtype)


def _drawn(logits: npt.NDArray[np.float32], rng: np.random.Generator) -> int:
    # In float64 a masked-out logit (float32's minimum) has weight exp(-3.4e38) = 0 exactly.
    weights = np.exp(logits.astype(np.float64) - np.max(logits))
    return int(rng.choice(len(weights), p=weights / weights.sum()))


def _leaf_mask(leaf: Leaf, mask: Any) -> npt.NDArray[np.bool_]:  # noqa: ANN401
    """Return a part's masks, those of its categories side by side; None: everything is legal."""
    for key in leaf.keys:
        try:
            mask = None if mask is None else mask[key]
        except (KeyError, IndexError, TypeError):
            raise ValueError(f"action_mask must have the part {leaf.name[1:]!r}") from None
    if mask is None:
        return np.ones(sum(leaf.choices), dtype=np.bool_)
    flat = np.array(list(_flattened(mask)), dtype=np.bool_)
    if len(flat) != sum(leaf.choices):
        raise ValueError(f"action_mask must have {sum(leaf.choices)} entries, got {len(flat)}")
    return flat


def _flattened(mask: Any) -> Iterator[bool]:  # noqa: ANN401
    if isinstance(mask, (list, tuple)):
        for part in mask:
            yield from _flattened(part)
    else:
        yield from np.asarray(mask).astype(np.bool_).reshape(-1).tolist()


def _state_size(session: onnxruntime.InferenceSession) -> int:
    """Return the size of a recurrent state; 0: the policy is not recurrent."""
    shapes = {node.name: node.shape for node in session.get_inputs()}
    return int(shapes["state_in"][1]) if "state_in" in shapes else 0


def _session(model: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    # Products of one row are too small for threads.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def make_environment(environment_id: str, kwargs: Mapping[str, Any], *, api: str = "aec") -> Any:  # noqa: ANN401
    """Make PettingZoo's own environment.

    Args:
        environment_id: ``classic/connect_four-v3``, ``mpe2/simple_tag_v3``, or
            ``package.module:factory``.
        kwargs: For its factory.
        api: ``aec``, turn by turn, or ``parallel``; what a factory makes is taken as it is.

    Raises:
        ValueError: If it is a game of OpenSpiel: those are no PettingZoo environments.
    """
    # Set before pygame can open a window; a driver that the user chose stays.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    path, colon, factory = environment_id.partition(":")
    if path == "openspiel":
        raise ValueError(f"{environment_id} is no PettingZoo environment: arena evaluate plays it")
    if colon:
        return getattr(importlib.import_module(path), factory)(**kwargs)
    family, _, name = environment_id.partition("/")
    if family in ("mpe", "mpe2"):
        module = importlib.import_module(f"mpe2.{name.replace('-', '_')}")
        return (module.env if api == "aec" else module.parallel_env)(**kwargs)
    return importlib.import_module("pettingzoo").make(api, environment_id, **kwargs)


class Table:
    """Players of a game: the champion for some agents, random moves for the others.

    Args:
        champion: Player of ``agents``.
        agents: The champion's agents.
        rng: Generator of the random moves.
        sample: Sample the champion's actions too.
    """

    def __init__(
        self,
        champion: Champion,
        *,
        agents: Sequence[str],
        rng: np.random.Generator,
        sample: bool,
    ) -> None:
        self._champion = champion
        self._agents = agents
        self._rng = rng
        self._sample = sample
        card = champion.card
        self._specs = card["environment"]["agent_specs"]
        self._actions = {
            agent: Actions(spec["action"], continuous=continuous_of(card))
            for agent, spec in self._specs.items()
        }

    def action(self, agent: str, observation: Any, info: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Return the action of an agent."""
        mask = None
        if self._specs[agent]["mask"] == "info":
            mask = info.get("action_mask")
            # PettingZoo's masks in info are optional; without one, all actions are legal.
            mask = self._actions[agent].everything if mask is None else mask
        # `observation` and `beside` have it under the same key.
        elif self._specs[agent]["mask"] is not None:
            mask = observation["action_mask"]
        if agent not in self._agents:
            return self._actions[agent].random(mask, rng=self._rng)
        return self._champion.act(observation, mask, agent=agent, sample=self._sample)


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
    table = Table(champion, agents=agents, rng=rng, sample=sample)
    # A new episode: recurrent states are cleared, and a mixture draws its member.
    champion.reset()
    returns = dict.fromkeys(champion.card["environment"]["agents"], 0.0)
    play = _play_in_turn if hasattr(env, "agent_iter") else _play_at_once
    for agent, reward in play(env, table, seed=seed):
        returns[agent] += float(reward)
    return returns


def _play_in_turn(env: Any, table: Table, *, seed: int) -> Iterator[tuple[str, float]]:  # noqa: ANN401
    """Yield agents and rewards, turn by turn."""
    env.reset(seed=seed)
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, info = env.last()
        # Rewards since the agent's last turn; an agent that has ended gets its last ones here.
        yield agent, reward
        is_over = terminated or truncated
        # PettingZoo wants None for an agent that has ended.
        env.step(None if is_over else table.action(agent, observation, info))


def _play_at_once(env: Any, table: Table, *, seed: int) -> Iterator[tuple[str, float]]:  # noqa: ANN401
    """Yield agents and rewards, step by step."""
    observations, infos = env.reset(seed=seed)
    ended: set[str] = set()
    # An environment may list agents that have ended, or show nothing to agents that wait.
    while deciding := [a for a in env.agents if a in observations and a not in ended]:
        chosen = {a: table.action(a, observations[a], infos.get(a, {})) for a in deciding}
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
        # This side wins if it reaches the threshold, all others if it does not.
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
    champion: Champion, *, environment_id: str, games: int, seed: int, sample: bool
) -> dict[str, Any]:
    """Play ``games`` games in each seat against uniformly random moves, and count.

    With more than two sides each game has a result against every other side. Wins, draws, losses
    and score are None in cooperation.
    """
    card = champion.card
    environment = card["environment"]
    env = make_environment(environment_id, environment["kwargs"], api=environment["api"])
    rng = np.random.default_rng(seed)
    # One seed decides all draws, the champion's too.
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
    parser.add_argument("--sample", action="store_true", help="draw actions instead of the best")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    if options.games < 1:
        parser.error(f"--games must be at least 1, got {options.games}")
    champion = Champion(options.directory)
    record = play_record(
        champion,
        environment_id=options.env or champion.card["environment"]["id"],
        games=options.games,
        seed=options.seed,
        sample=options.sample,
    )
    sys.stdout.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
