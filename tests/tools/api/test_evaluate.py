"""Tournaments from Python, against `arena evaluate`."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import arena

Command = Callable[..., dict[str, Any]]


def numpy_state() -> Any:
    return np.random.get_state(legacy=False)["state"]["key"].copy()


@pytest.mark.slow
def test_the_document_is_that_of_the_command_and_nothing_else_changes(
    command: Command, board_run: Path
) -> None:
    torch.manual_seed(5)
    random.seed(6)
    np.random.seed(7)
    before = (
        torch.get_rng_state(),
        random.getstate(),
        np.random.get_state(legacy=False)["state"]["key"],
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = arena.evaluate([str(board_run), "bot:random"], matches=10, seed=3)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.array_equal(numpy_state(), before[2])
    expected = command("evaluate", board_run, "bot:random", "--matches", 10, "--seed", 3, "--json")
    assert {"schema": 1, **found} == expected
    assert isinstance(found["pairs"], arena.Records)
    assert [pair["home"] for pair in found["pairs"]] == [str(board_run), "bot:random"]


@pytest.mark.parametrize(
    ("players", "more", "complaint"),
    [
        (["bot:random"], {}, "two or more players, got 1"),
        ("bot:random", {}, "must be a list of players, got 'bot:random'"),
        (["bot:random", "bot:x:Y"], {}, "bots alone play anything: environment ID says what"),
        (["bot:random", "nowhere"], {}, "there is no player 'nowhere'"),
        (["bot:random", "bot:random"], {"matches": 0}, "matches must be at least 1, got 0"),
        (["bot:random", "bot:random"], {"seed": -1}, "seed must be at least 0, got -1"),
    ],
)
def test_what_cannot_be_played_is_named(players: Any, more: dict[str, Any], complaint: str) -> None:
    with pytest.raises(arena.ConfigError, match=complaint):
        arena.evaluate(players, **more)
