"""Run directories and exports from elsewhere that name code, in every field that there is."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

import arena
from arena.checkpoints.files import sha256_bytes
from arena.errors import ArenaError, ConfigError, NotTrusted
from arena.types import RANDOM_BOT
from populations.config.run_config import validate_config
from populations.config.trust import DATA
from tests.assets.planting import dotted, fields, forms, replaced
from tests.support import exit_code, record_run_file, run_process

pytestmark = pytest.mark.xdist_group("exports")

Command = Callable[..., dict[str, Any]]

EVIL = """
with open({mark!r}, "a") as mark:
    mark.write("imported ")


def Evil(*arguments, **named):
    with open({mark!r}, "a") as mark:
        mark.write("called ")
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without records, and a current directory whose modules could be imported."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


class Trap:
    """A module that says so when it is imported or called."""

    def __init__(self, directory: Path, name: str = "evil") -> None:
        self.reference = f"{name}:Evil"
        self._name = name
        self._mark = directory / "mark"
        for place in (directory, directory / "code"):
            place.mkdir(exist_ok=True)
            (place / f"{name}.py").write_text(EVIL.format(mark=str(self._mark)))

    @property
    def is_untouched(self) -> bool:
        return not self._mark.exists() and self._name not in sys.modules


@pytest.fixture
def trap(elsewhere: Path) -> Iterator[Trap]:
    yield Trap(elsewhere)
    sys.modules.pop("evil", None)


def planted_runs(run: Path, reference: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The run.yaml of a run with code in one key, for each key of the configuration that takes it
    in some form; and in its facts of the environment.
    """
    document = yaml.safe_load((run / "run.yaml").read_text())
    for path in fields(document["config"]):
        if DATA & set(path):
            continue
        for form in forms(reference):
            changed = replaced(document, ("config", *path), form)
            with contextlib.suppress(ConfigError):
                validate_config(changed["config"])
                yield dotted(path), changed
                break
    yield "spec.id", replaced(document, ("spec", "id"), reference)


def foreign(run: Path, target: Path, document: dict[str, Any]) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(run, target)
    document = {**document, "launch_directory": str(target.parent / "code")}
    (target / "run.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    record_run_file(target)
    return target


def commands(run: Path, key: str) -> Iterator[Sequence[object]]:
    """Commands that look at a run, play by it, or change it."""
    yield from (["verify", run], ["league", run], ["league", run, "why", "p000"])
    yield from (["league", run, "diff", run], ["league", run, "standings", "--exploitability"])
    yield ["evaluate", run, "bot:random", "--matches", 1]
    # Without a refusal these take seconds, so they are tried with only a few keys.
    if any(name in key for name in ("environment", "spec", "network", "evaluation.bots", "roles")):
        yield ["export", run, "--player", "p003", "--to", run / "out", "--matches", 1]
    yield ["evaluate", run, "--into", run, "--for", "1s"]
    yield from (["pin", f"{run}:player/p000"], ["rewind", f"{run}:player/p001@1000"])
    yield ["launch", "--resume", "--run-dir", run]
    yield ["launch", "--resume", "--run-dir", run, "rock_paper_scissors"]


def attempt(run: Path) -> None:
    """Load, play and train a player from Python."""
    for action in (
        lambda: arena.load(run).module(),
        lambda: arena.evaluate([str(run), "bot:random"], matches=1),
    ):
        with contextlib.suppress(ArenaError):
            action()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_command_imports_what_a_run_from_elsewhere_names(
    cyclic_run: Path, elsewhere: Path, trap: Trap, capsys: pytest.CaptureFixture[str]
) -> None:
    count = 0
    for key, document in planted_runs(cyclic_run, trap.reference):
        run = foreign(cyclic_run, elsewhere / "run", document)
        before = (run / "run.yaml").read_bytes(), (run / "journal.db").read_bytes()
        for arguments in commands(run, key):
            ended = exit_code(*arguments)
            said = capsys.readouterr().err
            assert trap.is_untouched, (key, arguments, said)
            if ended == 2 and "--trust" in said:
                assert trap.reference in said, (key, arguments, said)
            elif arguments[0] in ("pin", "rewind", "launch") or "--into" in arguments:
                pytest.fail(f"{key}: {arguments} was not refused: {ended} {said}")
        attempt(run)
        assert trap.is_untouched, key
        assert ((run / "run.yaml").read_bytes(), (run / "journal.db").read_bytes()) == before
        count += 1
    assert count >= 20


@pytest.mark.parametrize("key", ["environment.id", "spec.id", "environment.outcome"])
def test_a_game_of_code_is_not_played(
    command: Command, board_run: Path, elsewhere: Path, trap: Trap, key: str
) -> None:
    document = yaml.safe_load((board_run / "run.yaml").read_text())
    path = ("config", *key.split(".")) if key.startswith("environment") else tuple(key.split("."))
    run = foreign(board_run, elsewhere / "run", replaced(document, path, trap.reference))
    error = command("evaluate", run, "bot:random", "--matches", 1, code=2)["error"]
    for said in (f"{run}/run.yaml names code: {trap.reference} ({key})", "--trust", "rights"):
        assert said in error
    with pytest.raises(NotTrusted) as caught:
        arena.evaluate([str(run), "bot:random"], matches=1)
    # Commands and the Python API use one rule and one text.
    assert str(caught.value) in error
    assert trap.is_untouched


def test_a_manifest_decides_nothing(
    command: Command, board_run: Path, elsewhere: Path, trap: Trap
) -> None:
    run = elsewhere / "run"
    (source,) = board_run.glob("populations/player/p000/checkpoints/000000120000-*")
    content = json.loads((source / "manifest.json").read_text())
    del content["sha256"]
    texts = [path for path in fields(content) if isinstance(at(content, path), str)]
    assert ("network", "encoder") in texts
    for path in texts:
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(board_run, run)
        body = json.dumps(replaced(content, path, trap.reference), indent=2)[1:] + "\n"
        seal = f'{{\n  "sha256": "{sha256_bytes(body.encode())}",'
        (run / source.relative_to(board_run) / "manifest.json").write_text(seal + body)
        with contextlib.suppress(ArenaError):
            arena.load(f"{run}:player/p000").module()
        assert trap.is_untouched, path
        if path == ("network", "encoder"):
            play = ("evaluate", f"{run}:player/p000", "bot:random", "--matches", 1)
            assert "its network is encoder='evil:Evil'" in command(*play, code=5)["error"]


@pytest.mark.slow
def test_no_card_imports_anything(
    board_export: Path, elsewhere: Path, trap: Trap, capsys: pytest.CaptureFixture[str]
) -> None:
    from arena.export.champion import main as play

    card = json.loads((board_export / "card.json").read_text())
    count = 0
    for path in fields(card):
        if not isinstance(at(card, path), str | None):
            continue
        export = elsewhere / "export"
        shutil.rmtree(export, ignore_errors=True)
        shutil.copytree(board_export, export)
        changed = replaced(card, path, trap.reference)
        (export / "card.json").write_text(json.dumps(changed))
        exit_code("evaluate", export, "bot:random", "--matches", "1")
        # `Champion` may raise other errors, which are not ArenaErrors.
        with contextlib.suppress(Exception):
            arena.load(export).module()
        with contextlib.suppress(SystemExit, Exception):
            play(["--directory", str(export), "--games", "1"])
        assert trap.is_untouched, (path, capsys.readouterr().err)
        count += 1
    assert count >= 15


@pytest.mark.slow
def test_a_champion_imports_its_environment_with_the_word_alone(
    board_export: Path, elsewhere: Path, trap: Trap, capsys: pytest.CaptureFixture[str]
) -> None:
    from arena.export.champion import main as play

    export = elsewhere / "export"
    shutil.copytree(board_export, export)
    card = json.loads((export / "card.json").read_text())
    (elsewhere / "game_from_elsewhere.py").write_text(
        "from pettingzoo.classic.connect_four_v3 import env as make\n\n"
        "def env(**kwargs):\n    return make()\n"
    )
    card["environment"]["id"] = "game_from_elsewhere:env"
    (export / "card.json").write_text(json.dumps(card))
    arguments = ["--directory", str(export), "--games", "1"]
    with pytest.raises(SystemExit) as ended:
        play(arguments)
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert "names code: game_from_elsewhere:env (environment.id)" in error
    assert "--trust" in error
    assert "game_from_elsewhere" not in sys.modules
    play([*arguments, "--trust"])
    assert json.loads(capsys.readouterr().out)["opponent"] == "bot:random"
    # A name that is no environment's must not be imported as a module.
    for name in ("mpe2/../evil", "mpe2/_mpe_utils.evil", "mpe2/evil", "classic/../evil", "../evil"):
        card["environment"]["id"] = name
        (export / "card.json").write_text(json.dumps(card))
        with pytest.raises((Exception, SystemExit)):
            play(arguments)
    assert trap.is_untouched


OWN_GAME = """
from pettingzoo.classic.connect_four_v3 import env as make


def env(**kwargs):
    return make(**kwargs)
"""

OWN_ENCODER = """
import torch


class Encoder(torch.nn.Module):
    num_features = 8

    def __init__(self, observation):
        super().__init__()
        self.layer = torch.nn.Linear(observation.size, 8)

    def forward(self, observation):
        return self.layer(observation)
"""


@pytest.mark.slow
def test_with_the_word_a_run_from_elsewhere_works_with_its_code_beside_it(
    command: Command, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.tools.conftest import player_run

    (elsewhere / "copied_game.py").write_text(OWN_GAME)
    (elsewhere / "copied_encoder.py").write_text(OWN_ENCODER)
    monkeypatch.setattr("tests.tools.conftest.record_launch", lambda run_file: None)
    # The run's author launched it where the code was.
    monkeypatch.setenv("PYTHONPATH", str(elsewhere))
    network = {"encoder": "copied_encoder:Encoder", "hidden_sizes": [8]}
    builder = player_run(elsewhere / "run", "copied_game:env", network=network)
    latest = builder.checkpoint("player/p000", agent_steps=100, seed=1)
    builder.policy("player/p000", index=0, latest=latest)
    builder.met(latest.weights_digest, RANDOM_BOT)
    builder.rate("player", {latest.weights_digest: 10.0})
    run = builder.write()
    monkeypatch.delenv("PYTHONPATH")
    sys.path.remove(str(elsewhere))
    del sys.modules["copied_encoder"]
    play = ("evaluate", f"{run}:player/p000", "bot:random", "--matches", 1, "--json")
    assert "copied_encoder:Encoder" in command(*play, code=2)["error"]
    assert command(*play, "--trust")["environment"] == "copied_game:env"
    with pytest.raises(NotTrusted, match="copied_encoder:Encoder"):
        arena.load(f"{run}:player/p000")
    player = arena.load(f"{run}:player/p000", trust=True)
    assert type(player.module().encoder).__name__ == "UserEncoder"
    export = ("export", run, "--matches", 1, "--json")
    assert "copied_game:env" in command(*export, code=2)["error"]
    assert command(*export, "--trust")["exports"]["player"]["verified_observations"] > 0
    # The export names the same code, and was never launched here.
    card = run / "champion"
    assert "copied_game:env" in command("evaluate", card, "bot:random", code=2)["error"]
    assert command("evaluate", card, "bot:random", "--matches", 1, "--trust", "--json")["pairs"]
    with pytest.raises(NotTrusted, match="copied_encoder:Encoder"):
        arena.load(card).module()
    assert arena.load(card, trust=True).module() is not None
    assert command("pin", f"{run}:player/p000", "--trust", "--json")["pinned"]


@pytest.mark.slow
def test_no_module_of_a_directory_takes_the_place_of_a_package(
    board_run: Path, elsewhere: Path
) -> None:
    """Also not where one stands in the directory, or it is the launch directory of run.yaml."""
    document = yaml.safe_load((board_run / "run.yaml").read_text())
    run = foreign(board_run, elsewhere / "run", document)
    mark = elsewhere / "mark"
    names = ("torch", "numpy", "pettingzoo", "chess", "pygame", "onnx", "arena", "populations")
    for name in (*names, "random", "logging", "sitecustomize", "safetensors", "scipy"):
        for place in (run, elsewhere / "code"):
            place.mkdir(exist_ok=True)
            (place / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write({name!r})\n")
    program = Path(sys.executable).with_name("arena")
    for arguments in (
        ["evaluate", ".", "bot:random", "--matches", "1"],
        ["export", ".", "--matches", "1"],
        ["launch", "--resume", "--run-dir", ".", "stop.agent_steps=1", "learners=1"],
    ):
        ended = run_process([program, *arguments], cwd=run)
        assert not mark.exists(), (arguments, mark.read_text(), ended.stderr)
        assert ended.returncode == 0, ended.stderr


def at(document: Any, path: tuple[str | int, ...]) -> object:
    for part in path:
        document = document[part]
    return document


@pytest.fixture(scope="module")
def board_export(board_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("exports") / "board"
    assert exit_code("export", board_run, "--to", target, "--matches", "1") == 0
    return target
