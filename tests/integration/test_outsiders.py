"""Training against players from outside: a scripted bot, and another run's exported champion."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from populations.records.rows import TallyRow
from populations.storage.journal import JournalReader
from tests.integration.conftest import ARENA

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("processes")]

HAND = """
import numpy as np


class Hand:
    def __init__(self, *, hand):
        self.hand = hand

    def act(self, observation, action_mask, *, agent, rng):
        return np.full(len(observation), self.hand)
"""

SMALL = (
    "learners=1",
    "environment.num_envs=16",
    "populations.player.size=1",
    "populations.player.network.hidden_sizes=[16]",
    "populations.player.hyperparameters.rollout_length=16",
    "populations.player.hyperparameters.learning_rate=0.01",
    "populations.player.hyperparameters.entropy_coef=0.01",
    "populations.player.search_space={}",
    "evaluation.share=0.1",
    "pbt.exploit=none",
    "pbt.explore=none",
    "metrics.sinks=[]",
    "assignment.agent_steps=1000",
    "stop.duration_s=null",
    "seed=3",
)


def arena(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*ARENA, *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=110.0,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done


def training_tallies(run_dir: Path) -> list[TallyRow]:
    reader = JournalReader(run_dir / "journal.db")
    try:
        return [row for row in reader.tallies() if row.kind == "train"]
    finally:
        reader.close()


@pytest.mark.slow
@pytest.mark.long
def test_a_policy_learns_to_beat_a_bot_and_its_export_is_an_opponent(tmp_path: Path) -> None:
    (tmp_path / "scripted.py").write_text(HAND)
    arena(
        tmp_path, "launch", "rock_paper_scissors", *SMALL,
        "matchmaking.bots={'bot:scripted:Hand( hand = 0 )': 1.0}", "matchmaking.opponents=2",
        "stop.agent_steps_per_policy=8000", "--run-dir", "first",
    )  # fmt: skip
    tallies = training_tallies(tmp_path / "first")
    assert {name for row in tallies for name in row.tally.entrants} == {
        "bot:scripted:Hand(hand=0)",
        "player/p000#0",
    }
    returns = [_mean_return(row) for row in tallies]
    # A match has 15 rounds: against a fixed rock a fresh policy is about even, paper gets 15.
    assert returns[0] < 10.0
    assert min(returns[-2:]) > 13.0

    arena(tmp_path, "export", "first", "--to", "champion")
    card = json.loads((tmp_path / "champion" / "card.json").read_text())
    arena(
        tmp_path, "launch", "rock_paper_scissors", *SMALL,
        "matchmaking.bots={champion: 0.5}", "matchmaking.opponents=2",
        "stop.agent_steps_per_policy=2000", "--run-dir", "second",
    )  # fmt: skip
    tallies = training_tallies(tmp_path / "second")
    met = {name for row in tallies for name in row.tally.entrants}
    assert card["weights_digest"] in met
    events = arena(tmp_path, "league", "second", "events", "--json").stdout
    assert "outsider:0:champion" in events
    arena(tmp_path, "verify", "second")


def _mean_return(row: TallyRow) -> float:
    """Of the policy, in whichever seat."""
    seat = [name.startswith("player/") for name in row.tally.entrants].index(True)
    return row.tally.return_sum[seat] / row.tally.matches
