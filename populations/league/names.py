"""Names of players: short forms for narrow output, and the player that a name means in a run.

Tests: `tests/populations/league/test_lineage.py`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arena.errors import ConfigError
from arena.types import OUTSIDER_PREFIX, Digest, Entrant, PolicyId, ghost_id, is_external

if TYPE_CHECKING:
    from populations.records.tables import Tables

UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}

_PLAYER = re.compile(r"(?<![\w/.'])([a-z][a-z0-9_]*)/(p[0-9]{3,})(?:@([0-9]+))?(?![\w/.]\w)")
BEST = "best"
"""Word that stands in a name for the agent steps of a policy's best-rated checkpoint."""

_STEPS = re.compile(rf"([0-9]{{1,18}}|[0-9]{{1,4}}\.[0-9]{{1,3}})([{''.join(UNITS)}]?)")
_NAME = re.compile(rf"([a-z][a-z0-9_]{{0,31}}/)?p[0-9]{{3,}}(@({BEST}|{_STEPS.pattern}))?")
_NUM_LISTED = 8
_NUM_NEAREST = 4


def compact(number: int) -> str:
    """Write a count in at most four digits and a unit: 950, 12.5k, 2.1M."""
    value, units = float(number), iter(UNITS)
    unit = next(units)
    # A value that rounds to 1000 has the next unit: 999,950 is 1M, not 1000k.
    while float(f"{value:.4g}") >= 1000 and (larger := next(units, None)):
        value, unit = value / 1000, larger
    return f"{value:.4g}{unit}"


def short_name(player: str, *, populations: Collection[str]) -> str:
    """Return a player's name in few characters: ``p002``, ``p001@2.1M``, ``red/p001@2.1M``.

    Args:
        player: Name of a policy or a ghost; a player from outside the run is returned as the user
            has written it.
        populations: Names of the run's populations; a single population's name is left out.
    """
    matched = _PLAYER.fullmatch(player)
    if matched is None:
        return player.removeprefix(OUTSIDER_PREFIX)
    population, policy, steps = matched.groups()
    name = policy if len(populations) <= 1 else f"{population}/{policy}"
    return name if steps is None else f"{name}@{compact(int(steps))}"


def short_names(text: str, *, populations: Collection[str]) -> str:
    """Return a sentence with the names of players in it shortened."""

    def short(found: re.Match[str]) -> str:
        # A path may look like a player's name, but its folder is no population of the run.
        if found[1] not in populations:
            return found[0]
        return short_name(found[0], populations=populations)

    return _PLAYER.sub(short, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Player that a name means.

    Attributes:
        policy: Id of the policy; for a ghost or checkpoint, of the policy that made it.
        agent_steps: Agent steps of a ghost or checkpoint; None: the policy itself.
        weights: Digest of the weights that are meant; None: any weights of these agent steps.
    """

    policy: PolicyId
    agent_steps: int | None = None
    weights: Digest | None = None

    @property
    def player(self) -> str:
        """Full name of the player."""
        if self.agent_steps is None:
            return str(self.policy)
        return str(ghost_id(self.policy, agent_steps=self.agent_steps))


def is_name(text: str) -> bool:
    """Return whether a text has the form of a name, in short or in full."""
    return _NAME.fullmatch(text) is not None


def find_player(
    name: str,
    tables: Tables,
    *,
    population: str | None = None,
    kept: bool = False,
    where: object = "the run",
) -> Subject:
    """Return the player that a name means. Every command that takes a player calls this function.

    Args:
        name: ``player/p003``, or ``p003`` if it is unique. A ghost or checkpoint has its agent
            steps after it: ``p003@120000``, ``p003@4.628M`` if that is unique, or ``p003@best`` for
            the best-rated checkpoint. Leading zeros of agent steps may be left out.
        tables: Rows of the run.
        population: Population to which the player must belong. None: any.
        kept: Whether its files must exist; otherwise a row in the journal is enough.
        where: Name of the run in error messages.

    Raises:
        ConfigError: If no player or several have this name; the message lists the candidates, or
            the most similar names.
    """
    if is_external(name):
        raise ConfigError(f"{name} is not trained: this takes a policy or a ghost")
    base, at, steps = name.partition("@")
    policy = _policy(base, tables, population=population, where=where)
    if not at:
        return Subject(policy=policy)
    if steps == BEST:
        return _best(policy, tables, where=where)
    known = _agent_steps(tables, policy, kept=kept)
    # A number without a unit is exact; one with a unit is compared in its short form.
    exact = int(steps) if re.fullmatch("[0-9]{1,18}", steps) else None
    found = [one for one in known if exact == one or compact(one) == steps]
    if len(found) == 1:
        return Subject(policy=policy, agent_steps=found[0])
    if found:
        raise ConfigError(f"{name!r} may be {' or '.join(_names(policy, found))}")
    matched = _STEPS.fullmatch(steps)
    if matched is None:
        raise ConfigError(
            f"{name!r} is no name of a player: agent steps are written as 4628301 or 4.628M, or as "
            f"{BEST}"
        )
    asked = float(matched[1]) * UNITS[matched[2]]
    near = sorted(known, key=lambda one: abs(one - asked))[:_NUM_NEAREST]
    raise ConfigError(
        f"{where} {'keeps' if kept else 'has'} nothing of {policy} at {steps} agent steps; the "
        f"nearest of its {'kept ' if kept else ''}checkpoints and ghosts: "
        f"{', '.join(_names(policy, near)) or 'none'}"
    )


def _policy(base: str, tables: Tables, *, population: str | None, where: object) -> PolicyId:
    found = [
        policy
        for policy, row in tables.policies.items()
        if base in (policy, policy.rpartition("/")[2]) and population in (None, row.population)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(f"{base!r} may be {' or '.join(found)}: name its population too")
    raise ConfigError(f"{where} has no policy {base!r}; policies: {listed(tables.policies, base)}")


def _best(policy: PolicyId, tables: Tables, *, where: object) -> Subject:
    best = {digest for row in tables.ratings.values() for digest in row.best}
    for row in tables.checkpoints.values():
        # Retention protects this checkpoint (`populations.controller.indexes.rated_pins`).
        if row.policy == policy and row.state == "present" and Entrant(row.weights_digest) in best:
            return Subject(policy=policy, agent_steps=row.agent_steps, weights=row.weights_digest)
    raise ConfigError(f"{where} keeps no rated checkpoint of {policy}: none is the best one")


def _agent_steps(tables: Tables, policy: PolicyId, *, kept: bool) -> list[int]:
    """Return the agent steps of a policy's ghosts and checkpoints."""
    checkpoints = (
        row.agent_steps
        for row in tables.checkpoints.values()
        if row.policy == policy and (not kept or row.state == "present")
    )
    ghosts = (
        row.agent_steps
        for row in tables.ghosts.values()
        if row.policy == policy and (not kept or row.is_present)
    )
    return sorted({*checkpoints, *ghosts})


def _names(policy: PolicyId, agent_steps: Iterable[int]) -> list[str]:
    return [ghost_id(policy, agent_steps=one) for one in sorted(agent_steps)]


def listed(names: Collection[str], near: str = "") -> str:
    """Return names as text for a message: all if they are few, else those most similar to a text.

    Args:
        names: All names.
        near: Text that the listed names should be similar to.
    """
    if len(names) <= _NUM_LISTED:
        return ", ".join(names) or "none"
    first = difflib.get_close_matches(near, names, n=_NUM_LISTED, cutoff=0.0)
    return f"{', '.join(first)} and {len(names) - len(first)} more"
