"""Contract of `populations.core.Thinning`: checks that every implementation must pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial

import numpy as np

from arena.contracts.contract import Subject, name_of
from populations.config.sections import GhostsConfig
from populations.core import Thinning, ThinningRequest
from populations.thinning.make import make_thinning, places_of

FUNCTION = "choose must be a function of its request: equal requests, equal answers"


def check_thinning(
    thinning: Thinning | type[Thinning] | str,
    *,
    section: Mapping[str, object] | None = None,
    launch_directory: str = "",
) -> None:
    """Check that a rule of thinning obeys in any pool the rules on which the controller relies.

    Args:
        thinning: Object, class, or value of ``ghosts.thinning``: ``package.module:Class`` or a
            built-in kind.
        section: Keys of the section ``ghosts``, with which a class is called.
        launch_directory: Directory that is searched first for ``package``; empty: the working
            directory.

    Raises:
        ContractBroken: If a rule is broken; it names the first one.
    """
    subject = Subject(name_of(thinning))
    with subject.obeying("the section ghosts must be valid"):
        keys = GhostsConfig.model_validate(dict(section or {}))
    made = subject.given(
        thinning,
        "it must be made with the section ghosts as its argument",
        lambda name: make_thinning(name, keys, launch_directory=launch_directory),
        keys,
    )
    subject.takes(made, "choose", None)
    subject.repeats(FUNCTION, lambda name: _choose(subject, made, name), POOLS)


def _choose(subject: Subject, thinning: Thinning, name: str) -> tuple[int, ...]:
    request, before = POOLS[name](), POOLS[name]()
    with subject.answering(f"choose must answer {name}", draws="choose must draw nothing"):
        # The controller checks answers with the same function, which names the broken rule.
        places = places_of(thinning.choose(request), request)
    changed = [
        one.name
        for one in fields(request)
        if not np.array_equal(
            getattr(request, one.name), getattr(before, one.name), equal_nan=one.name == "ratings"
        )
    ]
    subject.must("choose must not change its request", not changed, got=changed)
    rule = f"choose must name ghosts where some must go and all may, in {name}"
    all_may = request.num_to_go > 0 and not request.is_needed.any()
    subject.must(rule, places or not all_may, got=places)
    return places


NUM_GHOSTS = 12


def _request(
    *, num_policies: int = 3, num_needed: int = 0, num_to_go: int = 4, is_rated: bool = True
) -> ThinningRequest:
    """Return a request about a full pool of ghosts."""
    ratings = np.linspace(0.0, 300.0, NUM_GHOSTS)
    ratings = ratings if is_rated else np.full(NUM_GHOSTS, np.nan)
    return ThinningRequest(
        policies=np.arange(NUM_GHOSTS) % num_policies,
        agent_steps=np.arange(1, NUM_GHOSTS + 1) * 1000,
        ratings=ratings,
        lows=ratings - 50.0 if is_rated else np.full(NUM_GHOSTS, -np.inf),
        is_needed=np.arange(NUM_GHOSTS) >= NUM_GHOSTS - num_needed,
        num_to_go=num_to_go,
    )


POOLS: Mapping[str, Callable[[], ThinningRequest]] = {
    "a full pool of 12 ghosts": _request,
    "a pool without ratings": partial(_request, is_rated=False),
    "a pool whose newest ghosts are needed": partial(_request, num_needed=4),
    "a pool in which every ghost is needed": partial(_request, num_needed=NUM_GHOSTS),
    "a pool from which nothing must go": partial(_request, num_to_go=0),
    "a pool of one policy": partial(_request, num_policies=1),
}
