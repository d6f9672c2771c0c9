"""Faults of a launch: at once, all of them, with what to write instead."""

from __future__ import annotations

import importlib
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from arena.errors import ConfigError, faults_of
from populations.config.run_config import (
    RunConfig,
    draft_config,
    ignore_notice,
    load_config,
    validate_config,
)
from populations.config.validation import known_paths
from populations.launchers import ray_session

preflight: Any = importlib.import_module("populations.commands.launch.preflight")

Command = Callable[..., dict[str, Any]]
PYDANTICS = ("Input should", "Extra inputs", "Field required", "pydantic", "validation error",
             "valid integer", "valid string", "valid list", "valid tuple", "valid dictionary",
             "String should", "Value error", "should have at")  # fmt: skip


def faults(overrides: Sequence[str], source: str = "tictactoe") -> tuple[str, ...]:
    """What launch finds."""
    draft = draft_config(source, overrides, notify=ignore_notice)
    with pytest.raises(ConfigError) as error_info:
        preflight.looked_over(draft, launch_directory=".")
    return faults_of(error_info.value)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "count_gpus", lambda: 0)


def test_faults_of_all_kinds_are_listed_together(no_gpu: None) -> None:
    found = faults(["sede=3", "launcher=inline", "learners=3"])
    assert "learners must be 1 where launcher is inline, got 3" in found
    # If a rule between keys is broken, there is no configuration to check with an environment.
    found = faults(
        [
            "sede=3",
            "pbt.fraction=2",
            "device=cuda",
            "populations.player.agents=[playr_*]",
            "environment.outcome={threshold: 1, side: red}",
        ]
    )
    assert [fault.split(":")[0].split(" (")[0] for fault in found] == [
        "pbt.fraction",
        "unknown key sede",
        "device",
        "environment.outcome.side",
        "populations.player.agents",
    ]


def test_ray_that_is_not_installed_is_asked_for_and_devices_are_those_of_its_nodes(
    no_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_session, "find_spec", lambda name: None)
    found = faults(["launcher=ray", "device=cuda", "pbt.fraction=2"])
    assert found[-1:] == ("launcher: ray needs Ray: pip install ray",)


def test_an_address_at_which_no_ray_answers_is_named() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        (found,) = faults(["launcher=ray", f"ray.address={address}"])
    assert found.startswith(f"ray.address: no Ray answers at {address}: ")


def test_rays_part_of_the_configuration_is_checked() -> None:
    found = faults(
        [
            "launcher=ray",
            "ray.address=ray://head:10001",
            "ray.num_cpus=-1",
            "ray.custom={simulator: 0}",
        ]
    )
    assert found == (
        "ray.address must be HOST:PORT of a Ray cluster, auto, local or null, got "
        "'ray://head:10001'",
        "ray.num_cpus: must be at least 0, got -1",
        "ray.custom.simulator: must be greater than 0, got 0",
    )
    (fault,) = faults(["launcher=ray", "device=[cuda:0, cuda:1]"])
    assert fault.startswith("device must be one where launcher is ray")


def test_an_environment_that_is_not_there_is_listed_beside_a_wrong_key() -> None:
    found = faults(["pbt.fraction=2", "environment.id=classic/tictactoo-v3"])
    assert len(found) == 2
    assert "classic/tictactoe-v3" in found[1]


def test_a_wrong_environment_is_not_looked_at() -> None:
    (only,) = faults(["environment.kwargs=3", "populations.player.agents=[nobody]"])
    assert only == "environment.kwargs: must be a mapping of keys to values, got 3"


def test_what_follows_from_another_fault_is_not_listed() -> None:
    (only,) = faults(["populations={playr: {size: 2, agnts: [player_1]}}"])
    assert only.startswith("unknown key populations.playr.agnts")
    (only,) = faults(["environment.sides=3"])
    assert only == "environment.sides: must be a mapping of keys to values, got 3"


def test_several_faults_are_a_line_each(command: Command, tmp_path: Path) -> None:
    error = command("launch", "tictactoe", "sede=3", "pbt.fraction=2", code=2)["error"]
    assert error.splitlines() == [
        "arena: 2 things are wrong:",
        "  pbt.fraction: must be at most 0.5, got 2",
        "  unknown key sede (= 3); did you mean 'seed'?",
    ]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--seed", "3"], "there is no option --seed: keys are KEY=VALUE, seed=3"),
        (["--seed=3"], "keys are KEY=VALUE, seed=3"),
        (["--device", "cuda"], "device=cuda"),
        (["--num-envs", "8"], "environment.num_envs=8"),
        (["--stop.duration_s", "60"], "stop.duration_s=60"),
        (["--size", "4"], "populations.<name>.size=4"),
        (["--lr", "1e-3"], "populations.<name>.hyperparameters.learning_rate=1e-3"),
        (["--deterministic"], "deterministic=VALUE"),
    ],
)
def test_a_key_that_is_written_as_an_option(
    command: Command, arguments: list[str], hint: str
) -> None:
    for order in (["tictactoe", *arguments], [*arguments, "tictactoe"][-9:]):
        if arguments == ["--deterministic"] and order[0] == "--deterministic":
            continue  # the preset would be its value
        assert hint in command("launch", *order, code=2)["error"]


def test_an_option_of_no_key_is_typers_business(command: Command) -> None:
    assert "No such option" in command("launch", "--nonsense", "3", code=2)["error"]
    assert "--learners" in command("launch", "--learner", "3", code=2)["error"]


@pytest.mark.parametrize(
    ("override", "place"),
    [
        ("lr=3", "populations.<name>.hyperparameters.learning_rate"),
        ("populations.player.lr=3", "populations.player.hyperparameters.learning_rate"),
        ("populations.player.gamma=3", "populations.player.hyperparameters.gamma"),
    ],
)
def test_a_hyperparameter_in_another_place(override: str, place: str) -> None:
    with pytest.raises(ConfigError, match="did you mean") as error_info:
        load_config("tictactoe", [override])
    assert f"did you mean '{place}'?" in str(error_info.value)


@pytest.mark.parametrize(
    ("number", "asked", "rule"),
    [
        (0, "cuda", "write device=cpu, or device=auto"),
        (0, "cuda:1", "torch finds none here"),
        (2, "cuda:2", "device: must be one of cuda:0 to cuda:1 here, got cuda:2"),
        (2, "cuda:1", None),
        (1, "cuda", None),
        (0, "auto", None),
        (0, "cpu", None),
    ],
)
def test_a_gpu_that_is_not_there(
    number: int, asked: str, rule: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "count_gpus", lambda: number)
    if rule is None:
        preflight.check_devices([asked])
        return
    with pytest.raises(ConfigError) as error_info:
        preflight.check_devices([asked])
    assert rule in str(error_info.value)


def test_every_device_of_a_list_is_looked_for_with_one_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[int] = []

    def count() -> int:
        counted.append(1)
        return 2

    monkeypatch.setattr(preflight, "count_gpus", count)
    preflight.check_devices(("cpu", "cuda:0", "cuda:1"))
    with pytest.raises(ConfigError, match="must be one of cuda:0 to cuda:1 here, got cuda:2"):
        preflight.check_devices(("cuda:1", "cpu", "cuda:2"))
    assert counted == [1, 1]


def test_gpus_are_counted_by_torch_in_another_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(preflight._COUNT)
    assert capsys.readouterr().out == f"{torch.cuda.device_count()}\n"
    for script, number in (("print(3)", 3), ("raise SystemExit(1)", 0), ("print('?')", 0)):
        monkeypatch.setattr(preflight, "_COUNT", script)
        assert preflight.count_gpus() == number


def test_no_gpu_ends_a_launch_before_it_has_a_directory(
    command: Command, no_gpu: None, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    error = command("launch", "tictactoe", "device=cuda", "--run-dir", run, code=2)["error"]
    assert "device=cpu" in error
    assert not run.exists()


WRONG: tuple[object, ...] = ("nonsense", -7, 2.5, 1e300, True, None, [], [{}], {}, {"a": {}})


def test_pydantics_own_sentences_reach_nobody() -> None:
    """Every key, with values of every kind that are wrong for most."""
    said = []
    for path in known_paths(RunConfig):
        names = tuple("x" if part == "*" else part for part in path)
        for value in WRONG:
            document: dict[str, Any] = {"environment": {"id": "a:b"}}
            level = document
            for name in names[:-1]:
                level = level.setdefault(name, {})
            level[names[-1]] = value
            try:
                validate_config(document)
            except ConfigError as error:
                said += [(path, value, text) for text in faults_of(error)]
    assert len(said) > 500
    assert [entry for entry in said if any(word in entry[2] for word in PYDANTICS)] == []
    # Each rule has a message of its own.
    assert [entry for entry in said if "another form" in entry[2]] == []
    assert all("got" in text or "(=" in text or "required" in text for _, _, text in said), [
        text for _, _, text in said if "got" not in text and "(=" not in text
    ][:5]


def test_a_run_file_that_was_edited_wrongly_is_told_in_own_words(
    command: Command, board_run: Path, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    text = (board_run / "run.yaml").read_text()
    (tmp_path / "run" / "run.yaml").write_text(text.replace("api: aec", "api: 7"))
    (tmp_path / "run" / "journal.db").touch()
    error = command("league", tmp_path / "run", code=2)["error"]
    assert "spec.api: must be 'aec' or 'parallel', got 7" in error
    assert not any(word in error for word in PYDANTICS)
