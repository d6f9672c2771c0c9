"""Champions, policies and ghosts of a run, by name.

Tests: `tests/tools/evaluate/test_command.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arena.types import WeightsRef
    from populations.inspection.views import Inspection

_POLICY = re.compile(r"[a-z][a-z0-9_]{0,31}/p[0-9]{3,}")
_GHOST = re.compile(rf"{_POLICY.pattern}@[0-9]+")
_NUM_LISTED = 8


def champions(inspection: Inspection) -> dict[str, tuple[str, WeightsRef]]:
    """Return the id and the weights of the champion of every population of a run that has one.

    Raises:
        ConfigError: If no player is rated yet.
    """
    from arena.errors import ConfigError
    from arena.types import WeightsRef
    from populations.league.standings import champion

    found: dict[str, tuple[str, WeightsRef]] = {}
    for population, lines in inspection.standings().items():
        best = champion(lines)
        # The champion's evaluated weights, which may be older than its latest ones.
        if best is not None and best.weights is not None and best.key is not None:
            found[population] = (best.player, WeightsRef(digest=best.weights, key=best.key))
    if not found:
        raise ConfigError(
            f"{inspection.run_dir} has no champion: no player is rated yet; name a policy, "
            f"{_listed(inspection.tables.policies)}"
        )
    return found


def find_in_run(inspection: Inspection, player: str) -> WeightsRef:
    """Find the weights of a policy (its latest checkpoint) or of a ghost.

    Raises:
        ConfigError: If the run has no such player, or it has no checkpoint yet.
    """
    from arena.errors import ConfigError
    from arena.types import PolicyId, WeightsRef, ghost_id

    tables = inspection.tables
    if _GHOST.fullmatch(player):
        policy, _, steps = player.partition("@")
        # Leading zeros may be left out, as they are where little room is.
        ghost = tables.ghosts.get(ghost_id(PolicyId(policy), agent_steps=int(steps)))
        if ghost is None:
            raise ConfigError(
                f"{inspection.run_dir} has no ghost {player!r}; ghosts: {_listed(tables.ghosts)}"
            )
        return WeightsRef(digest=ghost.weights_digest, key=ghost.key)
    row = tables.policies.get(PolicyId(player)) if _POLICY.fullmatch(player) else None
    if row is None:
        raise ConfigError(
            f"{inspection.run_dir} has no policy {player!r}; policies: {_listed(tables.policies)}"
        )
    if row.checkpoint is None:
        raise ConfigError(f"{player} of {inspection.run_dir} has no checkpoint yet")
    # The latest ones, evaluated or not.
    checkpoint = tables.checkpoints[row.checkpoint]
    return WeightsRef(digest=checkpoint.weights_digest, key=checkpoint.key)


def _listed(names: Iterable[str]) -> str:
    known = list(names)
    text = ", ".join(known[:_NUM_LISTED]) or "none"
    return text if len(known) <= _NUM_LISTED else f"{text} and {len(known) - _NUM_LISTED} more"
