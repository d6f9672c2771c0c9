from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from arena.environment_spec import EnvironmentRequest
from arena.envs.inspect import inspect_and_play, module_digests
from arena.errors import ConfigError
from arena.types import Digest, canonical_digest
from tests.test_imports import ROOT

NIM = (ROOT / "examples" / "own_game" / "nim.py").read_text()
FILES = {
    "game.py": f"{NIM}\nimport tables.rules\n",
    "tables/__init__.py": "",
    "tables/rules.py": "SIZE = 3\n",
    "tables/unused.py": "SIZE = 4\n",
    "other.py": "import sys, numpy\n\ndef function(): ...\n",
}


@pytest.fixture
def code(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def digests(code: Path, **named: str) -> dict[str, Digest]:
    request = EnvironmentRequest("game:Nim", launch_directory=str(code))
    return dict(inspect_and_play(request, play=None, code=named).code)


def test_the_code_of_a_run_is_all_of_the_users_that_is_imported_and_nothing_else(
    code: Path,
) -> None:
    first = digests(code)
    assert first.keys() == {"game", "tables"}
    assert digests(code, hook="other:function") == {**first, "other": first_of(code, "other")}
    # An edit changes one digest, a file that nobody imports none.
    (code / "tables" / "rules.py").write_text("SIZE = 5\n")
    (code / "tables" / "unused.py").write_text("SIZE = 5\n")
    edited = digests(code)
    assert edited["game"] == first["game"]
    assert edited["tables"] != first["tables"]
    (code / "tables" / "rules.py").write_text("SIZE = 3\n")
    assert digests(code) == first


def test_a_module_whose_file_is_a_pipe_by_now_has_no_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "piped.py"
    os.mkfifo(pipe)
    module = ModuleType("piped")
    module.__file__ = str(pipe)
    monkeypatch.setitem(sys.modules, "piped", module)
    assert module_digests()["piped"] == canonical_digest({"piped": ""})


def first_of(code: Path, module: str) -> Digest:
    """By hand: a digest of the digests of a package's modules, here of one."""
    import hashlib

    data = (code / f"{module}.py").read_bytes()
    return canonical_digest({module: hashlib.sha256(data).hexdigest()})


def test_all_code_that_is_gone_or_broken_is_named_with_its_key(code: Path) -> None:
    (code / "broken.py").write_text("1 / 0\n")
    named = {
        "hooks.on_end[0]": "gone:Hook",
        "a": "other:Nothing",
        "b": "broken:B",
        "c": "other:sys",
    }
    with pytest.raises(ConfigError) as caught:
        digests(code, **named)
    told = str(caught.value)
    assert "hooks.on_end[0]: gone:Hook: there is no module 'gone'" in told
    assert "a: other:Nothing: other has no 'Nothing'" in told
    assert "b: broken:B: importing broken raised ZeroDivisionError" in told
    assert "other:sys" not in told
