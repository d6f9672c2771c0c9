"""Names of what a run keeps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from arena.types import PolicyId
from tests.populations.small_run import SmallRun
from tools.players.in_run import canonical_player, kept_checkpoint, not_kept, steps_of

P0 = PolicyId("player/p000")


@pytest.mark.parametrize("player", ["player/p003@120", "player/p003@000000000120"])
def test_leading_zeros_may_be_left_out(player: str) -> None:
    assert steps_of(player) == ("player/p003", 120)
    assert canonical_player(player) == "player/p003@000000000120"


@pytest.mark.parametrize("player", ["player/p003", "player/p3@1", "p003@1", "player/p003@-1", "@1"])
def test_other_names_have_no_steps(player: str) -> None:
    assert steps_of(player) is None
    assert canonical_player(player) == player


def test_the_newest_of_equal_steps_that_is_kept(tmp_path: Path) -> None:
    run = SmallRun(tmp_path)
    with run.journal:
        first, second, _ = run.checkpoints_of(P0)
        again = replace(second, key="again", learner_updates=second.learner_updates + 1)
        run.put(again, replace(first, state="doomed"))
        assert kept_checkpoint(run.tables, P0, agent_steps=200) == again
        run.put(replace(again, state="corrupt"))
        assert kept_checkpoint(run.tables, P0, agent_steps=200) == second
        assert kept_checkpoint(run.tables, P0, agent_steps=100) is None
        assert not_kept(run.tables, P0, agent_steps=100) == (
            "keeps nothing of player/p000 at 100 agent steps; the nearest of its kept checkpoints: "
            "player/p000@000000000200, player/p000@000000000300"
        )
