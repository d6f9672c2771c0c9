"""Named points at which a test injects faults. Torch-free; off in every real run.

A point is a call of `failpoint` in the product, between two steps that a crash or a full disk could
separate. `ARENA_FAILPOINTS` says what happens there, and counts only if ``ARENA_TESTING`` is ``1``.
The idea and the words are those of SQLite's and etcd's tests (gofail).

    ARENA_FAILPOINTS="publish.*=kill@3;journal.commit=raise:ENOSPC@2+"

A rule is ``pattern=action[@n[+]]``, rules are joined by ``;``. The pattern is a point's name or a
glob over names. Of the hits of all points that match, a rule acts on the n-th (``@n``), from the
n-th on (``@n+``), or on every one. Actions: ``kill`` and ``stop`` (SIGKILL, SIGSTOP to this
process), ``exit:CODE``, ``raise:ERRNO`` (an OSError, by its name), ``sleep:MILLISECONDS``,
``trace`` (nothing).

``ARENA_FAILPOINTS_ONCE`` may name a file that does not exist. The first process that acts creates
it, and no other process ever acts, so that a replacement process survives.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SWITCH = "ARENA_TESTING"
RULES = "ARENA_FAILPOINTS"
ONCE = "ARENA_FAILPOINTS_ONCE"

_RULE = re.compile(
    r"(?P<pattern>[a-z_.*]+)="
    r"(?P<action>kill|stop|trace|exit:[0-9]+|raise:E[A-Z0-9]+|sleep:[0-9]+)"
    r"(@(?P<first>[1-9][0-9]*)(?P<on>\+)?)?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Action at the points whose names match.

    Attributes:
        pattern: Glob over names.
        action: ``kill``, ``stop``, ``trace``, or ``exit``, ``raise``, ``sleep`` with an argument.
        argument: Argument of the action; empty without one.
        first: First hit that it acts on, from 1.
        last: Last hit that it acts on. None: there is none.
    """

    pattern: str
    action: str
    argument: str = ""
    first: int = 1
    last: int | None = None


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Parse rules in the syntax of ``ARENA_FAILPOINTS``.

    Raises:
        ValueError: If one is malformed, or names no error of this system.
    """
    return tuple(_parse_rule(part.strip()) for part in text.split(";") if part.strip())


def _parse_rule(text: str) -> Rule:
    match = _RULE.fullmatch(text)
    if match is None:
        raise ValueError(f"a failpoint's rule must be pattern=action[@n[+]], got {text!r}")
    action, _, argument = match["action"].partition(":")
    # The name is checked here, because a misspelled error would let a test pass without its fault.
    if action == "raise" and not hasattr(errno, argument):
        raise ValueError(f"a failpoint raises errors of errno, {argument!r} is none")
    first = int(match["first"] or 1)
    # A rule without @n acts on every hit, as @1+ does.
    is_open = match["first"] is None or match["on"] is not None
    return Rule(
        pattern=match["pattern"],
        action=action,
        argument=argument,
        first=first,
        last=None if is_open else first,
    )


class Plan:
    """Rules in force, and the points hit under them. Safe to use from several threads.

    Attributes:
        trace: Names of all points that were hit, in order.
    """

    def __init__(self, rules: tuple[Rule, ...], *, once: Path | None = None) -> None:
        self._rules = rules
        self._once = once
        self._hits = [0] * len(rules)
        self._lock = threading.Lock()
        self.trace: list[str] = []

    def hit(self, name: str) -> None:
        """Count a hit, and act on it.

        Raises:
            OSError: If a rule raises it.
        """
        # Hits are counted with the lock and acted on without it: a sleep must not stop other
        # threads.
        with self._lock:
            self.trace.append(name)
            # All rules are evaluated, also those after one that acts, because each counts its
            # hits.
            due = [rule for index, rule in enumerate(self._rules) if self._is_due(index, name)]
        for rule in due:
            # The file is only for the first process that really acts, so `trace` does not create
            # it.
            if rule.action == "trace":
                continue
            # The file is created before the action, because `kill` leaves no time afterwards.
            if self._once is None or _is_first(self._once):
                _act(rule, name)

    def _is_due(self, index: int, name: str) -> bool:
        rule = self._rules[index]
        # `fnmatch` would ignore case on some systems.
        if not fnmatch.fnmatchcase(name, rule.pattern):
            return False
        self._hits[index] += 1
        # Without a last hit, the hit itself is the bound.
        return rule.first <= self._hits[index] <= (rule.last or self._hits[index])


def _is_first(path: Path) -> bool:
    try:
        # With O_EXCL only one of several simultaneous processes succeeds.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True


def _act(rule: Rule, name: str) -> None:
    # `trace` matches no case here, because the hit is recorded already.
    match rule.action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "exit":
            # `os._exit` runs no handlers and flushes nothing, as in a crash, but has an exit code.
            os._exit(int(rule.argument))
        case "raise":
            number: int = getattr(errno, rule.argument)
            raise OSError(number, f"{os.strerror(number)} (failpoint {name})")
        case "sleep":
            time.sleep(int(rule.argument) / 1000)


def _from_environment() -> Plan | None:
    # Two variables are required, so that a forgotten one cannot break a real run.
    if os.environ.get(SWITCH) != "1" or RULES not in os.environ:
        return None
    once = os.environ.get(ONCE)
    return Plan(parse_rules(os.environ[RULES]), once=None if once is None else Path(once))


# The plan is read once, at import: only `armed` can change it later.
_plan = _from_environment()


def failpoint(name: str) -> None:
    """Mark a point of the product; costs one variable read unless a test has armed it.

    Args:
        name: ``part.step``, lower case: a step that has just happened or is about to.

    Raises:
        OSError: If a test raises it.
    """
    if _plan is not None:
        _plan.hit(name)


@contextlib.contextmanager
def armed(rules: str) -> Iterator[Plan]:
    """Put rules in force in this process for a while; the plan's ``trace`` lists the hits."""
    global _plan
    # Plans may be nested, so the previous one is restored at the end.
    before, plan = _plan, Plan(parse_rules(rules))
    _plan = plan
    try:
        yield plan
    finally:
        _plan = before
