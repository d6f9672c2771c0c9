"""Scores of matches with intervals, for experiments in which players meet."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from experiments.commands import arena

Z95 = 1.959963984540054


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Matches seen from one of two players, as often in each seat."""

    wins: int
    draws: int
    losses: int

    @property
    def matches(self) -> int:
        """Number of all matches."""
        return self.wins + self.draws + self.losses

    @property
    def score(self) -> float:
        """Score; draws are half a win."""
        return (self.wins + self.draws / 2) / self.matches

    def interval(self) -> tuple[float, float]:
        """Return Wilson's 95% interval of the score as if nothing were drawn: draws make it too
        wide.
        """
        share, n = self.score, self.matches
        centre = (share + Z95**2 / (2 * n)) / (1 + Z95**2 / n)
        half = Z95 / (1 + Z95**2 / n) * math.sqrt(share * (1 - share) / n + Z95**2 / (4 * n**2))
        return centre - half, centre + half

    def summary(self) -> dict[str, object]:
        """Return the figures for a JSON line."""
        return {
            "score": round(self.score, 3),
            "interval": [round(end, 3) for end in self.interval()],
            "wins": self.wins,
            "draws": self.draws,
            "losses": self.losses,
        }


def meet(
    players: list[str | Path], *, matches: int, seed: int = 1
) -> dict[tuple[str, str], Counts]:
    """Let every pair meet, in both seats equally often, both sampling.

    Args:
        players: Players as ``arena evaluate`` takes them.
        matches: Matches of each pair, in each seat.
        seed: Seed of episodes and actions.

    Returns:
        By both players, either way round.
    """
    names = [str(player) for player in players]
    text = arena("evaluate", *names, "--matches", str(matches), "--seed", str(seed), "--json")
    played = {(pair["home"], pair["away"]): pair for pair in json.loads(text)["pairs"]}
    return {
        (home, away): Counts(
            wins=pair["wins"] + played[away, home]["losses"],
            draws=pair["draws"] + played[away, home]["draws"],
            losses=pair["losses"] + played[away, home]["wins"],
        )
        for (home, away), pair in played.items()
    }
