"""Resolution of a PLAYER on the command line: from a run, an export, or a bot.

Tests: `tests/tools/evaluate/test_command.py`, `tests/tools/export/test_mixture.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from .game import Game
from .in_run import TrainedWith, champions, find_directory, find_in_run, trained_with
from .weights import MixtureWeights, PolicyWeights, load_policy

if TYPE_CHECKING:
    from arena.config import EnvironmentConfig
    from arena.core import Actor
    from arena.export.card import Card, CardEnvironment, MixtureCard
    from arena.matches.tournament import ActorMixture
    from populations.config.trust import Word

_FORMS = (
    "a PLAYER is a run directory (its champion), RUN:player/p003 (latest checkpoint), "
    "RUN:p003@4.628M (a kept checkpoint or a ghost) or its directory, RUN:p003@best (its "
    "best-rated checkpoint), a directory that "
    "arena export wrote, bot:random or bot:package.module:Class(depth=3), each with options "
    "(NAME:level=3 of an export with levels, NAME:temperature=2 of any policy)"
)

CHAMPION = "champion"
"""Directory of a run for exports, unless the command is told another one."""

_DEPTH = 4
"""Folders between a run's directory and a checkpoint's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPlayer:
    """PLAYER of a command line, resolved.

    Attributes:
        name: Name as the user wrote it.
        game: Game of its training; None for bots, which play anything.
        policies: Weights of each population; a run has a champion of each. Empty for bots.
    """

    name: str
    game: Game | None
    policies: Mapping[str, PolicyWeights | MixtureWeights]

    @property
    def can_repeat(self) -> bool:
        """Return whether it may draw nothing where policies play their likeliest actions.

        A user's bot may draw: then its games differ, and count.
        """
        from arena.types import RANDOM_BOT

        if self.game is None:
            return self.name != str(RANDOM_BOT)
        # A mixture samples a member for each match, even if its members play greedily.
        return not any(
            isinstance(policy, MixtureWeights) or policy.temperature is not None
            for policy in self.policies.values()
        )

    def make_actors(self, game: Game, *, greedy: bool) -> Mapping[str, Actor | ActorMixture]:
        """Make an actor for each population."""
        if self.game is None:
            return game.make_bots(self.name, is_named=True)
        return {
            name: policy.make_actor(game, greedy=greedy) for name, policy in self.policies.items()
        }


def resolve_player(name: str, *, trust: bool = False) -> ResolvedPlayer:
    """Find a player and load its weights.

    Args:
        name: Name as the user wrote it.
        trust: Whether code that its run.yaml or card names may be imported, wherever it is from.

    Raises:
        ConfigError: If there is none of that name; says what there is.
        CheckpointError: If its weights are missing or damaged.
    """
    from arena.bots.ids import canonical_bot
    from arena.types import is_bot

    if is_bot(name):
        return ResolvedPlayer(name=canonical_bot(name), game=None, policies={})
    path, level, temperature = split_policy(name)
    found = replace(_resolved(path, level=level, trust=trust), name=name)
    if temperature is None:
        return found
    policies = found.policies.items()
    return replace(found, policies={k: one.at_temperature(temperature) for k, one in policies})


def split_policy(player: str) -> tuple[str, int | None, float | None]:
    """Split a PLAYER that is no bot into its name, its level and its temperature. Torch-free.

    Raises:
        ConfigError: If it has other options, or one has no such value.
    """
    from arena.bots.ids import check_options, split_options
    from arena.errors import ConfigError

    name, given = split_options(player)
    check_options(name, given, ("level", "temperature"))
    if len(given) > 1:
        raise ConfigError(f"a level has its own temperature, {player!r} has another one, too")
    level = temperature = None
    try:
        if "level" in given:
            level = int(given["level"])
        if (
            "temperature" in given
            and not 1e-6 <= (temperature := float(given["temperature"])) < 1e6
        ):
            raise ValueError
    except ValueError:
        rule = "level must be a number of 1 and more, temperature one of 0.000001 to 1,000,000"
        raise ConfigError(f"{rule}, got {player!r}") from None
    return name, level, temperature


def _resolved(name: str, *, level: int | None, trust: bool) -> ResolvedPlayer:
    from arena.errors import ConfigError

    if exports := exports_at(name):
        return _exported(name, exports, level=level, trust=trust)
    if level is not None:
        raise ConfigError(f"{name} has no levels: it must be a directory of arena export --levels")
    path = Path(name)
    if path.is_dir():
        if (path / "run.yaml").is_file():
            return _of_run(name, path, trust=trust)
        run_dir = run_of_checkpoint(path)
        if run_dir is not None:
            key = path.resolve().relative_to(run_dir).as_posix()
            return _of_run(name, run_dir, directory=key, trust=trust)
        raise ConfigError(f"{path} is neither a run directory nor an export; {_FORMS}")
    # The last colon separates the player: a directory's name may contain colons, an id does not.
    run, colon, player = name.rpartition(":")
    if not colon or not Path(run).is_dir():
        raise ConfigError(f"there is no player {name!r}; {_FORMS}")
    return _of_run(name, Path(run), player=player, trust=trust)


def run_of_checkpoint(path: Path) -> Path | None:
    """Return the run whose checkpoint or ghost a directory is; None: it is none of a run."""
    # The path is RUN/populations/<population>/<policy>/checkpoints/<directory>.
    parents = path.resolve().parents
    is_checkpoint = (path / "manifest.json").is_file() and len(parents) > _DEPTH
    if is_checkpoint and (parents[_DEPTH] / "run.yaml").is_file():
        return parents[_DEPTH]
    return None


def find_in_stopped_run(
    player: str, *, is_name: Callable[[str], bool], takes: str
) -> tuple[Path, str]:
    """Return the run of a PLAYER that a command changes there, and its name in the run.

    Args:
        player: ``RUN:NAME``, or a directory of a checkpoint or a ghost.
        is_name: Whether the command takes such a name.
        takes: Sentence on the names that it takes.

    Returns:
        The run's directory, and a name or a directory relative to the run's.

    Raises:
        ConfigError: If there is no such run, or the command does not take the name.
    """
    from arena.errors import ConfigError
    from populations.controller.server.run_directory import has_run

    path = Path(player)
    if path.is_dir() and (directory := run_of_checkpoint(path)) is not None:
        return directory, path.resolve().relative_to(directory).as_posix()
    # The last colon separates the player: a directory's name may contain colons, an id does not.
    run, _, name = player.rpartition(":")
    if not is_name(name):
        raise ConfigError(f"{takes}, got {player!r}")
    if not has_run(Path(run)):
        raise ConfigError(f"there is no run in {run}")
    return Path(run), name


def exports_at(name: str) -> list[Path]:
    """Return the export that a PLAYER names, or several: populations are exported side by side.

    Empty: it names something else. Torch-free.
    """
    path = Path(name)
    # A run directory also contains the export of its champion, but the user named the run.
    if (path / "run.yaml").is_file():
        return []
    if (path / "card.json").is_file():
        return [path]
    return sorted(card.parent for card in path.glob("*/card.json"))


def _exported(
    name: str, directories: Sequence[Path], *, level: int | None, trust: bool
) -> ResolvedPlayer:
    from arena.errors import ConfigError
    from arena.export.card import MixtureCard, read_any_card

    policies: dict[str, PolicyWeights | MixtureWeights] = {}
    games: list[Game] = []
    for directory in directories:
        card = read_any_card(directory)
        if not isinstance(card, MixtureCard):
            policies[card.population] = _exported_policy(directory, card, level=level, trust=trust)
        elif level is None:
            policies[card.population] = _exported_mixture(directory, card, trust=trust)
        else:
            raise ConfigError(f"{name} has no levels: it is a mixture")
        word = _word_for(card, directory, trust=trust)
        games.append(game_of_card(card.environment, card.environment_config, word=word))
    # A directory may hold exports of different environments.
    if len({game.spec.digest for game in games}) > 1:
        raise ConfigError(f"the exports in {name} are of different environments")
    return ResolvedPlayer(name=name, game=games[0], policies=policies)


def _word_for(card: Card | MixtureCard, directory: Path, *, trust: bool) -> Word:
    from arena.export.card import CARD, Card
    from populations.config.trust import word_for_card

    environment = card.environment
    named = {"id": environment.id, "outcome": environment.outcome}
    document: dict[str, object] = {"environment": named}
    if isinstance(card, Card):
        document["network"] = {"encoder": card.network.encoder}
    return word_for_card(document, directory / CARD, trust=trust)


def _exported_policy(
    directory: Path, card: Card, *, trust: bool, level: int | None = None
) -> PolicyWeights:
    from arena.export.actor import load_export_weights
    from arena.export.card import WEIGHTS

    chosen = None if level is None else card.level(level)
    one = card if chosen is None else chosen
    # Weights are data and are verified against the card, so loading them needs no trust.
    weights = WEIGHTS if chosen is None else chosen.weights
    network, tensors = load_export_weights(directory, weights=weights)
    policy = PolicyWeights(
        player=one.player,
        agents=card.agents,
        network=network,
        tensors=tensors,
        digest=one.weights_digest,
        agent_steps=one.agent_steps,
        word=_word_for(card, directory, trust=trust),
        export=directory,
        trained_with=TrainedWith(hyperparameters=card.hyperparameters, factors=card.factors),
    )
    if chosen is None:
        return policy
    return replace(policy, graph=chosen.graph).at_temperature(chosen.temperature)


def _exported_mixture(directory: Path, card: MixtureCard, *, trust: bool) -> MixtureWeights:
    from arena.checkpoints.files import read_verified
    from arena.errors import CheckpointCorrupt
    from arena.export.card import CARD, read_card

    members = []
    for member in card.members:
        name = f"{member.directory}/{CARD}"
        if name not in card.files:
            raise CheckpointCorrupt(f"{directory}: its card names no {name}")
        # The mixture's card has the digest of the member's card, which has those of its files.
        read_verified(directory, name, card.files[name])
        own = directory / member.directory
        own_card = read_card(own)
        if (own_card.agents, own_card.environment) != (card.agents, card.environment):
            raise CheckpointCorrupt(
                f"{own} must have the agents and the environment of its mixture"
            )
        members.append(_exported_policy(own, own_card, trust=trust))
    # The probabilities of a card may not sum to 1 exactly, by rounding.
    total = math.fsum(member.probability for member in card.members)
    return MixtureWeights(
        player=card.player,
        agents=card.agents,
        members=tuple(members),
        probabilities=tuple(member.probability / total for member in card.members),
    )


def game_of_card(environment: CardEnvironment, config: EnvironmentConfig, *, word: Word) -> Game:
    """Return the game of an environment as cards have it."""
    return Game(
        environment=config,
        spec=environment.spec,
        # The card has the resolved sides and seats: an export has no run.yaml.
        sides=environment.sides,
        seats=environment.seats,
        populations=environment.populations,
        word=word,
        is_exported=True,
    )


def _of_run(
    name: str,
    run_dir: Path,
    *,
    player: str | None = None,
    directory: str | None = None,
    trust: bool,
) -> ResolvedPlayer:
    from arena.types import population_of
    from populations.config.run_file import learner_setup
    from populations.config.trust import word_for_run
    from populations.views.questions.inspection import Inspection

    with closing(Inspection.open(run_dir)) as inspection:
        if directory is not None:
            one = [find_directory(inspection, directory)]
        else:
            one = [] if player is None else [find_in_run(inspection, player)]
        found = {population_of(name): (name, reference) for name, reference in one}
        found = found or champions(inspection)
    # The inspection is closed by now, but its rows stay in memory.
    setup = learner_setup(inspection.run_file, root=run_dir)
    word = word_for_run(inspection.run_file, run_dir, trust=trust)
    policies = {}
    for population, (player_id, reference) in found.items():
        manifest, weights = load_policy(inspection, player_id, reference, word=word)
        policies[population] = replace(weights, trained_with=trained_with(inspection, manifest))
    return ResolvedPlayer(name=name, game=Game.of_setup(setup, word=word), policies=policies)
