"""What a PLAYER on the command line is: a run's champion, policy or ghost, an export, a bot."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ._game import Game

if TYPE_CHECKING:
    import torch

    from arena.checkpoints.manifest import Manifest
    from arena.config import NetworkConfig
    from arena.core import Actor
    from arena.export.card import Card, MixtureCard
    from arena.matches.mixture import ActorMixture
    from arena.types import Digest, WeightsRef
    from populations.inspection.views import Inspection

_POLICY = re.compile(r"[a-z][a-z0-9_]{0,31}/p[0-9]{3,}")
_GHOST = re.compile(rf"{_POLICY.pattern}@[0-9]+")
_NUM_LISTED = 8
_FORMS = (
    "a PLAYER is a run directory (its champion), RUN:player/p003 (latest checkpoint), "
    "RUN:player/p003@000000120000 (a ghost), a directory that arena export wrote, bot:random or "
    "bot:package.module:Class(depth=3)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyWeights:
    """A policy that is frozen: all that playing needs.

    Attributes:
        player: Its id in the run that it comes from.
        agents: That it can play.
        network: The architecture.
        tensors: float32, as a checkpoint has them.
        digest: Of the weights in that run's league.
        agent_steps: That it was trained for.
        export: The directory it was exported to, if it comes from one.
    """

    player: str
    agents: tuple[str, ...]
    network: NetworkConfig
    tensors: Mapping[str, torch.Tensor]
    digest: Digest
    agent_steps: int
    export: Path | None = None

    @property
    def is_told_who_decides(self) -> bool:
        """Whether its observations end with the agent."""
        return self.network.agent_id

    def make_actor(self, game: Game, *, greedy: bool) -> Actor:
        """An actor on the CPU. An export plays by its graph: that is what was exported."""
        import torch

        from arena.export.actor import ExportedActor
        from arena.networks.frozen import FrozenPolicy
        from arena.resolve import put_first_on_path

        if self.export is not None:
            return ExportedActor(self.export, greedy=greedy)
        # The architecture of a run's own policy may be code of the user's.
        put_first_on_path(game.launch_directory)
        observation, action = game.layouts(self.agents, network=self.network)
        return FrozenPolicy.from_weights(
            self.network,
            self.tensors,
            observation=observation,
            action=action,
            device=torch.device("cpu"),
            greedy=greedy,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureWeights:
    """Policies of whom one is drawn for each match.

    Attributes:
        player: What the mixture is called.
        agents: That it can play.
        members: The policies.
        probabilities: Of each.
    """

    player: str
    agents: tuple[str, ...]
    members: tuple[PolicyWeights, ...]
    probabilities: tuple[float, ...]

    @property
    def is_told_who_decides(self) -> bool:
        """As of its members, which have one architecture."""
        return self.members[0].is_told_who_decides

    def make_actor(self, game: Game, *, greedy: bool) -> ActorMixture:
        """An actor on the CPU of each."""
        from arena.matches.mixture import ActorMixture

        return ActorMixture(
            actors=tuple(member.make_actor(game, greedy=greedy) for member in self.members),
            probabilities=self.probabilities,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPlayer:
    """Who a PLAYER is.

    Attributes:
        name: As the user wrote it.
        game: What it was trained in; None for bots, which play anything.
        policies: By population; a run with several has a champion of each. Empty for bots.
    """

    name: str
    game: Game | None
    policies: Mapping[str, PolicyWeights | MixtureWeights]

    @property
    def can_repeat(self) -> bool:
        """Whether it may draw nothing where policies play their likeliest actions.

        Of a user's bot nobody knows: if it draws, its games differ, and count.
        """
        from arena.types import RANDOM_BOT

        if self.game is None:
            return self.name != str(RANDOM_BOT)
        return not any(isinstance(policy, MixtureWeights) for policy in self.policies.values())

    def make_actors(self, game: Game, *, greedy: bool) -> Mapping[str, Actor | ActorMixture]:
        """By population, what plays for it."""
        if self.game is None:
            return game.make_bots(self.name)
        return {
            name: policy.make_actor(game, greedy=greedy) for name, policy in self.policies.items()
        }


def resolve_player(name: str) -> ResolvedPlayer:
    """Find a player and load its weights.

    Raises:
        ConfigError: If there is none of that name; says what there is.
        CheckpointError: If its weights are missing or damaged.
    """
    from arena.bot_ids import canonical_bot
    from arena.errors import ConfigError
    from arena.types import is_bot

    if is_bot(name):
        return ResolvedPlayer(name=canonical_bot(name), game=None, policies={})
    path = Path(name)
    if path.is_dir():
        # A run's directory has the export of its champion in it: the run is what was named.
        if (path / "run.yaml").is_file():
            return _of_run(name, path, player=None)
        exports = _exports(path)
        if exports:
            return _exported(name, exports)
        raise ConfigError(f"{path} is neither a run directory nor an export; {_FORMS}")
    run, colon, player = name.rpartition(":")
    if not colon or not Path(run).is_dir():
        raise ConfigError(f"there is no player {name!r}; {_FORMS}")
    return _of_run(name, Path(run), player=player)


def _exports(path: Path) -> list[Path]:
    """The directory itself, or those in it: several populations are exported side by side."""
    if (path / "card.json").is_file():
        return [path]
    return sorted(card.parent for card in path.glob("*/card.json"))


def _exported(name: str, directories: Sequence[Path]) -> ResolvedPlayer:
    from arena.errors import ConfigError
    from arena.export.card import MixtureCard, read_any_card

    policies: dict[str, PolicyWeights | MixtureWeights] = {}
    games: list[Game] = []
    for directory in directories:
        card = read_any_card(directory)
        if isinstance(card, MixtureCard):
            policies[card.population] = _exported_mixture(directory, card)
        else:
            policies[card.population] = _exported_policy(directory, card)
        games.append(_game_of_card(card))
    if len({game.spec.digest for game in games}) > 1:
        raise ConfigError(f"the exports in {name} are of different environments")
    return ResolvedPlayer(name=name, game=games[0], policies=policies)


def _exported_policy(directory: Path, card: Card) -> PolicyWeights:
    from arena.export.actor import load_export_weights

    network, tensors = load_export_weights(directory)
    return PolicyWeights(
        player=card.player,
        agents=card.agents,
        network=network,
        tensors=tensors,
        digest=card.weights_digest,
        agent_steps=card.agent_steps,
        export=directory,
    )


def _exported_mixture(directory: Path, card: MixtureCard) -> MixtureWeights:
    from arena.checkpoints.files import read_verified
    from arena.errors import CheckpointCorrupt
    from arena.export.card import CARD, read_card

    members = []
    for member in card.members:
        name = f"{member.directory}/{CARD}"
        if name not in card.files:
            raise CheckpointCorrupt(f"{directory}: its card names no {name}")
        # The mixture's card vouches for the member's, and that one for its files.
        read_verified(directory, name, card.files[name])
        own = directory / member.directory
        own_card = read_card(own)
        if (own_card.agents, own_card.environment) != (card.agents, card.environment):
            raise CheckpointCorrupt(
                f"{own} must have the agents and the environment of its mixture"
            )
        members.append(_exported_policy(own, own_card))
    total = math.fsum(member.probability for member in card.members)
    return MixtureWeights(
        player=card.player,
        agents=card.agents,
        members=tuple(members),
        probabilities=tuple(member.probability / total for member in card.members),
    )


def _game_of_card(card: Card | MixtureCard) -> Game:
    environment = card.environment
    return Game(
        environment=card.environment_config,
        spec=environment.spec,
        sides=environment.sides,
        seats=environment.seats,
        populations=environment.populations,
        launch_directory=str(Path.cwd()),
        is_foreign=True,
    )


def _of_run(name: str, run_dir: Path, *, player: str | None) -> ResolvedPlayer:
    from arena.types import population_of
    from populations.config.run_file import learner_setup
    from populations.inspection.views import Inspection

    inspection = Inspection.open(run_dir)
    try:
        if player is None:
            found = champions(inspection)
        else:
            found = {population_of(player): (player, find_in_run(inspection, player))}
    finally:
        inspection.close()
    setup = learner_setup(inspection.run_file, root=run_dir)
    policies = {
        population: load_policy(run_dir, player_id, reference)[1]
        for population, (player_id, reference) in found.items()
    }
    return ResolvedPlayer(name=name, game=Game.of_setup(setup), policies=policies)


def load_policy(
    run_dir: Path, player: str, reference: WeightsRef
) -> tuple[Manifest, PolicyWeights]:
    """Load a player of a run.

    Raises:
        CheckpointError: If its weights are missing or damaged.
    """
    from arena.checkpoints.tensors import load_weights

    manifest, tensors = load_weights(run_dir, reference)
    return manifest, PolicyWeights(
        player=player,
        agents=manifest.population_agents,
        network=manifest.network,
        tensors=tensors,
        digest=reference.digest,
        agent_steps=manifest.agent_steps,
    )


def champions(inspection: Inspection) -> dict[str, tuple[str, WeightsRef]]:
    """Id and weights of the champion of every population of a run that has one.

    Raises:
        ConfigError: If nobody is rated yet.
    """
    from arena.errors import ConfigError
    from arena.types import WeightsRef
    from populations.league.standings import champion

    found: dict[str, tuple[str, WeightsRef]] = {}
    for population, lines in inspection.standings().items():
        best = champion(lines)
        if best is not None and best.weights is not None and best.key is not None:
            found[population] = (best.player, WeightsRef(digest=best.weights, key=best.key))
    if not found:
        raise ConfigError(
            f"{inspection.run_dir} has no champion: nobody is rated yet; name a policy, "
            f"{_listed(inspection.tables.policies)}"
        )
    return found


def find_in_run(inspection: Inspection, player: str) -> WeightsRef:
    """Weights of a policy (its latest checkpoint) or of a ghost.

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
    checkpoint = tables.checkpoints[row.checkpoint]
    return WeightsRef(digest=checkpoint.weights_digest, key=checkpoint.key)


def _listed(names: Iterable[str]) -> str:
    known = list(names)
    text = ", ".join(known[:_NUM_LISTED]) or "none"
    return text if len(known) <= _NUM_LISTED else f"{text} and {len(known) - _NUM_LISTED} more"
