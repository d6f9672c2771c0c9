"""Access to the sources of the repository, from which the reference is made."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

PACKAGES = ("arena", "populations", "tools")


@cache
def parse(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf8"))


@cache
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """Return all nodes of a module; to find them takes longer than to parse the module."""
    return tuple(ast.walk(tree))


def modules(*packages: str) -> Iterator[tuple[Path, ast.Module]]:
    """Yield path and syntax tree of every module.

    Args:
        packages: Folders of the repository; without any, all that are installed.
    """
    for package in packages or PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT), parse(path)


@cache
def text_constants() -> dict[str, frozenset[str]]:
    """Return the texts that constants of modules have, by the constant's name."""
    found: dict[str, set[str]] = {}
    for _, tree in modules():
        for statement in tree.body:
            if isinstance(statement, ast.Assign):
                for name, value in _assigned(statement):
                    found.setdefault(name, set()).add(value)
    return {name: frozenset(values) for name, values in found.items()}


def _assigned(statement: ast.Assign) -> Iterator[tuple[str, str]]:
    for target in statement.targets:
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        values = statement.value.elts if isinstance(statement.value, ast.Tuple) else None
        for place, name in enumerate(names):
            value = statement.value if values is None else values[place : place + 1]
            one = value[0] if isinstance(value, list) and value else value
            text = one.value if isinstance(one, ast.Constant) else None
            if isinstance(name, ast.Name) and isinstance(text, str):
                yield name.id, text


def attribute_docs(path: Path, class_name: str) -> dict[str, str]:
    """Return the texts about a class's attributes: below each, or in ``Attributes:``."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            return {**_listed(ast.get_docstring(node) or ""), **_below(node)}
    return {}


def _below(node: ast.ClassDef) -> dict[str, str]:
    found = {}
    for before, after in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(before, ast.AnnAssign)
            and isinstance(before.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            found[before.target.id] = " ".join(after.value.value.split())
    return found


def _listed(docstring: str) -> dict[str, str]:
    found: dict[str, str] = {}
    name = ""
    _, has_attributes, section = docstring.partition("Attributes:\n")
    for line in section.splitlines() if has_attributes else ():
        indent = len(line) - len(line.lstrip())
        if not line.strip() or indent == 0:
            break
        if indent == 4:
            name, _, text = line.strip().partition(":")
            found[name] = text.strip()
        else:
            found[name] += f" {line.strip()}"
    return found
