from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from arena.errors import ConfigError, NotTrusted
from arena.resolve import NO_CODE, use_code
from populations.config.run_config import RunConfig, load_config, validate_config
from populations.config.run_file import RunFile, with_config
from populations.config.trust import (
    DATA,
    is_code,
    named_by,
    record_launch,
    recorded_launch,
    trusted,
    with_own,
)
from tests.assets.planting import dotted, fields, forms, replaced
from tests.populations.small_run import duel_run_file

KNOWN = {
    *("environment.id", "environment.outcome", "populations.player.algorithm"),
    *("populations.player.network.encoder", "populations.player.normalizer_warm_up.player"),
    *("populations.player.pbt.exploit", "populations.player.pbt.explore", "matchmaking.kind"),
    *("matchmaking.bots", "evaluation.bots", "ghosts.thinning", "pbt.exploit", "pbt.explore"),
    *("metrics.sinks", "hooks.on_end", "hooks.on_champion", "stop.evaluation.player"),
}
"""Keys that surely name code, so that a search that finds nothing fails."""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of one's own, without any record."""
    home = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    return home


@pytest.fixture
def run_file(tmp_path: Path) -> RunFile:
    """A run whose environment is code, as it is read from its file."""
    return read(duel_run_file(), tmp_path)


def read(run_file: RunFile, tmp_path: Path) -> RunFile:
    run_file.save(tmp_path / "run.yaml")
    return RunFile.load(tmp_path / "run.yaml")


def board() -> RunFile:
    """A run that names no code."""
    run_file = duel_run_file()
    name = "classic/connect_four-v3"
    named = changed(run_file, "environment.id", name)
    return replace(named, spec=replace(run_file.spec, id=name))


def changed(run_file: RunFile, key: str, value: object) -> RunFile:
    document = run_file.config.model_dump(mode="json")
    config = validate_config(replaced(document, tuple(key.split(".")), value))
    return with_config(run_file, config)


def planted() -> Iterator[tuple[str, RunConfig]]:
    """Configurations with code in one key, for each key that takes it."""
    overrides = [
        "populations.player.network.normalize_observations=true",
        "populations.player.normalizer_warm_up={agent_steps: 10}",
        "evaluation.bots=[bot:random, bot:evil:Evil]",
        "stop.evaluation={player: bot:random, score: 0.9}",
    ]
    resolved = duel_run_file().config
    document = load_config("connect_four", overrides).model_dump(mode="json")
    # run.yaml repeats in each population all that applies to it.
    document["populations"]["player"]["pbt"] = resolved.pbt.model_dump(mode="json")
    # Texts below these keys are data, even if they look like code.
    paths = [path for path in fields(document) if not DATA & set(path)]
    for path in paths:
        for form in forms("evil:Evil"):
            try:
                yield dotted(path), validate_config(replaced(document, path, form))
            except ConfigError:
                continue


def test_code_in_any_key_is_found() -> None:
    found = set()
    for key, config in planted():
        run_file = with_config(duel_run_file(), config)
        keys = {named.key for named in named_by(run_file) if "evil" in named.code}
        # The last part of a path may be an index of a list.
        name = key.rstrip("0123456789").rstrip(".")
        assert name in keys, key
        found.add(name)
    assert found >= KNOWN


def renamed(run_file: RunFile, population: str, **keys: object) -> RunFile:
    """The run with another name of its population, and with other keys of it."""
    document = run_file.config.model_dump(mode="json")
    own = {**document["populations"]["player"], **keys}
    return with_config(run_file, validate_config({**document, "populations": {population: own}}))


@pytest.mark.parametrize("name", sorted(DATA))
def test_what_a_population_names_is_code_whatever_it_is_called(name: str, tmp_path: Path) -> None:
    mine = renamed(duel_run_file(), name, algorithm="mine:Algorithm")
    assert f"populations.{name}.algorithm" in {one.key for one in named_by(mine)}
    # Trust in one's own code does not cover other code in its place.
    record_launch(replace(mine, launch_directory="/code"))
    assert recorded_launch(mine) == "/code"
    edited = renamed(duel_run_file(), name, algorithm="evil:Algorithm")
    assert recorded_launch(replace(edited, run=mine.run)) is None
    # Trust in an override does not cover what the file names.
    foreign = read(renamed(board(), name, algorithm="evil:Algorithm"), tmp_path)
    with pytest.raises(NotTrusted, match="evil:Algorithm"):
        trusted(foreign, tmp_path, trust=False)
    plain = trusted(read(renamed(board(), name), tmp_path), tmp_path, trust=False)
    own = [f"populations={{{name}: {{algorithm: 'mine:Algorithm'}}}}"]
    assert with_own(plain, own).launch_directory == str(Path.cwd())


@pytest.mark.parametrize(
    "text",
    [
        "bot:random", "openspiel:kuhn_poker", "classic/connect_four-v3", "mpe2/simple_tag_v3",
        "arena.envs.batched.connect_four:ConnectFour", "bot:arena.bots.connect_four:Tactical",
        "cuda:1", "tcp://127.0.0.1:5555", "runs/a:player/p003", "return", "mlp", "",
    ],
)  # fmt: skip
def test_closed_lists_and_other_texts_are_no_code(text: str) -> None:
    assert not is_code(text)


@pytest.mark.parametrize(
    "text", ["os:system", "a.b:C.d", "bot:a.b:C", "bot:a:C(depth=3)", "arena.resolve:sys.exit"]
)
def test_references_and_bots_are_code(text: str) -> None:
    assert is_code(text)


def test_what_is_read_may_import_nothing(run_file: RunFile, tmp_path: Path) -> None:
    assert run_file.launch_directory == NO_CODE
    with pytest.raises(NotTrusted, match=r"tests.duel:env \(environment.id, spec.id\).*--trust"):
        trusted(run_file, tmp_path, trust=False)


def test_a_launch_is_remembered_wherever_the_directory_is(
    run_file: RunFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = str(tmp_path / "code")
    Path(code).mkdir()
    launched = replace(run_file, launch_directory=code)
    assert record_launch(launched) is None
    for run_dir in (tmp_path, tmp_path / "moved"):
        assert trusted(run_file, run_dir, trust=False).launch_directory == code
    # The code directory comes from the record, not from the file.
    elsewhere = replace(run_file, launched_in="/somebody/elses")
    assert trusted(elsewhere, tmp_path, trust=False).launch_directory == code
    # If the recorded directory is missing, code is searched in the current directory.
    Path(code).rmdir()
    monkeypatch.chdir(tmp_path)
    assert trusted(elsewhere, tmp_path, trust=False).launch_directory == str(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("matchmaking.kind", "evil:Evil"),
        ("environment.kwargs", {"command": "rm -rf ~"}),
        ("hooks.on_end", [["rm", "-rf", "/"]]),
        ("evaluation.bots", ["bot:random", "bot:evil:Evil"]),
    ],
)
def test_an_edited_file_needs_the_word_anew(
    run_file: RunFile, tmp_path: Path, key: str, value: object
) -> None:
    record_launch(replace(run_file, launch_directory="/code"))
    edited = changed(run_file, key, value)
    with pytest.raises(NotTrusted):
        trusted(edited, tmp_path, trust=False)
    # With trust both versions are recorded.
    record_launch(replace(edited, launch_directory="/code"))
    for one in (run_file, edited):
        assert recorded_launch(one) == "/code"


def test_of_a_run_that_names_no_code_nothing_is_kept(state: Path) -> None:
    assert record_launch(replace(board(), launch_directory="/code")) is None
    assert not state.exists()


def test_other_changes_need_no_word(run_file: RunFile) -> None:
    record_launch(replace(run_file, launch_directory="/code"))
    assert recorded_launch(changed(run_file, "pbt.fraction", 0.1)) == "/code"
    assert recorded_launch(replace(run_file, run="another")) is None


def test_the_environments_facts_count_too(run_file: RunFile) -> None:
    record_launch(replace(run_file, launch_directory="/code"))
    for spec in (
        replace(run_file.spec, id="os:system"),
        replace(run_file.spec, kwargs={"command": "x"}),
        replace(run_file.spec, lessons=({"command": "x"},)),
    ):
        assert recorded_launch(replace(run_file, spec=spec)) is None


def test_a_config_is_the_word_for_what_it_names(
    run_file: RunFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = run_file.config
    found = trusted(run_file, tmp_path, trust=False, config=given)
    # The code is searched where `launch CONFIG` would search it, not where the file says.
    assert found.launch_directory == str(tmp_path)
    for other in (
        changed(run_file, "matchmaking.kind", "evil:Evil"),
        changed(run_file, "environment.kwargs", {"command": "x"}),
        replace(run_file, spec=replace(run_file.spec, id="os:system")),
        replace(run_file, spec=replace(run_file.spec, kwargs={"command": "x"})),
    ):
        with pytest.raises(NotTrusted):
            trusted(other, tmp_path, trust=False, config=given)


@pytest.mark.parametrize(
    ("override", "is_code"),
    [
        ("evaluation.bots=[bot:random, bot:mine:Bot]", True),
        ("pbt.exploit=mine:Exploit", True),
        ("hooks.on_end=[[./told.sh]]", True),
        ("stop.agent_steps=5", False),
        ("matchmaking.kind=uniform", False),
    ],
)
def test_an_override_is_the_word_for_what_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, override: str, is_code: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    names_none = read(changed(board(), "seed", 7), tmp_path)
    found = with_own(trusted(names_none, tmp_path, trust=False), [override])
    # A configuration without code has no code directory.
    assert found.launch_directory == (str(tmp_path) if is_code else NO_CODE)


def test_code_that_was_copied_with_its_run_is_found_beside_it(
    run_file: RunFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = replace(run_file, launched_in=str(tmp_path / "gone"))
    project = tmp_path / "project"
    (project / "tests").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for run_dir in (project / "run", project / "runs" / "one"):
        found = trusted(gone, run_dir, trust=True)
        assert found.launch_directory == str(project)
    # The launch directory comes first, if it exists and has the code.
    (tmp_path / "gone" / "tests").mkdir(parents=True)
    assert trusted(gone, project / "run", trust=True).launch_directory == str(tmp_path / "gone")


def test_the_directory_that_the_user_names_goes_before_others_and_is_no_word(
    run_file: RunFile, tmp_path: Path
) -> None:
    (tmp_path / "code").mkdir()
    given = str(tmp_path / "code")
    use_code(tmp_path / "code")
    with pytest.raises(NotTrusted):
        trusted(run_file, tmp_path, trust=False)
    assert trusted(run_file, tmp_path, trust=True).launch_directory == given
    record_launch(replace(run_file, launch_directory=str(tmp_path)))
    assert trusted(run_file, tmp_path, trust=False).launch_directory == given
    # If the file names no code, the message names the directory of an override.
    names_none = read(changed(board(), "seed", 7), tmp_path)
    hook = "hooks.on_end=[mine:hook]"
    assert with_own(names_none, [hook]).launch_directory == given


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_record_that_others_may_write_is_none(run_file: RunFile, state: Path, mode: int) -> None:
    record_launch(replace(run_file, launch_directory="/code"))
    (record,) = (state / "arena" / "launched").iterdir()
    assert record.stat().st_mode & 0o777 == 0o600
    record.chmod(mode)
    assert recorded_launch(run_file) is None
    record.chmod(0o600)
    record.parent.chmod(0o777)
    assert recorded_launch(run_file) is None
    record.parent.chmod(0o700)
    assert recorded_launch(run_file) == "/code"


def test_a_link_or_a_pipe_is_no_record(run_file: RunFile, state: Path, tmp_path: Path) -> None:
    record_launch(replace(run_file, launch_directory="/code"))
    (record,) = (state / "arena" / "launched").iterdir()
    record.rename(tmp_path / "theirs")
    record.symlink_to(tmp_path / "theirs")
    assert recorded_launch(run_file) is None
    record.unlink()
    os.mkfifo(record, 0o600)
    assert recorded_launch(run_file) is None


def test_a_home_that_takes_nothing_is_no_error(
    run_file: RunFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    launched = replace(run_file, launch_directory="/code")
    assert "Not a directory" in str(record_launch(launched))
    assert recorded_launch(run_file) is None
    assert trusted(run_file, tmp_path, trust=True).launch_directory != NO_CODE


def test_without_a_home_nothing_is_remembered(
    run_file: RunFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    assert (
        record_launch(replace(run_file, launch_directory="/code")) == "there is no home directory"
    )
    assert recorded_launch(run_file) is None
