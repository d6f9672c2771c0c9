"""The page of metrics, and the names that the code publishes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from arena.metrics.names import EVALUATION_METRICS, TRAFFIC_METRICS, TRAINING_METRICS
from docs.generate.markdown import code, table
from docs.generate.repository import modules, nodes
from populations.controller.monitoring.metric_names import (
    CHECKPOINT_METRICS,
    RUN_METRICS,
    SETTING_METRICS,
)

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Each training assignment, measured by its learner": TRAINING_METRICS,
    "Settings of the same assignment": SETTING_METRICS,
    "Each evaluated checkpoint": CHECKPOINT_METRICS,
    "The run": RUN_METRICS,
    "Each evaluation assignment, in the journal alone": EVALUATION_METRICS,
    "Each assignment of a learner that does not see the run's directory": TRAFFIC_METRICS,
}

NAME = re.compile(r"([a-z]+)/[a-z_]+")


def page() -> str:
    """Return the tables of metrics."""
    return "\n".join(
        f"## {title}\n\n{table(['name', 'meaning'], [(code(n), names[n]) for n in names])}"
        for title, names in GROUPS.items()
    )


def known_names() -> list[str]:
    """Return all names; ``<...>`` stands for a subject."""
    return [name for names in GROUPS.values() for name in names]


def patterns() -> list[re.Pattern[str]]:
    """Return a pattern for each name, with any subject."""
    return [
        re.compile("[A-Za-z0-9_.-]+".join(map(re.escape, re.split("<[a-z]+>", name))))
        for name in known_names()
    ]


def published_names() -> Iterator[tuple[str, str]]:
    """Yield names of metrics in the code, each with its module.

    Parts that are known only when it runs are ``x``; a prefix ends with ``_`` or ``/``.
    """
    groups = {name.partition("/")[0] for name in known_names()}
    for path, tree in modules("arena", "populations"):
        # Column titles look like metric names, but are not metrics.
        if path.name in ("names.py", "metric_names.py") or "views" in path.parts:
            continue
        inner = {
            id(part)
            for node in nodes(tree)
            if isinstance(node, ast.JoinedStr)
            for part in node.values
        }
        for node in nodes(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found = NAME.fullmatch(node.value)
                # The group is checked because an environment's id looks like a metric's name.
                if found and found[1] in groups and id(node) not in inner:
                    yield node.value, str(path)
            elif isinstance(node, ast.JoinedStr):
                parts = [getattr(part, "value", "x") for part in node.values]
                text = "".join(part if isinstance(part, str) else "x" for part in parts)
                if text.partition("/")[0] in groups and "/" in text and " " not in text:
                    yield text, str(path)
