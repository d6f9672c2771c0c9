"""Construction of a rule of thinning by its name: one of `THINNINGS`, or a user's own class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from arena.config import Model
from arena.errors import ConfigError
from arena.resolve import resolve
from arena.users_code import users_code
from populations.core import Thinning, ThinningRequest
from populations.rule_kinds import RuleKind, by_name
from populations.thinning import spread


def make_thinning(name: str, section: Model, *, launch_directory: str = "") -> Thinning:
    """Make the rule that thins full pools.

    Args:
        name: ``ghosts.thinning``: one of `THINNINGS`, or ``package.module:Class``.
        section: Section ``ghosts``, which has the keys of all rules; a user's own class is called
            with it.
        launch_directory: Directory that is searched first for a user's own class; empty: the
            working directory.

    Raises:
        ConfigError: If the user's class cannot be imported or made, or has no ``choose``.
    """
    if name in THINNINGS:
        return THINNINGS[name].from_sections(section)
    try:
        make = resolve(name, launch_directory=launch_directory)
    except ConfigError as error:
        raise ConfigError(f"ghosts.thinning: {error}") from error
    if not callable(make):
        raise ConfigError(f"ghosts.thinning: {name} must be a class, got {make!r}")
    with users_code(f"ghosts.thinning: {name}, when it was made,"):
        made: object = make(section)
    if not callable(getattr(made, "choose", None)):
        raise ConfigError(
            f"ghosts.thinning: {name} must be a populations.core.Thinning, with a method "
            f"choose(request), got {made!r}"
        )
    return cast("Thinning", made)


def places_of(answer: object, request: ThinningRequest) -> tuple[int, ...]:
    """Return the places that a rule has chosen, checked, because a user's rule may return anything.

    Raises:
        TypeError: If the answer is no sequence of integers.
        ValueError: If a place is out of range, is named twice or is needed, or there are too many.
    """
    # Arrays and integers of numpy are accepted like Python's.
    if not isinstance(answer, Sequence | np.ndarray) or isinstance(answer, str | bytes):
        raise TypeError(f"choose must return places in the request's order, got {answer!r}")
    wrong = [one for one in answer if not isinstance(one, int | np.integer)]
    if wrong:
        raise TypeError(f"choose must return whole numbers, got {wrong[0]!r}")
    places = [int(one) for one in answer]
    num_ghosts = len(request.is_needed)
    for place in places:
        if not 0 <= place < num_ghosts:
            raise ValueError(f"a place must be at least 0 and below {num_ghosts}, got {place}")
        if request.is_needed[place]:
            raise ValueError(f"the ghost in place {place} is needed (request.is_needed)")
    if len(set(places)) < len(places):
        raise ValueError("a place was named twice")
    if len(places) > request.num_to_go:
        raise ValueError(f"at most {request.num_to_go} are to go, got {len(places)}")
    return tuple(places)


class Oldest:
    """Rule that removes the oldest ghosts."""

    def choose(self, request: ThinningRequest) -> tuple[int, ...]:
        """Return the places of the oldest ghosts that may be removed, the oldest first."""
        going = [place for place, needed in enumerate(request.is_needed) if not needed]
        return tuple(going[: request.num_to_go])


OLDEST = RuleKind(name="oldest", settings=Model, make=lambda settings: Oldest())


THINNINGS: Mapping[str, RuleKind[Any, Thinning]] = by_name(spread.KIND, OLDEST)
