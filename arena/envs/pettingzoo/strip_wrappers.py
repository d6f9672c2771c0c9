"""Removal of wrappers that check what Arena guarantees anyway.

PettingZoo wraps its turn-based environments three times, to catch a step before the first reset, an
action outside its space, and an illegal move. The batched view resets first, and its actors
(policies under their masks, bots whose answers are checked) give legal actions only. Without
wrappers random play is two to three times as fast.
"""

from __future__ import annotations

from typing import Any

from pettingzoo.utils.conversions import aec_to_parallel_wrapper
from pettingzoo.utils.wrappers import (
    AssertOutOfBoundsWrapper,
    ClipOutOfBoundsWrapper,
    OrderEnforcingWrapper,
    TerminateIllegalWrapper,
)

from arena.envs.pettingzoo.cycle_to_parallel import Cycle

CHECKS: tuple[type, ...] = (OrderEnforcingWrapper, AssertOutOfBoundsWrapper)

PASSING: tuple[type, ...] = (*CHECKS, ClipOutOfBoundsWrapper, TerminateIllegalWrapper)
"""Wrappers that pass on the environment's state unchanged."""


def strip_checking_wrappers(env: Any, *, has_masks: bool) -> Any:  # noqa: ANN401
    """Remove PettingZoo's own checking wrappers, from the outside in, up to any other wrapper.

    Args:
        env: An AEC environment, or a Parallel one; among the latter only PettingZoo's conversions
            of AEC environments have such wrappers, inside.
        has_masks: Whether every agent has an action mask. Without one, an illegal move is the
            game's business, and the wrapper that ends the game for it stays.

    Returns:
        The remaining environment: AEC if it was one; a Parallel one, or a `Cycle`.
    """
    # Exact types here and below: a subclass may do more than check.
    if type(env) is aec_to_parallel_wrapper:
        turns = strip_checking_wrappers(env.aec_env, has_masks=has_masks)
        return Cycle(turns, state=holder_of_state(turns))
    checks = (*CHECKS, TerminateIllegalWrapper) if has_masks else CHECKS
    # From the outside in: below any other wrapper, a check belongs to what that wrapper does.
    while type(env) in checks:
        env = env.env
    return env


def holder_of_state(env: Any) -> Any:  # noqa: ANN401
    """Return the object to read ``rewards``, ``agents`` and so on of an AEC environment from.

    PettingZoo's own wrappers pass these on unchanged, but each read costs a microsecond per layer.
    Any other wrapper may change them, and is read itself.
    """
    while type(env) in PASSING:
        env = env.env
    return env
