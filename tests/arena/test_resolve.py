from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from arena.envs.registry import TWINS
from arena.errors import ConfigError, NotTrusted
from arena.resolve import NO_CODE, OWN, put_first_on_path, resolve

LAZY = """import torch


def __getattr__(name):
    torch.set_default_dtype(torch.float64)
    if name == "Thing":
        return dict
    if name == "Gone":
        raise ImportError("libthing.so is not there")
    if name == "Needy":
        import package_that_is_not_there
    raise AttributeError(name)
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "path", list(sys.path))
    package = tmp_path / "resolved_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "things.py").write_text("class Outer:\n    class Inner:\n        mark = 41\n")
    (package / "broken.py").write_text("raise ZeroDivisionError('of course')\n")
    (package / "lazy.py").write_text(LAZY)
    (package / "needy.py").write_text("import package_that_is_not_there\n")
    return str(tmp_path)


def test_finds_dotted_names(directory: str) -> None:
    found = resolve("resolved_package.things:Outer.Inner", launch_directory=directory)
    assert getattr(found, "mark", None) == 41


def test_the_launch_directory_is_first_and_there_once(directory: str) -> None:
    sys.path.append(directory)
    for _ in range(3):
        resolve("resolved_package.things:Outer", launch_directory=directory)
    assert sys.path[0] == directory
    assert sys.path.count(directory) == 1


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        (
            "resolved_package.things:Nope",
            "resolved_package.things has no 'Nope' in /",
        ),
        ("resolved_package.things:Outer.Nope", "has no 'Outer.Nope'"),
        (
            "__main__:Nope",
            "has no 'Nope', which is another file in each process: put it into a module",
        ),
        (
            "resolved_package.nope:Name",
            "there is no module 'resolved_package.nope' in {},",
        ),
        ("resolved_package.needy:Name", "no module 'package_that_is_not_there'"),
        ("resolved_package.broken:Name", "ZeroDivisionError: of course"),
        ("resolved_package.lazy:Gone", "raised ImportError: libthing.so is not there"),
        ("resolved_package.lazy:Needy", "no module 'package_that_is_not_there'"),
        ("resolved_package.lazy:Nope", "resolved_package.lazy has no 'Nope'"),
        ("resolved_package", "must be package.module:Name"),
        (":Name", "must be package.module:Name"),
        ("resolved_package.things:", "must be package.module:Name"),
        ("resolved_package..things:Outer", "must be package.module:Name"),
    ],
)
def test_says_what_is_missing(directory: str, reference: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(reference, launch_directory=directory)
    assert text.format(directory) in str(caught.value)
    assert reference in str(caught.value)


def test_a_lazy_module_has_the_settings_of_users(directory: str) -> None:
    assert resolve("resolved_package.lazy:Thing", launch_directory=directory) is dict
    assert torch.get_default_dtype() is torch.float32


def test_without_the_users_word_nothing_is_imported(directory: str) -> None:
    put_first_on_path(directory)
    with pytest.raises(NotTrusted, match=r"resolved_package.things:Outer.*--trust"):
        resolve("resolved_package.things:Outer", launch_directory=NO_CODE)
    before = list(sys.path)
    # Arena's own games are no code of anybody else's, and no directory is looked in.
    resolve("arena.envs.batched.connect_four:ConnectFour", launch_directory=NO_CODE)
    assert sys.path == before


def test_arenas_own_code_is_the_twins_and_its_bot() -> None:
    assert {*TWINS.values(), "arena.bots.connect_four:Tactical"} == OWN
