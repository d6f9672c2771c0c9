"""Checks that objects of your own keep their contracts; each is a plain function.

::

    from arena.testing import check_matchmaker

    check_matchmaker("my_module:MyMatchmaker", options={"depth": 3})

An object is given as ``package.module:Class``, as in a configuration, as a class, or (where it
needs nothing else) as it is. A check returns nothing, or raises `ContractBroken`, an
``AssertionError`` with the object's name, the broken rule and the value that breaks it. No test
framework is needed. The suites of matchmaking, PBT and thinning import no torch.

The suites' homes are imported when a name is first used, some of them above this package: see
`arena`.
"""

from __future__ import annotations

import importlib

_HOMES = {
    "ContractBroken": "arena.contracts.contract",
    "check_algorithm": "arena.contracts.algorithm",
    "check_batched_game": "arena.contracts.batched_game",
    "check_bot": "arena.contracts.bot",
    "check_encoder": "arena.contracts.encoder",
    "check_sink": "arena.contracts.sink",
    "check_exploit": "populations.contracts.exploit",
    "check_explore": "populations.contracts.explore",
    "check_matchmaker": "populations.contracts.matchmaker",
    "check_thinning": "populations.contracts.thinning",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(importlib.import_module(_HOMES[name]), name)
    # Caching the name makes the next use bypass this function.
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
