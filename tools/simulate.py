"""`arena simulate`: try matchmaking and PBT settings on simulated learners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from populations.views.parts import Column, Table

from .show.text import print_framed
from .terminal.options import AsJson, Code, Configuration, Overrides
from .terminal.output import print_json
from .terminal.progress import count_progress

if TYPE_CHECKING:
    from populations.simulation.league import Outcome

# The cyclic part has a third of the variance of the skills (`PlantedModel.cyclic_share`).
CYCLIC_SHARE = 1.0 / 3.0
NUM_LINES = 10


def simulate(
    config: Configuration,
    overrides: Overrides = None,
    policies: Annotated[
        int | None, typer.Option(min=2, max=10_000, help="Size of every population.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the run, as seed=N.")] = None,
    cyclic: Annotated[
        bool, typer.Option("--cyclic", help="Plant a rock-paper-scissors component too.")
    ] = False,
    draw_rate: Annotated[
        float, typer.Option(min=0.0, max=0.99, help="Share of draws between equals.")
    ] = 0.0,
    seat_advantage: Annotated[
        float, typer.Option(min=-2000.0, max=2000.0, help="Advantage of the first seat, in Elo.")
    ] = 0.0,
    agent_steps_per_second: Annotated[
        float, typer.Option(min=1.0, max=1e12, help="Speed of a training learner.")
    ] = 100_000.0,
    matches_per_second: Annotated[
        float, typer.Option(min=1e-3, max=1e9, help="Speed of an evaluating learner.")
    ] = 1000.0,
    code: Code = None,
    as_json: AsJson = False,
) -> None:
    """Simulate a league: try matchmaking and PBT settings without training.

    Policies have a planted skill, so the report says whether ratings are right and copies good.
    The environment is not started: one population plays a game for two, several play each other.
    """
    from dataclasses import replace
    from time import thread_time

    from populations.config.run_config import load_config
    from populations.simulation import league
    from populations.simulation.environment import simulated_config

    # The seed comes last, so that --seed overrides the key.
    changes = [*(overrides or ()), *([] if seed is None else [f"seed={seed}"])]
    resolved = simulated_config(load_config(config, changes), num_policies=policies)
    model = replace(
        league.default_model(resolved),
        cyclic_share=CYCLIC_SHARE if cyclic else 0.0,
        draw_rate=draw_rate,
        seat_advantage=seat_advantage,
    )
    with count_progress("simulated training", total=1.0) as progress:
        outcome = league.simulate(
            resolved,
            model=model,
            agent_steps_per_s=agent_steps_per_second,
            matches_per_s=matches_per_second,
            # CPU time of this thread excludes other work of the machine.
            clock=thread_time,
            progress=progress or (lambda share: None),
        )
    if as_json:
        print_json(document(outcome))
    else:
        _print_summary(outcome)


def document(outcome: Outcome) -> dict[str, object]:
    """Return the document of ``arena simulate --json``; ``matches`` are evaluation matches."""
    return {
        "policies": outcome.num_policies,
        "matches": outcome.num_matches,
        "round_robin_matches": outcome.num_round_robin_matches,
        "spearman": outcome.spearman,
        "exploits": len(outcome.exploits),
        "wrong_exploits": outcome.num_wrong_exploits,
        "best_skill": [[steps, skill] for steps, skill in outcome.best_skill],
        "decisions_per_s": outcome.decisions_per_s,
        "final_matches": outcome.num_final_matches,
        "training_matches": outcome.num_training_matches,
        "ghosts": outcome.num_ghosts,
        "retired": outcome.num_retired,
        "mean_skill": outcome.mean_skill,
        "skill_deviation": outcome.skill_deviation,
        "decisions": outcome.num_decisions,
        "simulated_s": outcome.simulated_s,
    }


def _print_summary(outcome: Outcome) -> None:
    rows = [
        dict(zip(("figure", "value", "meaning"), line, strict=True)) for line in _lines(outcome)
    ]
    columns = (Column("figure", "word"), Column("value"), Column("meaning", "word"))
    print_framed(Table(columns, rows), show_header=False)
    # People get some ten lines; the document has the whole curve.
    every = max(len(outcome.best_skill) // NUM_LINES, 1)
    # Points are thinned from the end, so that the last one is always included.
    points = outcome.best_skill[::-1][::every][::-1]
    curve = [{"agent_steps": f"{steps:,}", "skill": skill} for steps, skill in points]
    print_framed(
        Table((Column("agent_steps", "word"), Column("skill", "elo")), curve),
        title="best planted skill, Elo above bot:random",
        title_justify="center",
    )


def _lines(outcome: Outcome) -> list[tuple[str, str, str]]:
    share = outcome.num_matches / max(outcome.num_round_robin_matches, 1)
    num_exploits, num_wrong = len(outcome.exploits), outcome.num_wrong_exploits
    wrong = f"{num_wrong:,} ({num_wrong / num_exploits:.0%})" if num_exploits else "0"
    known = outcome.spearman is not None
    return [
        ("policies", f"{outcome.num_policies:,}", "of all populations"),
        ("ghosts", f"{outcome.num_ghosts:,}", "frozen in the run"),
        ("retired", f"{outcome.num_retired:,}", "left, so that others train more (pbt.share)"),
        ("evaluation matches", f"{outcome.num_matches:,}", f"{share:.2f} of a round robin's"),
        ("spearman", f"{outcome.spearman:.4f}" if known else "-", "ratings against planted skill"),
        ("copies", f"{num_exploits:,}", "a policy took over a donor's weights"),
        ("wrong copies", wrong, "the donor's planted skill was lower"),
        ("mean skill", f"{outcome.mean_skill:.0f}", "of the final policies, Elo"),
        ("spread of skill", f"{outcome.skill_deviation:.0f}", "of the final policies, Elo"),
        ("simulated time", f"{outcome.simulated_s:,.0f} s", "with the learners as configured"),
        ("decisions per second", f"{outcome.decisions_per_s:,.0f}", "of the controller"),
    ]
