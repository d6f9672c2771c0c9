"""Play an exported champion in PettingZoo's own environment against random play.

Uses nothing of Arena: what `arena export` writes, PettingZoo and numpy. For two-player games that
take turns: ``python -m tools.pettingzoo_match DIR classic/connect_four-v3 --matches 200``.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import numpy as np


def play(
    export: Annotated[Path, typer.Argument(metavar="DIR", help="What arena export wrote.")],
    environment: Annotated[str, typer.Argument(metavar="ID", help="A PettingZoo registry id.")],
    matches: Annotated[int, typer.Option(min=1, help="Per seat.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Of random play.")] = 1,
) -> None:
    """Play matches in each seat and print wins, draws and losses."""
    import numpy as np
    import pettingzoo

    champion = _load_champion(export)
    env: Any = pettingzoo.make("aec", environment)
    rng = np.random.default_rng(seed)
    try:
        for seat in env.possible_agents:
            returns = [_play_match(env, champion, seat, rng) for _ in range(matches)]
            wins, losses = sum(r > 0 for r in returns), sum(r < 0 for r in returns)
            sys.stdout.write(
                f"champion as {seat}: {wins} wins, {matches - wins - losses} draws, "
                f"{losses} losses of {matches}\n"
            )
    finally:
        env.close()


def _load_champion(export: Path) -> Any:  # noqa: ANN401  (a class of the exported file)
    spec = importlib.util.spec_from_file_location("champion", export / "champion.py")
    if spec is None or spec.loader is None or not (export / "champion.py").is_file():
        raise SystemExit(f"{export} has no champion.py: arena export writes it")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Champion(export)


def _play_match(env: Any, champion: Any, seat: str, rng: np.random.Generator) -> float:  # noqa: ANN401
    env.reset(seed=int(rng.integers(2**31)))
    champion.reset()
    total = 0.0
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, info = env.last()
        if agent == seat:
            total += float(reward)
        if terminated or truncated:
            env.step(None)
            continue
        mask = info.get("action_mask")
        if isinstance(observation, dict):
            mask, observation = observation["action_mask"], observation["observation"]
        if agent == seat:
            env.step(int(champion.act(observation, mask, agent=agent)))
        else:
            legal = range(env.action_space(agent).n) if mask is None else mask.nonzero()[0]
            env.step(int(rng.choice(legal)))
    return total


if __name__ == "__main__":
    typer.run(play)
