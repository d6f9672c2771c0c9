"""EnvironmentSpec: the facts about an environment that everything else is checked against.

A short-lived child makes it once (`arena.envs.inspect`). It is stored in `run.yaml`, and its digest
is in every Hello and manifest. Free of torch and PettingZoo.

Tests: `tests/arena/envs/test_inspect.py`, `tests/populations/config/test_run_file.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from functools import cached_property
from typing import Literal

from arena.types import Digest, canonical_digest

SpaceJson = Mapping[str, object]
"""Space as plain data, written by `arena.envs.spaces.observations.describe`."""

MaskPlace = Literal["observation", "beside", "info"]
"""Place of an action mask.

``observation``: in a dictionary with nothing but it and the observation; ``beside``: at one key of
a dictionary whose other keys are the observation; ``info``: in ``info``.
"""

ContinuousActions = Literal["squashed", "clipped"]
"""Way of bringing a policy's draw within a Box's bounds."""


@dataclass(frozen=True, slots=True)
class EnvironmentRequest:
    """Environment to inspect.

    Attributes:
        environment_id: A PettingZoo registry id, ``openspiel:game``, or ``package.module:Name``.
        kwargs: Arguments of its factory; plain data.
        launch_directory: Directory put first on ``sys.path``.
        backend: ``environment.backend``, which must exist.
        possible_agents: ``environment.possible_agents``.
        reads_state: Whether a value network reads ``state()``, so that its space is a fact, too.
        lenient: Whether to accept breaches of the contract that do not hide the facts, such as a
            reset of a ParallelEnv that breaks its form, or a ``close`` that raises; a later check
            reports them.
        asks_chance: Whether random play is to show if the game has chance.
    """

    environment_id: str
    _: KW_ONLY
    kwargs: Mapping[str, object] = field(default_factory=dict)
    launch_directory: str
    backend: str = "auto"
    possible_agents: Sequence[str] | None = None
    reads_state: bool = False
    lenient: bool = False
    asks_chance: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """Spaces of one agent.

    Attributes:
        observation: Observation space without its mask.
        action: Action space.
        mask: Place of the action mask. None: there is none.
    """

    observation: SpaceJson
    action: SpaceJson
    mask: MaskPlace | None


@dataclass(frozen=True, kw_only=True)
class EnvironmentSpec:
    """Facts about one environment with its keyword arguments.

    Attributes:
        id: PettingZoo registry id (``classic/connect_four-v3``) or ``package.module:factory``.
        kwargs: Arguments of the factory, in matches and exports.
        api: ``aec``: one agent at a time; ``parallel``: all at once.
        agents: ``possible_agents`` in the environment's order.
        agent_specs: Spaces by agent.
        versions: Versions of the packages that define the environment; recorded, not digested.
        state: Space of ``state()``, where a value network reads it; not digested. None: not
            inspected.
        lessons: Arguments of the factory in training, lesson by lesson; empty: those of matches.
        chance: Whether the game goes on differently after the same decisions; not digested. None:
            nobody asked.
    """

    id: str
    kwargs: Mapping[str, object]
    api: Literal["aec", "parallel"]
    agents: tuple[str, ...]
    agent_specs: Mapping[str, AgentSpec]
    versions: Mapping[str, str] = field(default_factory=dict)
    state: SpaceJson | None = None
    lessons: tuple[Mapping[str, object], ...] = ()
    chance: bool | None = None

    @cached_property
    def digest(self) -> Digest:
        """Digest of everything but the package versions, the state and the chance."""
        # A deep copy, from which keys may be deleted.
        facts = asdict(self)
        # A patch release of a package, a critic of states or greedy matches must not orphan a run.
        del facts["versions"], facts["state"], facts["chance"]
        # Without lessons the digest is that of the environment alone.
        if not self.lessons:
            del facts["lessons"]
        return canonical_digest(facts)

    @property
    def of_matches(self) -> EnvironmentSpec:
        """Environment that matches are played in, which is all that a player's result is about."""
        return replace(self, lessons=()) if self.lessons else self

    @property
    def has_numbers(self) -> bool:
        """Return whether any agent's action has a Box in it."""
        # numpy is imported here, because most readers of a spec do not need it.
        from arena.spaces import leaf_spaces

        return any(
            leaf["kind"] == "Box"
            for facts in self.agent_specs.values()
            for _, leaf in leaf_spaces(facts.action)
        )

    def in_lesson(self, lesson: int) -> EnvironmentSpec:
        """Return the environment that a lesson trains in, by the lesson's index."""
        if not self.lessons:
            return self
        return replace(self, kwargs=self.lessons[lesson], lessons=())
