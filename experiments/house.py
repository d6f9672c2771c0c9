"""Measure how the code reads: folders, rings, functions, docstrings, comments.

    python -m experiments.house                    # this checkout
    python -m experiments.house ../before .        # two checkouts, side by side

``unread docstrings`` begin with What, Who, Whose or Where, ``unread arguments`` are lines about an
argument, an attribute or a result that begin with Of, Who or Whose: the reader has to rebuild the
missing noun. A ring is a set of children of one package, modules or packages, of which each
reaches all others by imports, those under ``TYPE_CHECKING`` too.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path

PRODUCT = ("arena", "populations", "tools", "configs")

RULES = re.compile(
    r"populations/(controller/.+|matchmaking|pbt|ratings|league|evaluation)/[a-z_]+\.py"
)
"""Modules that decide something, each of which has a test file of its own."""

UNREAD = re.compile(r"(What|Who|Whose|Where)\b")
UNREAD_ARGUMENT = re.compile(r"\s+[a-z_]+: (Of|Who|Whose)\b")

Module = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures of one checkout."""

    files: int
    lines: int
    lines_without_docstrings: int
    most_modules_in_a_folder: int
    largest_folder: str
    rings: int
    longest_function: int
    functions_over_60_lines: int
    docstrings: int
    unread_docstrings: int
    unread_arguments: int
    comment_share: float
    rules: int
    rules_with_a_test_file: int


def main(argv: Sequence[str] | None = None) -> None:
    """Print one line of JSON for each checkout."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkouts", nargs="*", type=Path, default=[Path()])
    for root in parser.parse_args(argv).checkouts:
        document = {"checkout": str(root), **asdict(measured(root))}
        sys.stdout.write(f"{json.dumps(document)}\n")


def measured(root: Path) -> Figures:
    """Measure the product's code of a checkout."""
    trees = {
        path.relative_to(root): ast.parse(path.read_text(encoding="utf8"))
        for folder in PRODUCT
        for path in sorted((root / folder).rglob("*.py"))
    }
    texts = {path: (root / path).read_text(encoding="utf8") for path in trees}
    folders = Counter(path.parent.as_posix() for path in trees if path.name != "__init__.py")
    largest, most = folders.most_common(1)[0]
    functions = [length for tree in trees.values() for length in function_lengths(tree)]
    docstrings = [text for tree in trees.values() for text in docstrings_of(tree)]
    lines = sum(text.count("\n") for text in texts.values())
    told = sum(text.count("\n") + 1 for text in docstrings)
    comments = sum(num_comments(text) for text in texts.values())
    rules = [path for path in trees if RULES.fullmatch(path.as_posix())]
    rules = [path for path in rules if path.name != "__init__.py"]
    return Figures(
        files=len(trees),
        lines=lines,
        lines_without_docstrings=lines - told,
        most_modules_in_a_folder=most,
        largest_folder=largest,
        rings=sum(len(rings(graph)) for graph in children(trees).values()),
        longest_function=max(functions),
        functions_over_60_lines=sum(length > 60 for length in functions),
        docstrings=len(docstrings),
        unread_docstrings=sum(bool(UNREAD.match(text)) for text in docstrings),
        unread_arguments=sum(
            bool(UNREAD_ARGUMENT.match(line)) for text in docstrings for line in text.split("\n")
        ),
        comment_share=round(comments / lines, 4),
        rules=len(rules),
        rules_with_a_test_file=sum(has_test(root, path) for path in rules),
    )


def function_lengths(tree: ast.Module) -> Iterator[int]:
    """Yield the lines of each function, its docstring left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node, clean=False)
            told = 0 if docstring is None else docstring.count("\n") + 1
            yield (node.end_lineno or node.lineno) - node.lineno + 1 - told


def docstrings_of(tree: ast.Module) -> Iterator[str]:
    """Yield the docstrings of a module, its classes and functions, and texts below its
    constants.
    """
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.value


def num_comments(text: str) -> int:
    """Count lines that are or end with a comment for people."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(
        token.type == tokenize.COMMENT and not token.string.startswith(("# noqa", "# type:"))
        for token in tokens
    )


def has_test(root: Path, path: Path) -> bool:
    """Return whether the tests mirror a module."""
    return (root / "tests" / path.parent / f"test_{path.name}").is_file()


def children(trees: Mapping[Path, ast.Module]) -> dict[Module, dict[str, set[str]]]:
    """Return the imports between the children of each package, by package."""
    names = {module_of(path): path for path in trees}
    graphs: dict[Module, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path, tree in trees.items():
        importing = module_of(path)
        for name in imported(tree, importing):
            # A name may be a module, or something in one.
            found = name if name in names else name[:-1]
            pairs = zip(importing, found, strict=False)
            level = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            if found in names and 0 < level < min(len(importing), len(found)):
                graphs[found[:level]][importing[level]].add(found[level])
    return graphs


def module_of(path: Path) -> Module:
    """Return the dotted name of a file, in parts."""
    parts = path.with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def imported(tree: ast.Module, importing: Module) -> Iterator[Module]:
    """Yield the names that a module imports, wherever in it, in parts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = importing[: -node.level] if node.level else ()
            module = tuple((node.module or "").split(".")) if node.module else ()
            yield from ((*above, *module, alias.name) for alias in node.names)


def rings(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Return sets of nodes of which each reaches all others, in the order of their names."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        ahead = [start]
        while ahead:
            new = graph.get(ahead.pop(), set()) - seen
            seen |= new
            ahead += new
        return seen

    reach = {node: reached(node) for node in graph}
    found: list[set[str]] = []
    for node in sorted(graph):
        ring = {other for other in reach[node] if node in reach.get(other, set())}
        if len(ring) > 1 and ring not in found:
            found.append(ring)
    return found


if __name__ == "__main__":
    main()
