"""Fictitious self-play, by hand."""

from __future__ import annotations

import numpy as np

from populations.matchmaking.window import UNIFORM, UniformRule
from tests.populations.matchmaking.toy_league import ghost, probabilities, request


def test_uniform_draws_ghosts_of_all_policies_alike() -> None:
    assert probabilities(UniformRule(), request(ghosts=5)) == [0.2] * 5


def test_neither_age_nor_results_matter() -> None:
    asked = request(
        ghosts=[ghost(1), ghost(10**9, policy=7)], rates={ghost(1).player: 0.0}, trainee_rating=0.0
    )
    assert probabilities(UniformRule(), asked) == [0.5, 0.5]


def test_it_draws_nothing_and_reads_no_setting() -> None:
    rng = np.random.default_rng(3)
    UniformRule().weights(request(), rng=rng)
    assert rng.random() == np.random.default_rng(3).random()
    assert not UNIFORM.settings.model_fields
