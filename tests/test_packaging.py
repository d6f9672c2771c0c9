from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support import exit_code, run_process

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MOUNTS = {"populations.commands": "tools", "populations.presets": "configs"}


def in_new_process(script: str, *, cwd: Path = ROOT) -> str:
    done = run_process([sys.executable, "-c", script], cwd=cwd, timeout_s=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_list_of_packages_equals_the_tree() -> None:
    folders = {
        str(path.parent.relative_to(ROOT))
        for top in ("arena", "populations", "tools", "configs")
        for path in (ROOT / top).rglob("__init__.py")
    }
    renamed = {folder: package for package, folder in MOUNTS.items()}
    tree = set()
    for folder in folders:
        top, slash, rest = folder.partition("/")
        tree.add(f"{renamed.get(top, top)}{slash}{rest}".replace("/", "."))
    assert sorted(PROJECT["tool"]["setuptools"]["packages"]) == sorted(tree)
    assert PROJECT["tool"]["setuptools"]["package-dir"] == MOUNTS


def test_every_python_file_is_in_a_package() -> None:
    for top in ("arena", "populations", "tools", "configs"):
        for path in (ROOT / top).rglob("*.py"):
            assert (path.parent / "__init__.py").exists(), path


@pytest.mark.parametrize("name", ["commands", "presets"])
def test_nothing_on_disk_shadows_a_mount(name: str) -> None:
    assert not (ROOT / "populations" / name).exists()


def test_only_two_names_are_importable_elsewhere(tmp_path: Path) -> None:
    script = """
import importlib.util, json
names = ["arena", "populations", "populations.commands", "populations.presets",
         "tools", "configs", "tests", "experiments"]
print(json.dumps([name for name in names if importlib.util.find_spec(name) is not None]))
"""
    found = json.loads(in_new_process(script, cwd=tmp_path))
    assert found == ["arena", "populations", "populations.commands", "populations.presets"]


def test_a_clone_that_is_called_arena_can_be_beside_a_script(tmp_path: Path) -> None:
    (tmp_path / "arena").symlink_to(ROOT)
    script = "import arena, arena.errors; print(arena.launch.__module__, arena.__file__)"
    module, file = in_new_process(script, cwd=tmp_path).split()
    assert module == "populations.commands.api.launch"
    assert Path(file) == tmp_path / "arena" / "arena" / "__init__.py"


def test_a_repository_in_place_of_the_installed_package_is_named(tmp_path: Path) -> None:
    # These links are what a regular installation provides to a script of the repository.
    for name in ("arena", "populations"):
        (tmp_path / name).symlink_to(ROOT / name)
    script = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in repr(finder)]
import arena
try:
    arena.launch
except ImportError as error:
    print(error)
"""
    said = in_new_process(script, cwd=tmp_path)
    assert f"arena was imported from the repository in {tmp_path}" in said
    assert "pip install --editable ." in said


@pytest.mark.slow
def test_the_controller_starts_without_torch() -> None:
    script = """
import importlib, pkgutil, sys
import populations
mounts = ("populations.commands", "populations.presets")
names = [m.name for m in pkgutil.walk_packages(populations.__path__, "populations.")]
modules = [name for name in names if not name.startswith(mounts)]
assert "populations.controller.server.server" in modules, modules
for name in modules:
    importlib.import_module(name)
print(sorted({m.split(".")[0] for m in sys.modules} & {"torch", "pettingzoo", "onnx"}))
"""
    assert in_new_process(script).strip() == "[]"


def test_importing_the_commands_imports_next_to_nothing() -> None:
    script = """
import sys
import populations.commands.main
heavy = {"torch", "pettingzoo", "optuna", "zmq", "numpy", "pydantic", "yaml"}
print(sorted({m.split(".")[0] for m in sys.modules} & heavy))
"""
    assert in_new_process(script).strip() == "[]"


def test_importing_arena_imports_next_to_nothing() -> None:
    script = """
import sys
before = set(sys.modules)
import arena
dir(arena), arena.__version__, arena.Records, arena.ConfigError, arena.Run, arena.Player
heavy = {"torch", "pettingzoo", "optuna", "zmq", "numpy", "pydantic", "yaml", "onnxruntime", "rich"}
print(sorted({m.split(".")[0] for m in sys.modules} & heavy))
print(len([m for m in set(sys.modules) - before if m.startswith(("arena", "populations"))]) < 20)
"""
    assert in_new_process(script).split("\n")[:2] == ["[]", "True"]


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("--help") == 0
    text = capsys.readouterr().out
    for command in (
        "launch", "learner", "league", "export", "evaluate", "rate", "verify", "bench", "envs",
        "presets",
    ):  # fmt: skip
        assert f" {command} " in text


def test_version_is_the_distributions(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("--version") == 0
    assert capsys.readouterr().out == f"arena {PROJECT['project']['version']}\n"


def test_constraints_pin_everything_that_is_required() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.lower().split("==") for line in lines if not line.startswith("#"))
    required = [
        *PROJECT["project"]["dependencies"],
        *PROJECT["project"]["optional-dependencies"]["mpe"],
        *PROJECT["project"]["optional-dependencies"]["web"],
        *PROJECT["project"]["optional-dependencies"]["plots"],
        *PROJECT["project"]["optional-dependencies"]["ray"],
        *PROJECT["dependency-groups"]["dev"],
        *PROJECT["build-system"]["requires"],
    ]
    for requirement in required:
        name = requirement.split(";")[0]
        for separator in "<>=![":
            name = name.split(separator)[0]
        assert name.strip().lower() in pins, requirement
    assert "+" not in pins["torch"]
