"""A game of four rounds, in turns or at once, in which one thing goes wrong now and then.

Found by id, ``faulty:Rounds`` or ``faulty:turns``, with this directory as the launch directory.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv
from pettingzoo.utils.conversions import parallel_to_aec_wrapper

AGENTS = ["player_0", "player_1"]
NUM_ROUNDS = 4
NUM_ACTIONS = 2
MEBIBYTE = 2**20


class Untold(Exception):
    """Error without a text."""

    def __str__(self) -> str:
        raise LookupError


class Rounds(ParallelEnv):  # type: ignore[misc]
    """Both choose a number; who chooses 1 alone gains a point.

    Args:
        fault: What goes wrong, in the third round; empty: nothing.
        share: Of the episodes in which it does; the seed decides which.
        once: A file that does not exist; the first fault of all processes makes it, and is the
            last one.
        started: What processes append their ids to when they make an environment.
        only_in: Module of the processes in which it does; empty: in all.
    """

    metadata = {"name": "rounds", "render_modes": []}  # noqa: RUF012
    render_mode = None

    def __init__(
        self,
        *,
        fault: str = "",
        share: float = 1.0,
        once: str = "",
        started: str = "",
        only_in: str = "",
    ) -> None:
        self.possible_agents = list(AGENTS)
        self.agents: list[str] = []
        is_here = not only_in or only_in in sys.orig_argv
        self._fault, self._share, self._once = fault if is_here else "", share, once
        self._masked = fault == "empty_mask"
        seen = spaces.Box(-10.0, 10.0, (3,), np.float32)
        self._space: spaces.Space[Any] = seen
        if self._masked:
            mask = spaces.MultiBinary(NUM_ACTIONS)
            self._space = spaces.Dict({"observation": seen, "action_mask": mask})
        if started:
            with Path(started).open("a") as file:
                file.write(f"{os.getpid()}\n")

    def observation_space(self, agent: str) -> Any:
        return self._space

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(NUM_ACTIONS)

    def reset(self, seed: int | None = None, options: object = None) -> Any:
        self._luck = float(np.random.default_rng(seed).random())
        self._round = 0
        self.agents = list(AGENTS)
        if self._is_due("reset_raises", at=0):
            raise RuntimeError("no pieces")
        return self._observations(), {agent: {} for agent in AGENTS}

    def step(self, actions: dict[str, int]) -> Any:
        self._round += 1
        if self._is_due("step_raises"):
            raise RuntimeError("the board is on fire")
        if self._is_due("surrogates"):
            raise RuntimeError("\ud800")
        if self._is_due("untold"):
            raise Untold
        self._do_worse()
        rewards: dict[str, Any] = {
            agent: float(action - actions[other])
            for (agent, action), other in zip(actions.items(), reversed(AGENTS), strict=True)
        }
        for fault, value in (
            ("nan_reward", np.nan),
            ("infinite_reward", np.inf),
            ("huge_reward", 1e30),
        ):
            if self._is_due(fault):
                rewards["player_0"] = value
        observations = self._observations()
        if self._is_due("agent_missing"):
            del rewards["player_1"], observations["player_1"]
        over = self._round == NUM_ROUNDS
        if over:
            self.agents = []
        return (
            observations,
            rewards,
            dict.fromkeys(AGENTS, over),
            dict.fromkeys(AGENTS, False),
            {agent: {} for agent in AGENTS},
        )

    def close(self) -> None:
        if self._fault == "close_raises" and self._share:
            raise RuntimeError("it does not close")

    def _do_worse(self) -> None:
        """What no exception tells."""
        if self._fault == "slow":
            time.sleep(0.01)
        if self._is_due("spins"):
            while True:
                pass
        if self._is_due("sleeps"):
            time.sleep(1e9)
        if self._is_due("exits"):
            raise SystemExit(3)
        if self._is_due("interrupts"):
            raise KeyboardInterrupt
        if self._is_due("closes_generators"):
            raise GeneratorExit
        if self._is_due("memory"):
            raise MemoryError
        if self._is_due("stops"):
            os.kill(os.getpid(), signal.SIGSTOP)
        if self._is_due("grows"):
            hoard = np.ones(600 * MEBIBYTE, dtype=np.uint8)
            time.sleep(1.0)  # long enough for heartbeats to report it
            os.kill(os.getpid(), signal.SIGKILL)
            del hoard

    def _is_due(self, fault: str, *, at: int = 2) -> bool:
        if self._fault != fault or self._round != at or self._luck >= self._share:
            return False
        if not self._once:
            return True
        try:
            os.close(os.open(self._once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _observations(self) -> dict[str, Any]:
        return {agent: self._observation(agent) for agent in AGENTS}

    def _observation(self, agent: str) -> Any:
        seen: Any = np.array([self._luck, self._round, AGENTS.index(agent)], dtype=np.float32)
        for fault, value in (("nan_observation", np.nan), ("infinite_observation", np.inf)):
            if self._is_due(fault):
                seen[0] = value
        if self._is_due("wrong_shape"):
            seen = seen[:2]
        if self._is_due("wrong_dtype"):
            seen = seen.astype(str)
        if not self._masked:
            return seen
        mask = np.full(NUM_ACTIONS, not self._is_due("empty_mask"), dtype=np.int8)
        return {"observation": seen, "action_mask": mask}


class Together(Rounds):
    """Rewards are the episode's luck for both. Nothing goes wrong until player_0 chooses 1."""

    _is_calm = True

    def step(self, actions: dict[str, int]) -> Any:
        self._is_calm = actions["player_0"] == 0
        observations, rewards, *others = super().step(actions)
        return observations, dict.fromkeys(rewards, self._luck), *others

    def _is_due(self, fault: str, *, at: int = 2) -> bool:
        return not self._is_calm and super()._is_due(fault, at=at)


class _Turns(parallel_to_aec_wrapper):  # type: ignore[misc]
    """The rounds in turns. What a round says is passed on as it is."""


def turns(**kwargs: Any) -> Any:
    """The same game, one after the other."""
    return _Turns(Rounds(**kwargs))
