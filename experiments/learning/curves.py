"""Do updates in bfloat16 learn as well as those in float32? Learning curves of both, as tables.

    python -m experiments.learning.curves --seeds 1 2 3

Connect Four: one policy in mirror self-play with the preset's settings, in this process; its greedy
score against `arena.bots.connect_four.Tactical` at given agent steps, and the seconds of training
until then. Other presets: whole runs; mean evaluation returns against the random bot from each
quarter of training, and what `experiments.learning.presets` finds (cooperation: return of late
checkpoints / of the random bot, and how many standard errors of the difference lie between them).
Markdown on standard output, a JSON line per run on standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from experiments.commands import launch
from experiments.learning.in_process import MirrorLearner, prepare
from experiments.learning.presets import TACTICAL, facts
from experiments.learning.returns import returns_by_quarter
from populations.config.run_config import load_config
from populations.views.questions.inspection import Inspection

PRECISIONS = ("float32", "bfloat16")
MARKS = (500_000, 1_000_000, 2_000_000, 4_000_000)
TACTICAL_MATCHES = 500
RANDOM_MATCHES = 1000


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--threads", type=int, default=2, help="threads of torch, in Connect Four")
    parser.add_argument("--marks", type=int, nargs="*", default=MARKS, help="agent steps")
    parser.add_argument("--presets", nargs="*", default=["simple_spread", "tictactoe"])
    parser.add_argument("overrides", nargs="*", help="KEY=VALUE for the presets' runs")
    options = parser.parse_intermixed_args()
    if options.marks:
        torch.set_num_threads(options.threads)
        mirror_table(options.seeds, marks=sorted(options.marks))
    for preset in options.presets:
        run_table(preset, options.seeds, overrides=tuple(options.overrides))


def mirror_table(seeds: Sequence[int], *, marks: Sequence[int]) -> None:
    """Run Connect Four in mirror self-play, seed by seed so that both see the same machine."""
    rows = []
    for seed in seeds:
        for precision in PRECISIONS:
            curve = mirror_curve(precision, seed=seed, marks=marks)
            _note({"preset": "connect_four", "precision": precision, "seed": seed, "curve": curve})
            cells = [f"{score:.3f} ({seconds:.1f} s)" for score, seconds in curve]
            rows.append([precision, str(seed), *cells])
    _print_table(["Connect Four", "seed", *map(_millions, marks)], rows)


def mirror_curve(precision: str, *, seed: int, marks: Sequence[int]) -> list[tuple[float, float]]:
    """Score against `Tactical` and seconds of training, at the first update past each mark."""
    learner = MirrorLearner(
        prepare(load_config("connect_four", [f"precision={precision}"])), seed=seed
    )
    try:
        curve = []
        for mark in marks:
            while learner.agent_steps < mark:
                learner.advance()
            record = learner.play(TACTICAL, matches=TACTICAL_MATCHES, greedy=True)
            curve.append((record.score, round(learner.train_s, 2)))
        return curve
    finally:
        learner.close()


def run_table(preset: str, seeds: Sequence[int], *, overrides: tuple[str, ...]) -> None:
    """Run a preset to its end for each seed."""
    rows = []
    for seed in seeds:
        for precision in PRECISIONS:
            quarters, found = run_facts(preset, precision=precision, seed=seed, overrides=overrides)
            line = {"preset": preset, "precision": precision, "seed": seed}
            _note(line | {"returns_by_quarter": quarters} | found)
            curve = ", ".join("-" if mean is None else f"{mean:.2f}" for mean in quarters)
            steps, seconds = (found[name] for name in ("agent_steps", "elapsed_s"))
            rows.append([precision, str(seed), curve, f"{steps:,}", str(seconds), _end(found)])
    _print_table(
        [preset, "seed", "return by quarter", "agent steps", "seconds", "in the end"], rows
    )


def run_facts(
    preset: str, *, precision: str, seed: int, overrides: tuple[str, ...]
) -> tuple[list[float | None], dict[str, Any]]:
    """Return mean returns by quarter of the first population, and those of `presets`."""
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / preset
        launch(preset, run, seed=seed, overrides=(f"precision={precision}", *overrides))
        inspection = Inspection.open(run)
        try:
            population = inspection.league.seats[0].population
            quarters = returns_by_quarter(inspection, population=population)
        finally:
            inspection.close()
        return quarters, facts(run, RANDOM_MATCHES)


def _end(found: Mapping[str, Any]) -> str:
    """Return a run's outcome in a few words."""
    if "wins_first" in found:
        text = f"wins {found['wins_first']:.3f} first, {found['wins_second']:.3f} second"
        if "tactical_score" in found:
            text += f"; Tactical {found['tactical_score']:.3f}"
        if "best_response_first" in found:
            first, second = found["best_response_first"], found["best_response_second"]
            text += f"; best response {first:g} / {second:g}"
        return text
    return "; ".join(
        f"{name} {value['return']} / {value['random_return']} ({value['standard_errors_above']})"
        for name, value in found.items()
        if isinstance(value, dict)
    )


def _millions(mark: int) -> str:
    return f"{mark / 1e6:g}M"


def _note(line: dict[str, object]) -> None:
    sys.stderr.write(json.dumps(line) + "\n")


def _print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    lines = [columns, ["---"] * len(columns), *rows]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    sys.stdout.write(text + "\n\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
