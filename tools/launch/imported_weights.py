"""``arena launch``: weights of other runs, as the start of policies or to come in later.

Tests: `tests/integration/test_joining.py`, `tests/integration/test_outsiders.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from arena import __version__
from arena.errors import ConfigError
from arena.rules import shown
from arena.types import is_bot

from ..players.resolve import resolve_player
from ..players.weights import MixtureWeights, PolicyWeights

if TYPE_CHECKING:
    from populations.config.run_config import RunConfig
    from populations.config.run_file import RunFile
    from populations.config.sections import PopulationConfig
    from populations.records.rows import Json

    from ..players.in_run import TrainedWith


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """A player's weights, as files for a run's directory.

    Attributes:
        files: Contents by file name.
        origin: The PLAYER as the user wrote it.
        policy: Its id where it comes from.
        agent_steps: Agent steps that it was trained for there.
        digest: Digest of its weights.
        trained_with: Hyperparameters of its training there.
        gives_hyperparameters: Whether policies start from these, too.
    """

    files: Mapping[str, bytes]
    origin: str
    policy: str
    agent_steps: int
    digest: str
    trained_with: TrainedWith
    gives_hyperparameters: bool = False

    @property
    def said(self) -> str:
        """Origin of the weights, in words."""
        return (
            f"{self.origin}: {self.policy} at {self.agent_steps:,} agent steps, "
            f"weights {self.digest[:12]}"
            f"{', with its hyperparameters' if self.gives_hyperparameters else ''}"
        )

    @property
    def factors(self) -> Mapping[str, float]:
        """Factors with which schedules of hyperparameters begin."""
        return self.trained_with.factors if self.gives_hyperparameters else {}

    @property
    def record(self) -> dict[str, Json]:
        """Origin of the weights, for the run's events."""
        record: dict[str, Json] = {
            "origin": self.origin,
            "player": self.policy,
            "agent_steps": self.agent_steps,
            "weights": self.digest,
        }
        if self.gives_hyperparameters:
            record["hyperparameters"] = dict(self.trained_with.hyperparameters)
            record["factors"] = dict(self.trained_with.factors)
        return record


def find_initial_weights(
    run_file: RunFile, init_from: Sequence[str], *, with_hyperparameters: bool = False
) -> dict[str, Import]:
    """Find the weights that policies start from, by population.

    A population takes the weights of the player that is named for it, else those of the player
    that is named for none. Of that one weights for some of the populations are enough: the others
    start afresh.

    Args:
        run_file: The new run.
        init_from: PLAYER or POPULATION=PLAYER.
        with_hyperparameters: Whether policies start from the players' hyperparameters, too.

    Raises:
        ConfigError: If a player has no weights that fit: other spaces, agents or architecture.
    """
    found: dict[str, Import] = {}
    populations = run_file.config.learning
    players = players_by_population(init_from, populations)
    # Players without a population come last: they are for the remaining populations.
    for name, player in sorted(players.items(), key=lambda entry: entry[0] is None):
        left = [known for known in populations if known not in found] if name is None else [name]
        said = f"--init-from {player if name is None else f'{name}={player}'}"
        imports = _imports(run_file, player, said=said, only=left)
        if not imports:
            raise ConfigError(f"{said}: it has no weights for {', '.join(left) or 'a population'}")
        found |= imports
    return {
        name: replace(found[name], gives_hyperparameters=with_hyperparameters)
        for name in populations
        if name in found
    }


def players_by_population(
    init_from: Sequence[str], populations: Sequence[str]
) -> Mapping[str | None, str]:
    """Return players by the population that they are named for; None: for all others.

    Args:
        init_from: PLAYER or POPULATION=PLAYER, each population at most once.
        populations: Populations of the run.

    Raises:
        ConfigError: If two players are for the same population, or there is no such population.
    """
    from populations.fields import POPULATION_NAME

    found: dict[str | None, str] = {}
    for text in init_from:
        name, is_named, player = text.partition("=")
        population: str | None = name
        # A path or a bot's arguments may have an equals sign, too, but a population's name does
        # not.
        if not is_named or not POPULATION_NAME.fullmatch(name):
            population, player = None, text
        elif name not in populations:
            raise ConfigError(
                f"--init-from {text}: a population must be one of {', '.join(populations)}, got "
                f"{name!r} (a path may begin with ./)"
            )
        if population in found:
            what = "all populations" if population is None else f"population {population}"
            raise ConfigError(
                f"--init-from names one player for {what}, got {found[population]} and {player}"
            )
        found[population] = player
    return found


def find_arrivals(run_file: RunFile) -> dict[str, Mapping[str, bytes]]:
    """Find files with the weights of ``pbt.immigration.from`` and ``roles.reset``, by their
    directory in the run's.

    Raises:
        ConfigError: If one has no weights that fit the population that it would come into.
    """
    from populations.controller.evolution.resets import immigrant_key, reset_key
    from populations.roles import has_exploiters

    config = run_file.config
    wanted = {
        # Weights are known by position, because a run resumes without the paths it was launched
        # with.
        immigrant_key(name, index): (player, name, f"populations.{name}.pbt.immigration.from")
        for name in config.learning
        # A population's own section counts, as when the run looks for immigrants.
        for index, player in enumerate(config.pbt_of(name).immigration.players)
    }
    # `roles.reset` concerns only exploiters, which start again and may have imported weights.
    if config.roles.is_imported:
        wanted |= {
            reset_key(name): (config.roles.reset, name, "roles.reset")
            for name, population in config.populations.items()
            if has_exploiters(population.roles)
        }
    found: dict[str, Mapping[str, bytes]] = {}
    for key, (player, name, where) in wanted.items():
        said = f"{where}: {player}"
        imports = _imports(run_file, player, said=said, only=[name])
        if name not in imports:
            raise ConfigError(f"{said}: it has no weights for population {name}")
        found[key] = imports[name].files
    return found


def find_outsiders(run_file: RunFile) -> dict[str, Import]:
    """Find the weights of other runs' players in ``matchmaking.bots``, ``evaluation.bots`` and
    ``populations.NAME.player``, by their directory in the run's.

    A player with weights for some populations is enough: it is met by policies that play against
    these. In cooperation a team is met, so it must have some for all.

    Raises:
        ConfigError: If one has no weights that fit.
    """
    from populations.config.run_file import imported_players
    from populations.matchmaking.external_players import external_player_key

    outsiders: dict[str, Import] = {}
    config = run_file.config
    for index, player in imported_players(config).items():
        # Search the population whose configuration has this player.
        own = [name for name, one in config.populations.items() if one.player == player]
        key = f"populations.{own[0]}.player" if own else "evaluation.bots"
        said = f"{'matchmaking.bots' if player in config.matchmaking.bots else key}: {player}"
        found = _imports(run_file, player, said=said)
        is_team = len(config.sides) == 1
        missing = [name for name in config.populations if name not in found]
        if missing and (is_team or not found or set(own) & set(missing)):
            raise ConfigError(f"{said}: it has no weights for {', '.join(missing)}")
        outsiders |= {external_player_key(index, name): one for name, one in found.items()}
    return outsiders


def with_networks(config: RunConfig) -> RunConfig:
    """Return a configuration in which populations that a player of another run has are built like
    that one, unless the user says how.

    Raises:
        ConfigError: If there is no such player.
    """
    populations = dict(config.populations)
    for name, population in populations.items():
        player = population.player
        if player is None or is_bot(player) or "network" in population.model_fields_set:
            continue
        try:
            found = resolve_player(player).policies.get(name)
        except ConfigError as error:
            raise ConfigError(f"populations.{name}.player: {player}: {error}") from error
        # Other faults are reported when the weights are loaded.
        if isinstance(found, PolicyWeights):
            populations[name] = population.model_copy(update={"network": found.network})
    return config.model_copy(update={"populations": populations})


def played_lines(run_file: RunFile, outsiders: Mapping[str, Import]) -> Iterator[str]:
    """Yield a line for each population that a player from outside has.

    Args:
        run_file: The run.
        outsiders: Players of other runs by their directory in the run's.
    """
    from populations.matchmaking.external_players import external_player_key

    config = run_file.config
    for name, population in config.populations.items():
        if population.player is not None:
            index = config.external_players.index(population.player)
            one = outsiders.get(external_player_key(index, name))
            said = population.player if one is None else one.said
            yield f"{name} is played by {said}; nobody is trained for it"


def _imports(
    run_file: RunFile, player: str, *, said: str, only: Collection[str] | None = None
) -> dict[str, Import]:
    """Return a player's weights for the populations of a run that it has some for.

    Args:
        run_file: The run that they come into.
        player: A PLAYER.
        said: Beginning of error messages.
        only: Look at these populations alone.
    """
    from populations.config.resume import compare

    try:
        found = resolve_player(player)
    except ConfigError as error:
        raise ConfigError(f"{said}: {error}") from error
    # Bots have no game and no weights to import.
    if found.game is not None and found.game.spec.agent_specs != run_file.spec.agent_specs:
        raise ConfigError(f"{said}: its observation and action spaces are others")
    imports = {}
    for name, population in run_file.config.populations.items():
        policy = found.policies.get(name)
        # A population without a policy is not a fault here: the callers know whether one is enough.
        if policy is None or (only is not None and name not in only):
            continue
        # A policy starts from one set of weights, not from a mixture.
        if isinstance(policy, MixtureWeights):
            raise ConfigError(
                f"{said}: {player} is a mixture of {len(policy.members)} policies; name one of "
                f"them, for example {policy.members[0].export}"
            )
        assert policy.trained_with is not None, "`resolve_player` looks it up"
        # The architectures must be equal, because weights are loaded tensor by tensor.
        theirs, ours = _facts(policy), _facts(population)
        others = [
            f"{change.key} is {shown(change.before)} there and {shown(change.after)} here"
            for change in compare(theirs, ours)
            if change.before != change.after
        ]
        if others:
            raise ConfigError(
                f"{said}: agents and network of population {name} must be equal, but "
                f"{'; '.join(others)}"
            )
        imports[name] = Import(
            files=_files(run_file, policy),
            origin=player,
            policy=policy.player,
            agent_steps=policy.agent_steps,
            digest=policy.digest,
            trained_with=policy.trained_with,
        )
    return imports


def _facts(one: PolicyWeights | PopulationConfig) -> dict[str, Json]:
    return {"agents": [*(one.agents or ())], "network": one.network.model_dump(mode="json")}


def _files(run_file: RunFile, policy: PolicyWeights) -> dict[str, bytes]:
    from arena.checkpoints.files import encode_manifest, file_records
    from arena.checkpoints.manifest import MANIFEST, WEIGHTS, Manifest
    from arena.checkpoints.tensors import serialize

    # The optimizer is left out, as its moments belong to another run's gradients.
    weights = {WEIGHTS: serialize(policy.tensors)}
    # Counters of this run begin at 0, however long the player was trained before.
    manifest = Manifest(
        policy=policy.player,
        generation=0,
        agent_steps=0,
        learner_updates=0,
        hyperparameters={},
        parent=None,
        donor=None,
        environment_digest=run_file.spec.digest,
        population_agents=policy.agents,
        network=policy.network,
        files=file_records(weights),
        arena_version=__version__,
        created=run_file.created,
    )
    return {**weights, MANIFEST: encode_manifest(manifest)}
