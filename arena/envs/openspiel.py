"""Games of OpenSpiel: ids ``openspiel:<game string>``, such as ``openspiel:kuhn_poker(players=3)``.

Torch-free. Games in which players take turns, with chance between; where all decide at once,
OpenSpiel has ``turn_based_simultaneous_game(game=...)``. OpenSpiel is an optional package.

Lanctot et al., "OpenSpiel: A Framework for Reinforcement Learning in Games" (2019).
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import math
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np

from arena.envs import chance
from arena.envs.batched.twins import TWINS, openspiel_agent_spec
from arena.envs.registry import KnownEnvironment
from arena.envs.spec import EnvironmentSpec
from arena.errors import ConfigError, EnvironmentFault, EnvironmentUnavailable

if TYPE_CHECKING:
    from arena.envs.episode_row import EpisodeRow

PREFIX = "openspiel:"
DISTRIBUTION = "open_spiel"
INSTALL = "pip install 'arena-league[openspiel]'"

UNIFORM_TOLERANCE = 1e-12
"""Probabilities closer than this are equal: they are quotients, and rounding moves no card."""


def is_openspiel(environment_id: str) -> bool:
    """Whether an id names a game of OpenSpiel."""
    return environment_id.startswith(PREFIX)


def canonical_game_id(environment_id: str) -> str:
    """One way to write an id: no spaces, no empty parentheses."""
    return "".join(environment_id.split()).removesuffix("()")


def load_game(environment_id: str, kwargs: Mapping[str, object]) -> Any:  # noqa: ANN401
    """Load a game.

    Args:
        environment_id: ``openspiel:`` and a game string, which may have parameters.
        kwargs: Parameters of the game, instead of those in the string.

    Returns:
        A ``pyspiel.Game``.

    Raises:
        EnvironmentUnavailable: If OpenSpiel is not installed, or has no such game.
        ConfigError: If its parameters are not the game's, or Arena cannot play it: players decide
            at once, chance is not told, or players see nothing.
    """
    pyspiel = _pyspiel(environment_id)
    name = canonical_game_id(environment_id).removeprefix(PREFIX)
    _check_name(name.partition("(")[0], environment_id=environment_id, pyspiel=pyspiel)
    if kwargs and "(" in name:
        raise ConfigError(
            f"environment.id {environment_id} must have its parameters in the id or in "
            f"environment.kwargs, got both: {dict(kwargs)}"
        )
    try:
        game = pyspiel.load_game(name, dict(kwargs)) if kwargs else pyspiel.load_game(name)
    except (pyspiel.SpielError, TypeError) as error:
        raise ConfigError(
            f"environment.id {environment_id} with kwargs {dict(kwargs)} cannot be made: {error}"
        ) from error
    _check_playable(game, environment_id=environment_id, pyspiel=pyspiel)
    return game


def openspiel_facts(environment_id: str, *, kwargs: Mapping[str, object]) -> EnvironmentSpec:
    """Write down what everything else is checked against.

    Raises:
        EnvironmentUnavailable: If OpenSpiel is not installed, or has no such game.
        ConfigError: If Arena cannot play it.
    """
    game = load_game(environment_id, kwargs)
    spec = openspiel_agent_spec(math.prod(_tensor_shape(game)), game.num_distinct_actions())
    agents = _agents(game)
    return EnvironmentSpec(
        id=canonical_game_id(environment_id),
        kwargs=dict(kwargs),
        api="aec",
        agents=agents,
        agent_specs=dict.fromkeys(agents, spec),
        versions={DISTRIBUTION: metadata.version(DISTRIBUTION)},
    )


def known_games() -> list[KnownEnvironment]:
    """Games with a native twin, for ``arena envs list``; OpenSpiel has a hundred more."""
    installed = importlib.util.find_spec("pyspiel") is not None
    return [
        KnownEnvironment(
            id=environment_id,
            package=DISTRIBUTION,
            apis=("aec",),
            installed=installed,
            install=INSTALL,
        )
        for environment_id in sorted(TWINS)
        if is_openspiel(environment_id)
    ]


class OpenSpielStepper:
    """Steps one game and tells its row of the batch; an `arena.envs.batch.Stepper`.

    Chance is a function of the episode's seed: its n-th event takes the n-th number of
    `arena.envs.chance.uniform`.

    Args:
        game: A ``pyspiel.Game``, as `load_game` gives it.
        row: Of the batch.
        actions_of: By agent, its population's name and what action 0 is called (0).
    """

    def __init__(
        self,
        game: Any,  # noqa: ANN401
        *,
        row: EpisodeRow,
        actions_of: Mapping[str, tuple[str, int]],
    ) -> None:
        self._game = game
        self._row = row
        self._actions_of = actions_of
        self._agents = _agents(game)
        self._has_information_state = game.get_type().provides_information_state_tensor
        self._state: Any = None
        self._on_turn = 0
        self._seed = 0
        self._num_draws = 0
        self._returns = [0.0] * len(self._agents)

    @property
    def on_turn(self) -> str:
        """Whose action is carried out, for messages."""
        return f"agent {self._agents[self._on_turn]!r} on turn"

    def start(self, seed: int) -> None:
        """Deal, and ask the first player.

        Args:
            seed: The episode's.

        Raises:
            EnvironmentFault: If chance alone ends the game.
        """
        self._seed, self._num_draws = seed, 0
        # What chance pays now comes with the first decision: this call's rewards may still be the
        # last episode's.
        self._returns = [0.0] * len(self._agents)
        self._state = self._game.new_initial_state()
        self._row.begin()
        self._let_chance_act()
        if self._state.is_terminal():
            raise EnvironmentFault("after reset a player must be on turn, the game is over")
        self._ask()

    def step(self, actions: Mapping[str, list[int]]) -> bool:
        """Carry out one decision and the chance after it, then ask whoever is next.

        Args:
            actions: Of the whole batch by population, [B].

        Returns:
            Whether the episode is over; nobody is asked then.
        """
        population, first_action = self._actions_of[self._agents[self._on_turn]]
        self._state.apply_action(actions[population][self._row.b] + first_action)
        self._let_chance_act()
        self._credit()
        if not self._state.is_terminal():
            self._ask()
            return False
        for agent in self._agents:
            self._row.terminate(agent, None)
        self._row.finish({})
        return True

    def close(self) -> None:
        """Forget the game's state."""
        self._state = None

    def _credit(self) -> None:
        """Pay what was added to the returns.

        OpenSpiel's ``rewards`` are undefined where chance acts: 2048 tells a reward again there.
        """
        before, self._returns = self._returns, self._state.returns()
        received = (after - first for first, after in zip(before, self._returns, strict=True))
        self._row.credit(dict(zip(self._agents, received, strict=True)))

    def _let_chance_act(self) -> None:
        while self._state.is_chance_node():
            uniform = chance.uniform(self._seed, draw=self._num_draws)
            self._num_draws += 1
            outcomes = self._state.chance_outcomes()
            self._state.apply_action(chance_outcome(outcomes, uniform=uniform))

    def _ask(self) -> None:
        state, player = self._state, self._state.current_player()
        self._on_turn = player
        seen = (
            state.information_state_tensor(player)
            if self._has_information_state
            else state.observation_tensor(player)
        )
        observation = {
            "observation": np.array(seen, dtype=np.float32),
            "action_mask": np.array(state.legal_actions_mask(player), dtype=np.int8),
        }
        self._row.ask(self._agents[player], observation, None)


def chance_outcome(outcomes: Sequence[tuple[int, float]], *, uniform: float) -> int:
    """The outcome that a number decides.

    Args:
        outcomes: With their probabilities, which sum to one, in the game's order.
        uniform: In [0, 1). Of equally likely outcomes it decides by its place alone, so that a game
            in whole tensors can do the same without probabilities; else by their cumulative sum.
    """
    first = outcomes[0][1]
    if all(abs(probability - first) < UNIFORM_TOLERANCE for _, probability in outcomes):
        return outcomes[int(uniform * len(outcomes))][0]
    cumulative = 0.0
    for outcome, probability in outcomes:
        cumulative += probability
        if uniform < cumulative:
            return outcome
    # The sum of the probabilities may round to less than one.
    return next(outcome for outcome, probability in reversed(outcomes) if probability > 0.0)


def _pyspiel(environment_id: str) -> Any:  # noqa: ANN401  (a module without types)
    try:
        return importlib.import_module("pyspiel")
    except ModuleNotFoundError as error:
        raise EnvironmentUnavailable(
            f"environment.id {environment_id} needs the module {error.name!r}, which is not "
            f"there: {INSTALL}"
        ) from error


def _check_name(name: str, *, environment_id: str, pyspiel: Any) -> None:  # noqa: ANN401
    # OpenSpiel itself would print a list of all games on standard error.
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
    if kind.dynamics == pyspiel.GameType.Dynamics.SIMULTANEOUS:
        raise ConfigError(
            f"environment.id {environment_id}: in {kind.short_name} players decide at once, which "
            "is not supported of OpenSpiel's games; taking turns instead: "
            f"{PREFIX}turn_based_simultaneous_game(game={game})"
        )
    if kind.dynamics != pyspiel.GameType.Dynamics.SEQUENTIAL:
        raise ConfigError(
            f"environment.id {environment_id}: {kind.short_name} must be a game in which players "
            f"take turns, got {kind.dynamics.name}"
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


def _tensor_shape(game: Any) -> list[int]:  # noqa: ANN401
    if game.get_type().provides_information_state_tensor:
        shape: list[int] = game.information_state_tensor_shape()
    else:
        shape = game.observation_tensor_shape()
    return shape


def _agents(game: Any) -> tuple[str, ...]:  # noqa: ANN401
    return tuple(f"player_{player}" for player in range(game.num_players()))
