"""`arena export`: the champion as files that need nothing of Arena."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ._output import console, log_console, print_json
from ._tables import print_table

if TYPE_CHECKING:
    from arena.export.write import Written
    from arena.types import WeightsRef
    from populations.league.views import Inspection


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    to: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where; default: RUN/champion.")
    ] = None,
    population: Annotated[str | None, typer.Option(help="Only this population.")] = None,
    player: Annotated[
        str | None, typer.Option(metavar="ID", help="A policy or ghost instead of the champion.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an export.")] = False,
    matches: Annotated[
        int, typer.Option(min=1, help="Of the record, per opponent and seat.")
    ] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Of the record.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Export the champion of each population: ONNX graph, weights, card, a standalone player."""
    from arena.export.directory import check_target
    from arena.export.write import write_export
    from populations.league.views import Inspection

    from ._card import make_card
    from ._players import load_policy
    from ._progress import play_progress

    inspection = Inspection.open(run)
    written: dict[str, Written] = {}
    try:
        chosen = _chosen(inspection, population=population, player=player)
        # Several populations side by side, unless the user names one place for one of them.
        is_alone = len(inspection.standings()) == 1 or (to is not None and len(chosen) == 1)
        directory = to if to is not None else run / "champion"
        targets = {name: directory if is_alone else directory / name for name in chosen}
        for target in targets.values():
            check_target(target, force=force)
        with play_progress("loading") as progress:
            for name, (player_id, reference) in chosen.items():
                manifest, policy = load_policy(run, player_id, reference)
                card = make_card(
                    inspection,
                    policy,
                    manifest,
                    population=name,
                    num_matches=matches,
                    seed=seed,
                    progress=progress,
                )
                progress.begin(f"{player_id}: writing and verifying the graph")
                written[name] = write_export(
                    targets[name], card=card, weights=policy.tensors, force=force
                )
    finally:
        inspection.close()
    if as_json:
        run_id = inspection.tables.run.run
        print_json({"run": run_id, "exports": {k: _document(v) for k, v in written.items()}})
    else:
        _print_tables(written)


def _chosen(
    inspection: Inspection, *, population: str | None, player: str | None
) -> dict[str, tuple[str, WeightsRef]]:
    """Who is exported, by population.

    Raises:
        ConfigError: If there is nobody, or the options contradict each other.
    """
    from arena.errors import ConfigError
    from arena.types import population_of

    from ._players import champions, find_in_run

    known = list(inspection.standings())
    if population is not None and population not in known:
        raise ConfigError(f"--population {population}: the run has {', '.join(known)}")
    if player is not None:
        name = population_of(player)
        if population not in (None, name):
            raise ConfigError(f"--player {player} is not of --population {population}")
        return {name: (player, find_in_run(inspection, player))}
    found = champions(inspection)
    missing = [name for name in known if name not in found and population in (None, name)]
    if population is not None:
        if missing:
            raise ConfigError(f"population {population} has no champion: nobody is rated yet")
        return {population: found[population]}
    for name in missing:
        log_console().print(f"population {name} has no champion: nobody is rated yet")
    return found


def _document(written: Written) -> dict[str, object]:
    card = written.card
    return {
        "directory": str(written.directory),
        "player": card.player,
        "agent_steps": card.agent_steps,
        "weights": card.weights_digest,
        **card.rating.model_dump(),
        "record": [line.model_dump(mode="json") for line in card.record],
        "verified_observations": written.check.observations,
        "max_logit_difference": written.check.max_logit_difference,
    }


def _print_tables(written: Mapping[str, Written]) -> None:
    from rich.table import Table

    screen = console()
    for name, result in written.items():
        card, check = result.card, result.check
        table = Table(title=f"{name}: {card.player}", title_justify="left")
        for column in ("opponent", "mode", "seat"):
            table.add_column(column, overflow="fold")
        for column in ("matches", "wins", "draws", "losses", "mean return"):
            table.add_column(column, justify="right")
        for line in card.record:
            numbers = (line.matches, line.wins, line.draws, line.losses)
            table.add_row(
                *(line.opponent, line.mode, line.seat),
                *(str(number) for number in numbers),
                f"{line.mean_return:.3f}",
            )
        print_table(screen, table)
        screen.print(
            f"policy.onnx agrees with the policy on {check.observations} random observations "
            f"(largest difference of a logit {check.max_logit_difference:.1e})"
        )
        screen.print(f"written to {result.directory}")
