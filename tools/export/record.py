"""The record on an export's card: matches against every bot and the strongest ghosts.

Tests: `tests/tools/export/test_command.py`, `tests/tools/export/test_mixture.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..players.resolve import CHAMPION
from ..players.weights import MixtureWeights, PolicyWeights, load_policy

if TYPE_CHECKING:
    from arena.core import Actor
    from arena.export.card import RecordLine
    from arena.matches.tournament import Contender
    from arena.types import PolicyId, Tally, WeightsRef
    from populations.league.standings import Standing
    from populations.views.questions.inspection import Inspection

    from ..players.exploitability import Exploitability
    from ..players.game import Game
    from ..terminal.progress import PlayProgress

Mode = Literal["greedy", "sampled"]

NUM_GHOSTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """Settings of an export.

    Attributes:
        to: Directory to write. None: a folder of the run's.
        num_matches: Matches of a record, per opponent and seat; 0: there is none.
        seed: Seed of episodes and actions of a record.
        force: Replace exports that are there.
        html: Write a page to play against each, too.
        trust: Whether code that run.yaml names may be imported, wherever it is from.
    """

    to: Path | None
    num_matches: int
    seed: int
    force: bool
    html: bool = False
    trust: bool = False

    def targets(self, inspection: Inspection, names: Iterable[str]) -> dict[str, Path]:
        """Return a free directory for each population.

        Raises:
            ConfigError: If something is in the way.
        """
        from arena.export.directory import check_target

        populations = list(names)
        # Several populations are exported into sibling directories, unless --to names one for one
        # of them.
        is_alone = len(inspection.standings()) == 1 or (
            self.to is not None and len(populations) == 1
        )
        directory = self.to if self.to is not None else inspection.run_dir / CHAMPION
        targets = {name: directory if is_alone else directory / name for name in populations}
        for target in targets.values():
            check_target(target, force=self.force)
        return targets


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """An export of one or several populations of a run.

    Attributes:
        inspection: The run, which knows the opponents.
        game: Game of the run.
        settings: Settings of the export.
        progress: Display of every step.
        measure: Measurement of exploitability; None: it is left out.
    """

    inspection: Inspection
    game: Game
    settings: ExportSettings
    progress: PlayProgress
    measure: Exploitability | None

    def actor(self, player: str, reference: WeightsRef) -> Actor:
        """Return an actor of the run's weights that samples."""
        _, policy = load_policy(self.inspection, player, reference, word=self.game.word)
        return policy.make_actor(self.game, greedy=False)

    def measured(self, player: PolicyWeights | MixtureWeights) -> float | None:
        """Return a player's exploitability; None: left out, or unknown."""
        return None if self.measure is None else self.measure.of(player)


def play_record(
    export: Export,
    policy: PolicyWeights | MixtureWeights,
    *,
    population: str,
    num_matches: Mapping[Mode, int],
) -> tuple[RecordLine, ...]:
    """Play a policy or a mixture against every bot and the strongest ghosts, in each of its seats.

    Opponents sample. Teammates of other populations are those that it has learned with, who sample
    too, or ``bot:random``.

    Args:
        export: The export.
        policy: Owner of the record.
        population: Its population.
        num_matches: Per opponent and seat, by how the policy plays.
    """
    if not any(num_matches.values()):
        return ()
    game = export.game
    opponents = dict([*_bots(export, population), *_ghosts(export, policy, population)])
    # All opponents and modes share one batch of environments.
    num_envs = game.batch_size(max(num_matches.values()))
    lines: list[RecordLine] = []
    with closing(game.make_env(num_envs)) as env:
        for mode, count in num_matches.items():
            # Only the exported player plays greedily: two deterministic players would repeat one
            # game.
            actor = policy.make_actor(game, greedy=mode == "greedy")
            actors = {**_teammates(export, policy, population), population: actor}
            # The name includes the mode, so that a ghost with the same weights is another player.
            me = f"{policy.player} ({mode})"
            for opponent, their_actors in opponents.items():
                export.progress.begin(f"{me} against {opponent}")
                # The seed is the same for each opponent, so that a record does not depend on their
                # order.
                tallies = game.play(
                    env,
                    {me: actors, opponent: their_actors},
                    num_matches=count,
                    seed=export.settings.seed,
                    progress=export.progress,
                ).tallies
                lines += record_lines(
                    tallies,
                    game,
                    population=population,
                    me=me,
                    opponent=opponent,
                    mode=mode,
                )
    return tuple(lines)


def record_lines(
    tallies: Sequence[Tally],
    game: Game,
    *,
    population: str,
    me: str,
    opponent: str,
    mode: Mode,
) -> Iterator[RecordLine]:
    """Yield one player's results in tallies, a line for each of its seats.

    Tallies in which it has more than one side's seats (the reverse, in a game with many sides) are
    left out. With more than two sides a match is compared with each other side.
    """
    from arena.export.card import RecordLine
    from arena.matches.pair_scores import mean_score, seen_from
    from arena.matches.seating import seat_teams

    teams = seat_teams(game.seats)
    # Members of a side share one score, so the first seat of each side represents it.
    leading = {teams.index(team) for team in teams}
    for tally in tallies:
        mine = [index for index, entrant in enumerate(tally.entrants) if entrant == me]
        # With more than two sides a player may be on several; its result against itself is left
        # out.
        if len({teams[index] for index in mine}) != 1:
            continue
        leader = teams.index(teams[mine[0]])
        # Other pairs repeat the result for other members of the teams.
        wins, draws, losses, won = seen_from(leader, leading - {leader}, tally.pairs)
        # The seat is the exported population's: teammates of other populations sit beside it.
        seat = next(index for index in mine if game.seats[index].population == population)
        yield RecordLine(
            opponent=opponent,
            mode=mode,
            seat=game.seats[seat].name,
            matches=tally.matches,
            wins=wins,
            draws=draws,
            losses=losses,
            mean_return=tally.return_sum[seat] / tally.matches,
            score=mean_score(won, wins + draws + losses),
            distinct=tally.distinct,
        )


def _teammates(
    export: Export, policy: PolicyWeights | MixtureWeights, population: str
) -> dict[str, Actor]:
    """Return actors for other populations on its sides: teammates as they were, or random play."""
    game = export.game
    sides = {seat.side for seat in game.seats if seat.population == population}
    others = {seat.population for seat in game.seats if seat.side in sides} - {population}
    # Most games have no teams of several populations.
    if not others:
        return {}
    bots = game.make_bots("bot:random")
    mates = _mates(export, policy) if isinstance(policy, PolicyWeights) else {}
    return {name: export.actor(*mates[name]) if name in mates else bots[name] for name in others}


def _mates(export: Export, policy: PolicyWeights) -> dict[str, tuple[PolicyId, WeightsRef]]:
    """Return the policies trained together with these weights, by population, if kept."""
    from arena.types import population_of

    inspection = export.inspection
    origin = inspection.league.checkpoints.get(policy.digest)
    if origin is None or not origin.assignment_id:  # which one is not known after a repair
        return {}
    tables = inspection.tables
    # A team is trained by one assignment, so its checkpoints belong together.
    made = {
        row.key: row
        for row in tables.checkpoints.values()
        if row.assignment_id == origin.assignment_id and row.policy != origin.policy
    }
    kept = {row.policy: row.weights for row in made.values() if row.state == "present"}
    ghosts = (ghost for ghost in tables.ghosts.values() if ghost.is_present)
    # Ghosts override checkpoints, because their directories are never removed.
    kept.update((ghost.policy, ghost.weights) for ghost in ghosts if ghost.checkpoint in made)
    return {population_of(name): (name, weights) for name, weights in kept.items()}


def _bots(export: Export, population: str) -> Iterator[tuple[str, Contender]]:
    """Yield the players from outside that evaluation meets; of other runs as they were copied."""
    from arena.types import is_bot

    config = export.inspection.run_file.config
    # Random play comes first, because ratings are relative to it.
    for bot in dict.fromkeys(("bot:random", *config.rated_players)):
        actors = export.game.make_bots(bot) if is_bot(bot) else _imported(export, bot)
        # A player without weights for all other populations cannot be an opponent.
        if actors.keys() >= set(_rivals(export.game, population)):
            yield bot, actors


def _imported(export: Export, player: str) -> dict[str, Actor]:
    from populations.controller.server.run_directory import imported_players_weights
    from populations.matchmaking.external_players import external_player_key

    inspection = export.inspection
    config = inspection.run_file.config
    weights = imported_players_weights(inspection.run_dir, config, {})
    index = config.external_players.index(player)
    found = {name: weights.get(external_player_key(index, name)) for name in config.populations}
    return {
        name: export.actor(f"{name}/{player}", reference)
        for name, reference in found.items()
        if reference is not None
    }


def _rivals(game: Game, population: str) -> list[str]:
    """Return the populations of which one can oppose a population's players."""
    # Players of one side are not opponents; in cooperation teams are compared.
    own_sides = {seat.side for seat in game.seats if seat.population == population}
    can_oppose_itself = len(own_sides) > 1 or len(game.sides) == 1
    names = dict.fromkeys(seat.population for seat in game.seats)
    return [name for name in names if name != population or can_oppose_itself]


def _ghosts(
    export: Export, policy: PolicyWeights | MixtureWeights, population: str
) -> Iterator[tuple[str, Contender]]:
    """Yield the strongest, the second strongest, ... ghost of every population that can oppose.

    A policy does not meet itself, a mixture meets its members.
    """
    inspection, game = export.inspection, export.game
    own = policy.digest if isinstance(policy, PolicyWeights) else None
    ranked: dict[str, list[Standing]] = {}
    standings = inspection.standings()
    for name in _rivals(game, population):
        ghosts = [
            line for line in standings[name] if line.kind == "ghost" and line.rating is not None
        ]
        ranked[name] = [line for line in ghosts if line.weights != own]
    # The r-th strongest of each population form a team; the smallest population bounds r.
    for rank in range(min([NUM_GHOSTS, *(len(lines) for lines in ranked.values())])):
        team = {name: lines[rank] for name, lines in ranked.items()}
        name = " + ".join(line.player for line in team.values())
        kept = {name: line.reference for name, line in team.items() if line.reference is not None}
        yield name, {k: export.actor(team[k].player, weights) for k, weights in kept.items()}
