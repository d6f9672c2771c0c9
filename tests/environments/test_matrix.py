"""Every environment trains: a real learner, a checkpoint, a match against a ghost, an export."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path

import pytest

from arena.types import population_of
from tests.environments.rows import CORE, Row, rows
from tests.environments.short_run import (
    HYPERPARAMETERS,
    export,
    learner_process,
    make_setup,
    play_exports,
    short_run,
)

ROWS = tuple(rows())
MATRIX = (pytest.mark.slow, pytest.mark.matrix)


def parameter(row: Row) -> object:
    return pytest.param(row, id=row.name, marks=() if row.is_core else MATRIX)


def skip_without(row: Row) -> None:
    missing = [name for name in row.needs if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(
            f"{row.id} needs {', '.join(missing)}, not installed here: "
            f"pip install -e '.[{row.extra}]'"
        )


def test_nothing_is_left_out() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    assert set(names) >= CORE
    counts = {
        family: sum(name.startswith(f"{family}-") for name in names)
        for family in ("classic", "butterfly", "sisl", "mpe2", "magent2", "generated", "openspiel")
    }
    assert counts == {
        "classic": 9,
        "butterfly": 5,
        "sisl": 2,
        "mpe2": 24,
        "magent2": 3,
        "generated": 2,
        "openspiel": 10,
    }


@pytest.mark.integration
@pytest.mark.timeout(300)
@pytest.mark.parametrize("row", [parameter(row) for row in ROWS])
@pytest.mark.slow
def test_an_environment_trains(row: Row, tmp_path: Path) -> None:
    skip_without(row)
    setup = make_setup(row, root=tmp_path)
    with learner_process(setup) as carry_out:
        trained = short_run(setup, carry_out)
    for policy, manifest in trained.manifests.items():
        assert manifest.learner_updates >= 2 * HYPERPARAMETERS["num_minibatches"], policy
        assert manifest.agent_steps > 0
        ghost = trained.ghosts[policy].weights
        assert ghost is not None
        assert manifest.weights_digest != ghost.digest, "it has learned something"
    ghosts = {ghost.weights.digest for ghost in trained.ghosts.values() if ghost.weights}
    (tally,) = trained.evaluation.tallies
    assert tally.matches == 1
    assert len(setup.seats) == 1 or ghosts & set(tally.entrants)
    exports = {}
    for policy in trained.players:
        population = population_of(policy)
        exports[population] = tmp_path / "exports" / population
        export(setup, trained, policy, to=exports[population])
    # The environment runs in this process, so warnings are the environment's own.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = play_exports(setup, exports)
    assert sum(tally.matches for tally in result.tallies) == 2
