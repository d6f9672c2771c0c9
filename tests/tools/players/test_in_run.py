"""Names of what a run keeps."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from arena.types import PolicyId
from populations.league.names import Subject
from populations.views.questions.inspection import Inspection
from tests.populations.small_run import SmallRun
from tools.export.command import _chosen
from tools.league.documents import full_name, view_document
from tools.pin import pin_player
from tools.players.in_run import find_in_run, kept_checkpoint
from tools.players.resolve import resolve_player

P0 = PolicyId("player/p000")


def test_the_newest_of_equal_steps_that_is_kept(tmp_path: Path) -> None:
    run = SmallRun(tmp_path)
    with run.journal:
        first, second, _ = run.checkpoints_of(P0)
        again = replace(second, key="again", learner_updates=second.learner_updates + 1)
        run.put(again, replace(first, state="doomed"))
        assert kept_checkpoint(run.tables, Subject(policy=P0, agent_steps=200)) == again
        run.put(replace(again, state="corrupt"))
        assert kept_checkpoint(run.tables, Subject(policy=P0, agent_steps=200)) == second
        assert kept_checkpoint(run.tables, Subject(policy=P0, agent_steps=100)) is None


@pytest.mark.parametrize("name", ["p000@60k", "player/p000@60000", "player/p000@000000060000"])
def test_every_command_takes_the_name_that_is_shown(board_run: Path, name: str) -> None:
    with closing(Inspection.open(board_run)) as inspection:
        player, weights = find_in_run(inspection, name)
        assert player == "player/p000@000000060000"
        assert _chosen(inspection, population=None, player=name) == {"player": (player, weights)}
    policy: Any
    (policy,) = resolve_player(f"{board_run}:{name}").policies.values()
    assert (policy.player, policy.digest) == (player, weights.digest)
    assert full_name(board_run, name, population="player") == player
    assert view_document(board_run, "why", player=name)["player"] == player


@pytest.mark.parametrize("name", ["p000@60k", "p000"])
def test_a_pin_takes_the_name_that_is_shown(board_run: Path, tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(board_run, run)
    player, *_ = pin_player(run, name, pinned=True, utc="2026-01-01T00:00:00.000+00:00")
    assert player.startswith("player/p000@000000")
