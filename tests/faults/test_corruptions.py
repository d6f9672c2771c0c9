"""Random corruptions of a small run: found, or harmless, and held to what is known of each place.

`tests/assets/corruptions.json` has what 2,000 of real runs came to
(`python -m experiments.faults.corruptions`): a place whose damage was always found has to be.
"""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.types import Entrant, PolicyId
from experiments.faults.byte_places import Places, file_kind
from experiments.faults.corruptions import Trial, preload, run_trial
from populations.audit.verify import verify_run
from populations.storage.database import BACKUP, JOURNAL
from tests.populations.rows import make_ratings
from tests.populations.small_run import SmallRun

KNOWN: dict[str, list[str]] = json.loads(
    (Path(__file__).parents[1] / "assets" / "corruptions.json").read_text(encoding="utf8")
)
NUM_TRIALS = 60


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with evaluations, ratings, a ghost, a backup and an archive."""
    run_dir = tmp_path_factory.mktemp("small") / "run"
    run_dir.mkdir()
    run = SmallRun(run_dir)
    with run.journal:
        run.put(replace(run.tables.run, run=run.run_file.run, state="finished"))
        policies = (PolicyId("player/p000"), PolicyId("player/p001"))
        first, second = (run.checkpoints_of(policy)[-1].weights_digest for policy in policies)
        run.evaluate(first, second)
        run.evaluate(second, "bot:random")
        run.snapshot(run.checkpoints_of(policies[0])[0])
        run.note("noted", "", what="before")
        run.archive()
        run.note("noted", "", what="after")
        run.evaluate(first, "bot:random")
        run.train(policies[0])
        run.put(
            make_ratings(
                entrants=(Entrant(first), Entrant(second), Entrant("bot:random")),
                ratings=(50.0, 100.0, 0.0),
                deviations=(9.0, 9.0, 0.0),
                num_tallies=run.tables.num_tallies,
            )
        )
        run.journal.backup(run_dir / BACKUP)
    assert verify_run(run_dir).faults == []
    return run_dir


def test_each_corruption_is_found_or_harmless(run: Path) -> None:
    preload()
    found = [run_trial(run, f"7/{index}") for index in range(NUM_TRIALS)]
    assert [trial for trial in found if trial.outcome not in ("found", "harmless")] == []
    assert [trial for trial in found if not is_known(trial)] == []
    # The sample must have both outcomes and enough places of the journal to be meaningful.
    assert {trial.outcome for trial in found} == {"found", "harmless"}
    assert sum(trial.change.kind == JOURNAL for trial in found) >= 3


def is_known(trial: Trial) -> bool:
    place = f"{trial.change.kind}: {trial.change.place}"
    return trial.outcome in KNOWN.get(place, [trial.outcome])


def test_every_column_of_a_journal_has_its_place(run: Path) -> None:
    """A value that SQLite reads lies where the map of the file says that it lies."""
    path = run / JOURNAL
    data, places = path.read_bytes(), Places(path)
    with closing(sqlite3.connect(path)) as connection:
        (packed,) = connection.execute("SELECT ratings FROM ratings").fetchone()
        (digest,) = connection.execute("SELECT weights_digest FROM ghosts").fetchone()
        (text,) = connection.execute("SELECT data FROM events LIMIT 1").fetchone()
    assert places.at(data.index(packed) + 3) == "ratings.ratings"
    assert places.at(data.index(text.encode())) == "events.data"
    found = [at for at in range(len(data)) if data.startswith(digest.encode(), at)]
    assert "ghosts.weights_digest" in {places.at(at) for at in found}
    assert places.at(50) == "header"
    rng = random.Random(1)
    names = {places.at(rng.randrange(len(data))) for _ in range(400)}
    assert {"free space", "bytes"} & names <= {"free space"}


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("populations/player/p000/checkpoints/000000000100-ab/manifest.json", "manifest.json"),
        ("archive/000001.jsonl.zst", "archive/N.jsonl.zst"),
        ("journal.db", "journal.db"),
    ],
)
def test_files_of_one_kind_have_one_name(path: str, kind: str) -> None:
    assert file_kind(path).endswith(kind)
