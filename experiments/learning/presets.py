"""Does Arena still learn? Runs presets over several seeds and compares with known players.

    python -m experiments.learning.presets tictactoe --seeds 1 2 3 -- stop.duration_s=90

Not a test that passes or fails: it prints a table (one JSON line per seed) to be compared with the
one in arena/learning/README.md. Two-player games: the champion's greedy wins against uniformly
random play, in each seat. Connect Four: also its score against a player that looks one move ahead.
Tic-tac-toe: also its exploitability, the mean of what a perfect opponent gets in both seats: 0
where it cannot be beaten, 1 where there is a forced win in each. Others: the mean return of
checkpoints from the last quarter of training against the random bot's in the same company, with the
standard error of the difference; in cooperation also how much the return rises over the training.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch.nn.functional import one_hot

from arena.core import ActorInput
from arena.envs.batched.tictactoe import TicTacToe
from arena.export.actor import ExportedActor
from arena.game_theory.exploitability import exploitability
from arena.game_theory.game_tree import grow_tree
from arena.types import RANDOM_BOT
from experiments.commands import TACTICAL, arena, launch, match_counts
from experiments.harness import parser_of, say
from experiments.learning.returns import late_returns, returns_trend
from populations.views.questions.inspection import Inspection

TACTICAL_MATCHES = 500


def main() -> None:
    """Run and print."""
    parser = parser_of(__doc__)
    parser.add_argument("preset", help="preset's name, or YAML file")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--matches", type=int, default=1000)
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory() as scratch:
        for seed in options.seeds:
            run = Path(scratch) / f"{Path(options.preset).stem}-{seed}"
            launch(options.preset, run, seed=seed, overrides=tuple(options.overrides))
            line = {"preset": options.preset, "seed": seed, **facts(run, options.matches)}
            say(line)


def facts(run: Path, matches: int) -> dict[str, object]:
    """Return the figures of a finished run.

    Args:
        run: Its directory.
        matches: Matches in each seat, against the random bot.
    """
    inspection = Inspection.open(run)
    try:
        row = inspection.tables.run
        found: dict[str, object] = {
            "agent_steps": row.agent_steps,
            "elapsed_s": round(row.elapsed_s, 1),
            "agent_steps_per_s": round(row.agent_steps / row.elapsed_s),
            "ghosts": len(inspection.tables.ghosts),
            "exploits": row.exploits,
        }
        return found | _strength(inspection, matches)
    finally:
        inspection.close()


def _strength(inspection: Inspection, matches: int) -> dict[str, object]:
    seats, run = inspection.league.seats, inspection.run_dir
    if inspection.league.is_cooperation or len(seats) != 2:
        name = seats[0].population
        return {name: late_returns(inspection, population=name, company=None) | _trend(inspection)}
    if seats[0].population != seats[1].population:
        return {
            seat.population: late_returns(inspection, population=seat.population, company=1 - index)
            for index, seat in enumerate(seats)
        }
    found = _against_random(run, matches)
    environment = inspection.run_file.spec.id
    if environment.startswith("classic/connect_four"):
        found["tactical_score"] = tactical_score(run)
    if environment.startswith("classic/tictactoe"):
        found["exploitability"] = _exploitability(run)
    return found


def _trend(inspection: Inspection) -> dict[str, float]:
    found = returns_trend(inspection, population=inspection.league.seats[0].population)
    if not inspection.league.is_cooperation or found is None:
        return {}
    rise, error = found
    return {"rise": round(rise, 3), "rise_standard_error": round(error, 3)}


def _against_random(run: Path, matches: int) -> dict[str, object]:
    counts = match_counts(run, RANDOM_BOT, matches=matches)
    found: dict[str, object] = {}
    for seat, (wins, _, losses) in counts.items():
        found[f"wins_{seat}"] = wins / matches
        found[f"losses_{seat}"] = losses / matches
    return found


def tactical_score(run: Path, matches: int = TACTICAL_MATCHES) -> float:
    """Return the wins and half of the draws of a champion against
    `arena.bots.connect_four.Tactical`.
    """
    counts = match_counts(run, TACTICAL, matches=matches)
    return sum(wins + draws / 2 for wins, draws, _ in counts.values()) / (2 * matches)


def _exploitability(run: Path) -> float:
    """Return the exploitability of a champion of tic-tac-toe that plays its likeliest actions."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "champion"
        arena("export", run, "--to", directory)
        actor = ExportedActor(directory, greedy=True)

        def play(observation: torch.Tensor, legal: torch.Tensor, agent: str) -> torch.Tensor:
            inputs = ActorInput(observation=observation.flatten(1).float(), action_mask=legal)
            action = actor.act(inputs, agent=agent, generator=torch.Generator()).action
            return one_hot(action, legal.shape[1]).double()

        return exploitability(grow_tree(TicTacToe), play)


if __name__ == "__main__":
    main()
