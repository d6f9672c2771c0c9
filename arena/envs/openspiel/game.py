"""Games of OpenSpiel: ids ``openspiel:<game string>``, such as ``openspiel:kuhn_poker(players=3)``.

Torch-free. Games in which players take turns, decide at once, or both, with chance in between.
OpenSpiel is an optional package.

Lanctot et al., "OpenSpiel: A Framework for Reinforcement Learning in Games" (2019).
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from arena.environment_spec import AgentSpec, EnvironmentSpec
from arena.envs.registry import TWINS, KnownEnvironment
from arena.errors import ConfigError, EnvironmentUnavailable

PREFIX = "openspiel:"
DISTRIBUTION = "open_spiel"
INSTALL = f"pip install {DISTRIBUTION}"

OBSERVATION = "observation"
"""The only key of ``environment.kwargs`` that is no parameter of a game: the kind of tensor that
players see.
"""

PLANES_RANK = 3

CHOICES = ("auto", "information_state", "observation")

Seen = Literal["information_state", "observation"]
"""Tensor of a player: everything that it knows, including its own decisions, or the game's present
view.
"""


def is_openspiel(environment_id: str) -> bool:
    """Return whether an id names a game of OpenSpiel."""
    return environment_id.startswith(PREFIX)


def canonical_game_id(environment_id: str) -> str:
    """Return the canonical form of an id: no spaces, no empty parentheses."""
    return "".join(environment_id.split()).removesuffix("()")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSpielGame:
    """Game, and its players' view of it.

    Attributes:
        game: A ``pyspiel.Game``.
        seen: Tensor that players get.
        tensor_shape: Shape of that tensor in the game.
        has_planes_first: Whether it is a stack of planes [C, H, W]. Players get [H, W, C], the form
            of images and of PettingZoo's boards.
    """

    game: Any
    seen: Seen
    tensor_shape: tuple[int, ...]
    has_planes_first: bool

    @property
    def agents(self) -> tuple[str, ...]:
        """Names of the players, in order."""
        return tuple(f"player_{player}" for player in range(self.game.num_players()))

    @property
    def api(self) -> Literal["aec", "parallel"]:
        """API, ``parallel`` if the game has nodes at which players decide at once."""
        # The name is compared, because pyspiel is not imported here.
        sequential = self.game.get_type().dynamics.name == "SEQUENTIAL"
        return "aec" if sequential else "parallel"

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of a player's observation."""
        if not self.has_planes_first:
            return self.tensor_shape
        planes, height, width = self.tensor_shape
        return height, width, planes

    def see(self, state: Any, player: int) -> npt.NDArray[np.float32]:  # noqa: ANN401
        """Return a player's observation. float32 of `observation_shape`."""
        if self.seen == "information_state":
            numbers = state.information_state_tensor(player)
        else:
            numbers = state.observation_tensor(player)
        tensor = np.array(numbers, dtype=np.float32).reshape(self.tensor_shape)
        # [C, H, W] -> [H, W, C]
        return tensor.transpose(1, 2, 0) if self.has_planes_first else tensor

    def deciding(self, state: Any) -> list[int]:  # noqa: ANN401
        """Return the players that decide in a state that is neither terminal nor left to chance.

        Where players decide at once, some or all may have nothing to decide.
        """
        # A game with simultaneous nodes may have sequential ones, too.
        if not state.is_simultaneous_node():
            return [state.current_player()]
        return [player for player in range(self.game.num_players()) if state.legal_actions(player)]

    def apply(self, state: Any, actions: Mapping[int, int]) -> None:  # noqa: ANN401
        """Carry out the choices of the `deciding` players."""
        if state.is_simultaneous_node():
            # OpenSpiel takes an action of every player, and ignores those of players without a
            # decision.
            state.apply_actions([actions.get(p, 0) for p in range(self.game.num_players())])
        else:
            # Exactly one player decides here; see `deciding`.
            (action,) = actions.values()
            state.apply_action(action)


def load_game(environment_id: str, kwargs: Mapping[str, object]) -> OpenSpielGame:
    """Load a game.

    Args:
        environment_id: ``openspiel:`` and a game string, which may have parameters.
        kwargs: Parameters of the game, instead of those in the string; and ``observation``:
            ``information_state``, ``observation``, or ``auto``, the first of these that it has.

    Raises:
        EnvironmentUnavailable: If OpenSpiel is not installed, or has no such game.
        ConfigError: If its parameters are not the game's, or Arena cannot play it: it is a
            mean-field game, hides the outcomes of chance, or has no observations.
    """
    pyspiel = _pyspiel(environment_id)
    name = canonical_game_id(environment_id).removeprefix(PREFIX)
    _check_name(name.partition("(")[0], environment_id=environment_id, pyspiel=pyspiel)
    # This key is Arena's own, not a parameter of the game.
    parameters = {key: value for key, value in kwargs.items() if key != OBSERVATION}
    if parameters and "(" in name:
        raise ConfigError(
            f"environment.id {environment_id} must have its parameters in the id or in "
            f"environment.kwargs, got both: {parameters}"
        )
    try:
        game = pyspiel.load_game(name, parameters) if parameters else pyspiel.load_game(name)
    except (pyspiel.SpielError, TypeError, IndexError) as error:
        raise ConfigError(
            f"environment.id {environment_id} with kwargs {parameters} cannot be made: {error}"
        ) from error
    _check_playable(game, environment_id=environment_id, pyspiel=pyspiel)
    seen = _seen(game, asked=kwargs.get(OBSERVATION, "auto"), environment_id=environment_id)
    return _viewed(game, seen=seen, environment_id=environment_id, pyspiel=pyspiel)


def openspiel_facts(environment_id: str, *, kwargs: Mapping[str, object]) -> EnvironmentSpec:
    """Return the spec of a game.

    Raises:
        EnvironmentUnavailable: If OpenSpiel is not installed, or has no such game.
        ConfigError: If Arena cannot play it.
    """
    loaded = load_game(environment_id, kwargs)
    spec = openspiel_agent_spec(loaded.observation_shape, loaded.game.num_distinct_actions())
    return EnvironmentSpec(
        id=canonical_game_id(environment_id),
        kwargs=dict(kwargs),
        api=loaded.api,
        agents=loaded.agents,
        agent_specs=dict.fromkeys(loaded.agents, spec),
        versions={DISTRIBUTION: metadata.version(DISTRIBUTION)},
    )


def known_games() -> list[KnownEnvironment]:
    """Return the games with a native twin, for ``arena envs list``; OpenSpiel has a
    hundred more.
    """
    installed = importlib.util.find_spec("pyspiel") is not None
    return [
        KnownEnvironment(
            id=environment_id,
            package=DISTRIBUTION,
            # All twins are turn-based games.
            apis=("aec",),
            installed=installed,
            install=INSTALL,
        )
        for environment_id in sorted(TWINS)
        if is_openspiel(environment_id)
    ]


def _pyspiel(environment_id: str) -> Any:  # noqa: ANN401  (a module without types)
    try:
        return importlib.import_module("pyspiel")
    except ModuleNotFoundError as error:
        raise EnvironmentUnavailable(
            f"environment.id {environment_id} needs the module {error.name!r}, which is not "
            f"there: {INSTALL}"
        ) from error


def _check_name(name: str, *, environment_id: str, pyspiel: Any) -> None:  # noqa: ANN401
    # For an unknown name OpenSpiel would print a list of all games on standard error.
    known = pyspiel.registered_names()
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=2, cutoff=0.5)
    hint = f"; nearest: {', '.join(PREFIX + game for game in near)}" if near else ""
    raise EnvironmentUnavailable(
        f"environment.id: OpenSpiel has no game {name!r} ({environment_id}){hint}"
    )


def _check_playable(game: Any, *, environment_id: str, pyspiel: Any) -> None:  # noqa: ANN401
    kind = game.get_type()
    if kind.dynamics == pyspiel.GameType.Dynamics.MEAN_FIELD:
        raise ConfigError(
            f"environment.id {environment_id}: in {kind.short_name} players must take turns or "
            "decide at once; it is a mean-field game, in which one player meets a distribution"
        )
    if kind.chance_mode == pyspiel.GameType.ChanceMode.SAMPLED_STOCHASTIC:
        raise ConfigError(
            f"environment.id {environment_id}: {kind.short_name} must tell the outcomes of chance, "
            "so that a seed decides them; it draws them itself"
        )
    if not (kind.provides_information_state_tensor or kind.provides_observation_tensor):
        raise ConfigError(
            f"environment.id {environment_id}: {kind.short_name} must say what players see as a "
            "tensor, and does not"
        )


def _seen(game: Any, *, asked: object, environment_id: str) -> Seen:  # noqa: ANN401
    if asked not in CHOICES:
        raise ConfigError(
            f"environment.kwargs.{OBSERVATION} of {environment_id} must be one of "
            f"{', '.join(CHOICES)}, got {asked!r}"
        )
    kind = game.get_type()
    has = {
        "information_state": kind.provides_information_state_tensor,
        "observation": kind.provides_observation_tensor,
    }
    if asked != "auto" and not has[str(asked)]:
        given = ", ".join(name for name, is_given in has.items() if is_given)
        raise ConfigError(
            f"environment.kwargs.{OBSERVATION} of {environment_id} must be auto or what "
            f"{kind.short_name} gives as a tensor, {given}; got {asked!r}"
        )
    # `auto` prefers it, because a poker player that sees only the present forgets the bets.
    if asked == "information_state" or (asked == "auto" and has["information_state"]):
        return "information_state"
    return "observation"


def _viewed(
    game: Any,  # noqa: ANN401
    *,
    seen: Seen,
    environment_id: str,
    pyspiel: Any,  # noqa: ANN401
) -> OpenSpielGame:
    try:
        if seen == "information_state":
            shape = game.information_state_tensor_shape()
            layout = game.information_state_tensor_layout()
        else:
            shape = game.observation_tensor_shape()
            layout = game.observation_tensor_layout()
    except pyspiel.SpielError as error:
        raise ConfigError(
            f"environment.id {environment_id} must say what players see as a tensor: {error}"
        ) from error
    if not math.prod(shape):
        raise ConfigError(
            f"environment.id {environment_id}: what players see must have at least one number, "
            f"got a tensor of shape {shape}; environment.kwargs.{OBSERVATION} chooses another"
        )
    is_planes = len(shape) == PLANES_RANK and layout == pyspiel.TensorLayout.CHW
    return OpenSpielGame(
        game=game, seen=seen, tensor_shape=tuple(shape), has_planes_first=is_planes
    )


def openspiel_agent_spec(observation_shape: tuple[int, ...], num_actions: int) -> AgentSpec:
    """Return the spec of an agent of an OpenSpiel game.

    Args:
        observation_shape: Shape of its observations; information states are flat, (F,).
        num_actions: n.
    """
    return AgentSpec(
        observation={
            "kind": "Box",
            "shape": list(observation_shape),
            "dtype": "float32",
            # OpenSpiel declares no bounds of its tensors.
            "low": "-inf",
            "high": "inf",
        },
        action={"kind": "Discrete", "n": num_actions, "start": 0},
        mask="observation",
    )
