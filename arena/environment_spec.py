"""EnvironmentSpec: the facts about an environment that everything else is checked against.

Made once by a short-lived child (`arena.envs.inspect`), stored in `run.yaml`, and its digest is in
every Hello and manifest. Torch-free and PettingZoo-free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from arena.types import Digest, canonical_digest

SpaceJson = Mapping[str, object]
"""A space as plain data, as `arena.envs.spaces.observations.describe` writes it."""

MaskPlace = Literal["observation", "beside", "info"]
"""Where an action mask is: ``observation``: in a dictionary with nothing but it and the
observation; ``beside``: at one key of a dictionary whose other keys are the observation; or in
``info``."""

ContinuousActions = Literal["squashed", "clipped"]
"""How what a policy draws becomes a number within a Box's bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """What one agent sees and does.

    Attributes:
        observation: The observation space without its mask.
        action: The action space.
        mask: Where the action mask is; None: nowhere.
    """

    observation: SpaceJson
    action: SpaceJson
    mask: MaskPlace | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSpec:
    """The facts about one environment with its keyword arguments.

    Attributes:
        id: PettingZoo registry id (``classic/connect_four-v3``) or ``package.module:factory``.
        kwargs: What the factory is called with.
        api: Whose turn: one agent at a time (``aec``) or all at once (``parallel``).
        agents: ``possible_agents`` in the environment's order.
        agent_specs: By agent.
        versions: Versions of the packages that define the environment. Recorded, not digested: a
            patch release of a package must not orphan a run.
        state: The space of ``state()``, where a value network reads it; None: nobody has looked.
            Not digested: it changes nothing for those who play.
    """

    id: str
    kwargs: Mapping[str, object]
    api: Literal["aec", "parallel"]
    agents: tuple[str, ...]
    agent_specs: Mapping[str, AgentSpec]
    versions: Mapping[str, str] = field(default_factory=dict)
    state: SpaceJson | None = None

    @property
    def digest(self) -> Digest:
        """Identifies everything but the package versions and the state."""
        facts = asdict(self)
        del facts["versions"], facts["state"]
        return canonical_digest(facts)
