"""Champions, policies, checkpoints and ghosts of a run, by name.

Tests: `tests/tools/evaluate/test_command.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arena.types import PolicyId, WeightsRef
    from populations.inspection.views import Inspection
    from populations.records.rows import CheckpointRow
    from populations.records.tables import Tables

_POLICY = re.compile(r"[a-z][a-z0-9_]{0,31}/p[0-9]{3,}")
_AT = re.compile(rf"({_POLICY.pattern})@([0-9]{{1,18}})")
_NUM_LISTED = 8
_NUM_NEAREST = 4


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
        best = champion(lines, row=inspection.tables.ratings.get(population))
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
    """Find the weights of a policy (its latest checkpoint), a kept checkpoint or a ghost.

    Raises:
        ConfigError: If the run has no such player, or it has no checkpoint yet.
    """
    from arena.errors import ConfigError
    from arena.types import PolicyId, ghost_id

    tables = inspection.tables
    at = steps_of(player)
    if at is not None:
        policy, agent_steps = at
        ghost = tables.ghosts.get(ghost_id(policy, agent_steps=agent_steps))
        if ghost is not None and ghost.is_present:
            return ghost.weights
        kept = kept_checkpoint(tables, policy, agent_steps=agent_steps)
        if kept is None:
            known = {
                ghost.agent_steps for ghost in tables.ghosts.values() if ghost.policy == policy
            }
            problem = not_kept(tables, policy, agent_steps=agent_steps, ghosts=known)
            raise ConfigError(f"{inspection.run_dir} {problem}")
        return kept.weights
    row = tables.policies.get(PolicyId(player)) if _POLICY.fullmatch(player) else None
    if row is None:
        raise ConfigError(
            f"{inspection.run_dir} has no policy {player!r}; policies: {_listed(tables.policies)}"
        )
    if row.checkpoint is None:
        raise ConfigError(f"{player} of {inspection.run_dir} has no checkpoint yet")
    # The latest ones, evaluated or not.
    return tables.checkpoints[row.checkpoint].weights


def find_directory(inspection: Inspection, key: str) -> tuple[str, WeightsRef]:
    """Find a kept checkpoint or a ghost by its directory, relative to the run's.

    Raises:
        ConfigError: If the run has recorded none there.
    """
    from arena.errors import ConfigError
    from arena.types import ghost_id

    tables = inspection.tables
    row = tables.checkpoints.get(key)
    if row is not None and row.state == "present":
        return ghost_id(row.policy, agent_steps=row.agent_steps), row.weights
    for ghost in tables.ghosts.values():
        if ghost.key == key and ghost.is_present:
            return ghost.player, ghost.weights
    raise ConfigError(f"{inspection.run_dir} has recorded no checkpoint or ghost at {key}")


def steps_of(player: str) -> tuple[PolicyId, int] | None:
    """Return the policy and the agent steps in ``player/p003@3195847``; None: it has no steps.

    Leading zeros may be left out, as they are where little room is.
    """
    from arena.types import PolicyId

    match = _AT.fullmatch(player)
    return None if match is None else (PolicyId(match[1]), int(match[2]))


def is_player(name: str) -> bool:
    """Return whether a name is that of a policy, or of a policy at a number of agent steps."""
    return bool(_POLICY.fullmatch(name) or _AT.fullmatch(name))


def canonical_player(player: str) -> str:
    """Return a player's name with all zeros."""
    from arena.types import ghost_id

    at = steps_of(player)
    return player if at is None else ghost_id(at[0], agent_steps=at[1])


def kept_checkpoint(tables: Tables, policy: PolicyId, *, agent_steps: int) -> CheckpointRow | None:
    """Return the newest kept checkpoint of a policy at a number of agent steps."""
    from populations.storage.store import newest_last

    kept = [row for row in _kept(tables, policy) if row.agent_steps == agent_steps]
    return max(kept, key=newest_last, default=None)


def not_kept(
    tables: Tables, policy: PolicyId, *, agent_steps: int, ghosts: Iterable[int] = ()
) -> str:
    """Say that nothing is kept of a policy at a step, with the nearest that is.

    Args:
        tables: Rows of the run.
        policy: Policy that was named.
        agent_steps: Step that was named.
        ghosts: Steps of ghosts that would do, too.
    """
    from arena.types import ghost_id

    if policy not in tables.policies:
        return f"has no policy {policy!r}; policies: {_listed(tables.policies)}"
    steps = {row.agent_steps for row in _kept(tables, policy)} | set(ghosts)
    nearest = sorted(sorted(steps, key=lambda kept: abs(kept - agent_steps))[:_NUM_NEAREST])
    names = [ghost_id(policy, agent_steps=kept) for kept in nearest]
    what = "kept checkpoints and ghosts" if ghosts else "kept checkpoints"
    return (
        f"keeps nothing of {policy} at {agent_steps} agent steps; the nearest of its {what}: "
        f"{_listed(names)}"
    )


def _kept(tables: Tables, policy: PolicyId) -> list[CheckpointRow]:
    rows = tables.checkpoints.values()
    return [row for row in rows if row.policy == policy and row.state == "present"]


def _listed(names: Iterable[str]) -> str:
    known = list(names)
    text = ", ".join(known[:_NUM_LISTED]) or "none"
    return text if len(known) <= _NUM_LISTED else f"{text} and {len(known) - _NUM_LISTED} more"
