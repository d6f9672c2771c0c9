"""The generations of a run, read back with Optuna."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import httpx
import optuna
import pytest
from msgspec import structs
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import TrialState

from arena.errors import ConfigError
from populations.config.run_file import new_run_file
from populations.views.questions.inspection import Inspection
from populations.views.questions.study import study_name, trials_of, write_studies
from populations.views.training import lineage_document
from tests.populations.controller.simulated import DUEL, by_rate, duel_spec, make_world
from tests.support import wait_until, write_run


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run in which policies exploited and explored, in simulation."""
    population = {
        "size": 4,
        "hyperparameters": {"clip_coef": 0.25, "num_epochs": 3},
        "search_space": {
            "learning_rate": {"low": 1e-5, "high": 3e-3, "log": True},
            "gamma": {"low": 0.9, "high": 0.98, "complement": True},
            "num_epochs": {"choices": [1, 2, 4]},
        },
    }
    world = make_world({**DUEL, "populations": {"player": population}}, joined=1, learning=by_rate)
    world.run()
    config = world.state.settings.config
    run_file = new_run_file(config, duel_spec(), name="test", launch_directory=".")
    return write_run(tmp_path_factory.mktemp("study") / "run", run_file, world.committed)


@pytest.fixture
def inspection(run_dir: Path) -> Iterator[Inspection]:
    found = Inspection.open(run_dir)
    yield found
    found.close()


@pytest.mark.slow
def test_optuna_reads_every_generation_and_finds_the_best(
    inspection: Inspection, tmp_path: Path
) -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    file = tmp_path / "study.db"
    name = study_name(inspection.tables.run.run, "player")
    generations = list(inspection.tables.generations.values())
    assert write_studies(inspection, file) == {name: len(generations)}
    storage = optuna.storages.RDBStorage(f"sqlite:///{file}")
    try:
        study = optuna.load_study(study_name=name, storage=storage)
        trials = study.trials
        best, unit = study.best_trial, study.user_attrs["value"]
    finally:
        storage.remove_session()
        storage.engine.dispose()
    assert len(trials) == len(generations) >= 6
    rates = []
    for trial, row in zip(trials, generations, strict=True):
        for parameter, value in trial.params.items():
            assert value == row.hyperparameters[parameter]
        assert (
            {"learning_rate", "gamma"}
            <= set(trial.params)
            <= set(inspection.run_file.config.populations["player"].search_space)
        )
        assert ("num_epochs" in trial.params) == (row.hyperparameters["num_epochs"] in (1, 2, 4))
        assert trial.user_attrs["other_hyperparameters"]["clip_coef"] == 0.25
        assert (trial.user_attrs["policy"], trial.user_attrs["generation"]) == (
            row.policy, row.generation)  # fmt: skip
        assert trial.user_attrs["cause"] == row.cause
        assert trial.user_attrs["parent"] == row.parent
        assert trial.user_attrs["agent_steps_end"] == row.agent_steps_end
        if trial.state == TrialState.COMPLETE:
            assert trial.value is not None
            rates.append(trial.value)
        else:
            assert trial.value is None
            # The run has ended, so no trial is running.
            assert trial.state == TrialState.PRUNED
    assert best.value == max(rates)
    assert unit == "Elo gained per million agent steps"


def test_generations_without_an_end_run_as_long_as_the_run(inspection: Inspection) -> None:
    def states(run: Inspection) -> list[TrialState]:
        trials = trials_of(run, "player")
        return [one.state for one in trials if one.user_attrs["agent_steps_end"] is None]

    ended = states(inspection)
    assert TrialState.COMPLETE in ended
    assert TrialState.RUNNING not in ended
    inspection.tables.run = structs.replace(inspection.tables.run, state="running")
    assert set(states(inspection)) == {TrialState.RUNNING}


def test_gains_of_trials_are_those_of_the_view_lineage_by_one_fit(inspection: Inspection) -> None:
    lines = cast("list[dict[str, Any]]", lineage_document(inspection, None)["generations"])
    trials, compared, moved = trials_of(inspection, "player"), 0, 0
    for trial, line in zip(trials, lines, strict=True):
        found = trial.user_attrs
        assert (found["rating_begin"], found["rating_end"]) == (line["elo_begin"], line["elo_end"])
        if trial.state != TrialState.COMPLETE:
            continue
        assert trial.value is not None
        gain = trial.value * found["gain_agent_steps"] / 1e6
        assert gain == pytest.approx(line["elo_end"] - line["elo_begin"])
        half = 1.96 * found["gain_deviation"]
        assert line["elo_gain_high"] - line["elo_gain_low"] == pytest.approx(2 * half, rel=1e-4)
        compared += 1
        # The fits at the ends of generations differ from the last fit.
        if line["rating_end"] is not None:
            moved += abs(line["rating_end"] - line["elo_end"]) > 1.0
    assert compared >= 3
    assert moved >= 1


def test_distributions_are_those_of_the_search_space_or_as_wide_as_the_value_needs(
    inspection: Inspection,
) -> None:
    reference, *_, last = trials_of(inspection, "player")
    # The reference member starts at gamma 0.99, above the search space.
    assert reference.params["gamma"] == 0.99
    assert reference.distributions["gamma"] == FloatDistribution(0.9, 0.99)
    assert reference.distributions["learning_rate"] == FloatDistribution(1e-5, 3e-3, log=True)
    assert last.distributions["gamma"] == FloatDistribution(0.9, 0.98)
    assert last.distributions["num_epochs"] == CategoricalDistribution((1, 2, 4))


@pytest.mark.slow
def test_a_study_is_written_once_and_other_runs_may_be_in_the_file(
    inspection: Inspection, tmp_path: Path
) -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    file = tmp_path / "study.db"
    write_studies(inspection, file)
    with pytest.raises(ConfigError, match="has a study of this run already"):
        write_studies(inspection, file)
    tables = replace(inspection.tables, run=structs.replace(inspection.tables.run, run="another"))
    assert write_studies(replace(inspection, tables=tables), file) == {
        "player-another": len(tables.generations)
    }
    assert write_studies(inspection, tmp_path / "none.db", population="nobody") == {}
    with pytest.raises(ConfigError, match="there is no directory"):
        write_studies(inspection, tmp_path / "nowhere" / "study.db")
    (tmp_path / "no.db").write_text("this is no database, whatever its name says" * 100)
    with pytest.raises(ConfigError, match="not a database"):
        write_studies(inspection, tmp_path / "no.db")


def test_each_role_has_a_study_of_its_own(inspection: Inspection, tmp_path: Path) -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    tables = inspection.tables
    policies = tables.policies.copy()
    exploiter = list(policies)[-1]
    policies[exploiter] = structs.replace(policies[exploiter], role="main_exploiter")
    with_roles = replace(inspection, tables=replace(tables, policies=policies))
    own = [row for row in tables.generations.values() if row.policy == exploiter]
    assert 0 < len(own) < len(tables.generations)
    run = tables.run.run
    assert write_studies(with_roles, tmp_path / "study.db") == {
        study_name(run, "player"): len(tables.generations) - len(own),
        study_name(run, "player", role="main_exploiter"): len(own),
    }
    of_exploiter = trials_of(with_roles, "player", role="main_exploiter")
    assert {trial.user_attrs["policy"] for trial in of_exploiter} == {exploiter}


@pytest.mark.slow
@pytest.mark.integration
def test_optuna_dashboard_opens_the_file(inspection: Inspection, tmp_path: Path) -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    file = tmp_path / "study.db"
    (count,) = write_studies(inspection, file).values()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = Path(sys.executable).parent / "optuna-dashboard"
    command = [str(program), f"sqlite:///{file}", "--host", "127.0.0.1", "--port", str(port)]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30.0) as client:
            wait_until(lambda: _answers(client, process), timeout_s=60.0)
            (study,) = client.get("/api/studies").json()["study_summaries"]
            found = client.get(f"/api/studies/{study['study_id']}", params={"after": 0}).json()
            page = client.get("/dashboard/")
    finally:
        process.terminate()
        process.wait(timeout=30.0)
    assert study["study_name"] == study_name(inspection.tables.run.run, "player")
    assert study["directions"] == ["maximize"]
    assert len(found["trials"]) == count
    names = {one["name"] for trial in found["trials"] for one in trial["params"]}
    assert names == {"learning_rate", "gamma", "num_epochs"}
    assert any(trial["state"] == "Complete" and trial["values"] for trial in found["trials"])
    assert page.status_code == 200


def _answers(client: httpx.Client, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "the dashboard has ended"
    try:
        return client.get("/api/studies").status_code == 200
    except httpx.TransportError:
        return False
