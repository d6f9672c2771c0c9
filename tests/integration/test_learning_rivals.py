"""Rivals that learn in one assignment, in real processes: their steps and their results."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arena.checkpoints.files import read_manifest
from arena.types import population_of
from arena.wire.messages import Train
from populations.records.rows import AssignmentRow
from populations.storage.journal import JournalReader
from tests.integration.conftest import Command, launch_config
from tests.support import tables_of, tallies_of

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.xdist_group("processes"),
]

ASSET = Path(__file__).parents[1] / "assets" / "two_sides.py"

SMALL: dict[str, Any] = {
    "size": 2,
    "network": {"hidden_sizes": [16]},
    "hyperparameters": {"rollout_length": 10, "learning_rate": 3e-3},
    "search_space": {},
}
HIDE: dict[str, Any] = {
    "environment": {
        "id": "two_sides:Hide",
        "num_envs": 16,
        "sides": {"seeker": ["seeker_*"], "hiders": ["hider_*"]},
        "outcome": {"threshold": 3.0, "side": "seeker"},
    },
    "populations": {
        "seeker": {"agents": ["seeker_*"], **SMALL},
        "hider": {"agents": ["hider_*"], **SMALL},
    },
    "matchmaking": {"rivals": "learning", "opponents": 4, "latest_ratio": 0.5},
    "assignment": {"agent_steps": 800},
    "ghosts": {"every_agent_steps": 1600},
    "pbt": {
        "ready_agent_steps": 1600,
        "warm_up_agent_steps": 1600,
        "min_matches": 8,
        "min_rating_gap": 0,
        "confidence": 0,
        "fraction": 0.5,
        "reference": False,
    },
    "evaluation": {"share": 0.2},
    "metrics": {"sinks": ["jsonl"]},
    "launcher": "local",
    "learners": 2,
    "stop": {"agent_steps_per_policy": 4000},
}


def trained(run: Path) -> list[AssignmentRow]:
    with JournalReader(run / "journal.db") as reader:
        rows = list(reader.assignments(statuses=("finished",), kind="train"))
    return [row for row in rows if row.agent_steps]


def test_both_learn_in_the_same_assignments(
    arena: Command, arena_json: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    shutil.copy(ASSET, tmp_path)
    run = launch_config(HIDE, tmp_path)
    arena("verify", run)
    tables = tables_of(run)
    made = {(row.assignment_id, row.policy): row.agent_steps for row in tables.checkpoints.values()}
    rows = [row for row in trained(run) if len(row.message.trainees) == 2]  # type: ignore[union-attr]
    assert len(rows) > 4
    for row in rows:
        assert isinstance(row.message, Train)
        # Trainees are in the order of the populations, each with its own steps, metrics and
        # checkpoint.
        names = [population_of(trainee.policy) for trainee in row.message.trainees]
        assert names == ["seeker", "hider"]
        steps = [made[row.assignment_id, t.policy] - t.agent_steps for t in row.message.trainees]
        assert min(steps) > 0
        assert sum(steps) == row.agent_steps
        for trainee in row.message.trainees:
            assert f"{trainee.policy}/loss/policy" in row.metrics
        live = Counter(
            sum(player.weights is None for player in seating.players)
            for seating in row.message.opponents
        )
        assert live[2] >= 2, "a half of each one's four opponents"
    standings = arena_json("league", run, "standings")["populations"]
    for lines in standings.values():
        steps = [line["agent_steps"] for line in lines if line["kind"] == "policy"]
        assert len(steps) == 2
        assert all(count >= 4000 for count in steps)
    between = [
        row for row in tallies_of(run) if sum("#" in entrant for entrant in row.tally.entrants) == 2
    ]
    assert between
    assert all(row.kind == "train" for row in between)
    # These views show what trainees did to each other.
    for view in ("payoff", "matches", "lineage", "events", "status"):
        arena("league", run, view)
        arena_json("league", run, view)


SIDES_ASSET = Path(__file__).parents[1] / "assets" / "three_sides.py"

SMALL_TEAMS: dict[str, object] = {
    "network": {"hidden_sizes": [16]},
    "hyperparameters": {"rollout_length": 25, "learning_rate": 3e-3},
}
COMMON: dict[str, object] = {
    "evaluation": {"share": 0.3},
    "metrics": {"sinks": ["jsonl"]},
    "pbt": {
        "ready_agent_steps": 1600,
        "warm_up_agent_steps": 1600,
        "min_matches": 8,
        "min_rating_gap": 0,
        "confidence": 0,
        "fraction": 0.5,
        "reference": False,
    },
}
DUET: dict[str, object] = {
    **COMMON,
    "environment": {
        "id": "mpe2/simple_speaker_listener_v4",
        "num_envs": 16,
        "sides": {"team": ["*"]},
    },
    "populations": {
        "speaker": {"agents": ["speaker_0"], "size": 2, **SMALL_TEAMS},
        "listener": {"agents": ["listener_0"], "size": 2, **SMALL_TEAMS},
    },
    "launcher": "local",
    "learners": 2,
    "assignment": {"agent_steps": 800},
    "ghosts": {"every_agent_steps": 1600},
    "stop": {"agent_steps_per_policy": 4000},
}
GUESS: dict[str, object] = {
    **COMMON,
    "environment": {
        "id": "three_sides:Guess",
        "num_envs": 16,
        "sides": {"red": ["red_*"], "blue": ["blue_0"], "green": ["green_0"]},
    },
    "populations": {
        "player": {
            "agents": ["*"],
            "size": 2,
            "network": {"hidden_sizes": [16]},
            "hyperparameters": {"rollout_length": 8, "learning_rate": 1e-2, "gamma": 0.9},
        }
    },
    "launcher": "inline",
    "deterministic": True,
    "matchmaking": {"opponents": 4},
    "assignment": {"agent_steps": 1500},
    "ghosts": {"every_agent_steps": 3000},
    "stop": {"agent_steps_per_policy": 6000},
}


def finished(run: Path) -> list[AssignmentRow]:
    with JournalReader(run / "journal.db") as reader:
        return list(reader.assignments(statuses=("finished",), kind="train"))


def test_speaker_and_listener_learn_in_the_same_episodes(
    arena: Command, arena_json: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    pytest.importorskip("mpe2")
    run = launch_config(DUET, tmp_path)
    arena("verify", run)
    manifests = [
        read_manifest(path.parent) for path in run.glob("populations/*/*/ghosts/*/manifest.json")
    ]
    assert {m.policy.split("/")[0] for m in manifests} == {"speaker", "listener"}
    for row in finished(run):
        assert isinstance(row.message, Train)
        speaker, listener = row.message.trainees
        assert speaker.policy.replace("speaker", "listener") == listener.policy
        if row.message.agent_steps:
            assert f"{speaker.policy}/episode/return_mean" in row.metrics
            # Both get the same reward from the same episodes.
            assert row.metrics[f"{speaker.policy}/episode/return_mean"] == pytest.approx(
                row.metrics[f"{listener.policy}/episode/return_mean"]
            )
    standings = arena_json("league", run, "standings")["populations"]
    for policies in zip(*standings.values(), strict=True):
        one, other = policies
        assert one["rating"] == pytest.approx(other["rating"], abs=1.0)
        assert one["player"].split("/")[-1] == other["player"].split("/")[-1]
    for lines in standings.values():
        assert all(line["agent_steps"] >= 4000 for line in lines if line["kind"] == "policy")
    team = arena_json("evaluate", run, "bot:random", "--matches", "8")
    assert {pair["matches"] for pair in team["pairs"]} == {8}


def test_three_sides_of_different_sizes(
    arena: Command, arena_json: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    shutil.copy(SIDES_ASSET, tmp_path)
    run = launch_config(GUESS, tmp_path)
    arena("verify", run)
    for row in tallies_of(run):
        pairs = [(pair.first, pair.second) for pair in row.tally.pairs]
        assert pairs == [(0, 1), (0, 2), (1, 2)]
    for assignment in finished(run):
        message = assignment.message
        assert isinstance(message, Train)
        trainee: str = message.trainees[0].policy
        seats = Counter(
            index
            for seating in message.opponents
            if len({player.player for player in seating.players}) > 1
            for index, player in enumerate(seating.players)
            if player.player == trainee and player.weights is None
        )
        assert len(set(seats.values())) <= 1, "each seat equally often"
    lines = arena_json("league", run, "standings")["populations"]["player"]
    by_player = {line["player"]: line for line in lines}
    best = by_player["player/p000"]
    assert best["rating_low"] > by_player["bot:random"]["rating"] == 0.0
    # In each match every player is compared with two others.
    for line in lines:
        assert line["wins"] + line["draws"] + line["losses"] == 2 * line["matches"]
    evaluated = arena_json("evaluate", run, "bot:random", "--matches", "30")
    assert all(pair["matches"] == 30 for pair in evaluated["pairs"])
    assert evaluated["pairs"][0]["score"] > 0.6
