"""Docstrings name their subject first: no question words, no dangling "of"."""

import ast
import re
from collections.abc import Iterator, Sequence

import pytest

from docs.generate.repository import modules, nodes

# The tests run in the group of the import tests, which read the same files.
pytestmark = pytest.mark.xdist_group("sources")

CHECKED = ("arena", "populations", "tools", "configs", "experiments", "docs")

QUESTION = re.compile(r"(What|Who|Whose|Where)\b")
ARGUMENT = re.compile(r"\s+\*{0,2}[a-z_]+: (Of|Who|Whose|What|Where)\b")


def docstrings(inner: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield line and text of docstrings, and of the texts below attributes and constants."""
    for node in inner:
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield statement.lineno, value.value


def options(inner: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield line and text of the help of command-line options."""
    for node in inner:
        if isinstance(node, ast.keyword) and node.arg == "help":
            texts = [leaf for leaf in ast.walk(node.value) if isinstance(leaf, ast.Constant)]
            if texts and isinstance(texts[0].value, str):
                yield texts[0].lineno, texts[0].value


def unread(tree: ast.Module) -> list[tuple[int, str]]:
    """Return lines whose reader has to rebuild the missing noun."""
    texts = [*docstrings(nodes(tree))]
    found = [(line, text.split("\n")[0]) for line, text in texts if QUESTION.match(text)]
    for start, text in texts:
        found += [
            (start + offset, line.strip())
            for offset, line in enumerate(text.split("\n"))
            if ARGUMENT.match(line)
        ]
    found += [
        (line, text) for line, text in options(nodes(tree)) if re.match(r"(Of|Who|What)\b", text)
    ]
    return sorted(found)


def test_docstrings_begin_with_their_subject() -> None:
    found = [
        f"{path}:{line}: {text}" for path, tree in modules(*CHECKED) for line, text in unread(tree)
    ]
    assert not found, "\n".join(found)


def test_lines_that_are_found() -> None:
    source = '''
def fit(players, seed):
    """What the ratings are.

    Args:
        players: Whose ratings.
        seed: Of the resampling.
        rounds: Rounds of play.
    """

SIZE = 3
"""Where it ends."""

option(help="Of each side.")
option(help="Rounds per measurement.")
'''
    assert unread(ast.parse(source)) == [
        (3, "What the ratings are."),
        (6, "players: Whose ratings."),
        (7, "seed: Of the resampling."),
        (12, "Where it ends."),
        (14, "Of each side."),
    ]
