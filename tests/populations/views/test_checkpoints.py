"""Reasons for which a checkpoint stays."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from arena.types import Entrant, PolicyId
from populations.config.run_file import learner_setup
from populations.config.sections import CheckpointsConfig
from populations.league.league import League
from populations.views.log import checkpoints_document
from populations.views.questions.checkpoints import pins_of
from populations.views.questions.inspection import Inspection
from tests.populations.rows import make_ratings
from tests.populations.small_run import SmallRun

P0, P1 = PolicyId("player/p000"), PolicyId("player/p001")


def pins(run: SmallRun, section: CheckpointsConfig) -> dict[str, tuple[str, ...]]:
    setup = learner_setup(run.run_file, root=run.run_dir)
    league = League(run.tables, seats=setup.seats, half_life_matches=100.0)
    return pins_of(league, section=section)


def test_each_reason_is_named(tmp_path: Path) -> None:
    run = SmallRun(tmp_path)
    with run.journal:
        first, middle, last = run.checkpoints_of(P0)
        run.snapshot(first, linked=False)
        run.put(
            make_ratings(
                best=(Entrant(middle.weights_digest),), best_ratings=(1.0,), best_deviations=(1.0,)
            )
        )
        run.evaluate(middle.weights_digest, "bot:random")
        # The latest checkpoint was trained from those weights, so it is at the same place.
        run.put(replace(last, parent=middle.weights_digest))
        donor = {"kind": "exploit", "donor": P0, "checkpoint": first.key}
        run.put(replace(run.tables.policies[P1], pending=donor))
        found = pins(run, CheckpointsConfig(keep=1, milestones_every_agent_steps=200))
        assert found[first.key] == ("donor", "ghost")
        assert found[middle.key] == ("best", "standing", "milestone")
        assert found[last.key] == ("latest", "newest")
        run.opened(P0)
        exports = CheckpointsConfig(keep=1, export_every_agent_steps=100, keep_exports=1)
        assert [
            key for key, why in pins(run, exports).items() if "export" in why and P0 in key
        ] == [*(middle.key, last.key)]
        found = pins(run, CheckpointsConfig(keep=1))
        assert found[last.key] == ("latest", "assignment", "newest")


def test_the_view_names_kept_checkpoints_as_commands_take_them(tmp_path: Path) -> None:
    run = SmallRun(tmp_path)
    with run.journal:
        gone, *_ = run.checkpoints_of(P0)
        run.put(replace(gone, state="deleted"))
    inspection = Inspection.open(tmp_path)
    rows = checkpoints_document(inspection, None)["checkpoints"]
    inspection.close()
    assert isinstance(rows, list)
    shown = {row["key"]: (row["player"], row["pins"]) for row in rows if isinstance(row, dict)}
    assert shown[gone.key] == (None, [])
    assert ("player/p000@000000000300", ["latest", "newest"]) in shown.values()
