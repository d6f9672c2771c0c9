"""Hooks and exports of a run from the command line, and hooks that are refused at its launch."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Command, launch_arguments

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("processes")]

ASSETS = Path(__file__).parent.parent / "assets"


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("hooks={on_end: [hooked:gone]}", "hooks.on_end[0]: hooked:gone: hooked has no 'gone'"),
        ("hooks={on_end: [[no-such-command]]}", "there is no command 'no-such-command'"),
    ],
)
def test_what_cannot_be_called_is_refused_at_launch(
    arena: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    override: str,
    said: str,
) -> None:
    monkeypatch.chdir(ASSETS)
    done = arena(*launch_arguments(tmp_path / "run", override), code=2)
    assert said in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_end_of_a_run_says_what_it_waits_for_and_for_how_long(
    arena: Command, tmp_path: Path
) -> None:
    more = (
        "stop.agent_steps_per_policy=1000",
        "populations.player.size=1",
        "hooks={on_end: [[sleep, 3]], time_limit_s: 30}",
    )
    done = arena(*launch_arguments(tmp_path / "run", *more))
    waits = [line for line in done.stderr.splitlines() if "waiting for" in line]
    # One call of at most 30 s, and as long for those before it; a second has passed.
    assert len(waits) == 1
    said = re.fullmatch(
        r"all is saved; waiting for hooks, for at most (\d+) s \(logs/hooks\.log\)", waits[0]
    )
    assert said is not None
    assert 50 <= int(said.group(1)) <= 59


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_champions_and_checkpoints_are_exported_by_themselves(
    arena: Command, arena_json: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    # The line of the documents.
    hook = '[[arena, export, "{run}", --player, "{player}", --to, "{run}/champions/{sequence}"]]'
    more = (
        "stop.agent_steps_per_policy=3000",
        "populations.player.size=2",
        "checkpoints.export_every_agent_steps=1000",
        "checkpoints.keep=1",
        "checkpoints.keep_exports=1",
        f"hooks={{on_champion: {hook}, time_limit_s: 30}}",
    )
    arena(*launch_arguments(run, *more), timeout_s=300.0)
    events = arena_json("league", run, "events")["events"]
    due = [event for event in events if event["kind"] == "export_due"]
    assert {event["subject"] for event in due} == {"player/p000", "player/p001"}
    assert len(due) > 3
    newest = {event["subject"]: event for event in due}
    for policy, event in newest.items():
        assert [path.name for path in (run / "exports" / policy).iterdir()] == [
            f"{event['agent_steps']:012d}"
        ]
        card = json.loads((run / "exports" / event["to"] / "card.json").read_text())
        assert (card["agent_steps"], card["record"]) == (event["agent_steps"], [])
    changes = [event for event in events if event["kind"] == "champion"]
    assert changes
    exported = sorted(int(path.name) for path in (run / "champions").iterdir())
    # On a busy machine some are missing: with one kept checkpoint an earlier champion's may be gone
    # when its turn comes, and after the run calls have a limited time.
    assert exported
    weights = {event["sequence"]: event["weights"] for event in changes}
    for sequence in exported:
        card = json.loads((run / "champions" / str(sequence) / "card.json").read_text())
        assert card["weights_digest"] == weights[sequence]
    assert not [event for event in events if event["kind"] == "alert" and "export" in event["what"]]
