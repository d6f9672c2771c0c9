"""`arena export`: the champion as files that need nothing of Arena."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from msgspec import structs

from populations.views.league import RECORD
from populations.views.parts import Column, Table

from ..show.text import print_framed
from ..terminal.options import AsJson, Code, OnlyPopulation, RunDirectory, Trust, optional
from ..terminal.output import console, log_console, print_json

if TYPE_CHECKING:
    from arena.export.card import Card, CardLevel, MixtureCard
    from arena.export.engines import Engine
    from arena.export.write import Written
    from arena.types import WeightsRef
    from populations.views.questions.inspection import Inspection

    from .record import Export, ExportSettings, Mode

LEVELS = (
    *(Column("level", "count"), Column("player", "player"), Column("temperature")),
    *(Column("rating", "elo"), Column("rating_low", "elo"), Column("rating_high", "elo")),
    Column("score_below", title="score against the one below"),
)

MEMBERS = (
    *(Column("directory", "word"), Column("player", "player"), Column("probability")),
    *(Column("rating", "elo"), Column("agent_steps")),
)

SHOWN = {
    *("kind", "player", "exploitability", "record", "agent_steps", "levels"),
    *("members", "num_players", "worst_score", "cyclicity"),
}
"""Keys of cards, of a policy or of a mixture, that documents have."""


To = Annotated[Path | None, optional("DIR", "Directory to write. Default: RUN/champion.")]
Exported = Annotated[
    str | None, optional("ID", "Policy, kept checkpoint or ghost. Default: the champion.")
]
AsMixture = Annotated[
    bool,
    typer.Option("--mixture", help="Export the Nash mixture of frozen players, for cyclic games."),
]
Levels = Annotated[
    int | None,
    typer.Option(
        min=2,
        max=99,
        metavar="N",
        help="Levels of play, each of which beats the one below in 64 to 81% of their matches.",
    ),
]
ForEngine = Annotated[
    Literal["unity", "godot"] | None,
    optional(
        "ENGINE",
        "Game engine that gets a graph: unity (ML-Agents), godot (Godot RL Agents).",
        "--for",
    ),
]
Html = Annotated[
    bool, typer.Option("--html", help="Page to play against it, in a browser and offline, too.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing export.")]
NumMatches = Annotated[
    int,
    typer.Option(
        min=0,
        help="Matches of the record, per opponent and seat; 0: neither record nor exploitability.",
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the record's matches.")]


def export(
    run: RunDirectory,
    to: To = None,
    population: OnlyPopulation = None,
    player: Exported = None,
    mixture: AsMixture = False,
    levels: Levels = None,
    engine: ForEngine = None,
    html: Html = False,
    force: Force = False,
    matches: NumMatches = 200,
    seed: Seed = 1,
    trust: Trust = False,
    code: Code = None,
    as_json: AsJson = False,
) -> None:
    """Export the champion of each population: ONNX graph, weights, card, a standalone player.

    With --mixture, a directory of several policies: one is drawn at the beginning of each episode.
    """
    from arena.errors import ConfigError
    from populations.views.questions.inspection import Inspection

    from .record import ExportSettings

    # Options are checked before the run is read, which takes seconds in a large league.
    if mixture and player is not None:
        raise ConfigError("--mixture and --player exclude each other: a mixture is of many players")
    if mixture and (levels or engine or html):
        option = "--levels" if levels else "--for" if engine else "--html"
        raise ConfigError(f"--mixture and {option} exclude each other: it is of a single policy")
    settings = ExportSettings(
        to=to, num_matches=matches, seed=seed, force=force, html=html, trust=trust
    )
    written: Mapping[str, Written[Card] | Written[MixtureCard]]
    # The tables stay in memory; only the journal is closed.
    with closing(Inspection.open(run)) as inspection:
        known = inspection.standings()
        if population is not None and population not in known:
            raise ConfigError(f"--population {population}: the run has {', '.join(known)}")
        if mixture:
            written = _export_mixtures(inspection, settings, population=population)
        else:
            chosen = _chosen(inspection, population=population, player=player)
            written = _export_policies(inspection, settings, chosen, levels=levels, engine=engine)
    if as_json:
        run_id = inspection.tables.run.run
        print_json({"run": run_id, "exports": {k: _document(v) for k, v in written.items()}})
    else:
        _print_tables(written)


@contextmanager
def _begun(inspection: Inspection, settings: ExportSettings) -> Iterator[Export]:
    """Begin an export, after its targets were found free."""
    from populations.config.run_file import learner_setup
    from populations.config.trust import word_for_run

    from ..players.exploitability import Exploitability
    from ..players.game import Game
    from ..terminal.progress import play_progress
    from .record import Export

    # Trust is checked before anything of the game is imported.
    word = word_for_run(inspection.run_file, inspection.run_dir, trust=settings.trust)
    setup = learner_setup(inspection.run_file, root=inspection.run_dir)
    encoders = (population.network.encoder for population in setup.populations.values())
    word.check(*encoders, *inspection.run_file.config.rated_players)
    game = Game.of_setup(setup, word=word)
    game.check_word()
    with play_progress("all histories of the game, if it is small") as progress:
        yield Export(
            inspection=inspection,
            game=game,
            settings=settings,
            progress=progress,
            measure=Exploitability(game) if settings.num_matches else None,
        )


def _export_policies(
    inspection: Inspection,
    settings: ExportSettings,
    chosen: Mapping[str, tuple[str, WeightsRef]],
    *,
    levels: int | None,
    engine: Engine | None,
) -> dict[str, Written[Card]]:
    from arena.errors import ConfigError
    from arena.export.engines import check_engine
    from arena.export.html.page import page_game
    from arena.export.write import write_export

    from .card import Cards
    from .levels import find_levels
    from .record import play_record

    # The names are checked before matches are played, which take minutes.
    if levels is not None and (missing := set(inspection.standings()) - set(chosen)):
        raise ConfigError(
            "--levels plays whole matches, in which every population has a player of the run; "
            f"without are {', '.join(sorted(missing))}"
        )
    targets = settings.targets(inspection, chosen)
    matches = settings.num_matches
    counts: dict[Mode, int] = {"greedy": matches, "sampled": (matches + 1) // 2}
    written: dict[str, Written[Card]] = {}
    with _begun(inspection, settings) as export:
        shared = Cards.of(inspection, export.game)
        loaded = {name: shared.load(*one, population=name) for name, one in chosen.items()}
        cards = {name: card for name, (_, card) in loaded.items()}
        for card in cards.values():
            if engine is not None:
                check_engine(engine, card)
            if settings.html:
                page_game(card.environment.spec, card.network)
        found = find_levels(export, chosen, cards, number=levels) if levels is not None else {}
        for name, (policy, card) in loaded.items():
            record = play_record(export, policy, population=name, num_matches=counts)
            of_levels = found.get(name, [])
            export.progress.begin(f"{policy.player}: writing and verifying the graph")
            written[name] = write_export(
                targets[name],
                card=structs.replace(
                    card,
                    record=record,
                    exploitability=export.measured(policy),
                    levels=tuple(level for level, _ in of_levels),
                ),
                weights=policy.tensors,
                levels={level.graph: one.tensors for level, one in of_levels},
                engine=engine,
                force=settings.force,
                html=settings.html,
            )
    return written


def _export_mixtures(
    inspection: Inspection, settings: ExportSettings, *, population: str | None
) -> dict[str, Written[MixtureCard]]:
    from .mixture import export_mixture, find_mixtures

    names = [name for name in inspection.standings() if population in (None, name)]
    # Directories are checked before matches are played, which take minutes.
    targets = settings.targets(inspection, names)
    mixtures = find_mixtures(inspection)
    with _begun(inspection, settings) as export:
        return {
            name: export_mixture(export, mixtures[name], target=target)
            for name, target in targets.items()
        }


def _chosen(
    inspection: Inspection, *, population: str | None, player: str | None
) -> dict[str, tuple[str, WeightsRef]]:
    """Return the players to export, by population.

    Raises:
        ConfigError: If there is no such player, or the options contradict each other.
    """
    from arena.errors import ConfigError
    from arena.types import population_of

    from ..players.in_run import champions, find_in_run

    # A player that the user names needs no rating.
    if player is not None:
        chosen = find_in_run(inspection, player)
        name = population_of(chosen[0])
        if population not in (None, name):
            raise ConfigError(f"--player {player} is not of --population {population}")
        return {name: chosen}
    found = champions(inspection)
    players = {name: one.player for name, one in inspection.run_file.config.populations.items()}
    missing = {
        name: f"population {name} has no champion: "
        f"{f'{players[name]} has its agents' if players[name] else 'no player is rated yet'}"
        for name in inspection.standings()
        if name not in found and population in (None, name)
    }
    if population is not None:
        # A missing requested population is an error; if none is requested, it is only reported.
        if missing:
            raise ConfigError(missing[population])
        return {population: found[population]}
    for text in missing.values():
        log_console().print(text)
    return found


def _document(written: Written[Card] | Written[MixtureCard]) -> dict[str, Any]:
    from arena.codec import plain
    from arena.export.card import Card
    from arena.export.onnx import NUM_CHECKED

    card = written.card
    document = {key: value for key, value in plain(card).items() if key in SHOWN} | {
        "directory": str(written.directory),
        # The values are over all members of a mixture, each of which has its own graph.
        "verified_observations": NUM_CHECKED * len(written.differences),
        "max_logit_difference": max(written.differences),
    }
    if isinstance(card, Card):
        document |= {"weights": card.weights_digest, **plain(card.rating)}
    return document


def _print_tables(written: Mapping[str, Written[Card] | Written[MixtureCard]]) -> None:
    from arena.codec import plain
    from arena.export.card import PAGE, MixtureCard

    screen = console()
    for name, result in written.items():
        card = result.card
        title = f"{name}: {card.player}"
        if isinstance(card, MixtureCard):
            _print_members(card, title=title)
        elif card.levels:
            lines = [_level_row(level) for level in reversed(card.levels)]
            print_framed(Table(LEVELS, lines), title=f"{title}: levels")
        if card.record:
            rows = [
                {key: "" if value is None else value for key, value in plain(line).items()}
                for line in card.record
            ]
            print_framed(Table(RECORD, rows), title=title)
        checked = _document(result)
        screen.print(
            f"policy.onnx agrees with the policy on {checked['verified_observations']} random "
            "observations "
            f"(largest difference of a logit or mean {checked['max_logit_difference']:.1e})"
        )
        screen.print(f"written to {result.directory}")
        if PAGE in card.files:
            screen.print(f"to play against it: open {result.directory / PAGE} in a browser")


def _level_row(level: CardLevel) -> dict[str, object]:
    from arena.codec import plain
    from arena.export.card_text import score_text

    shown = {"temperature": f"{level.temperature:.3g}", "score_below": score_text(level)}
    return plain(level) | shown


def _print_members(card: MixtureCard, *, title: str) -> None:
    from arena.codec import plain

    rows = [
        {
            **{key: value for key, value in plain(member).items() if key != "rating"},
            "probability": f"{member.probability:.4f}",
            "rating": member.rating.rating,
        }
        for member in card.members
    ]
    print_framed(Table(MEMBERS, rows), title=title)
    console().print(
        f"expected score {card.worst_score:.3f} against the best of "
        f"{card.num_players} players; a member is drawn for each episode"
    )
