from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from arena.config import RandomOpenings
from arena.environment_spec import AgentSpec, EnvironmentSpec
from arena.envs.probe.pace import Pace
from arena.errors import ConfigError
from populations.config.hooks import HooksConfig
from populations.config.run_config import RunConfig, load_config, validate_config
from populations.config.run_file import (
    RunFile,
    check_resume,
    content_digest,
    learner_setup,
    new_run_file,
    with_config,
)
from populations.errors import ResumeRefused, StorageError

SPEC = EnvironmentSpec(
    id="classic/connect_four-v3",
    kwargs={"screen_scaling": 9},
    api="aec",
    agents=("player_0", "player_1"),
    agent_specs={
        agent: AgentSpec(
            observation={
                "kind": "Box",
                "shape": [6, 7, 2],
                "dtype": "float32",
                "low": 0.0,
                "high": "1e6",
            },
            action={"type": "Discrete", "n": 7},
            mask="observation",
        )
        for agent in ("player_0", "player_1")
    },
    versions={"pettingzoo": "1.27.0"},
)

SEEN = AgentSpec(
    observation={"kind": "Box", "shape": [2], "dtype": "float32", "low": 0.0, "high": 1.0},
    action={"kind": "Discrete", "n": 7, "start": 0},
    mask=None,
)


@pytest.fixture
def run_file() -> RunFile:
    return new_run_file(
        load_config("connect_four", ["learners=2"]),
        SPEC,
        name="connect_four",
        launch_directory="/somewhere",
    )


def test_loading_gives_back_what_was_saved(tmp_path: Path, run_file: RunFile) -> None:
    run_file.save(tmp_path / "run.yaml")
    loaded = RunFile.load(tmp_path / "run.yaml")
    assert loaded == run_file
    assert loaded.spec.digest == run_file.spec.digest
    assert [path.name for path in tmp_path.iterdir()] == ["run.yaml"]


def test_a_new_run_has_an_id_of_its_own_and_records_versions(run_file: RunFile) -> None:
    other = new_run_file(run_file.config, SPEC, name="x", launch_directory="")
    assert other.run != run_file.run
    assert run_file.versions["pettingzoo"] == "1.27.0"
    assert run_file.versions["torch"].startswith("2.")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is no run directory"),
        ("format_version: 1", "is required"),
        ("[1]", "must be a mapping"),
        ("a: &x 1", "anchors"),
    ],
)
def test_what_is_no_run_file_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "run.yaml").write_text(content)
    with pytest.raises(ConfigError, match=message) as error_info:
        RunFile.load(tmp_path / "run.yaml")
    assert str(tmp_path) in str(error_info.value)


def test_a_newer_format_is_refused(tmp_path: Path, run_file: RunFile) -> None:
    run_file.save(tmp_path / "run.yaml")
    text = (tmp_path / "run.yaml").read_text()
    newer = text.replace("format_version: 1", "format_version: 2\nunknown: 1")
    (tmp_path / "run.yaml").write_text(newer)
    with pytest.raises(ConfigError, match="format version 2; this release reads 1: upgrade"):
        RunFile.load(tmp_path / "run.yaml")


def test_what_is_no_file_or_too_long_has_no_content(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    (hole := tmp_path / "hole").touch()
    os.truncate(hole, 6 << 30)
    for path in (pipe, hole, tmp_path):
        # The digest neither waits for a pipe nor reads a device without end.
        with pytest.raises(ConfigError, match=r"not a regular file|must have at most|directory"):
            content_digest(path)


def test_how_the_environment_played_is_kept(tmp_path: Path) -> None:
    pace = Pace(
        episode_length=21.5,
        is_lower_bound=False,
        step_s=2e-4,
        env_bytes=0,
        is_batched=True,
        machine_bytes=1 << 34,
    )
    spec = replace(SPEC, agent_specs=dict.fromkeys(SPEC.agents, SEEN))
    made = new_run_file(
        validate_config({"environment": {"id": SPEC.id}, "learners": 2, "deterministic": True}),
        spec,
        name="x",
        launch_directory="",
        pace=pace,
    )
    made.save(tmp_path / "run.yaml")
    loaded = RunFile.load(tmp_path / "run.yaml")
    assert loaded == made
    assert loaded.environment_measured is not None
    assert loaded.environment_measured.episode_length == 21.5
    # 16,384 / (256 x 21.5) = 2.98.
    assert (loaded.config.environment.num_envs, loaded.config.assignment.episodes) == (256, 3)
    assert learner_setup(loaded, root=tmp_path).num_envs == 256


def test_a_learner_is_told_a_number(tmp_path: Path, run_file: RunFile) -> None:
    environment = run_file.config.environment.model_copy(update={"num_envs": "auto"})
    unsized = with_config(run_file, run_file.config.model_copy(update={"environment": environment}))
    with pytest.raises(ConfigError, match=r"environment\.num_envs must be a number for a learner"):
        _ = learner_setup(unsized, root=tmp_path).num_envs


def test_a_directory_that_is_not_there_is_a_storage_error(
    tmp_path: Path, run_file: RunFile
) -> None:
    with pytest.raises(StorageError, match="cannot write"):
        run_file.save(tmp_path / "missing" / "run.yaml")


def test_a_learner_finds_the_store_from_any_directory(run_file: RunFile) -> None:
    assert learner_setup(run_file, root=Path("runs/x")).root == str(Path.cwd() / "runs" / "x")


def test_learners_agree_wherever_the_store_is(run_file: RunFile, tmp_path: Path) -> None:
    here = learner_setup(run_file, root=tmp_path)
    there = learner_setup(run_file, root=Path("/elsewhere"))
    assert here.digest == there.digest
    assert [seat.name for seat in here.seats] == ["player_0", "player_1"]
    assert here.populations["player"].agents == ("player_0", "player_1")
    assert here.spec == SPEC
    assert here.launch_directory == "/somewhere"
    other = replace(run_file, run="another")
    assert learner_setup(other, root=tmp_path).digest != here.digest


def test_greedy_matches_part_learners_and_chance_does_not(
    run_file: RunFile, tmp_path: Path
) -> None:
    assert not learner_setup(run_file, root=tmp_path).repeats_games
    config = load_config("connect_four", ["learners=2", "evaluation.greedy=true"])
    setups = {}
    for chance in (False, True, None):
        spec = replace(SPEC, chance=chance)
        greedy = replace(
            new_run_file(config, spec, name="x", launch_directory="/somewhere"), run=run_file.run
        )
        greedy.save(tmp_path / "run.yaml")
        setups[chance] = learner_setup(RunFile.load(tmp_path / "run.yaml"), root=tmp_path)
    assert {chance: setup.repeats_games for chance, setup in setups.items()} == {
        False: True, True: False, None: True,
    }  # fmt: skip
    assert all(setup.greedy_matches for setup in setups.values())
    assert len({setup.digest for setup in setups.values()}) == 1
    assert setups[False].digest != learner_setup(run_file, root=tmp_path).digest
    assert config.inspection(launch_directory="").asks_chance
    with pytest.raises(ResumeRefused, match=r"evaluation.greedy is True .* never in one fit"):
        check_resume(greedy, config=None, overrides=["evaluation.greedy=false"])
    share = "evaluation.random_openings.share"
    with pytest.raises(ResumeRefused, match=rf"{share} is 0.0 .* never in one fit"):
        check_resume(greedy, config=None, overrides=[f"{share}=1"])
    evaluation = run_file.config.evaluation.model_copy(
        update={"greedy": True, "random_openings": RandomOpenings(share=1.0)}
    )
    config = run_file.config.model_copy(update={"evaluation": evaluation})
    setup = learner_setup(with_config(run_file, config), root=tmp_path)
    assert not setup.repeats_games
    assert setup.digest not in {one.digest for one in setups.values()}


@pytest.mark.parametrize("names_its_configuration", [False, True])
def test_an_empty_mapping_at_a_resume_empties_a_section(
    run_file: RunFile, tmp_path: Path, names_its_configuration: bool
) -> None:
    hooks = "hooks={on_end: ['a:b'], on_ghost: [[notify]], time_limit_s: 7.0}"
    hooked, _ = check_resume(run_file, config=None, overrides=[hooks])
    old = with_config(run_file, hooked)
    old.save(tmp_path / "run.yaml")
    source = tmp_path / "as_given.yaml"
    source.write_text(json.dumps(hooked.model_dump(mode="json")))
    empty = ["hooks={}"]
    given = load_config(source, empty, resumes=True) if names_its_configuration else None
    config, changes = check_resume(
        RunFile.load(tmp_path / "run.yaml"), config=given, overrides=empty
    )
    assert config.hooks == HooksConfig()
    assert {change.key: change.after for change in changes} == {
        "hooks.on_end": [],
        "hooks.on_ghost": [],
        "hooks.time_limit_s": 60.0,
    }


def test_of_several_devices_a_learner_of_elsewhere_has_the_first(
    run_file: RunFile, tmp_path: Path
) -> None:
    config, changes = check_resume(run_file, config=None, overrides=["device=[cuda:1, cpu]"])
    assert [(change.key, change.before, change.after) for change in changes] == [
        ("device", "auto", ["cuda:1", "cpu"])
    ]
    moved = with_config(run_file, config)
    moved.save(tmp_path / "run.yaml")
    setup = learner_setup(RunFile.load(tmp_path / "run.yaml"), root=tmp_path)
    assert setup.device == "cuda:1"
    assert setup.digest == learner_setup(run_file, root=tmp_path).digest


def test_a_resume_without_config_changes_nothing(run_file: RunFile) -> None:
    assert check_resume(run_file, config=None) == (run_file.config, ())


def test_a_resume_may_change_when_it_stops_and_who_works(run_file: RunFile) -> None:
    overrides = [
        "stop.duration_s=600",
        "learners=1",
        "device=cpu",
        "evaluation.share=0.2",
        "metrics.sinks=[jsonl]",
    ]
    config, changes = check_resume(run_file, config=None, overrides=overrides)
    assert {change.key: (change.before, change.after) for change in changes} == {
        "stop.duration_s": (180.0, 600.0),
        "learners": (2, 1),
        "device": ("auto", "cpu"),
        "evaluation.share": (0.05, 0.2),
        "metrics.sinks": (["tensorboard", "jsonl"], ["jsonl"]),
    }
    assert config.stop.duration_s == 600.0
    assert config.populations == run_file.config.populations


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("evaluation.bots=['bot:random', 'bot:a.b:C']", "evaluation.bots"),
        ("matchmaking.bots={'bot:a.b:C(depth=3)': 0.1}", "matchmaking.bots.bot:a.b:C(depth=3)"),
        ("matchmaking.kind=uniform", "matchmaking.kind"),
        ("populations.player.hyperparameters.gamma=0.5",
         "populations.player.hyperparameters.gamma"),
        ("populations.player.search_space.gamma.low=0.5",
         "populations.player.search_space.gamma.low"),
        ("populations.player.pbt.ready_agent_steps=7", "populations.player.pbt.ready_agent_steps"),
        ("ghosts.every_agent_steps=1", "ghosts.every_agent_steps"),
        ("checkpoints.keep=9", "checkpoints.keep"),
    ],
)  # fmt: skip
def test_a_resume_may_change_how_the_league_goes_on(
    run_file: RunFile, override: str, key: str
) -> None:
    _, changes = check_resume(run_file, config=None, overrides=[override])
    assert [change.key for change in changes] == [key]


def test_populations_follow_a_change_of_pbt_but_for_what_is_their_own() -> None:
    overrides = [
        "populations={one: {agents: [player_0]}, two: {agents: [player_1]}}",
        "populations.two.pbt={fraction: 0.5, immigration: {probability: 0.9}}",
        "pbt.immigration.probability=0.7",
    ]
    made = new_run_file(
        load_config("connect_four", overrides), SPEC, name="two", launch_directory="/somewhere"
    )
    told: list[str] = []
    changes = [
        *("pbt.exploit=none", "pbt.fraction=0.3", "pbt.immigration.probability=0.8"),
        *("pbt.min_matches=30", "populations.one.pbt.min_matches=40"),
    ]
    config, _ = check_resume(made, config=None, overrides=changes, notify=told.append)
    found = {
        name: (pbt.exploit, pbt.fraction, pbt.immigration.probability, pbt.min_matches)
        for name in ("one", "two")
        for pbt in [config.pbt_of(name)]
    }
    assert found == {"one": ("none", 0.3, 0.8, 40), "two": ("none", 0.5, 0.9, 30)}
    assert told == [
        "populations.two.pbt.fraction is its own, and stays 0.5",
        "populations.two.pbt.immigration.probability is its own, and stays 0.9",
    ]
    # A resolved value is resolved to the same value again.
    again, _ = check_resume(with_config(made, config), config=None, overrides=["pbt.exploit=none"])
    assert again == config
    back, _ = check_resume(
        with_config(made, config), config=None, overrides=["pbt.exploit=binary_tournament"]
    )
    assert {back.pbt_of(name).exploit for name in ("one", "two")} == {"binary_tournament"}


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("populations.player.size=5", "populations.player.size"),
        ("populations.player.network.hidden_sizes=[3]",
         "populations.player.network.hidden_sizes"),
        ("pbt.immigration.from=[runs/a]", "pbt.immigration.from"),
        ("matchmaking.bots={runs/a/champion: 0.1}", "matchmaking.bots.runs/a/champion"),
        ("environment.num_envs=8", "environment.num_envs"),
        ("environment.outcome={info: winner}", "environment.outcome"),
        ("precision=float32", "precision"),
    ],
)  # fmt: skip
def test_any_other_difference_is_refused_by_its_key(
    run_file: RunFile, override: str, key: str
) -> None:
    with pytest.raises(ResumeRefused) as error_info:
        check_resume(run_file, config=None, overrides=["stop.duration_s=9", override])
    assert str(error_info.value).startswith(f"{key} is ")


def test_a_config_that_is_given_must_agree(run_file: RunFile) -> None:
    given = load_config("connect_four", ["learners=2", "stop.duration_s=300"])
    config, changes = check_resume(run_file, config=given)
    assert [change.key for change in changes] == ["stop.duration_s"]
    assert config.stop.duration_s == 300
    with pytest.raises(ResumeRefused, match=r"^environment\.id is"):
        check_resume(run_file, config=load_config("tictactoe"))


def test_an_unknown_key_is_a_mistake_at_a_resume_too(run_file: RunFile) -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'stop\.duration_s'"):
        check_resume(run_file, config=None, overrides=["stop.duration=3"])


def test_a_config_of_plain_data_survives_the_file(tmp_path: Path) -> None:
    document = {
        "environment": {"id": "a.b:c", "kwargs": {"text": "1e6", "number": 0.5, "none": None}}
    }
    config: RunConfig = validate_config(document)
    run_file = new_run_file(config, SPEC, name="x", launch_directory="")
    run_file.save(tmp_path / "run.yaml")
    loaded = RunFile.load(tmp_path / "run.yaml")
    assert loaded.config.environment.kwargs == {"text": "1e6", "number": 0.5, "none": None}


def test_all_that_is_refused_is_named_with_what_may_change(run_file: RunFile) -> None:
    overrides = ["seed=2", "payoffs.half_life_matches=7", "stop.duration_s=9"]
    with pytest.raises(ResumeRefused) as error_info:
        check_resume(run_file, config=None, overrides=overrides)
    text = str(error_info.value)
    before = run_file.config
    assert f"seed is {before.seed} in this run and cannot become 2 (draws go on from it)" in text
    assert f"payoffs.half_life_matches is {before.payoffs.half_life_matches} in this run" in text
    assert "only stop, learners, endpoint" in text
    assert "--init-from" in text
    assert "stop.duration_s is" not in text


def test_a_resume_reads_other_names_of_hyperparameters_too(run_file: RunFile) -> None:
    notices: list[str] = []
    rate = run_file.config.populations["player"].hyperparameters["learning_rate"]
    key = "populations.player.hyperparameters.lr"
    config, changes = check_resume(
        run_file, config=None, overrides=[f"{key}={rate}"], notify=notices.append
    )
    assert (config, changes) == (run_file.config, ())
    assert notices == [f"{key} is read as learning_rate"]
