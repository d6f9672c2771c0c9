"""Random legal actions in an environment's own form, without torch.

Tests: `tests/arena/envs/probe/test_play.py`, `tests/arena/envs/checks/test_native_play.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from arena.environment_spec import AgentSpec, EnvironmentSpec
from arena.envs.spaces.actions import ActionLayout
from arena.errors import EnvironmentFault


class RandomActing:
    """Source of actions for agents of one environment, each legal choice equally likely.

    Args:
        spec: Environment's spec.
        seed: Seed of all draws.

    Attributes:
        layouts: Layout of each agent's actions.
    """

    def __init__(self, spec: EnvironmentSpec, *, seed: int) -> None:
        self._specs = spec.agent_specs
        self.layouts = {
            # "clipped", as draws are bounded already and squashing would move them
            agent: ActionLayout.from_json(facts.action, continuous="clipped")
            for agent, facts in spec.agent_specs.items()
        }
        self._rng = np.random.default_rng(seed)

    @property
    def agents(self) -> tuple[str, ...]:
        """Agents that may act."""
        return tuple(self._specs)

    def act(self, agent: str, observation: Any, info: Mapping[str, Any] | None) -> Any:  # noqa: ANN401
        """Draw one action.

        Raises:
            EnvironmentFault: If the mask allows none.
            ValueError: If the mask is invalid.
        """
        layout = self.layouts[agent]
        mask = _mask(self._specs[agent], observation, info)
        # A mask missing in info allows everything, which is PettingZoo's rule.
        legal = None if mask is None else layout.flatten_mask(mask)
        if legal is not None and not layout.allows(legal[None])[0]:
            raise EnvironmentFault(f"agent {agent!r}: an action mask must allow an action")
        return self.draw(agent, legal)

    def draw(self, agent: str, legal: npt.NDArray[np.bool_] | None) -> Any:  # noqa: ANN401
        """Draw a legal action (bool [n]; None: all are legal)."""
        layout = self.layouts[agent]
        choices = self._choices(layout, legal)
        if layout.is_discrete:
            return layout.actions(np.array(choices, dtype=np.int64))[0]
        # A row has the choices first, then the numbers.
        row = np.concatenate([choices, self._numbers(layout)]).astype(np.float32)
        return layout.actions(row[None])[0]

    def _choices(self, layout: ActionLayout, legal: npt.NDArray[np.bool_] | None) -> list[int]:
        chosen, first = [], 0
        for number in layout.branches:
            if legal is None:
                chosen.append(int(self._rng.integers(number)))
            else:
                # Indices within the branch, as a row's choices are.
                chosen.append(int(self._rng.choice(np.flatnonzero(legal[first : first + number]))))
            first += number
        return chosen

    def _numbers(self, layout: ActionLayout) -> npt.NDArray[np.float64]:
        """Draw numbers: uniform within two bounds, normal beside one, standard normal
        without any.
        """
        low, high = np.array(layout.low), np.array(layout.high)
        share, normal = self._rng.random(len(low)), self._rng.standard_normal(len(low))
        bounded_low, bounded_high = np.isfinite(low), np.isfinite(high)
        # One bound: l + |z| or h - |z|; none: z.
        numbers = np.where(bounded_low, np.where(bounded_low, low, 0.0) + np.abs(normal), normal)
        only_high = bounded_high & ~bounded_low
        numbers[only_high] = high[only_high] - np.abs(normal[only_high])
        both = bounded_low & bounded_high
        # Interpolated, because the difference of the bounds may exceed a float.
        numbers[both] = (1.0 - share[both]) * low[both] + share[both] * high[both]
        return numbers


def _mask(spec: AgentSpec, observation: Any, info: Mapping[str, Any] | None) -> object:  # noqa: ANN401
    if spec.mask is None:
        return None
    # "observation" and "beside" both have the mask in the observation.
    holder = (info or {}) if spec.mask == "info" else observation
    mask: object = holder.get("action_mask")
    return mask
