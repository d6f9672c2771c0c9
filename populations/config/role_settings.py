"""Section ``roles`` of the configuration: when policies leave ghosts and exploiters are reset."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import Field

from arena.config import Model
from arena.errors import ConfigError
from populations.config.sections import PopulationConfig
from populations.fields import Share
from populations.roles import MAIN, Constants, FloatArray, deal_roles, has_exploiters

INITIAL = "initial"
NEAREST_EVEN = "nearest_even"

OWN_PLAYER = re.compile(
    r"(?P<policy>(?P<population>[a-z][a-z0-9_]{0,31})/p(?P<index>[0-9]{3,}))(@[0-9]+)?"
)
"""Id of a policy or a ghost of the run itself."""


class RolesConfig(Model):
    """When policies leave ghosts and exploiters start again, where a population has exploiters."""

    win_rate: float = Field(0.7, gt=0.0, lt=1.0)
    """Win rate against every required opponent above which a ghost is left before the timeout."""

    timeout_phases: int = Field(2, ge=1, le=10**6)
    """Most phases, of ``ghosts.every_agent_steps`` each, before a ghost is left."""

    min_matches: int = Field(10, ge=1, le=10**9)
    """Training matches against an opponent from which on its win rate counts."""

    reset: str = Field(INITIAL, min_length=1)
    """Origin of exploiters that start again: ``initial`` (their first checkpoint), ``nearest_even``
    (the ghost of such an exploiter that wins almost half of its matches against the main agents),
    or a player: of this run (``player/p000``, ``player/p000@000000120000``), or of another one."""

    reset_probability: Share = 0.25
    """How often a league exploiter starts again after a ghost; main exploiters always do."""

    def why_ghost(
        self,
        role: str,
        *,
        agent_steps: int,
        win_rates: FloatArray,
        phase: int,
        constants: Constants,
    ) -> str | None:
        """Return the reason for leaving a ghost now, in words; None if there is none.

        Args:
            role: Role of the policy.
            agent_steps: Agent steps since its last ghost.
            win_rates: Win rates against the required opponents with results: the latest main agents
                for a main exploiter, all ghosts for other roles. float64 [N], N may be 0.
            phase: Minimum number of agent steps between two ghosts.
            constants: With ``paper``, main agents leave a ghost each phase with any win rates.
        """
        # No role leaves a ghost before the end of a phase.
        if agent_steps < phase:
            return None
        if role == MAIN and constants == "paper":
            return f"{agent_steps:,} agent steps since the last one"
        # The lowest win rate decides. Without any result, the policy has not proved that it beats
        # all required opponents.
        if win_rates.size and float(win_rates.min()) > self.win_rate:
            return f"it beats all {win_rates.size} that it has met more often than {self.win_rate}"
        if agent_steps >= self.timeout_phases * phase:
            return f"{agent_steps:,} agent steps since the last one: {self.timeout_phases} phases"
        return None

    @property
    def is_imported(self) -> bool:
        """Return whether exploiters are reset to a player of another run."""
        return self.reset not in (INITIAL, NEAREST_EVEN) and not OWN_PLAYER.fullmatch(self.reset)


def check_roles(
    roles: RolesConfig, populations: Mapping[str, PopulationConfig], *, num_sides: int
) -> None:
    """Refuse roles that cannot be assigned, or a player to which exploiters cannot be reset.

    Args:
        roles: The section ``roles``.
        populations: Populations by name.
        num_sides: Number of sides of the environment.

    Raises:
        ConfigError: Names the key.
    """
    with_exploiters = []
    for name, population in populations.items():
        key = f"populations.{name}.roles"
        try:
            deal_roles(population.roles, size=population.size)
        except ValueError as error:
            raise ConfigError(f"{key}: {error}") from error
        if has_exploiters(population.roles):
            # Collect all of these populations, as the player of `reset` must suit each of them.
            with_exploiters.append(name)
            if num_sides == 1:
                raise ConfigError(
                    f"{key}: must all be main where the environment has one side (there is nobody "
                    f"to exploit), got {population.roles}"
                )
    own = OWN_PLAYER.fullmatch(roles.reset)
    if own is not None:
        _check_own_player(roles.reset, own, populations, with_exploiters=with_exploiters)


def _check_own_player(
    player: str,
    parts: re.Match[str],
    populations: Mapping[str, PopulationConfig],
    *,
    with_exploiters: list[str],
) -> None:
    name, index = parts["population"], int(parts["index"])
    # Weights fit the spaces of one population only, so all exploiters must be in it.
    others = [other for other in with_exploiters if other != name]
    if name not in populations or others:
        raise ConfigError(
            f"roles.reset: must be a player of the population that has exploiters "
            f"({', '.join(with_exploiters) or 'there is none'}), got {player!r}"
        )
    population = populations[name]
    if index >= population.size:
        raise ConfigError(
            f"roles.reset: population {name} has {population.size} policies, got {player!r}"
        )
    # A ghost's id continues after the policy's with @ and agent steps.
    is_ghost = player != parts["policy"]
    if not is_ghost and deal_roles(population.roles, size=population.size)[index] != MAIN:
        raise ConfigError(f"roles.reset: must be a main agent or a ghost, got {player!r}")
