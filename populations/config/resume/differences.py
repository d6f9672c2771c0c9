"""Differences between the world that a run was made in and the one in which it goes on.

Tests: `tests/populations/config/resume/test_differences.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from pydantic import TypeAdapter

from arena.environment_spec import EnvironmentSpec
from arena.learners.versions import Differences, differences, installed
from arena.rules import shown
from populations.records.rows import Json

_SPEC = TypeAdapter(EnvironmentSpec)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Key of two configurations; ``before`` and ``after`` are plain data."""

    key: str
    before: Json
    after: Json


def other_versions(recorded: Mapping[str, str]) -> Differences:
    """Return packages whose version differs here from the run's."""
    return differences(recorded, installed(recorded))


def other_code(recorded: Mapping[str, str], code: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return modules and packages of users whose source differs from that of the run.

    What only one of both has follows from the configuration, or from what is not imported always.
    """
    return {
        name: (then, code[name])
        for name, then in recorded.items()
        if name in code and code[name] != then
    }


def other_facts(recorded: EnvironmentSpec, spec: EnvironmentSpec) -> list[str]:
    """Return the facts in which an environment differs from the run's, a sentence for each."""
    before, after = _facts(recorded), _facts(spec)
    # A run whose critics read no state recorded none.
    if recorded.state is None:
        del before["state"], after["state"]
    ours = cast("dict[str, Json]", before.pop("agent_specs"))
    theirs = cast("dict[str, Json]", after.pop("agent_specs"))
    # Agents that only one of both has are told by the list of agents.
    of_agents: dict[str, list[str]] = {}
    for agent in ours:
        for sentence in _differences(ours[agent], theirs.get(agent, ours[agent])):
            of_agents.setdefault(sentence, []).append(agent)
    return [
        *_differences(before, after),
        *(f"{sentence} (of {', '.join(agents)})" for sentence, agents in of_agents.items()),
    ]


def _facts(spec: EnvironmentSpec) -> dict[str, Json]:
    facts = _SPEC.dump_python(spec, mode="json")
    # Other packages are no other environment: `other_versions` finds them.
    del facts["versions"]
    return cast("dict[str, Json]", facts)


def _differences(before: Json, after: Json) -> list[str]:
    return [
        f"{change.key} was {shown(change.before)} and is {shown(change.after)}"
        for change in compare(before, after)
        if change.before != change.after
    ]


def compare(before: Json, after: Json, *, path: tuple[str, ...] = ()) -> Iterator[Change]:
    """Yield each key of two configurations by its dotted path, keys with equal values included.

    Args:
        before: Configuration as plain data.
        after: Another one.
        path: Keys that lead to both.
    """
    if isinstance(before, Mapping) and isinstance(after, Mapping) and (before or after):
        # A key that one side lacks counts as null there.
        for key in dict.fromkeys((*before, *after)):
            yield from compare(before.get(key), after.get(key), path=(*path, key))
    else:
        yield Change(key=".".join(path), before=before, after=after)
