"""Environments as others write them: sound games whose simulators have habits.

Found by id, ``unruly:Exits``, with this directory as the launch directory. Most are one game: each
agent names the number that it was shown, six times over.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

NUM_NUMBERS = 4
NUM_ROUNDS = 6
SLEEP_S = "3456.5"
"""How long a simulator's process lives, if nobody ends it."""


class Naming(ParallelEnv):  # type: ignore[misc]
    """Who names the number that it sees gains a point.

    Args:
        num_agents: Number of agents.
        num_rounds: Number of rounds.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "naming", "render_modes": []}
    render_mode = None

    def __init__(self, *, num_agents: int = 2, num_rounds: int = NUM_ROUNDS) -> None:
        self.possible_agents = [f"player_{index}" for index in range(num_agents)]
        self.agents: list[str] = []
        self._num_rounds = num_rounds
        self._seen = spaces.Box(0.0, 1.0, (NUM_NUMBERS,), np.float32)
        self._named = spaces.Discrete(NUM_NUMBERS)

    def observation_space(self, agent: str) -> Any:
        return self._seen

    def action_space(self, agent: str) -> Any:
        return self._named

    def reset(self, seed: int | None = None, options: object = None) -> Any:
        self.rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self._round = 0
        return self._look(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> Any:
        agents = list(self.agents)
        self._round += 1
        rewards = {agent: float(actions[agent] == self._shown[agent]) for agent in agents}
        is_over = self._round == self._num_rounds
        over = dict.fromkeys(agents, is_over)
        seen = self._look()
        if is_over:
            self.agents = []
        return seen, rewards, over, dict.fromkeys(agents, False), {agent: {} for agent in agents}

    def close(self) -> None:
        pass

    def _look(self) -> dict[str, Any]:
        shown = self.rng.integers(NUM_NUMBERS, size=len(self.agents))
        self._shown = dict(zip(self.agents, shown.tolist(), strict=True))
        return {a: np.eye(NUM_NUMBERS, dtype=np.float32)[n] for a, n in self._shown.items()}


class Exits(Naming):
    """Leaves by an exception that is none of `Exception`'s, once in about so many steps.

    Args:
        by: ``exit``: as `exit()` does; ``interrupt``: as a library that polls for Ctrl-C.
        every: Mean number of steps between two.
    """

    def __init__(self, *, by: str = "exit", every: int = 500) -> None:
        super().__init__()
        self._error = {"exit": SystemExit, "interrupt": KeyboardInterrupt}[by]
        self._every = every

    def step(self, actions: dict[str, int]) -> Any:
        if self.rng.random() < 1.0 / self._every:
            raise self._error
        return super().step(actions)


class Torch(Naming):
    """Has its world in torch, and torch's defaults as that world wants them."""

    def __init__(self) -> None:
        super().__init__()
        self._set()

    def reset(self, seed: int | None = None, options: object = None) -> Any:
        self._set()
        return super().reset(seed, options)

    def _set(self) -> None:
        import torch

        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        torch.manual_seed(0)
        np.seterr(all="raise")


class Prints(Naming):
    """Says at each reset what it does, in Python's and in C's way."""

    def reset(self, seed: int | None = None, options: object = None) -> Any:
        print("Loading the configuration ... done.")  # noqa: T201
        print("{'a': 1}", file=sys.stderr)  # noqa: T201
        libc = ctypes.CDLL(None)
        libc.puts(b"Loading the map ... done.")
        libc.fflush(None)
        return super().reset(seed, options)


class Simulated(Naming):
    """Has a process of its own, in a session of its own, and never ends it."""

    def __init__(self) -> None:
        super().__init__()
        self._process = subprocess.Popen(["sleep", SLEEP_S], start_new_session=True)
        # The parent of this process ends at once, so the process is orphaned.
        command = f"sleep {SLEEP_S} & exit 0"
        subprocess.run(["sh", "-c", command], start_new_session=True, check=True)


class Wanders(Naming):
    """Changes what belongs to the whole process: directory, arguments, signals, mask, warnings."""

    def reset(self, seed: int | None = None, options: object = None) -> Any:
        os.chdir("/")
        os.umask(0o077)
        sys.argv[:] = ["simulator", "--headless"]
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
        warnings.simplefilter("error")
        threading.Thread(target=time.sleep, args=(float(SLEEP_S),), daemon=False).start()
        return super().reset(seed, options)


class Licensed(Naming):
    """Needs a variable of the environment; an episode is longer than all that the run trains."""

    def __init__(self) -> None:
        if "UNRULY_LICENCE" not in os.environ:
            raise RuntimeError("UNRULY_LICENCE is not set: no licence")
        super().__init__(num_rounds=300)


class Bare(ParallelEnv):  # type: ignore[misc]
    """No metadata; what it sees and does is nested, and pay is arrays without axes."""

    def __init__(self) -> None:
        self._game = Naming()
        self.possible_agents = self._game.possible_agents
        self.agents: list[str] = []
        self._seen = spaces.Dict(
            {
                "shown": spaces.Discrete(NUM_NUMBERS),
                "rest": spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([3, 2]))),
            }
        )
        self._done = spaces.Tuple((spaces.MultiDiscrete([NUM_NUMBERS, 2]), spaces.Discrete(2)))

    def observation_space(self, agent: str) -> Any:
        return self._seen

    def action_space(self, agent: str) -> Any:
        return self._done

    def reset(self, seed: int | None = None, options: object = None) -> Any:
        seen, infos = self._game.reset(seed, options)
        self.agents = self._game.agents
        return self._nested(seen), infos

    def step(self, actions: dict[str, Any]) -> Any:
        named = {agent: int(action[0][0]) for agent, action in actions.items()}
        seen, rewards, terminations, truncations, infos = self._game.step(named)
        self.agents = self._game.agents
        pay = {agent: np.array(reward) for agent, reward in rewards.items()}
        return self._nested(seen), pay, terminations, truncations, infos

    def _nested(self, seen: dict[str, Any]) -> dict[str, Any]:
        rest = (np.zeros(2, np.int8), np.array([2, 1]))
        return {agent: {"shown": int(row.argmax()), "rest": rest} for agent, row in seen.items()}


class Grass(ParallelEnv):  # type: ignore[misc]
    """Prey that starve and are born again under names that were free or dead."""

    metadata: ClassVar[dict[str, Any]] = {"name": "grass", "render_modes": []}
    render_mode = None

    def __init__(self, *, most: int = 8, first: int = 3, num_rounds: int = 40) -> None:
        self.possible_agents = [f"prey_{index}" for index in range(most)]
        self.agents: list[str] = []
        self._first, self._num_rounds = first, num_rounds
        self._seen = spaces.Box(-2.0, 2.0, (3,), np.float64)
        self._eaten = spaces.Discrete(3)

    def observation_space(self, agent: str) -> Any:
        return self._seen

    def action_space(self, agent: str) -> Any:
        return self._eaten

    def reset(self, seed: int | None = None, options: object = None) -> Any:
        self._rng, self._round = np.random.default_rng(seed), 0
        self._energy: dict[str, float] = {}
        self._food: dict[str, float] = {}
        self.agents = self.possible_agents[: self._first]
        for agent in self.agents:
            self._bear(agent)
        return self._observe(self.agents), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> Any:
        self._round += 1
        living = list(self.agents)
        rewards = dict.fromkeys(self.possible_agents, 0.0)
        dead = dict.fromkeys(self.possible_agents, False)
        for agent in living:
            has_eaten = actions[agent] == (1 if self._food[agent] < 0.0 else 2)
            self._energy[agent] += 1.2 if has_eaten else -1.0
            self._food[agent] = float(self._rng.choice([-1.0, 1.0]))
            dead[agent] = self._energy[agent] <= 0.0
        born = self._births(living, dead, rewards)
        is_over = self._round >= self._num_rounds
        everybody = living + born
        self.agents = [] if is_over else [agent for agent in everybody if not dead[agent]]
        cut = {agent: is_over and not dead[agent] for agent in everybody}
        return (
            self._observe(everybody),
            {agent: rewards[agent] for agent in everybody},
            {agent: dead[agent] for agent in everybody},
            cut,
            {agent: {} for agent in everybody},
        )

    def _births(
        self, living: Sequence[str], dead: dict[str, bool], rewards: dict[str, float]
    ) -> list[str]:
        born: list[str] = []
        for agent in living:
            free = [name for name in self.possible_agents if name not in (*living, *born)]
            if not dead[agent] and self._energy[agent] >= 8.0 and free:
                self._energy[agent] -= 4.0
                rewards[agent] += 10.0
                born.append(free[0])
                self._bear(free[0])
        return born

    def _bear(self, agent: str) -> None:
        self._energy[agent] = 4.0
        self._food[agent] = float(self._rng.choice([-1.0, 1.0]))

    def _observe(self, agents: Sequence[str]) -> dict[str, Any]:
        share = len(self.agents) / len(self.possible_agents)
        return {a: np.array([self._energy[a] / 5 - 1, self._food[a], share]) for a in agents}


class Prison(ParallelEnv):  # type: ignore[misc]
    """Prisoner and guard see the very same numbers, and want the opposite."""

    metadata: ClassVar[dict[str, Any]] = {"name": "prison", "render_modes": []}
    render_mode = None
    moves = ((-1, 0), (1, 0), (0, -1), (0, 1))

    def __init__(self, *, size: int = 5, num_rounds: int = 30) -> None:
        self.possible_agents = ["prisoner", "guard"]
        self.agents: list[str] = []
        self._size, self._num_rounds = size, num_rounds
        self._seen = spaces.MultiDiscrete([size * size] * 3)
        self._moved = spaces.Discrete(len(self.moves))

    def observation_space(self, agent: str) -> Any:
        return self._seen

    def action_space(self, agent: str) -> Any:
        return self._moved

    def reset(self, seed: int | None = None, options: object = None) -> Any:
        last = self._size - 1
        row, column = np.random.default_rng(seed).integers(1, last, size=2).tolist()
        self.agents, self._round = list(self.possible_agents), 0
        self._at = {"prisoner": (0, 0), "guard": (last, last)}
        self._exit = (row, column)
        return self._observe(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> Any:
        agents = list(self.agents)
        for agent in agents:
            (x, y), (dx, dy) = self._at[agent], self.moves[actions[agent]]
            last = self._size - 1
            self._at[agent] = min(max(x + dx, 0), last), min(max(y + dy, 0), last)
        self._round += 1
        is_caught = self._at["prisoner"] == self._at["guard"]
        is_free = self._at["prisoner"] == self._exit
        pay = -1 if is_caught else int(is_free)
        is_over = is_caught or is_free
        is_cut = self._round >= self._num_rounds and not is_over
        result: tuple[Any, ...] = (
            self._observe(),
            {"prisoner": pay, "guard": -pay},
            dict.fromkeys(agents, is_over),
            dict.fromkeys(agents, is_cut),
            {agent: {} for agent in agents},
        )
        if is_over or is_cut:
            self.agents = []
        return result

    def _observe(self) -> dict[str, Any]:
        places = (self._at["prisoner"], self._at["guard"], self._exit)
        view = np.array([x + self._size * y for x, y in places])
        return {agent: view for agent in self.possible_agents}


class Routes(AECEnv):  # type: ignore[misc]
    """Vehicles choose a road one after the other; all are paid when the last one has chosen.

    Their names are numbers, as text.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "routes", "render_modes": []}
    render_mode = None
    num_roads = 3

    def __init__(self, *, num_vehicles: int = 22) -> None:
        super().__init__()
        self.possible_agents = [str(index) for index in range(num_vehicles)]
        self._seen = spaces.Box(0.0, np.inf, (1 + self.num_roads,), np.float32)
        self._taken = spaces.Discrete(self.num_roads)

    def observation_space(self, agent: str) -> Any:
        return self._seen

    def action_space(self, agent: str) -> Any:
        return self._taken

    def reset(self, seed: int | None = None, options: object = None) -> None:
        self.agents = list(self.possible_agents)
        starts = np.random.default_rng(seed).integers(0, 50, size=len(self.agents)).tolist()
        self._start = dict(zip(self.agents, starts, strict=True))
        self._queue = sorted(self.agents, key=lambda agent: (self._start[agent], int(agent)))
        self._road: dict[str, int] = {}
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self.agent_selection = self._queue.pop(0)

    def observe(self, agent: str) -> Any:
        return np.array([self._start[agent], *self._loads()], np.float32)

    def step(self, action: int | None) -> None:
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        assert action is not None
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        self._road[agent] = int(action)
        if self._queue:
            self.agent_selection = self._queue.pop(0)
        else:
            loads = self._loads()
            for other in self.agents:
                road = self._road[other]
                self.rewards[other] = -(1 + road + loads[road] ** 2 / 10) / 5
                self.terminations[other] = True
            self.agent_selection = self.agents[0]
        self._accumulate_rewards()

    def close(self) -> None:
        pass

    def _loads(self) -> list[int]:
        chosen = list(self._road.values())
        return [chosen.count(number) for number in range(self.num_roads)]
