"""Runs of PettingZoo's own tests, whose output, warnings and assertions become findings.

Tests: `tests/arena/envs/checks/test_check.py`.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import warnings
from collections.abc import Callable
from typing import Any

from arena.envs.findings import MEND_CONTRACT, Finding, finding_of
from arena.envs.registry import Api
from arena.users_code import pass_interrupt

COLOURS = re.compile(r"\x1b\[[0-9;]*m")

REVIVED = "agent cannot be revived once dead"
"""Message of the parallel test if an agent comes back: it is random, because the test has no
seed."""

MAX_SHOWN = 300
"""Length at which messages are cut off."""


def run_contract(
    make: Callable[[], Any],
    *,
    api: Api,
    num_cycles: int,
    passed: dict[str, bool],
    problems: list[Finding],
    notes: list[str],
) -> None:
    """Run PettingZoo's API test and its seed test.

    Args:
        make: Factory of the environment.
        api: Form of the environment.
        num_cycles: Length of each test.
        passed: Results by name of the test, to add to test by test.
        problems: Failures, to add to.
        notes: Warnings, and tests that could not be run, to add to.
    """
    num_notes = len(notes)
    for test in ("api_test", "seed_test"):
        name = test if api == "aec" else f"parallel_{test}"
        error = _run(name, make, num_cycles=num_cycles, notes=notes)
        passed[name] = error is None
        if error is None:
            continue
        if name.endswith("seed_test") and not _is_difference(error):
            # The test samples without masks where agents act at once, and expects int8 masks.
            notes.append(f"PettingZoo's {name} could not be run: {_line(error)}")
            continue
        mend = MEND_CONTRACT.format(test=name)
        problems.append(finding_of(f"PettingZoo's {name}: {_line(error)}", otherwise=mend))
    # Both tests may give equal warnings; notes of other stages must stay unchanged.
    notes[num_notes:] = list(dict.fromkeys(notes[num_notes:]))


def _run(
    name: str, make: Callable[[], Any], *, num_cycles: int, notes: list[str]
) -> BaseException | None:
    """Run one test, note its warnings, and return its error."""
    with warnings.catch_warnings():
        # Importing the tests imports an environment in a way that PettingZoo itself warns about.
        warnings.simplefilter("ignore")
        test = getattr(importlib.import_module("pettingzoo.test"), name)
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("always")
        # As an error this warning would end the process; it comes from Box2D's SWIG wrapper.
        warnings.filterwarnings("ignore", message="builtin type .* has no __module__ attribute")
        error = _outcome(test, make, name=name, num_cycles=num_cycles)
    notes.extend(f"PettingZoo warns: {_line(warning.message)}" for warning in caught)
    if isinstance(error, AssertionError) and str(error).startswith(REVIVED):
        notes.append(
            f"PettingZoo's {name} stopped at a rule of its own: {REVIVED}. Here agents that "
            "come back are played and trained"
        )
        return None
    return error


def _outcome(
    test: Callable[..., None], make: Callable[[], Any], *, name: str, num_cycles: int
) -> BaseException | None:
    try:
        if name.endswith("seed_test"):
            # This test makes and closes two environments itself.
            test(make, num_cycles=num_cycles)
        else:
            with contextlib.closing(make()) as env:
                test(env, num_cycles=num_cycles)
    except BaseException as error:
        pass_interrupt(error)
        # The test asserts, and the environment may raise anything.
        return error
    return None


def _is_difference(error: BaseException) -> bool:
    return isinstance(error, AssertionError) and str(error).startswith("Incorrect")


def _line(message: object) -> str:
    text = " ".join(COLOURS.sub("", str(message)).split()) or type(message).__name__
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
