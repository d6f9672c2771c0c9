"""Differences of two planted runs, by numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from arena.errors import ConfigError
from arena.types import (
    RANDOM_BOT,
    Entrant,
    PolicyId,
)
from populations.config.resume import compare
from populations.config.run_config import validate_config
from populations.config.run_file import RunFile, new_run_file
from populations.records.aggregates import Row
from populations.records.rows import AlertRow, RatingsRow, RunRow
from populations.views.differences import diff_document
from populations.views.questions.diff import labels_of
from populations.views.questions.inspection import Inspection
from tests.populations.rows import (
    make_checkpoint,
    make_event,
    make_generation,
    make_policy,
    make_ratings,
)
from tests.populations.small_run import duel_run_file
from tests.populations.views.test_ratings import tally
from tests.support import write_run

BOT = "bot:tests.bots:Strong"


def run_file(config: Mapping[str, object], spec: Mapping[str, Any] | None = None) -> RunFile:
    """Return the file of a run of the duel with other keys, or of another environment."""
    sound = replace(duel_run_file().spec, **(spec or {}))
    populations = config.get("populations", {"player": {}})
    return new_run_file(
        validate_config({"environment": {"id": sound.id}, **config, "populations": populations}),
        sound,
        name="test",
        launch_directory=".",
    )


def policy(number: int, steps: int, *, rate: float) -> list[Row]:
    """Return a policy with one checkpoint, whose weights are named by its number."""
    name = PolicyId(f"player/p{number:03d}")
    checkpoint = make_checkpoint(
        f"populations/player/p{number:03d}/checkpoints/{steps}",
        digest="c" * 63 + str(number),
        weights_digest="a" * 63 + str(number),
        policy=name,
        generation=1,
        agent_steps=steps,
    )
    return [
        checkpoint,
        make_policy(
            name,
            index=number,
            generation=1,
            agent_steps=steps,
            checkpoint=checkpoint.key,
            hyperparameters={"learning_rate": rate},
        ),
    ]


def rated(*ratings: tuple[str, float], optimism: float = 0.0) -> RatingsRow:
    """Return ratings with a deviation of 10; bot:random is at 0."""
    return make_ratings(
        entrants=tuple(Entrant(name) for name, _ in ratings),
        ratings=tuple(rating for _, rating in ratings),
        deviations=tuple(0.0 if name == RANDOM_BOT else 10.0 for name, _ in ratings),
        optimism=optimism,
        champion=max(ratings, key=lambda one: one[1])[0],
    )


ONE = "a" * 63 + "0"


def write(run_dir: Path, file: RunFile, *rows: Row) -> Path:
    return write_run(run_dir, file, rows, is_folded=False)


def first_run(run_dir: Path, file: RunFile | None = None) -> Path:
    """Write a run of two policies: p000 leads, and has beaten the strong bot in 9 of 10 matches."""
    return write(
        run_dir,
        file or run_file({"seed": 1, "pbt": {"min_rating_gap": 30.0}}),
        RunRow(
            run="one",
            state="finished",
            reason="done",
            elapsed_s=30.0,
            agent_steps=6_000,
            matches=110,
            training_s=40.0,
            evaluation_s=10.0,
        ),
        *policy(0, 3_000, rate=0.001),
        *policy(1, 2_900, rate=0.002),
        *(make_generation(f"player/p00{n}", index) for n in (0, 1) for index in (0, 1)),
        tally(1, ONE, RANDOM_BOT, 10, 0),
        tally(2, ONE, BOT, 9, 1),
        tally(3, "a" * 63 + "1", "bot:tests.bots:Weak", 4, 0),
        rated(
            *((RANDOM_BOT, 0.0), (ONE, 300.0), ("a" * 63 + "1", 100.0), (BOT, 150.0)),
            optimism=20.0,
        ),
        make_event("exploited", "player/p001"),
        make_event("exploited", "player/p000", sequence=2),
        make_event("explored", "player/p001", sequence=3),
        AlertRow(
            name="kl_high",
            subject="player",
            what="kl is 0.2",
            advice="lower the rate",
            source="player/p001",
        ),
    )


def second_run(run_dir: Path, file: RunFile | None = None) -> Path:
    """Write a run of one policy, which has won 5 of 10 matches against the strong bot."""
    return write(
        run_dir,
        file or run_file({"seed": 2, "pbt": {"min_rating_gap": 50.0}}),
        RunRow(run="two", state="stopped", elapsed_s=60.0, agent_steps=9_000, matches=20),
        *policy(0, 9_000, rate=0.003),
        make_generation("player/p000", 0),
        tally(1, ONE, BOT, 5, 5),
        tally(2, RANDOM_BOT, ONE, 0, 10),
        rated((RANDOM_BOT, 0.0), (ONE, 50.0), (BOT, 60.0)),
        make_event("quarantined", "player/p000"),
        # The event is about a population that this run does not have.
        make_event("exploited", "prey/p000", sequence=2),
    )


def differences(one: Path, two: Path | None, population: str | None = None) -> Any:
    with closing(Inspection.open(one)) as run:
        return cast(Any, diff_document(run, population, other=two))


def by_key(entries: list[Any]) -> dict[str, tuple[Any, Any]]:
    return {entry["key"]: (entry["first"], entry["second"]) for entry in entries}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("runs")
    one, two = first_run(root / "one"), second_run(root / "two")
    return differences(one, two), root


def leaves(value: object) -> int:
    """Count the values of a nested dictionary that are no filled dictionary."""
    if isinstance(value, dict) and value:
        return sum(map(leaves, value.values()))
    return 1


def test_keys_that_differ_have_both_values_and_the_others_are_counted(planted: Any) -> None:
    configuration = planted[0]["configuration"]
    # The population's value follows the run's, so it is not repeated.
    assert by_key(configuration["different"]) == {
        "seed": (1, 2),
        "pbt.min_rating_gap": (30.0, 50.0),
    }
    config = RunFile.load(planted[1] / "one" / "run.yaml").config
    assert configuration["equal"] == leaves(config.model_dump(mode="json")) - 3
    assert planted[0]["versions"]["different"] == []
    assert planted[0]["versions"]["equal"] >= 1


def test_a_key_that_one_side_lacks_is_null_there() -> None:
    changes = compare({"a": {"b": 1, "c": {}}}, {"a": {"c": {}, "d": [1]}})
    assert [(one.key, one.before, one.after) for one in changes] == [
        ("a.b", 1, None),
        ("a.c", {}, {}),
        ("a.d", None, [1]),
    ]


def test_a_populations_key_is_told_where_it_differs_otherwise_than_the_runs(
    tmp_path: Path,
) -> None:
    own = {"player": {"pbt": {"min_rating_gap": 40.0}}}
    file = run_file({"pbt": {"min_rating_gap": 50.0}, "populations": own})
    one, two = first_run(tmp_path / "one"), second_run(tmp_path / "two", file)
    assert by_key(differences(one, two)["configuration"]["different"]) == {
        "populations.player.pbt.min_rating_gap": (30.0, 40.0),
        "pbt.min_rating_gap": (30.0, 50.0),
    }


def test_versions_that_differ_are_named(tmp_path: Path) -> None:
    older = run_file({})
    file = replace(older, versions={**older.versions, "numpy": "1.0.0", "old": "3"})
    one, two = first_run(tmp_path / "one", older), second_run(tmp_path / "two", file)
    versions = differences(one, two)["versions"]
    assert by_key(versions["different"]) == {
        "numpy": (older.versions["numpy"], "1.0.0"),
        "old": (None, "3"),
    }
    assert versions["equal"] == len(older.versions) - 1


def test_figures_are_of_the_work_of_each(planted: Any) -> None:
    figures = by_key(planted[0]["figures"])
    assert figures["agent_steps"] == (6_000, 9_000)
    assert figures["matches"] == (110, 20)
    assert figures["state"] == ("finished", "stopped")
    assert figures["elapsed_s"] == (30.0, 60.0)
    # 6,000 / 30 and 9,000 / 60; per training second 6,000 / 40, and the second run's time is
    # unknown.
    assert figures["mean_agent_steps_per_s"] == (200.0, 150.0)
    assert figures["agent_steps_per_training_s"] == (150.0, None)
    # 10 of 50 learner seconds.
    assert figures["evaluation_share"] == (0.2, None)
    assert figures["checkpoints"] == (2, 1)
    assert figures["environment"] == ("tests.duel:env", "tests.duel:env")
    digests = figures["environment_digest"]
    assert digests[0] == digests[1] == duel_run_file().spec.digest


def test_what_pbt_did_is_counted_by_population(planted: Any) -> None:
    evolution = by_key(planted[0]["evolution"])
    assert {entry["population"] for entry in planted[0]["evolution"]} == {"player"}
    assert evolution == {
        "policies": (2, 1),
        "generations": (4, 1),
        "exploited": (2, 0),
        "explored": (1, 0),
        "immigrated": (0, 0),
        "kept": (0, 0),
        "reset": (0, 0),
        "quarantined": (0, 1),
    }


def test_policies_stand_side_by_side_by_place_each_on_its_scale(planted: Any) -> None:
    standings = by_key(planted[0]["standings"])
    assert list(standings) == ["1", "2"]
    first, second = standings["1"]
    # The rating is 300 less the optimism, with 1.96 standard deviations of 10 on each side.
    assert (first["player"], first["rating"], first["agent_steps"]) == ("player/p000", 280.0, 3_000)
    assert (first["rating_low"], first["rating_high"]) == pytest.approx((260.4, 299.6), abs=0.05)
    # 10 + 10 matches are evaluation matches.
    assert (second["rating"], second["matches"]) == (50.0, 20)
    assert standings["2"][0]["player"] == "player/p001"
    assert standings["2"][1] is None


def test_champions_have_their_ratings_and_hyperparameters(planted: Any) -> None:
    first, second = by_key(planted[0]["champions"])["champion"]
    # The values are those of the standings.
    assert (first["player"], first["rating"]) == ("player/p000", 280.0)
    assert first["rating_low"] == pytest.approx(260.4, abs=0.05)
    assert (first["hyperparameters"], second["hyperparameters"]) == (
        {"learning_rate": 0.001},
        {"learning_rate": 0.003},
    )


def test_bots_of_both_runs_have_the_results_of_both_champions(planted: Any) -> None:
    met_both = by_key(planted[0]["opponents"])
    # Only the first run played the weak bot.
    assert set(met_both) == {RANDOM_BOT, BOT}
    first, second = met_both[BOT]
    assert (first["matches"], first["score"], first["rating"]) == (10, 0.9, 150.0)
    # Wilson's interval of 9 of 10: 0.596 to 0.982; of 5 of 10: 0.237 to 0.763.
    assert (first["score_low"], first["score_high"]) == pytest.approx((0.596, 0.982), abs=5e-4)
    assert (second["matches"], second["score"], second["rating"]) == (10, 0.5, 60.0)
    assert (second["score_low"], second["score_high"]) == pytest.approx((0.237, 0.763), abs=5e-4)
    # The second run's champion sat in the second seat.
    assert [one["score"] for one in met_both[RANDOM_BOT]] == [1.0, 1.0]


def test_alerts_of_each_run_are_told(planted: Any) -> None:
    assert planted[0]["alerts"] == [
        {"subject": "player", "key": "kl_high", "first": "kl is 0.2", "second": None}
    ]


def test_scales_are_compared_by_anchors_and_matches_alone(planted: Any) -> None:
    document, root = planted
    (note,) = document["notes"]
    assert "only through their anchor, bot:random at 0" in note
    assert f"({BOT})" in note
    assert document["same_environment"] is True
    command = f"arena evaluate {root / 'one'} {root / 'two'}"
    assert document["evaluate"] == {"command": command, "reason": None}


def test_paths_are_quoted_for_a_shell(tmp_path: Path) -> None:
    one, two = first_run(tmp_path / "my runs" / "one"), second_run(tmp_path / "two")
    command = differences(one, two)["evaluate"]["command"]
    assert command == f"arena evaluate '{tmp_path}/my runs/one' {tmp_path}/two"


def of_actions(action: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that differ where both agents act in a space."""
    specs = duel_run_file().spec.agent_specs
    return {"agent_specs": {name: replace(facts, action=action) for name, facts in specs.items()}}


BOX = of_actions(
    {"kind": "Box", "shape": [2], "dtype": "float32", "low": [-1.0] * 2, "high": [1.0] * 2}
)
DISCRETE = of_actions({"kind": "Discrete", "n": 3, "start": 0})


def clipped(spec: dict[str, Any]) -> RunFile:
    """Return the file of a run whose actions are clipped to their bounds."""
    environment = {"id": "tests.duel:env", "continuous_actions": "clipped"}
    return run_file({"environment": environment}, spec)


def split() -> RunFile:
    agents = ("player_0", "player_1")
    populations = {name: {"agents": [agent]} for name, agent in zip("ab", agents, strict=True)}
    return run_file({"populations": populations})


def told_who() -> RunFile:
    return run_file({"populations": {"player": {"network": {"agent_id": True}}}})


@pytest.mark.parametrize(
    ("one", "two", "reason"),
    [
        (None, run_file({}, {"kwargs": {"size": 3}}), "the runs play different environments"),
        (
            run_file({}, BOX),
            clipped(BOX),
            "the runs differ in environment.continuous_actions",
        ),
        (None, told_who(), "the runs differ in network.agent_id"),
        # The key has no meaning without a Box space.
        (run_file({}, DISCRETE), clipped(DISCRETE), None),
    ],
)
def test_champions_meet_only_where_the_command_takes_them(
    tmp_path: Path, one: RunFile | None, two: RunFile, reason: str | None
) -> None:
    runs = first_run(tmp_path / "one", one), second_run(tmp_path / "two", two)
    evaluate = differences(*runs)["evaluate"]
    assert evaluate["reason"] == reason
    assert (evaluate["command"] is None) == (reason is not None)


def test_runs_of_different_environments_are_said_to_be_so(tmp_path: Path) -> None:
    other = run_file({}, {"id": "tests.other:env"})
    one, two = first_run(tmp_path / "one"), second_run(tmp_path / "two", other)
    document = differences(one, two)
    assert document["same_environment"] is False
    (note,) = document["notes"]
    assert "different environments, tests.duel:env and tests.other:env" in note
    assert by_key(document["configuration"]["different"])["environment.id"] == (
        "tests.duel:env",
        "tests.other:env",
    )


def test_populations_of_one_run_alone_have_nothing_beside_them(tmp_path: Path) -> None:
    one = first_run(tmp_path / "one")
    two = write(tmp_path / "two", split(), RunRow(run="two"))
    document = differences(one, two)
    assert document["evaluate"]["reason"] == (
        "the runs divide their agents into different populations"
    )
    policies = [
        (entry["population"], entry["first"], entry["second"])
        for entry in document["evolution"]
        if entry["key"] == "policies"
    ]
    assert policies == [("player", 2, None), ("a", None, 0), ("b", None, 0)]
    assert [entry["second"] for entry in document["champions"]] == [None]
    alone = differences(one, two, population="player")
    assert {entry["population"] for entry in alone["evolution"]} == {"player"}


def test_a_run_without_a_champion_and_the_same_run_are_named(tmp_path: Path) -> None:
    one = first_run(tmp_path / "one")
    begun = write(tmp_path / "begun", run_file({}), RunRow(run="begun"))
    document = differences(one, begun)
    assert document["evaluate"] == {"command": None, "reason": "begun has no champion yet"}
    assert document["opponents"] == []
    itself = differences(one, one)
    assert itself["evaluate"]["reason"] == "both are the same run"
    assert itself["configuration"]["different"] == []


def test_labels_are_the_last_parts_that_differ(tmp_path: Path) -> None:
    assert labels_of(tmp_path / "a", tmp_path / "b") == ("a", "b")
    assert labels_of(tmp_path / "a" / "run", tmp_path / "b" / "run") == ("a/run", "b/run")
    assert labels_of(tmp_path, tmp_path)[0].endswith(tmp_path.name)


def test_a_second_run_must_be_there(tmp_path: Path) -> None:
    one = first_run(tmp_path / "one")
    with pytest.raises(ConfigError, match=r"nowhere is no run directory: it has no run\.yaml"):
        differences(one, tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="needs the directory of a second run"):
        differences(one, None)
