from __future__ import annotations

import ast
import importlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer

from arena.config import LearnerSetup
from arena.errors import (
    CheckpointCorrupt,
    ConfigError,
    EnvironmentUnavailable,
    ExportError,
)
from populations.config.resolution import expand_agents
from populations.errors import JournalCorrupt, ResumeRefused, RunFailed, RunInUse, StorageError
from populations.preset_files import preset_names
from populations.ratings.fitting.misfit import MISFIT
from populations.views.notices import (
    CYCLIC,
    alert_lines,
    alerts_of,
    cyclic_warnings,
    misfit_warnings,
    unproven_lines,
)
from tests.support import exit_code, run_process
from tools.launch.serving import ARENA as CHILD

ARENA = Path(sys.executable).with_name("arena")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("seed: must be a count, got 'x'"), 2),
        (EnvironmentUnavailable("pip install mpe2"), 2),
        (ResumeRefused("seed is 1 in this run"), 2),
        (RunFailed("no active policy is left"), 3),
        (ExportError("differs"), 3),
        (RunInUse("runs/a", 7), 4),
        (StorageError("the disk is full"), 5),
        (JournalCorrupt("not a journal"), 5),
        (CheckpointCorrupt("weights differ"), 5),
    ],
)
def test_an_error_is_one_line_and_a_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    code: int,
) -> None:
    def command(**_: object) -> None:
        raise error

    monkeypatch.setattr("populations.commands.main.app", command)
    assert exit_code() == code
    captured = capsys.readouterr()
    assert captured.err == f"arena: {error}\n"
    assert captured.out == ""


def test_what_nobody_expected_has_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def command(**_: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr("populations.commands.main.app", command)
    assert exit_code() == 3
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["launch", "conect_four"], "arena: there is no preset 'conect_four'; did you mean"),
        (
            ["launch", "nim:env"],
            "arena: there is no preset 'nim:env'; `arena envs check nim:env --write FILE.yaml`",
        ),
        (
            ["launch", "nim.py"],
            "arena: there is no preset 'nim.py'; `arena envs check nim:NAME --write FILE.yaml`",
        ),
        (
            ["launch", "classic/chess-v6"],
            "arena: cannot read classic/chess-v6: No such file or directory; `arena envs check "
            "classic/chess-v6",
        ),
        (
            ["launch", "connect_four", "sede=1"],
            "arena: unknown key sede (= 1); did you mean 'seed'",
        ),
        (["launch", "connect_four", "seed=x"], "arena: seed: must be a whole number, got 'x'"),
        (["launch", "missing.yaml"], "arena: cannot read missing.yaml: No such file"),
    ],
)
def test_a_mistake_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    line: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert exit_code(*arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith(line)
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_project_may_have_an_arena_of_its_own(tmp_path: Path) -> None:
    root, site, project = Path(__file__).parents[2], tmp_path / "site", tmp_path / "project"
    # The layout is that of an installed wheel.
    packages = {"arena": "arena", "populations/commands": "tools", "populations/presets": "configs"}
    packages |= {f"populations/{one.name}": f"populations/{one.name}" for one in
                 (root / "populations").iterdir()}  # fmt: skip
    for name, source in packages.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).symlink_to(root / source)
    project.mkdir()
    (project / "arena.py").write_text("raise SystemExit('this is not Arena')\n")
    environ = os.environ | {"PYTHONPATH": str(site)}
    # A run's exports and runs of the Python API are started in this way.
    said = subprocess.run([*CHILD, "presets"], cwd=project, env=environ, capture_output=True)
    assert (said.returncode, said.stderr) == (0, b"")
    for half in ("arena", "populations", "tools"):
        for path in (root / half).rglob("*.py"):
            assert 'sys.executable, "-m"' not in path.read_text()


def test_unknown_commands_are_bad_usage() -> None:
    for arguments in (["lounch"], ["launch", "--no-such-option"], []):
        assert exit_code(*arguments) == 2


def test_a_reader_that_goes_away_is_no_error() -> None:
    script = f"'{ARENA}' --version | true"
    done = run_process(["bash", "-c", script], timeout_s=60)
    assert done.stderr == ""


def test_a_json_document_is_finite_and_has_a_schema(capsys: pytest.CaptureFixture[str]) -> None:
    output = importlib.import_module("populations.commands.terminal.output")
    output.print_json({"a": [1, None]})
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "a": [1, None]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        output.print_json({"a": float("nan")})
    assert capsys.readouterr().out == ""


MAIN = import_module("populations.commands.main")
OPAQUE = re.compile(r"(Of|Who|Whose|What|Where)\b")


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Each command and group, by the words that start it."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, f"{path} {name}")


COMMANDS = dict(commands(typer.main.get_command(MAIN.app), "arena"))


def opaque_lines(command: Any) -> list[str]:
    """Parameters whose help is missing or begins with a word that stands for a noun."""
    helps = {str(one.name): getattr(one, "help", None) for one in command.params}
    helps.pop("help", None)
    return [name for name, text in helps.items() if not text or OPAQUE.match(text)]


def test_all_commands_are_found() -> None:
    assert {"arena launch", "arena league", "arena envs check", "arena bench"} <= COMMANDS.keys()


@pytest.mark.parametrize("path", COMMANDS)
def test_each_parameter_has_a_plain_line(path: str) -> None:
    assert opaque_lines(COMMANDS[path]) == []


@pytest.mark.parametrize("path", COMMANDS)
def test_each_command_says_what_it_does(path: str) -> None:
    assert COMMANDS[path].help
    assert not OPAQUE.match(COMMANDS[path].help)


IMPORTING = {"envs check", "simulate", "bench", "learner"}
"""Commands that import what the user names; those that import what a file names take --trust."""


def test_commands_that_import_code_take_its_directory_in_one_way() -> None:
    named = {
        path: {option: one.help for one in command.params for option in one.opts}
        for path, command in COMMANDS.items()
    }
    importing = {path for path, options in named.items() if "--trust" in options}
    importing |= {f"arena {words}" for words in IMPORTING}
    assert {path for path, options in named.items() if "--code" in options} == importing
    assert len({named[path]["--code"] for path in importing}) == 1


@pytest.mark.parametrize(
    "text", ["Of each measurement.", "Where; default: RUN.", "What to show.", ""]
)
def test_an_opaque_line_is_found(text: str) -> None:
    app = typer.Typer()

    @app.command()
    def rate(seed: int = typer.Option(1, help=text)) -> None:
        """Rate."""

    assert opaque_lines(typer.main.get_command(app)) == ["seed"]


@pytest.mark.parametrize("path", [path for path in COMMANDS if path not in ("arena", "arena envs")])
def test_terminals_wrap_paragraphs(path: str) -> None:
    for line in COMMANDS[path].help.split("\n\n"):
        assert "\n" not in line


def test_help_of_a_command_names_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code("launch", "--help")
    text = capsys.readouterr().out
    assert "[CONFIG]" in text
    assert "[KEY=VALUE]..." in text
    assert "--config" not in text


Command = Callable[..., dict[str, Any]]
ROOT = Path(__file__).parents[2]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert exit_code(*arguments) == 0
    return capsys.readouterr().out


def test_every_preset_is_listed_with_a_sentence(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = {one["name"]: one["about"] for one in command("presets", "--json")["presets"]}
    assert sorted(listed) == preset_names()
    assert "default" in listed
    for about in listed.values():
        assert re.fullmatch(r"[A-Z].{10,150}\.", about)
        assert about.count(". ") == 0
    lines = printed(capsys, "presets").splitlines()
    assert [line.split()[0] for line in lines] == sorted(listed)


@pytest.mark.parametrize("name", ["default", "tictactoe"])
def test_a_preset_is_printed_as_it_is(
    name: str, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "configs" / f"{name}.yaml").read_text()
    assert printed(capsys, "presets", name) == text
    assert command("presets", name, "--json") == {"schema": 1, "name": name, "text": text}


def test_a_preset_that_there_is_not_names_those_that_are(command: Command) -> None:
    error = command("presets", "tictacto", code=2)["error"]
    assert "did you mean 'tictactoe'?" in error
    assert "leduc_poker" in error
    assert "there is no preset" in command("presets", "configs/tictactoe.yaml", code=2)["error"]


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Texts in a module that are no docstrings."""
    tree = ast.parse(path.read_text())
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            yield node.lineno, str(node.value)


@pytest.mark.slow
def test_messages_point_to_nothing_that_a_wheel_or_a_clone_lacks() -> None:
    """A wheel has no README and no folder configs; a clone's extras are on no index."""
    lacking = re.compile(r"README|configs/|arena-league\[")
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for top in ("arena", "populations", "tools")
        for path in (ROOT / top).rglob("*.py")
        for line, text in messages(path)
        if lacking.search(text)
    ]
    assert found == []


RUN = Path("runs/a")


@pytest.mark.parametrize(
    ("share", "warns"), [(None, False), (0.0, False), (CYCLIC, False), (CYCLIC + 0.01, True)]
)
def test_only_cyclic_populations_are_warned_of(share: float | None, warns: bool) -> None:
    lines = list(cyclic_warnings({"player": share}, run=RUN))
    assert len(lines) == warns
    assert all("arena export runs/a --mixture" in line for line in lines)


@pytest.mark.parametrize(("misfit", "warns"), [(MISFIT - 0.01, False), (MISFIT, True)])
def test_only_misfits_are_warned_of(misfit: float, warns: bool) -> None:
    fits = {"player": {"misfit": misfit, "pair_deviation": 35.2, "anchor_deviation": 0.0}}
    lines = list(misfit_warnings(fits, run=RUN))
    assert len(lines) == warns
    assert all("35 Elo a pair off its ratings" in line for line in lines)


@pytest.mark.parametrize(
    ("pair", "anchor", "said"),
    [
        (0.4, 35.2, "results of player are 35 Elo against bot:random off its ratings"),
        (5.6, 35.2, "are 6 Elo a pair and 35 Elo against bot:random off its ratings"),
        (0.4, 0.0, "between players far apart are not what its ratings promise"),
    ],
)
def test_a_misfit_says_where_it_was_found(pair: float, anchor: float, said: str) -> None:
    fits = {"player": {"misfit": 9.0, "pair_deviation": pair, "anchor_deviation": anchor}}
    (line,) = misfit_warnings(fits, run=RUN)
    assert said in line


def test_alerts_that_are_no_list_are_none() -> None:
    assert alerts_of({}) == alerts_of({"alerts": None}) == []
    one = {"name": "kl_high", "what": "kl is 0.2", "advice": "Lower the rate"}
    assert alert_lines({"alerts": [one, "no alert"]}) == [
        "alert: kl_high: kl is 0.2. Lower the rate"
    ]


def test_only_who_is_no_better_than_untrained_is_told_with_reasons() -> None:
    known = {"what": "nobody is better", "reasons": ["this", "that"]}
    assert list(unproven_lines([None, known])) == [
        "nobody is better; the most likely reasons:",
        "  this,",
        "  or that",
    ]


def test_brackets_and_stars_in_a_path_are_letters(
    command: Command, board_run: Path, tmp_path: Path
) -> None:
    """The 6th: ``glob("{path}*")`` finds nothing below ``runs [1]``."""
    run = tmp_path / "runs [1] *?" / "board [a-z]"
    shutil.copytree(board_run, run)
    assert command("league", run, "checkpoints", "--json")["checkpoints"]
    players = (run, f"{run}:player/p001", "bot:random")
    assert len(command("evaluate", *players, "--matches", 1, "--json")["ratings"]) == 3


def test_an_agents_name_may_have_brackets() -> None:
    agents = ("walker[0]", "walker[1]", "walker0", "walker1")
    assert expand_agents(["walker[1]"], agents=agents, key="k") == ("walker[1]",)
    assert expand_agents(["walker[0]", "walker1"], agents=agents, key="k") == (
        "walker[0]",
        "walker1",
    )
    assert expand_agents(["walker[[]*"], agents=agents, key="k") == agents[:2]
    # Without an agent of this name the text is a glob.
    assert expand_agents(["walker[01]"], agents=agents, key="k") == agents[2:]
    with pytest.raises(ConfigError, match=r"there is no agent 'walker\[2\]'"):
        expand_agents(["walker[2]"], agents=agents, key="k")


def test_every_policy_and_every_population_is_told_of(command: Command, tag_run: Path) -> None:
    """The 10th: a dictionary with one key for all keeps the last one alone."""
    rows = command("league", tag_run, "checkpoints", "--json")["checkpoints"]
    assert {(row["policy"], row["agent_steps"]) for row in rows} == {
        (f"{population}/p000", steps)
        for population in ("predator", "prey")
        for steps in (30_000, 60_000)
    }
    champions = command("league", tag_run, "status", "--json")["champion"]
    assert {name: one["player"] for name, one in champions.items()} == {
        "predator": "predator/p000",
        "prey": "prey/p000",
    }


# The folder tools/ has this name once it is installed.
main = importlib.import_module("populations.commands.main").main
LEARNER_RUN = Path(__file__).parents[1] / "assets" / "golden_runs" / "0.1.0" / "run.yaml"


def learner(*options: object) -> int:
    return exit_code("learner", LEARNER_RUN, "--connect", "tcp://127.0.0.1:1", *options)


@pytest.mark.parametrize("name", ["nowhere", "file.py"])
def test_code_must_be_a_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "file.py").touch()
    assert learner("--code", tmp_path / name) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "--code must be a directory, got" in said
    assert name in said.replace(" ", "")


def test_code_takes_the_place_of_the_launch_directory_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setups: list[LearnerSetup] = []

    def serve(setup: LearnerSetup, **_: Any) -> int:
        setups.append(setup)
        return 0

    monkeypatch.setattr("arena.learners.process.serve", serve)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    assert learner() == 0
    assert learner("--code", "code") == 0
    plain, with_code = setups
    assert with_code.launch_directory == str((tmp_path / "code").resolve())
    assert with_code == plain.model_copy(update={"launch_directory": with_code.launch_directory})
    assert with_code.digest == plain.digest
