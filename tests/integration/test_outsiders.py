"""Training against players from outside: a scripted bot, and another run's exported champion."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from populations.records.rows import TallyRow
from populations.storage.journal import JournalReader
from tests.integration.conftest import ARENA, Command, launch_arguments
from tests.support import run_process

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
    done = run_process([*ARENA, *arguments], cwd=directory, timeout_s=110.0)
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
    # A match has 15 rounds: against a fixed rock a fresh policy scores about even, paper gets 15.
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
    assert "outsider:champion" in met
    events = json.loads(arena(tmp_path, "league", "second", "events", "--json").stdout)["events"]
    (imported,) = [event for event in events if event["kind"] == "outsider_imported"]
    assert (imported["origin"], imported["weights"]) == ("champion", card["weights_digest"])
    arena(tmp_path, "verify", "second")


def _mean_return(row: TallyRow) -> float:
    """Of the policy, in whichever seat."""
    seat = [name.startswith("player/") for name in row.tally.entrants].index(True)
    return row.tally.return_sum[seat] / row.tally.matches


@pytest.mark.slow
def test_a_player_of_another_run_is_rated_with_the_others_and_is_a_goal(
    arena: Command,
    arena_json: Callable[..., dict[str, Any]],
    finished_run: Path,
    tmp_path: Path,
) -> None:
    source, run = tmp_path / "source", tmp_path / "run"
    shutil.copytree(finished_run, source)
    player = f"{source}:player/p001"
    bots = f"evaluation.bots=[bot:random, '{player}']"
    # Any policy reaches this score, so the run ends as soon as the bound has enough matches.
    goal = f"stop.evaluation={{player: '{player}', score: 0.001}}"
    wide = "populations.player.network.hidden_sizes=[8]"
    done = arena(*launch_arguments(run, bots, wide), code=2)
    assert "network.hidden_sizes is [16] there and [8] here" in done.stderr
    assert not run.exists()
    arena(*launch_arguments(run, bots, goal))
    status = arena_json("league", run, "status")
    assert status["reason"].startswith("stop.evaluation")
    lines = arena_json("league", run)["populations"]["player"]
    (line,) = [line for line in lines if line["player"] == f"outsider:{player}"]
    assert (line["kind"], line["champion"]) == ("bot", False)
    assert line["rating"] is not None
    assert line["matches"] > 0
    events = arena_json("league", run, "events")["events"]
    (imported,) = [event for event in events if event["kind"] == "outsider_imported"]
    (there,) = [
        row
        for row in arena_json("league", source)["populations"]["player"]
        if row["player"] == "player/p001"
    ]
    assert (imported["origin"], imported["weights"]) == (player, there["weights"])
    # The run's own copy of the weights is sufficient.
    shutil.rmtree(source)
    resume = ("launch", "--resume", "--run-dir", run, "stop.evaluation=null")
    steps = f"stop.agent_steps_per_policy={status['agent_steps']}"
    arena(*resume, steps)
    lines = arena_json("league", run)["populations"]["player"]
    (after,) = [one for one in lines if one["player"] == line["player"]]
    assert after["matches"] > line["matches"]
    arena("verify", run)
    arena("export", run, "--to", tmp_path / "export", "--matches", "2")
    card = json.loads((tmp_path / "export" / "card.json").read_text())
    assert player in {record["opponent"] for record in card["record"]}
    done = arena(*resume, "evaluation.bots=[bot:random]", code=2)
    assert "by their places" in done.stderr
    weights = run / imported["subject"] / "weights.safetensors"
    weights.write_bytes(b"others")
    assert f"is not what was copied of {player}" in arena(*resume, code=5).stderr


PARTNERS = """
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv


class Meeting(ParallelEnv):
    metadata = {"name": "meeting_v0"}

    def __init__(self, render_mode=None):
        self.render_mode, self.possible_agents = render_mode, ["guest", "host"]

    def observation_space(self, agent):
        return spaces.Box(0.0, 1.0, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(3)

    def reset(self, seed=None, options=None):
        self.agents = self.possible_agents[:]
        return dict.fromkeys(self.agents, np.zeros(1, np.float32)), {a: {} for a in self.agents}

    def step(self, actions):
        agents, self.agents = self.agents, []
        met = float(actions["guest"] == actions["host"])
        seen = dict.fromkeys(agents, np.zeros(1, np.float32))
        return (
            seen, dict.fromkeys(agents, met), dict.fromkeys(agents, True),
            dict.fromkeys(agents, False), {a: {} for a in agents},
        )

    def close(self):
        pass
"""

PARTNERED = """
environment:
  id: "meetings:Meeting"
  num_envs: 16
  sides: {guest: [guest], partner: [host]}
  outcome: {threshold: 1.0, side: guest}
populations:
  guest:
    agents: [guest]
    size: 1
    network: {hidden_sizes: [8]}
    hyperparameters: {rollout_length: 16, learning_rate: 0.02}
  host: {agents: [host], player: "bot:scripted:Hand(hand=2)"}
pbt: {exploit: none, explore: none}
assignment: {agent_steps: 1000}
metrics: {sinks: []}
learners: 1
stop: {agent_steps_per_policy: 8000, duration_s: null}
"""


@pytest.mark.slow
def test_a_policy_learns_beside_a_partner_that_only_plays(tmp_path: Path) -> None:
    for name, text in (("scripted.py", HAND), ("meetings.py", PARTNERS), ("c.yaml", PARTNERED)):
        (tmp_path / name).write_text(text)
    arena(tmp_path, "launch", "c.yaml", "--run-dir", "run")
    partner = "bot:scripted:Hand(hand=2)"
    first, *_, last = training_tallies(tmp_path / "run")
    assert set(first.tally.entrants) == {"guest/p000#0", partner}
    # Both are paid alike: a third of random choices matches, and nearly all in the end.
    assert first.tally.return_sum[0] == first.tally.return_sum[1]
    assert first.tally.return_sum[0] / first.tally.matches < 0.7
    assert last.tally.return_sum[0] / last.tally.matches > 0.95
    done = arena(
        tmp_path, "evaluate", "run:guest/p000", partner, "--matches", "100", "--greedy", "--json"
    )
    pairs = {pair["home"]: pair["score"] for pair in json.loads(done.stdout)["pairs"]}
    assert pairs["run:guest/p000"] == 1.0


SIDES = """
environment: {id: classic/tictactoe-v3, num_envs: 64}
populations:
  cross: {agents: [player_1], size: 2, network: {hidden_sizes: [16]}}
  nought: {agents: [player_2], size: 2, network: {hidden_sizes: [8]}}
assignment: {agent_steps: 1000}
metrics: {sinks: []}
learners: 1
stop: {agent_steps_per_policy: 2000, duration_s: null}
"""


@pytest.mark.slow
def test_a_side_that_only_plays_is_met_by_all_and_goes_on(
    arena: Command, arena_json: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    config, first, second = tmp_path / "sides.yaml", tmp_path / "first", tmp_path / "second"
    config.write_text(SIDES)
    played = ("populations.nought={agents: [player_2], player: bot:random}", "--run-dir", first)
    done = arena("launch", config, *played)
    assert "nought is played by bot:random; nobody is trained for it" in done.stderr
    populations = arena_json("league", first)["populations"]
    assert [line["player"] for line in populations["nought"]] == ["bot:random"]
    # The network is the imported player's own, independent of the default.
    player = f"{first}:cross/p001"
    cross = f"populations.cross={{agents: [player_1], player: '{player}'}}"
    done = arena("launch", config, cross, "--run-dir", second)
    assert f"cross is played by {player}: cross/p001 at" in done.stderr
    outsider = f"outsider:{player}"
    assert {row.tally.entrants[0] for row in training_tallies(second)} == {outsider}
    lines = {line["player"]: line for line in arena_json("league", second)["populations"]["cross"]}
    assert set(lines) == {outsider, "bot:random"}
    assert lines[outsider]["rating"] is not None
    shutil.rmtree(first)
    resume = ("launch", "--resume", "--run-dir", second)
    arena(*resume, "stop.agent_steps_per_policy=4000", "pbt.fraction=0.5")
    assert {row.tally.entrants[0] for row in training_tallies(second)} == {outsider}
    arena("verify", second)
    done = arena(*resume, "populations.cross.player=bot:random", code=2)
    assert "the members of a population were made with the run" in done.stderr
