"""Failpoints: the rules' grammar, counting, once across processes, and off by default."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from arena.failpoints import Rule, armed, failpoint, parse_rules
from tests.support import run_process

HITS = "from arena.failpoints import failpoint\nfor i in range(4): failpoint('a.b')\nprint('done')"


def run_hits(**variables: str) -> subprocess.CompletedProcess[str]:
    """Hit a point four times in a process with these variables."""
    return run_process([sys.executable, "-c", HITS], env=os.environ | variables, timeout_s=60)


def test_rules_are_read() -> None:
    assert parse_rules("publish.*=kill@3; a.b=raise:ENOSPC@2+;c.d=sleep:20") == (
        Rule(pattern="publish.*", action="kill", first=3, last=3),
        Rule(pattern="a.b", action="raise", argument="ENOSPC", first=2),
        Rule(pattern="c.d", action="sleep", argument="20"),
    )


@pytest.mark.parametrize(
    "text", ["a.b", "a.b=burn", "a.b=raise:ENONSENSE", "a.b=kill@", "a.b=kill@0", "A=kill"]
)
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="failpoint"):
        parse_rules(text)


def test_the_nth_hit_over_all_points_that_match_raises() -> None:
    with armed("a.*=raise:EIO@2") as plan:
        failpoint("a.one")
        failpoint("b.other")
        with pytest.raises(OSError, match=r"failpoint a\.two") as caught:
            failpoint("a.two")
        failpoint("a.three")
    assert caught.value.errno == errno.EIO
    assert plan.trace == ["a.one", "b.other", "a.two", "a.three"]
    failpoint("a.two")
    assert len(plan.trace) == 4


def test_an_open_rule_acts_from_its_hit_on() -> None:
    with armed("a.b=raise:ENOSPC@2+"):
        failpoint("a.b")
        for _ in range(2):
            with pytest.raises(OSError, match="No space"):
                failpoint("a.b")


def test_variables_arm_a_process_only_when_it_is_tested() -> None:
    armed_rules = {"ARENA_FAILPOINTS": "a.b=exit:7@3"}
    assert run_hits(**armed_rules).stdout == "done\n"
    assert run_hits(ARENA_TESTING="1", **armed_rules).returncode == 7
    assert run_hits(ARENA_TESTING="1", ARENA_FAILPOINTS="a.b=kill").returncode == -signal.SIGKILL


def test_once_means_once_over_all_processes(tmp_path: Path) -> None:
    variables = {
        "ARENA_TESTING": "1",
        "ARENA_FAILPOINTS": "a.b=kill",
        "ARENA_FAILPOINTS_ONCE": str(tmp_path / "acted"),
    }
    assert run_hits(**variables).returncode == -signal.SIGKILL
    assert run_hits(**variables).stdout == "done\n"


def test_a_trace_leaves_the_only_act_to_others(tmp_path: Path) -> None:
    acted = tmp_path / "acted"
    run_hits(
        ARENA_TESTING="1", ARENA_FAILPOINTS="a.b=trace", ARENA_FAILPOINTS_ONCE=str(acted)
    ).check_returncode()
    assert not acted.exists()
