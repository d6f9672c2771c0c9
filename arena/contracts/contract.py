"""The exception of all suites, and how a rule is checked. Torch-free.

Tests: `tests/contracts/test_faults.py`.
"""

from __future__ import annotations

import contextlib
import inspect
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np

from arena.rules import shown
from arena.users_code import message_of, pass_interrupt

T = TypeVar("T")

_NOTHING = object()


class ContractBroken(AssertionError):
    """A rule of a contract that an object breaks.

    Attributes:
        name: Name of the object.
        rule: The rule, in one sentence.
        found: Value or error that breaks it; empty where the rule says all.
    """

    def __init__(self, name: str, *, rule: str, found: str = "") -> None:
        """Build the message."""
        self.name, self.rule, self.found = name, rule, found
        super().__init__(f"{name}: {rule}{f': {found}' if found else ''}")


@dataclass(frozen=True, slots=True)
class Subject:
    """Object that a suite checks.

    Attributes:
        name: Name in messages.
    """

    name: str

    def must(self, rule: str, holds: object, *, got: object = _NOTHING, found: str = "") -> None:
        """Check one rule.

        Args:
            rule: The rule, in one sentence.
            holds: Whether it holds.
            got: Value that breaks it.
            found: Words about it, where there is no such value.

        Raises:
            ContractBroken: If it does not hold.
        """
        if not holds:
            found = found if got is _NOTHING else f"got {shown(got)}"
            raise ContractBroken(self.name, rule=rule, found=found)

    @contextlib.contextmanager
    def obeying(self, rule: str) -> Iterator[None]:
        """Run code of the object, which breaks a rule if it raises.

        Raises:
            ContractBroken: With the error and the lines of the user's own files.
        """
        try:
            yield
        except ContractBroken:
            raise
        except BaseException as error:
            pass_interrupt(error)
            # Arena's own message names the rule already, and perhaps the user's error.
            found = message_of(error, what="it")
            raise ContractBroken(self.name, rule=rule, found=found) from error

    @contextlib.contextmanager
    def drawing(self, rule: str) -> Iterator[None]:
        """Run code of the object that must leave global random generators alone.

        Raises:
            ContractBroken: If a state of ``random``, numpy's or torch's has changed.
        """
        before = _global_states()
        yield
        after = _global_states()
        used = [name for name in before if before[name] != after[name]]
        self.must(rule, not used, found=f"a draw from {' and '.join(used)}")

    def must_be(self, rule: str, kind: type[T], value: object) -> T:
        """Check that a value is of a type, and return it.

        Raises:
            ContractBroken: If it is of another one.
        """
        self.must(rule, isinstance(value, kind), got=value)
        return cast("T", value)

    @contextlib.contextmanager
    def answering(self, rule: str, *, draws: str) -> Iterator[None]:
        """Run code of the object that must neither raise nor draw from global generators.

        Args:
            rule: Rule that it breaks if it raises.
            draws: Rule that it breaks if it draws.

        Raises:
            ContractBroken: If it does.
        """
        with self.drawing(draws), self.obeying(rule):
            yield

    def repeats(
        self,
        rule: str,
        ask: Callable[[str], T],
        scenes: Iterable[str],
        *,
        told: Callable[[T], object] = str,
    ) -> dict[str, T]:
        """Check that equal questions get equal answers, and return the answers by scene.

        Args:
            rule: The rule, in one sentence.
            ask: Asks the object about a scene.
            scenes: Names of the scenes.
            told: Shows an answer.

        Raises:
            ContractBroken: If a second answer differs.
        """
        answers = {scene: ask(scene) for scene in scenes}
        # The second round is in another order, which reveals a state of the object.
        for scene, answer in reversed(answers.items()):
            again = ask(scene)
            found = f"{told(answer)}, then {told(again)} of {scene}"
            self.must(rule, again == answer, found=found)
        return answers

    def takes(self, owner: object, method: str, *arguments: object, **keywords: object) -> None:
        """Check that an object has a method that can be called with these arguments.

        Raises:
            ContractBroken: If not.
        """
        names = ", ".join([*("..." for _ in arguments), *keywords])
        found = getattr(owner, method, None)
        self.must(f"it must have a method {method}", callable(found), got=found)
        assert callable(found)
        with contextlib.suppress(ValueError):
            # Some callables are not written in Python and have no signature, which raises
            # ValueError.
            signature = inspect.signature(found)
            try:
                signature.bind(*arguments, **keywords)
            except TypeError as error:
                rule = f"its method {method} must take ({names})"
                found_signature = f"got {method}{signature}: {error}"
                raise ContractBroken(self.name, rule=rule, found=found_signature) from error

    def made(self, make: Callable[..., T], rule: str, *arguments: object, **keywords: object) -> T:
        """Return the object that a class makes.

        Raises:
            ContractBroken: If it cannot be made.
        """
        with self.obeying(rule):
            return make(*arguments, **keywords)

    def given(
        self,
        given: T | type[T] | str,
        rule: str,
        find: Callable[[str], T],
        *arguments: object,
        **keywords: object,
    ) -> T:
        """Return the object that a suite is given: itself, made by its class, or found by name.

        Args:
            given: One of these.
            rule: Rule that is broken if it cannot be made or found.
            find: Finds it by its name.
            arguments: Arguments of the class.
            keywords: Keyword arguments of the class.

        Raises:
            ContractBroken: If it cannot be made or found.
        """
        if isinstance(given, str):
            return self.made(find, rule, given)
        return self.made(given, rule, *arguments, **keywords) if isinstance(given, type) else given


def name_of(given: object) -> str:
    """Return a name for messages: a reference itself, ``module:Class`` of a class or an object."""
    if isinstance(given, str):
        return given
    named = given if isinstance(given, type) or inspect.isfunction(given) else type(given)
    return f"{named.__module__}:{named.__qualname__}"


def reference_of(given: str | Callable[..., object]) -> str:
    """Return the reference by which a run finds a class: ``package.module:Class``.

    Raises:
        ContractBroken: If a run could not find it.
    """
    name = name_of(given)
    if isinstance(given, str):
        return name
    found: object = sys.modules.get(name.partition(":")[0])
    for part in name.partition(":")[2].split("."):
        found = getattr(found, part, None)
    rule = "a class must be found by package.module:Class, at the top of a module"
    Subject(name).must(rule, found is given, got=name)
    return name


def _global_states() -> dict[str, object]:
    _, numbers, position, *_ = np.random.get_state()
    numpys = (np.asarray(numbers).tobytes(), position)
    states: dict[str, object] = {"random": random.getstate(), "numpy.random": numpys}
    # torch is used only if it is imported, because suites of the controller's half need none.
    torch = sys.modules.get("torch")
    if torch is not None:
        states["torch"] = torch.get_rng_state().numpy().tobytes()
    return states
