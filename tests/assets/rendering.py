"""Environments that draw themselves in all ways, and drawings of them.

Found by id, ``rendering:env``, with this directory as the launch directory.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from arena.drawings.picture import Moment, Picture


class Steps(ParallelEnv):  # type: ignore[misc]
    """Two agents name numbers four times over, and get them.

    Args:
        render_mode: None: it draws nothing.
        shows: What ``render`` does after two steps, and in which of them.
        modes: Render modes of which it tells.
        length: Number of steps.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "steps"}

    def __init__(
        self,
        render_mode: str | None = None,
        *,
        shows: str = "",
        modes: tuple[str, ...] = ("human", "rgb_array"),
        length: int = 4,
    ) -> None:
        self.metadata["render_modes"] = list(modes)
        self.possible_agents = ["a", "b"]
        self.render_mode, self._shows, self._length = render_mode, shows, length
        self._steps = 0

    def observation_space(self, agent: str) -> Any:
        return spaces.Discrete(9)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3, start=1)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self._steps = self.possible_agents[:], 0
        return dict.fromkeys(self.agents, 0), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, int]) -> Any:
        self._steps += 1
        agents = self.agents
        over = self._steps == self._length
        self.agents = [] if over else agents
        rewards = {agent: float(actions[agent]) for agent in agents}
        return (
            dict.fromkeys(agents, self._steps),
            rewards,
            dict.fromkeys(agents, over),
            dict.fromkeys(agents, False),
            {agent: {} for agent in agents},
        )

    def render(self) -> Any:
        # The environment must not open a window, whatever the user's screen is.
        assert (os.environ["SDL_VIDEODRIVER"], os.environ["DISPLAY"]) == ("dummy", "")
        frame = np.zeros((20, 30, 3), dtype=np.uint8)
        # The red block marks the upper left corner.
        frame[:5, : 5 + self._steps] = (200, 10, 0)
        if self.render_mode == "ansi":
            return f"\x1b[31mstep {self._steps}\x1b[0m\x07\n" + "w" * 100
        return frame if self._steps < 2 else self._late(frame)

    def _late(self, frame: Any) -> Any:
        match self._shows:
            case "hang":
                threading.Event().wait()
            case "crash":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exit":
                os._exit(0)
            case "raise":
                raise RuntimeError("no more paint")
            case "prints":
                os.write(1, b'{"pictures": [{"text": "mine"}]}\n')
            case "huge":
                return np.zeros((5000, 5000, 3), dtype=np.uint8)
            case "noise":
                return np.random.default_rng(1).integers(0, 256, (1200, 1600, 3), dtype=np.uint8)
            case "floats":
                return frame / 255.0
            case "nothing":
                return None
        return frame


def env(**kwargs: Any) -> Steps:
    return Steps(**kwargs)


def draw(moment: Moment) -> Picture:
    """What a user's drawing is: two lines."""
    return Picture(text=f"{moment.caption('named')}\n{dict(moment.returns)}")


def draw_script(moment: Moment) -> Picture:
    return Picture(svg='<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>')


def draw_nothing(moment: Moment) -> None:
    return None


def draw_wrong(moment: Moment) -> Picture:
    raise LookupError("no colour is left")
