"""The page of events, and the kinds that the code emits."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from docs.generate.markdown import code, table
from docs.generate.repository import modules, nodes, text_constants
from populations.records.event_kinds import (
    EVOLUTION_EVENTS,
    LEAGUE_EVENTS,
    LEARNER_EVENTS,
    RUN_EVENTS,
    STORAGE_EVENTS,
)

GROUPS: Mapping[str, Mapping[str, str]] = {
    "The run": RUN_EVENTS,
    "Learners and assignments": LEARNER_EVENTS,
    "Population-based training": EVOLUTION_EVENTS,
    "Ghosts, ratings, alerts": LEAGUE_EVENTS,
    "The disk, and repairs": STORAGE_EVENTS,
}

EMITTERS = ("add_event", "add_decision", "note_event", "_note")
"""Functions whose first argument is the kind of an event."""

KIND = re.compile(r"[a-z][a-z_]+")


def page() -> str:
    """Return the tables of events."""
    return "\n".join(
        f"## {title}\n\n{table(['kind', 'meaning'], [(code(k), kinds[k]) for k in kinds])}"
        for title, kinds in GROUPS.items()
    )


def emitted_kinds() -> dict[str, str]:
    """Return the kinds of events that the code emits, each with one of its modules."""
    found: dict[str, str] = {}
    # `arena` emits no events.
    for path, tree in modules("populations", "tools"):
        for kind in _kinds(tree):
            found.setdefault(kind, str(path))
    return found


def _kinds(tree: ast.Module) -> Iterator[str]:
    local = _local_texts(tree)
    for node in nodes(tree):
        if isinstance(node, ast.Call) and _name(node) in EMITTERS and node.args:
            yield from _texts(node.args[0], local)
        elif isinstance(node, ast.Call) and _name(node) == "EventRow":
            kinds = [one.value for one in node.keywords if one.arg == "kind"]
            yield from (text for kind in kinds for text in _texts(kind, local))
        # A tuple (kind, subject, data) is turned into an event row by its caller.
        elif isinstance(node, ast.Tuple) and len(node.elts) == 3 and _is_data(node.elts[2]):
            yield from _texts(node.elts[0], local)


def _name(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_data(node: ast.expr) -> bool:
    return isinstance(node, ast.Dict) or getattr(node, "id", "") in ("data", "about", "origin")


def _local_texts(tree: ast.Module) -> dict[str, set[str]]:
    """Return the texts that local variables can have, by name: ``kind = "a" if b else "c"``."""
    found: dict[str, set[str]] = {}
    for node in nodes(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    texts = found.setdefault(target.id, set())
                    texts |= {text for text in _texts(node.value, {}) if KIND.fullmatch(text)}
    return found


def _texts(node: ast.expr, local: Mapping[str, set[str]]) -> Iterator[str]:
    """Yield the texts that an expression can be."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body, local)
        yield from _texts(node.orelse, local)
    elif isinstance(node, ast.Name):
        yield from local.get(node.id, set()) or text_constants().get(node.id, set())
    elif isinstance(node, ast.JoinedStr) and len(node.values) == 2:
        # The pattern is f"run_{ended}": yield the text followed by each value of the variable.
        prefix, value = node.values
        start = prefix.value if isinstance(prefix, ast.Constant) else None
        if isinstance(start, str) and isinstance(value, ast.FormattedValue):
            yield from (f"{start}{text}" for text in _texts(value.value, local))
