"""Plays episodes again in Kaggle's own environments; runs where `kaggle-environments` is installed.

Reads a list of episodes as JSON, and writes for each what Kaggle's environment says: its episode,
what its page shows, and whether its own episode can be loaded again.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any


def play(episode: dict[str, Any]) -> dict[str, Any]:
    from kaggle_environments import make
    from kaggle_environments.errors import InvalidArgument
    from kaggle_environments.utils import structify

    name, configuration = episode["name"], episode["configuration"]
    env = make(name, configuration)
    for before, after in zip(episode["steps"], episode["steps"][1:], strict=False):
        env.step(
            [
                new["action"] if old["status"] == "ACTIVE" else None
                for old, new in zip(before, after, strict=True)
            ]
        )
    played = env.toJSON()

    def loaded(steps: list[Any]) -> Any:
        try:
            return make(name, configuration, info=episode["info"], steps=steps)
        except InvalidArgument:
            return None

    shown, own = loaded(episode["steps"]), loaded(played["steps"])
    if shown is None:
        loads, shown = False, make(name, configuration, info=episode["info"])
        shown.steps = structify(episode["steps"])
    else:
        loads = True
    page = shown.render(mode="html")
    start = page.index("window.kaggle = ") + len("window.kaggle = ")
    return {
        **{key: played[key] for key in ("steps", "configuration", "info", "rewards", "statuses")},
        "shown": json.JSONDecoder().raw_decode(page[start:])[0]["environment"],
        "loads": loads,
        "own_loads": own is not None,
    }


if __name__ == "__main__":
    # Some environments print during their import.
    with contextlib.redirect_stdout(sys.stderr):
        answers = [play(episode) for episode in json.load(sys.stdin)]
    json.dump(answers, sys.stdout)
