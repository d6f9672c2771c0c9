from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from populations.errors import RunFailed
from tools.bench.children import rate_of_children

REPORTS = """
import sys
print("ready", flush=True)
assert sys.stdin.readline() == "go\\n"
print('{"agent_steps": ' + sys.argv[1] + ', "duration_s": 2.0}')
"""

MakeModule = Callable[[str], str]


@pytest.fixture
def make_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeModule:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def make(text: str) -> str:
        (tmp_path / "bench_child.py").write_text(text)
        return "bench_child"

    return make


def test_the_rates_of_all_children_add_up(make_module: MakeModule) -> None:
    assert rate_of_children(make_module(REPORTS), [["10"], ["30"]]) == 20.0


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("raise SystemExit(3)", "instead of 'ready'"),
        ("print('hello')", "instead of 'ready'"),
        ("print('ready', flush=True); input(); raise SystemExit(3)", "ended with code 3"),
        ("print('ready', flush=True); input(); print('many')", "instead of a report"),
    ],
)
def test_a_child_that_fails_is_named(make_module: MakeModule, text: str, complaint: str) -> None:
    with pytest.raises(RunFailed, match=f"bench_child .*{complaint}"):
        rate_of_children(make_module(text), [[]])


def test_a_failure_ends_the_others(make_module: MakeModule) -> None:
    # The first one would wait for its word for ever.
    text = """
import sys
if sys.argv[1] == "fails":
    raise SystemExit(1)
print("ready", flush=True)
sys.stdin.readline()
"""
    with pytest.raises(RunFailed):
        rate_of_children(make_module(text), [["waits"], ["fails"]])
