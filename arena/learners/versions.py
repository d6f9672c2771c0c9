"""Versions of the packages that results depend on. Torch-free.

A run records them, and a learner that joins reports its own.

Tests: `tests/arena/learners/test_proof.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version

from arena.types import PackageVersion

RECORDED_PACKAGES = ("arena-league", "torch", "numpy", "pettingzoo", "gymnasium", "optuna", "pyzmq")

Differences = Mapping[str, tuple[str, str | None]]
"""Packages whose versions differ: the recorded one and the one found; None: absent."""


def installed(packages: Iterable[str]) -> dict[str, PackageVersion]:
    """Return the installed versions of packages; optional ones may be absent."""
    found = {}
    for package in packages:
        try:
            found[package] = PackageVersion(version(package))
        except PackageNotFoundError:
            continue
    return found


def differences(recorded: Mapping[str, str], found: Mapping[str, str]) -> Differences:
    """Return the recorded packages whose installed version differs or is missing."""
    return {
        package: (then, found.get(package))
        for package, then in recorded.items()
        if found.get(package) != then
    }


def told(different: Differences, *, place: str) -> str:
    """Return the versions in words, as ``torch 2.13.0 (here 2.12.1), ...``.

    Args:
        different: Packages that differ; at least one.
        place: Place where the other versions are.
    """
    return ", ".join(
        f"{name} {then} ({place} {now or 'none'})" for name, (then, now) in different.items()
    )


def pip_command(different: Differences) -> str:
    """Return the command that installs the recorded versions."""
    return f"pip install {' '.join(f'{name}=={then}' for name, (then, _) in different.items())}"
