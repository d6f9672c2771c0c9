"""Answers of an exported player to stored observations, from a process that has no Arena.

    python champion_answers.py EXPORT OBSERVATIONS.npz ANSWERS.npz

The observations are those of `tests.goldens.observations`. It is run by the python of whichever
checkout wrote the export, so it imports `champion.py` and numpy alone.
"""

from __future__ import annotations

import importlib
import sys
from collections import defaultdict
from typing import Any

import numpy as np

NUM_BATCHED = 64


def answers(export: str, asked: Any) -> dict[str, Any]:
    """Ask a player of an export in the order of play; every second action is sampled."""
    sys.path.insert(0, export)
    module = importlib.import_module("champion")
    champion = module.Champion(export, seed=1)
    has_choices = champion.card["action"]["space"]["kind"] != "Box"
    found = defaultdict(list)
    rows = [asked[name] for name in ("observation", "agent", "begins")]
    masks = asked["mask"] if champion.card["mask"] is not None else None
    for at, (observation, agent, begins) in enumerate(zip(*rows, strict=True)):
        seen = {"observation": observation, "agent": str(agent)}
        mask = {} if masks is None else {"action_mask": masks[at]}
        if begins:
            champion.reset()
        # The value is taken before the action, which changes a recurrent state.
        if champion.has_value:
            found["value"].append(champion.value(**seen))
        if has_choices:
            found["probabilities"].append(champion.probabilities(**seen, **mask))
        found["action"].append(champion.act(**seen, **mask, sample=at % 2 == 1, seed=at))
    first = asked["agent"] == asked["agent"][0]
    batch = {"observation": asked["observation"][first][:NUM_BATCHED]}
    if masks is not None:
        batch["action_mask"] = masks[first][:NUM_BATCHED]
    # A second player is used, because the states of the first one do not fit a batch.
    other = module.Champion(export, seed=1)
    found["action in a batch"] = other.act(**batch, agent=str(asked["agent"][0]))
    return {name: np.asarray(values) for name, values in found.items()}


if __name__ == "__main__":
    np.savez(sys.argv[3], **answers(sys.argv[1], np.load(sys.argv[2])))
