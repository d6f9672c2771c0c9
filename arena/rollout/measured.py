"""Measurements while environments run, for displays and alerts; no algorithm reads them.

Shapes: B environments, A agents, D decisions, F features of a flattened observation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch

from arena.envs.base import Turn
from arena.envs.episode_metrics import LARGEST, SUCCESS, Report
from arena.experience import Rollout
from arena.matches.tally import played_to_the_end

SAMPLED_ROWS = 64
"""Number of observations that are compared first; all are compared only if these are equal."""


@dataclass(slots=True)
class Spread:
    """Mean, bounds and deviation of numbers that come one by one (Welford's method)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def add(self, value: float) -> None:
        """Add a number."""
        # Welford: m_n = m_{n-1} + (x_n - m_{n-1}) / n, S_n = S_{n-1} + (x_n - m_{n-1}) (x_n - m_n)
        self.count += 1
        gap = value - self.mean
        self.mean += gap / self.count
        self.squares += gap * (value - self.mean)
        self.low, self.high = min(self.low, value), max(self.high, value)

    def metrics(self, name: str) -> dict[str, float]:
        """Return mean, bounds and deviation as metrics; the deviation is not that of the mean."""
        return {
            f"{name}_mean": self.mean,
            f"{name}_min": self.low,
            f"{name}_max": self.high,
            f"{name}_deviation": math.sqrt(self.squares / self.count),
        }

    def merge(self, other: Spread) -> None:
        """Add the numbers of another `Spread`."""
        # m = m_1 + n_2 / n d, S = S_1 + S_2 + n_1 n_2 / n d^2
        count = self.count + other.count
        gap = other.mean - self.mean
        self.mean += gap * other.count / count
        self.squares += other.squares + gap * gap * self.count * other.count / count
        self.count = count
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)


@dataclass(slots=True, kw_only=True)
class Measures:
    """Measurements of one policy in an assignment.

    Attributes:
        num_steps: Calls of ``step``.
        low: Lowest reward of a step; None: the policy had no seat in any.
        high: Highest reward of a step; None: likewise.
        figures: Episode metrics that environments reported, by name.
        num_ignored: Number of ignored episode metrics.
        spread: Largest spread of the observations of a rollout; None: no rollout had two.
        num_trained: Number of decisions that were trained on.
        num_decisions: Number of all decisions in the policy's rollouts. Those not trained on are
            decisions of other players of its population, random openings, void episodes, or
            decisions whose successor was unknown at the end of the rollout.
    """

    num_steps: int = 0
    low: float | None = None
    high: float | None = None
    figures: dict[str, Spread] = field(default_factory=dict)
    num_ignored: int = 0
    spread: float | None = None
    num_trained: int = 0
    num_decisions: int = 0

    def add_rollout(self, rollout: Rollout) -> None:
        """Add the measurements of a rollout."""
        self.num_trained += len(rollout)
        self.num_decisions += rollout.num_decisions
        if len(rollout.observation) > 1:
            spread = observation_spread(rollout.observation)
            self.spread = spread if self.spread is None else max(self.spread, spread)

    def merge(self, other: Measures) -> None:
        """Add measurements of the same steps in other environments."""
        self.num_steps = max(self.num_steps, other.num_steps)
        self.low = _chosen(min, self.low, other.low)
        self.high = _chosen(max, self.high, other.high)
        self.spread = _chosen(max, self.spread, other.spread)
        for name, spread in other.figures.items():
            self.figures.setdefault(name, Spread()).merge(spread)
        self.num_ignored += other.num_ignored
        self.num_trained += other.num_trained
        self.num_decisions += other.num_decisions

    def metrics(self) -> dict[str, float]:
        """Return flat metrics, without those that were not measured."""
        found = {"rollout/steps_count": float(self.num_steps)}
        if self.low is not None and self.high is not None:
            found["reward/min"], found["reward/max"] = self.low, self.high
        for name, spread in self.figures.items():
            found |= spread.metrics(f"environment/{name}")
        if self.num_ignored:
            found["environment/ignored_count"] = float(self.num_ignored)
        if self.spread is not None:
            found["observation/spread"] = self.spread
        if self.num_decisions:
            found["rollout/trained_share"] = self.num_trained / self.num_decisions
        return found


def _chosen(
    choose: Callable[[float, float], float], one: float | None, other: float | None
) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return choose(one, other)


class Measured:
    """Measurements of one assignment's turns, with two operations per step and no device sync.

    Args:
        num_envs: B.
        num_agents: A.
        num_players: Number of players that tables index.
        device: Device of the turns.
    """

    def __init__(
        self, *, num_envs: int, num_agents: int, num_players: int, device: torch.device
    ) -> None:
        self._low = torch.full((num_envs, num_agents), math.inf, device=device)
        self._high = -self._low
        self._low_of_player = torch.full((num_players,), math.inf, device=device)
        self._high_of_player = -self._low_of_player
        self._num_steps = 0
        self._figures: dict[int, dict[str, Spread]] = {}
        self._num_ignored: dict[int, int] = {}

    def add(self, turn: Turn, *, table: torch.Tensor) -> None:
        """Add the result of a step.

        Args:
            turn: Turn that ``step`` returned.
            table: Index of each agent's player. int64 [B, A].
        """
        self._num_steps += 1
        # Rewards are kept by (environment, agent); `settle` looks up the player.
        torch.minimum(self._low, turn.reward, out=self._low)
        torch.maximum(self._high, turn.reward, out=self._high)
        if turn.figures:
            self._add_figures(turn.figures, table=table)

    def _add_figures(self, reports: Sequence[Report], *, table: torch.Tensor) -> None:
        environments = [report.environment for report in reports]
        # All reports of a step need only one transfer from the device.
        players = table[environments, [report.agent for report in reports]].tolist()
        for player, report in zip(players, reports, strict=True):
            own = self._figures.setdefault(player, {})
            for name, value in report.figures.items():
                own.setdefault(name, Spread()).add(value)
            self._num_ignored[player] = self._num_ignored.get(player, 0) + report.num_ignored

    def settle(self, *, table: torch.Tensor) -> None:
        """Credit the rewards so far to the players of a table; call this before players move."""
        index = table.flatten()
        self._low_of_player.scatter_reduce_(0, index, self._low.flatten(), "amin")
        self._high_of_player.scatter_reduce_(0, index, self._high.flatten(), "amax")
        self._low.fill_(math.inf)
        self._high.fill_(-math.inf)

    def of_player(self, player: int, *, table: torch.Tensor) -> Measures:
        """Return a player's measurements: rewards of single steps, and reported metrics."""
        self.settle(table=table)
        low, high = float(self._low_of_player[player]), float(self._high_of_player[player])
        # The bounds keep their infinite initial values if the player had no seat in any step.
        has_seat = low <= high
        return Measures(
            num_steps=self._num_steps,
            low=low if has_seat else None,
            high=high if has_seat else None,
            figures=self._figures.get(player, {}),
            num_ignored=self._num_ignored.get(player, 0),
        )


def with_successes(turn: Turn, *, returns: torch.Tensor, at_least: float) -> Turn:
    """Return a turn whose reports say whether each agent of the ended episodes succeeded.

    Args:
        turn: Turn that ``step`` returned; its own reports of success are dropped.
        returns: Undiscounted returns of the episodes. float64 [B, A].
        at_least: Smallest return of a success.
    """
    over = played_to_the_end(turn).nonzero().squeeze(1)
    # The comparison is in float32, as rewards are: a reward of 0.7 is less than 0.7 in float64.
    success = returns[over].float() >= torch.tensor(at_least, dtype=torch.float32)
    others = (
        replace(report, figures={k: v for k, v in report.figures.items() if k != SUCCESS})
        for report in turn.figures
    )
    own = (
        Report(environment, agent, {SUCCESS: float(one)}, 0)
        for environment, row in zip(over.tolist(), success.tolist(), strict=True)
        for agent, one in enumerate(row)
    )
    return replace(turn, figures=[*others, *own])


def observation_spread(observation: torch.Tensor) -> float:
    """Return a lower bound of the largest range of a feature; 0: all observations are equal.

    Args:
        observation: float32 or uint8 [D, F].
    """
    if observation.numel() == 0:
        return 0.0
    # Some rows differ in nearly all cases, so all rows are compared only if they do not.
    few = observation[:: max(len(observation) // SAMPLED_ROWS, 1)]
    return _spread(few) or _spread(observation)


def _spread(observation: torch.Tensor) -> float:
    low, high = observation.aminmax(dim=0)
    # The range of float32 numbers may overflow, but metrics must be finite.
    return min(float((high - low).max()), LARGEST)
