"""Scores of matches: from the agents' rewards and infos to the points of each side.

The score of one side against another is 1/2 + (its points - the other's) / 2, within [0, 1]. Where
only the order counts, points are the number of sides that a side has beaten, equal ones half; with
two sides these are the scores themselves. Where the margin counts, points are 1/2 + (u - m) / (2
SCALE), with u a side's return and m the mean return of all sides: of two sides with returns u and
-u the first one scores 1/2 + u / (2 SCALE).

Torch-free. A side's return is the mean of its agents' undiscounted returns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real

import numpy as np
import numpy.typing as npt

from arena.config import InfoOutcome, MarginOutcome, Outcome, ThresholdOutcome
from arena.errors import ConfigError, EnvironmentFault
from arena.processes.settings import SETTINGS
from arena.resolve import resolve
from arena.rules import nearest
from arena.users_code import users_code

Returns = Mapping[str, float]
Infos = Mapping[str, Mapping[str, object]]
Sides = Mapping[str, tuple[str, ...]]
Score = Callable[[Returns, Infos], tuple[float, ...]]
"""Function from returns and last infos by agent to the points of each side, in the order of the
sides; in cooperation to the number by which plays are compared, NaN where that is the return.
"""

MANY_SIDES = 16
"""Most sides that are compared faster one by one than in arrays."""

TOLERANCE = 1e-6
"""Tolerance of equal returns, relative to the larger of two returns and 1.

Returns are sums of float32 rewards, and rounding must not decide a match.
"""


def make_outcome(
    outcome: Outcome, *, sides: Sides, agents: tuple[str, ...], launch_directory: str
) -> Score:
    """Make the function that scores a finished episode.

    More than two sides are scored pairwise. In cooperation, with one side, there is no opponent: an
    info or a function gives the objective by which plays are compared, any finite number, apart
    from the reward.

    Args:
        outcome: Configured outcome.
        sides: Agents by side.
        agents: All agents.
        launch_directory: Directory put first on ``sys.path`` where the outcome names a function.

    Raises:
        ConfigError: If the outcome or a side names an unknown agent or side.
    """
    _check_agents(sides, agents=agents)
    check_outcome(outcome, sides=sides)
    return _make_score(outcome, sides=sides, launch_directory=launch_directory)


def check_outcome(outcome: Outcome, *, sides: Mapping[str, Sequence[str]]) -> None:
    """Check that an outcome names an existing side or a key, and can score this number of sides.

    Raises:
        ConfigError: If it does not.
    """
    if isinstance(outcome, ThresholdOutcome):
        if outcome.side not in sides:
            raise ConfigError(
                f"environment.outcome.side: there is no side {outcome.side!r}"
                f"{nearest(outcome.side, sides)}; sides: {', '.join(sides)}"
            )
        if len(sides) != 2:
            raise ConfigError(
                "environment.outcome: a threshold decides between two sides, got "
                f"{len(sides)}: {', '.join(sides)}"
            )
    elif isinstance(outcome, InfoOutcome) and not outcome.info:
        raise ConfigError(f"environment.outcome.info must name a key, got {outcome.info!r}")
    elif isinstance(outcome, MarginOutcome) and len(sides) == 1:
        raise ConfigError(
            "environment.outcome: a margin is between sides, and there is one: "
            f"{', '.join(sides)} (plays are compared by their returns anyway)"
        )


def needs_infos(outcome: Outcome) -> bool:
    """Return whether an outcome reads infos."""
    return outcome != "return" and not isinstance(outcome, ThresholdOutcome | MarginOutcome)


def sides_beaten(values: Sequence[float]) -> tuple[float, ...]:
    """Count for each side the other sides with a lower value, equal ones half."""
    if len(values) > MANY_SIDES:
        return _many_beaten(np.array(values, dtype=np.float64))
    return tuple(
        # points_i = sum over j != i of [v_i > v_j] + [v_i = v_j] / 2
        sum(_beats(mine, value) for at, value in enumerate(values) if at != index)
        for index, mine in enumerate(values)
    )


def _many_beaten(values: npt.NDArray[np.float64]) -> tuple[float, ...]:
    """Count as `sides_beaten` does, for all pairs at once. float64 [sides]."""
    mine, others = values[:, None], values[None, :]
    scale = np.maximum(np.maximum(np.abs(mine), np.abs(others)), 1.0)
    # The rule is that of `_beats`: |u - v| <= TOLERANCE max(|u|, |v|, 1).
    is_equal = np.abs(mine - others) <= TOLERANCE * scale
    beats = np.where(is_equal, 0.5, mine > others)
    # A side scores one half against itself, which is subtracted.
    return tuple((beats.sum(axis=1) - 0.5).tolist())


def margin_scale(outcome: MarginOutcome) -> float:
    """Return the margin that is worth a whole match.

    Raises:
        ConfigError: If it has not been measured yet.
    """
    if outcome.margin == "auto":
        raise ConfigError(
            "environment.outcome.margin must be a number where nothing is measured, got 'auto'"
        )
    return outcome.margin


def side_return(returns: Returns, agents: tuple[str, ...]) -> float:
    """Return the mean return of a side's agents."""
    return sum(returns[agent] for agent in agents) / len(agents)


def _beats(mine: float, other: float) -> float:
    # |u - v| <= TOLERANCE max(|u|, |v|, 1)
    if math.isclose(mine, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
        return 0.5
    return 1.0 if mine > other else 0.0


def _check_agents(sides: Sides, *, agents: tuple[str, ...]) -> None:
    for side, members in sides.items():
        if not members:
            raise ConfigError(f"environment.sides.{side} must have an agent, got none")
        for agent in members:
            if agent not in agents:
                raise ConfigError(
                    f"environment.sides.{side}: there is no agent {agent!r}{nearest(agent, agents)}"
                )


def _make_score(outcome: Outcome, *, sides: Sides, launch_directory: str) -> Score:
    if isinstance(outcome, ThresholdOutcome):
        return _threshold(outcome, sides=sides)
    if isinstance(outcome, InfoOutcome):
        return _info(outcome.info, sides=sides)
    if isinstance(outcome, MarginOutcome):
        return _margin(margin_scale(outcome), sides=sides)
    if outcome == "return" and len(sides) == 1:
        return _unscored
    if outcome == "return":
        members = tuple(sides.values())
        # Infos are not read (see `needs_infos`), so the row keeps none.
        return lambda returns, _: sides_beaten([side_return(returns, m) for m in members])
    if ":" not in outcome:
        raise ConfigError(
            "environment.outcome must be return, {threshold: ..., side: ...}, {info: ...}, "
            f"{{margin: ...}} or package.module:function, got {outcome!r}"
        )
    function = resolve(outcome, launch_directory=launch_directory)
    if not callable(function):
        raise ConfigError(f"environment.outcome {outcome} must name a function, got {function!r}")
    return _function(function, name=outcome, sides=sides)


def _margin(scale: float, *, sides: Sides) -> Score:
    def score(returns: Returns, infos: Infos) -> tuple[float, ...]:
        values = [side_return(returns, members) for members in sides.values()]
        mean = sum(values) / len(values)
        # points_i = 1/2 + (u_i - m) / (2 SCALE), so 1/2 + (points_i - points_j) / 2 = 1/2 + (u_i -
        # u_j) / (4 SCALE)
        return tuple(0.5 + (value - mean) / (2.0 * scale) for value in values)

    return score


def _threshold(outcome: ThresholdOutcome, *, sides: Sides) -> Score:
    members = sides[outcome.side]

    def score(returns: Returns, infos: Infos) -> tuple[float, ...]:
        reached = side_return(returns, members) >= outcome.threshold
        # One of the two sides gets 1: the named one if it reached the threshold, else the other.
        return tuple(float((side == outcome.side) == reached) for side in sides)

    return score


def _info(key: str, *, sides: Sides) -> Score:
    side_of = {agent: side for side, members in sides.items() for agent in members}
    # A side's own name takes precedence over an agent's.
    side_of.update((side, side) for side in sides)

    def score(returns: Returns, infos: Infos) -> tuple[float, ...]:
        # `infos` has the last info of each agent, including dead ones (`EpisodeRow`).
        told = {agent: info[key] for agent, info in infos.items() if info.get(key) is not None}
        named = list(told.values())
        # Numbers measure performance; any other value names a winner.
        if len(sides) == 1 or (named and all(_is_number(value, side_of) for value in named)):
            values = [_side_number(told, members, key=key) for members in sides.values()]
            return (values[0],) if len(sides) == 1 else sides_beaten(values)
        # Several agents may name a winner, but they must agree on the side.
        winners = {side_of.get(str(name)) for name in named}
        if not winners:
            # A draw has no winner, so every pair of sides scores one half.
            return sides_beaten([0.0] * len(sides))
        if None in winners or len(winners) > 1:
            raise EnvironmentFault(
                f"info {key!r} must name one side or one of its agents, or be None, got {named}"
            )
        return sides_beaten([float(side in winners) for side in sides])

    return score


def _is_number(value: object, names: Mapping[str, str]) -> bool:
    """Return whether an info is a measure of performance, not the name of the winner."""
    # An agent may be named 0 or 1, and then such a value is a name.
    return isinstance(value, Real) and not isinstance(value, bool) and str(value) not in names


def _side_number(told: Mapping[str, object], members: tuple[str, ...], *, key: str) -> float:
    """Return the mean of the numbers of a side's agents; agents without a number do not count."""
    values = [told[agent] for agent in members if agent in told]
    numbers = [float(value) for value in values if isinstance(value, Real)]
    # A single value that is no finite number invalidates the mean.
    if not numbers or len(numbers) < len(values) or not all(map(math.isfinite, numbers)):
        raise EnvironmentFault(
            f"info {key!r} must be a finite number at the end of an episode, for one agent of "
            f"{', '.join(members)} at least, got {values}"
        )
    return sum(numbers) / len(numbers)


def _function(function: Callable[..., object], *, name: str, sides: Sides) -> Score:
    def score(returns: Returns, infos: Infos) -> tuple[float, ...]:
        # A user's function may raise anything, which is no fault of the environment.
        with users_code(f"environment.outcome {name}"):
            # The function gets copies, because it may change its arguments.
            answer = SETTINGS.run(function, dict(returns), dict(infos))
        if not isinstance(answer, Mapping) or set(answer) != set(sides):
            raise ConfigError(
                f"environment.outcome {name} must return a score for each of {list(sides)}, "
                f"got {answer!r}"
            )
        given = [answer[side] for side in sides]
        if not all(isinstance(value, Real) for value in given):
            raise ConfigError(f"environment.outcome {name} must return numbers, got {answer!r}")
        scores = tuple(float(value) for value in given)
        if len(sides) == 1:
            if not math.isfinite(scores[0]):
                raise ConfigError(
                    f"environment.outcome {name} must return a finite number, got {answer!r}"
                )
            return scores
        if not all(0.0 <= value <= 1.0 for value in scores):
            raise ConfigError(
                f"environment.outcome {name} must return scores in [0, 1], got {answer!r}"
            )
        # Only the order of the scores counts.
        return sides_beaten(scores)

    return score


def _unscored(returns: Returns, infos: Infos) -> tuple[float, ...]:
    """Return no score in cooperation by returns: a play is compared with another play later."""
    return (math.nan,)
