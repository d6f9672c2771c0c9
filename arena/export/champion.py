"""A trained policy, or a mixture of some. Needs numpy and onnxruntime, nothing else.

    champion = Champion("path/to/this/directory")
    champion.reset()
    action = champion.act(observation, action_mask)

``reset`` begins an episode: of a mixture it draws the member that plays it.

``observation`` is what the PettingZoo environment gives, its dictionary with an ``action_mask``
included. Run as a script, it plays PettingZoo's own environment against uniformly random moves::

    python champion.py --games 100

The file is copied as it is into every export and imports nothing of Arena.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import onnxruntime

_SCHEMA = 1
_EQUAL = 1e-9  # returns are sums of rewards: rounding decides no game


class Discrete(Protocol):
    """The action space of an agent: integers from ``start``."""

    n: int
    start: int


class Environment(Protocol):
    """What is used of a PettingZoo AEC environment."""

    possible_agents: list[str]

    def reset(self, seed: int | None = None) -> None:
        """Begin an episode."""

    def agent_iter(self) -> Iterable[str]:
        """Whose turn it is, until the episode is over."""

    def last(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Observation, reward, terminated, truncated and info of the agent on turn."""

    def step(self, action: int | None) -> None:
        """Carry out the action of the agent on turn."""

    def action_space(self, agent: str) -> Discrete:
        """What an agent can do."""

    def close(self) -> None:
        """Release everything."""


class Champion:
    """Plays what ``arena export`` wrote: a policy, or a mixture of some. Not thread-safe.

    Args:
        directory: With ``card.json`` and the files that it names.
        seed: Of all random draws; None: others each time.

    Attributes:
        card: What the export says about itself.
        member: Which of the mixture's members plays this episode, from 0; 0 without a mixture.

    Raises:
        ValueError: If the card is of another schema, or a ``policy.onnx`` is not the file it names.
    """

    def __init__(self, directory: str | Path, *, seed: int | None = None) -> None:
        path = Path(directory)
        self.card: dict[str, Any] = json.loads((path / "card.json").read_text(encoding="utf-8"))
        if self.card.get("schema") != _SCHEMA:
            raise ValueError(f"card.json must have schema {_SCHEMA}, got {self.card.get('schema')}")
        members = self.card.get("members", [])
        policies = [f"{member['directory']}/policy.onnx" for member in members] or ["policy.onnx"]
        self._sessions = [_session(self._verified(path, policy)) for policy in policies]
        masses = np.array([member["probability"] for member in members] or [1.0])
        self._probabilities = masses / masses.sum()
        self._shape = tuple(self.card["observation"]["shape"])
        self._num_actions = int(self.card["action"]["num_actions"])
        self._start = int(self.card["action"]["start"])
        self._has_mask = self.card["mask"] is not None
        self._rng = np.random.default_rng()
        self.member = 0
        self.reset(seed=seed)

    def act(
        self,
        observation: object,
        action_mask: npt.ArrayLike | None = None,
        *,
        agent: str | None = None,
        sample: bool = False,
        seed: int | None = None,
    ) -> int:
        """Choose an action.

        Args:
            observation: As the environment gives it: an array, a number (Discrete), or a
                dictionary with ``observation`` and ``action_mask``.
            action_mask: Non-zero for legal actions, one per action; needed where the environment
                has masks and ``observation`` does not bring it.
            agent: Whose decision it is; checked against the agents that the policy can play.
            sample: Draw from the policy instead of its likeliest action.
            seed: Starts the stream of random numbers anew, for this and later calls; who plays
                this episode of a mixture stays.

        Returns:
            The action as the environment counts it.

        Raises:
            ValueError: If an argument does not fit the card.
        """
        if agent is not None and agent not in self.card["agents"]:
            raise ValueError(f"agent must be one of {self.card['agents']}, got {agent!r}")
        if isinstance(observation, Mapping) and "observation" in observation:
            if action_mask is None:
                action_mask = observation.get("action_mask")
            observation = observation["observation"]
        inputs = {"observation": self._checked_observation(observation)}
        mask = self._checked_mask(action_mask)
        if mask is not None:
            inputs["action_mask"] = mask
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        session = self._sessions[self.member]
        if not sample:
            (action,) = session.run(["action"], inputs)
            return int(action[0]) + self._start
        (logits,) = session.run(["logits"], inputs)
        return self._draw(logits[0]) + self._start

    def reset(self, *, seed: int | None = None) -> None:
        """Begin a new episode: draw who of a mixture plays it.

        A policy has no memory: without a mixture this matters only for policies to come.

        Args:
            seed: Starts the stream of random numbers anew, before the draw.
        """
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        if len(self._sessions) > 1:
            self.member = int(self._rng.choice(len(self._sessions), p=self._probabilities))

    def _verified(self, path: Path, name: str) -> bytes:
        data = (path / name).read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        if digest != self.card["files"][name]["sha256"]:
            raise ValueError(f"{name} is not the file of card.json: its sha256 is {digest}")
        return data

    def _checked_observation(self, observation: object) -> npt.NDArray[Any]:
        row = np.asarray(observation, dtype=np.float32)
        if row.shape != self._shape:
            raise ValueError(f"observation must have shape {self._shape}, got {row.shape}")
        if not np.isfinite(row).all():
            raise ValueError("observation must be finite")
        return row[np.newaxis]

    def _checked_mask(self, action_mask: npt.ArrayLike | None) -> npt.NDArray[Any] | None:
        if not self._has_mask:
            if action_mask is not None:
                raise ValueError("this policy's environment has no action masks")
            return None
        if action_mask is None:
            raise ValueError("action_mask is needed: this policy's environment has masks")
        mask = np.asarray(action_mask).astype(np.bool_)
        if mask.shape != (self._num_actions,):
            raise ValueError(
                f"action_mask must have shape ({self._num_actions},), got {mask.shape}"
            )
        if not mask.any():
            raise ValueError("action_mask must have a legal action")
        return mask[np.newaxis]

    def _draw(self, logits: npt.NDArray[np.float32]) -> int:
        # In float64 a masked-out logit (float32's minimum) has weight exp(-3.4e38) = 0 exactly.
        weights = np.exp(logits.astype(np.float64) - np.max(logits))
        return int(self._rng.choice(len(weights), p=weights / weights.sum()))


def _session(model: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def make_environment(environment_id: str, kwargs: Mapping[str, Any]) -> Environment:
    """Make PettingZoo's own environment, turn by turn (AEC).

    Args:
        environment_id: ``classic/connect_four-v3``, ``mpe2/simple_tag_v3``, or
            ``package.module:factory``.
        kwargs: For its factory.
    """
    import pettingzoo
    from pettingzoo.utils.conversions import parallel_to_aec

    path, colon, factory = environment_id.partition(":")
    if colon:
        env = getattr(importlib.import_module(path), factory)(**kwargs)
        return cast(Environment, env if hasattr(env, "agent_iter") else parallel_to_aec(env))
    family, _, name = environment_id.partition("/")
    if family in ("mpe", "mpe2"):
        module = importlib.import_module(f"mpe2.{name.replace('-', '_')}")
        return cast(Environment, module.env(**kwargs))
    return cast(Environment, pettingzoo.make("aec", environment_id, **kwargs))


def play_game(
    champion: Champion,
    env: Environment,
    *,
    agents: Sequence[str],
    seed: int,
    rng: np.random.Generator,
    sample: bool = False,
) -> dict[str, float]:
    """Play one game, the other agents moving uniformly at random among their legal actions.

    Args:
        champion: Who plays ``agents``.
        env: A PettingZoo AEC environment.
        agents: The champion's.
        seed: Of the environment's reset.
        rng: Of the random moves.
        sample: Draw the champion's actions too.

    Returns:
        The return of every agent.
    """
    env.reset(seed=seed)
    champion.reset()
    returns = dict.fromkeys(env.possible_agents, 0.0)
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, info = env.last()
        returns[agent] += float(reward)
        if terminated or truncated:
            env.step(None)
            continue
        mask = info.get("action_mask")
        if isinstance(observation, Mapping) and "action_mask" in observation:
            mask = observation["action_mask"]
        if agent in agents:
            env.step(champion.act(observation, mask, agent=agent, sample=sample))
        else:
            env.step(_random_action(env.action_space(agent), mask, rng))
    return returns


def _random_action(space: Discrete, mask: npt.ArrayLike | None, rng: np.random.Generator) -> int:
    legal = np.arange(space.n) if mask is None else np.flatnonzero(mask)
    return int(rng.choice(legal)) + int(space.start)


def score_of(card: Mapping[str, Any], returns: Mapping[str, float], agents: Sequence[str]) -> float:
    """Result of a game for the champion's agents.

    The card's rule where it is a threshold on a return, else the higher mean return wins.

    Returns:
        1.0 won, 0.5 drawn, 0.0 lost; NaN if nobody plays against them.
    """
    sides = card["environment"]["sides"]
    mine = {agent for side in sides.values() if set(side) & set(agents) for agent in side}
    others = [value for agent, value in returns.items() if agent not in mine]
    if not others:
        return float("nan")
    outcome = card["environment"]["outcome"]
    if isinstance(outcome, Mapping) and "threshold" in outcome:
        side = sides[outcome["side"]]
        reached = float(np.mean([returns[agent] for agent in side])) >= outcome["threshold"]
        return float(reached == bool(set(side) & set(agents)))
    difference = float(np.mean([returns[agent] for agent in sorted(mine)]) - np.mean(others))
    return 0.5 if abs(difference) < _EQUAL else float(difference > 0.0)


def play_record(
    champion: Champion, *, environment_id: str, games: int, seed: int, sample: bool
) -> dict[str, Any]:
    """Play ``games`` games in each seat against uniformly random moves, and count.

    Wins, draws and losses are None in cooperation: there nobody plays against anybody.
    """
    card = champion.card
    env = make_environment(environment_id, card["environment"]["kwargs"])
    rng = np.random.default_rng(seed)
    champion.reset(seed=int(rng.integers(2**31)))
    seats = []
    for seat in card["seats"]:
        agents = seat["agents"]
        scores, own_returns = [], []
        for _ in range(games):
            game_seed = int(rng.integers(2**31))
            returns = play_game(
                champion, env, agents=agents, seed=game_seed, rng=rng, sample=sample
            )
            scores.append(score_of(card, returns, agents))
            own_returns.append(float(np.mean([returns[agent] for agent in agents])))
        results = {"wins": 1.0, "draws": 0.5, "losses": 0.0}
        is_scored = not np.isnan(scores[0])
        seats.append(
            {
                "seat": seat["name"],
                "matches": games,
                **{key: scores.count(s) if is_scored else None for key, s in results.items()},
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
