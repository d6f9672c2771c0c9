"""Do the poker presets come near an equilibrium, through the whole of Arena?

    python -m experiments.learning.poker kuhn_poker --seeds 1 2 3
    python -m experiments.learning.poker leduc_poker [KEY=VALUE ...]

Not a test that passes or fails: it launches the preset and prints one JSON line per seed, with the
exact exploitability (half of NashConv, of policies that sample) of the averaged weights, which are
what plays; of the weights that learned last; and of the uniform mixture of the ghosts of the second
half. Uniform play: .4583 in Kuhn, 2.3736 in Leduc poker.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from arena.checkpoints.tensors import load_checkpoint
from arena.game_theory.exploitability import Policy, exploitability, mixture
from arena.game_theory.game_tree import grow_tree
from arena.learning.ppo import LIVE, without_prefix
from experiments.commands import launch
from experiments.learning.frozen_players import POKER_GAMES, as_policy, frozen, left_behind
from populations.views.questions.inspection import Inspection


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("preset", choices=[f"{game}_poker" for game in POKER_GAMES])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory() as scratch:
        for seed in options.seeds:
            run = Path(scratch) / f"{options.preset}-{seed}"
            launch(options.preset, run, seed=seed, overrides=tuple(options.overrides))
            line = {"preset": options.preset, "seed": seed, **facts(run, options.preset)}
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()


def facts(run: Path, preset: str) -> dict[str, object]:
    """Return the figures of a finished run."""
    tree = grow_tree(POKER_GAMES[preset.removesuffix("_poker")])
    inspection = Inspection.open(run)
    try:
        row = inspection.tables.run
        plays = [as_policy(policy) for policy in left_behind(inspection)]
        live = _live(inspection)
    finally:
        inspection.close()
    late = plays[len(plays) // 2 :]
    shares = [1.0 / len(late)] * len(late)
    return {
        "agent_steps": row.agent_steps,
        "elapsed_s": round(row.elapsed_s, 1),
        "ghosts": len(plays) - 1,
        "average": round(exploitability(tree, plays[-1]), 4),
        "last": round(exploitability(tree, live), 4),
        "late_mixture": round(exploitability(tree, mixture(tree, late, shares=shares)), 4),
    }


def _live(inspection: Inspection) -> Policy:
    """Return the weights that learned, of the only policy's last checkpoint."""
    (policy,) = inspection.tables.policies.values()
    assert policy.checkpoint is not None
    ref = inspection.tables.checkpoints[policy.checkpoint].ref
    manifest, weights, optimizer = load_checkpoint(inspection.run_dir, ref)
    tensors = {**weights, **without_prefix(LIVE, optimizer)}
    return as_policy(frozen(manifest, tensors, inspection.run_file.spec))


if __name__ == "__main__":
    main()
