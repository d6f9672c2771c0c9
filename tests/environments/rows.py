"""The environments of the matrix: what is trained, how small, and what must be installed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from arena.envs.registry import MPE_NAMES


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One environment of the matrix.

    Attributes:
        name: Of the test.
        id: ``environment.id``.
        kwargs: Of its factory: episodes as short and crowds as small as it allows.
        environment: Further keys of the section.
        needs: Modules that it imports.
        extra: Of Arena's distribution, that installs them.
    """

    name: str
    id: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    extra: str = ""

    @property
    def is_core(self) -> bool:
        """Whether ``make test`` runs it."""
        return self.name in CORE


CLASSIC = {
    "rps-v2": (),
    "tictactoe-v3": (),
    "connect_four-v3": (),
    "leduc_holdem-v4": ("rlcard",),
    "texas_holdem-v4": ("rlcard",),
    "texas_holdem_no_limit-v6": ("rlcard",),
    "chess-v6": ("chess",),
    "go-v5": (),
    "hanabi-v5": ("shimmy", "pyspiel"),
}
CLASSIC_KWARGS: dict[str, dict[str, Any]] = {"go-v5": {"board_size": 5}}

GAMES = (
    "kuhn_poker",
    "leduc_poker",
    "tic_tac_toe",
    "breakthrough(rows=5,columns=5)",
    "backgammon",
    "goofspiel(num_cards=4,imp_info=true,points_order=descending)",
    "liars_dice",
    "matrix_rps",
    "hex(board_size=5)",
    "oshi_zumo(coins=8,size=2)",
)

GENERATED = {
    "generated-in_turns": "generated:Turns",
    "generated-at_once": "generated:AtOnce",
}

COOPERATIVE = (
    "simple_formation_v1",
    "simple_line_v1",
    "simple_reference_v3",
    "simple_speaker_listener_v4",
    "simple_spread_v3",
)
TEAM = {"team": ["*"]}
DRAWN = {"render_mode": "rgb_array"}
"""Without it the pictures of some environments never change."""

CORE = frozenset(
    {
        "classic-leduc_holdem-v4",
        "butterfly-cooperative_pong-v6",
        "mpe2-simple_tag_v3-continuous",
        "generated-at_once",
        "openspiel-goofspiel",
    }
)
"""In turns and at once, one policy and several, choices and numbers, vectors and images, masks in
observations and in infos, agents that come and go: what `make test` has time for."""


def rows() -> Iterator[Row]:
    """All of them."""
    yield from _classic()
    yield from _butterfly()
    yield from _sisl()
    yield from _mpe()
    yield from _magent()
    yield from _generated()
    yield from _openspiel()


def _classic() -> Iterator[Row]:
    for name, needs in CLASSIC.items():
        yield Row(
            name=f"classic-{name}",
            id=f"classic/{name}",
            kwargs=CLASSIC_KWARGS.get(name, {}),
            environment={"backend": "pettingzoo"},
            needs=needs,
            extra="classic",
        )


def _butterfly() -> Iterator[Row]:
    yield Row(
        name="butterfly-pistonball-v6",
        id="butterfly/pistonball-v6",
        kwargs={"n_pistons": 3, "max_cycles": 10} | DRAWN,
        environment={"sides": TEAM},
        needs=("pymunk",),
        extra="butterfly",
    )
    yield Row(
        name="butterfly-pistonball-v6-discrete",
        id="butterfly/pistonball-v6",
        kwargs={"n_pistons": 3, "max_cycles": 10, "continuous": False} | DRAWN,
        environment={"sides": TEAM},
        needs=("pymunk",),
        extra="butterfly",
    )
    yield Row(
        name="butterfly-cooperative_pong-v6",
        id="butterfly/cooperative_pong-v6",
        kwargs={"max_cycles": 10, "render_ratio": 4, "ball_speed": 4} | DRAWN,
        environment={"sides": TEAM},
        extra="butterfly",
    )
    for observed in ("vector", "image"):
        yield Row(
            name=f"butterfly-knights_archers_zombies-v11-{observed}",
            id="butterfly/knights_archers_zombies-v11",
            kwargs={"max_cycles": 30, "obs_method": observed},
            environment={"sides": TEAM},
            extra="butterfly",
        )


def _sisl() -> Iterator[Row]:
    yield Row(
        name="sisl-pursuit-v5",
        id="sisl/pursuit-v5",
        kwargs={"max_cycles": 10},
        environment={"sides": TEAM},
        extra="sisl",
    )
    yield Row(
        name="sisl-multiwalker-v9",
        id="sisl/multiwalker-v9",
        kwargs={"max_cycles": 20},
        environment={"sides": TEAM},
        needs=("Box2D",),
        extra="sisl",
    )


def _mpe() -> Iterator[Row]:
    for name in MPE_NAMES:
        for continuous in (False, True):
            yield Row(
                name=f"mpe2-{name}-{'continuous' if continuous else 'discrete'}",
                id=f"mpe2/{name}",
                kwargs={"continuous_actions": continuous, "max_cycles": 10},
                environment={"sides": TEAM} if name in COOPERATIVE else {},
                needs=("mpe2",),
                extra="mpe",
            )


def _magent() -> Iterator[Row]:
    for name, sides in (
        ("adversarial_pursuit_v4", {"predators": ["predator_*"], "prey": ["prey_*"]}),
        ("battle_v4", {"red": ["red_*"], "blue": ["blue_*"]}),
        ("tiger_deer_v4", {"deer": ["deer_*"], "tigers": ["tiger_*"]}),
    ):
        yield Row(
            name=f"magent2-{name}",
            id=f"magent2/{name}",
            kwargs={"map_size": 15, "max_cycles": 10},
            environment={"sides": sides},
            needs=("magent2",),
            extra="magent2",
        )


def _generated() -> Iterator[Row]:
    for name, environment_id in GENERATED.items():
        yield Row(
            name=name,
            id=environment_id,
            kwargs={"max_cycles": 12},
            environment={
                "possible_agents": ["type{0..9}_{0..40}"],
                "sides": TEAM,
            },
        )


def _openspiel() -> Iterator[Row]:
    for game in GAMES:
        yield Row(
            name=f"openspiel-{game.partition('(')[0]}",
            id=f"openspiel:{game}",
            environment={"backend": "pettingzoo"},
            needs=("pyspiel",),
            extra="openspiel",
        )
