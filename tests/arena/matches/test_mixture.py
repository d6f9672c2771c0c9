from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from arena.core import Actor, ActorInput, ActorOutput
from arena.matches.tournament import ActorMixture, draw_lineups


@dataclass(frozen=True)
class Named(Actor):
    name: str

    def act(self, inputs: ActorInput, *, agent: str, generator: torch.Generator) -> ActorOutput:
        observation = inputs.observation
        return ActorOutput(action=torch.zeros(len(observation), dtype=torch.int64))


A, B, C = Named("a"), Named("b"), Named("c")
MIXED = ActorMixture(actors=(A, B), probabilities=(0.25, 0.75))


def drawn(
    *players: Actor | ActorMixture, identities: list[str], num_matches: int, seed: int = 1
) -> dict[tuple[Actor, ...], int]:
    lineups = draw_lineups(
        players, identities=identities, num_matches=num_matches, rng=np.random.default_rng(seed)
    )
    assert len({actors for actors, _ in lineups}) == len(lineups)
    assert sum(count for _, count in lineups) == num_matches
    return dict(lineups)


def test_without_a_mixture_the_same_two_play_every_match() -> None:
    assert drawn(A, C, identities=["home", "away"], num_matches=7) == {(A, C): 7}


def test_members_play_in_proportion_and_the_seed_decides() -> None:
    num_matches = 10_000
    counts = drawn(MIXED, C, identities=["home", "away"], num_matches=num_matches)
    deviation = math.sqrt(num_matches * 0.25 * 0.75)
    assert abs(counts[(A, C)] - 0.25 * num_matches) < 5 * deviation
    assert set(counts) == {(A, C), (B, C)}
    again = drawn(MIXED, C, identities=["home", "away"], num_matches=num_matches)
    assert again == counts
    other = drawn(MIXED, C, identities=["home", "away"], num_matches=num_matches, seed=2)
    assert other != counts


def test_two_mixtures_draw_by_themselves_and_one_with_two_seats_draws_once() -> None:
    counts = drawn(MIXED, MIXED, identities=["home", "away"], num_matches=4000)
    assert set(counts) == {(A, A), (A, B), (B, A), (B, B)}
    assert abs(counts[(A, B)] - 4000 * 3 / 16) < 5 * math.sqrt(4000 * 3 / 16 * 13 / 16)
    counts = drawn(C, MIXED, MIXED, identities=["home", "away", "away"], num_matches=100)
    assert set(counts) == {(C, A, A), (C, B, B)}
