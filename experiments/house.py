"""Measure the code: lines by room beside their budgets, and how it reads.

    python -m experiments.house                    # this checkout
    python -m experiments.house ../before .        # two checkouts, one after the other
    python -m experiments.house --check            # exit 1 if a room, or the sum, is over budget
    python -m experiments.house --lower            # budgets become today's figures and a hundredth

Rooms and their budgets are in `budgets.toml`. ``code`` are lines with code: no docstrings or other
statements that are only a string, no comments, no blank lines. ``types`` are dataclasses, pydantic
models, Structs, NamedTuples and TypedDicts. ``module`` and ``function`` are the longest, in such
lines.

A ring is a set of children of one package, modules or packages, of which each reaches all others by
imports, those under ``TYPE_CHECKING`` too.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

PRODUCT = ("arena", "populations", "tools", "configs")
FOLDERS = (*PRODUCT, "tests", "experiments")

NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}

Module = tuple[str, ...]


TYPE_BASES: set[Module] = {
    ("dataclasses", "dataclass"),
    ("msgspec", "Struct"),
    ("pydantic", "BaseModel"),
    ("typing", "NamedTuple"),
    ("typing", "TypedDict"),
}
BUDGETS = Path(__file__).with_name("budgets.toml")
PRODUCT_ROOM = "arena, populations, tools"
"""All rooms of the product together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Size of a module, or of a room of several."""

    code: int
    modules: int
    types: int
    module: int
    function: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Figures about how the product's code reads."""

    functions_over_60_lines: int
    most_modules_in_a_folder: int
    largest_folder: str
    rings: int
    comment_share: float


def main(argv: Sequence[str] | None = None) -> None:
    """Print the figures of each checkout, or check them against the budgets."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkouts", nargs="*", type=Path, default=[Path()])
    parser.add_argument("--check", action="store_true", help="only what is over its budget")
    parser.add_argument("--lower", action="store_true", help="write lower budgets")
    options = parser.parse_args(argv)
    over = False
    for root in options.checkouts:
        budgets = tomllib.loads(BUDGETS.read_text(encoding="utf8"))
        sizes = rooms(root, budgets["rooms"])
        found = beyond(sizes, budgets)
        over = over or bool(found)
        if not options.check:
            _print(root, sizes, budgets)
        if options.lower:
            BUDGETS.write_text(lowered(BUDGETS.read_text(encoding="utf8"), sizes), encoding="utf8")
        sys.stdout.writelines(f"{line}\n" for line in found)
    if options.check and over:
        raise SystemExit(1)


def _print(root: Path, sizes: Mapping[str, Size], budgets: Mapping[str, Any]) -> None:
    width = max(map(len, sizes))
    names = tuple(Size.__slots__)
    sys.stdout.write(f"{root!s:{width}}" + "".join(f"{n:>10}" for n in (*names, "budget")))
    sys.stdout.write("\n")
    for room, size in sizes.items():
        numbers = (*(getattr(size, name) for name in names), allowed(room, budgets))
        sys.stdout.write(f"{room:{width}}" + "".join(f"{n:>10,}" for n in numbers) + "\n")
    for name, value in asdict(reading(root)).items():
        sys.stdout.write(f"{name.replace('_', ' ')}: {value}\n")


def allowed(room: str, budgets: Mapping[str, Any]) -> int:
    """Return the budget of a room, in lines of code, with what is being built in it."""
    table = budgets["product"] if room == PRODUCT_ROOM else budgets["rooms"][room]
    building = sum(
        int(entry["lines"])
        for entry in budgets.get("building", ())
        if room == PRODUCT_ROOM or room in entry["rooms"]
    )
    return int(table["code"]) + building


def beyond(sizes: Mapping[str, Size], budgets: Mapping[str, Any]) -> list[str]:
    """Say which rooms are over their budgets."""
    return [
        f"{room} has {size.code:,} lines of code, its budget is {allowed(room, budgets):,}"
        for room, size in sizes.items()
        if size.code > allowed(room, budgets)
    ]


def lowered(text: str, sizes: Mapping[str, Size]) -> str:
    """Return the text of `BUDGETS` with budgets no higher than these sizes and their hundredth."""
    now = tomllib.loads(text)
    for room, size in sizes.items():
        table = "product" if room == PRODUCT_ROOM else f'rooms."{room}"'
        before = now["product"] if room == PRODUCT_ROOM else now["rooms"][room]
        budget = min(before["code"], size.code + max(30, size.code // 100))
        # Replace the first number after the table's header.
        text = re.sub(
            rf"(\[{re.escape(table)}\][^\[]*(?:\[[^\]]*\])?[^\[]*?\ncode = )\d+",
            rf"\g<1>{budget}",
            text,
        )
    return text


def rooms(root: Path, places: Mapping[str, Any]) -> dict[str, Size]:
    """Measure each room of a checkout, and last all of the product.

    Args:
        root: Directory of the checkout.
        places: By room, at least ``paths``: what is in it begins with one of these. The longest
            one decides.

    Raises:
        ValueError: If a module is in no room.
    """
    paths = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*.py"))]
    trees = {path: ast.parse(path.read_text(encoding="utf8")) for path in paths}
    data = data_types({module_of(path.relative_to(root)): tree for path, tree in trees.items()})
    found: dict[str, list[Size]] = {room: [] for room in places}
    of_product = []
    for path, tree in trees.items():
        name = path.relative_to(root).as_posix()
        begins = [
            (len(prefix), room)
            for room, place in places.items()
            for prefix in place["paths"]
            if name.startswith(prefix)
        ]
        if not begins:
            raise ValueError(f"{name} is in no room of {BUDGETS.name}")
        code = code_lines(path.read_text(encoding="utf8"), tree)
        size = Size(
            code=len(code),
            modules=1,
            types=sum(node in data for node in statements(tree)),
            module=len(code),
            function=max((len(code & lines) for lines in functions(tree)), default=0),
        )
        found[max(begins)[1]].append(size)
        if name.split("/")[0] in PRODUCT:
            of_product.append(size)
    return {room: total(sizes) for room, sizes in {**found, PRODUCT_ROOM: of_product}.items()}


def total(sizes: Sequence[Size]) -> Size:
    """Add up modules."""
    return Size(
        code=sum(size.code for size in sizes),
        modules=len(sizes),
        types=sum(size.types for size in sizes),
        module=max((size.module for size in sizes), default=0),
        function=max((size.function for size in sizes), default=0),
    )


def code_lines(text: str, tree: ast.Module) -> set[int]:
    """Return the numbers of the lines that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for statement in lone_strings(tree):
        lines.difference_update(range(statement.lineno, (statement.end_lineno or 0) + 1))
    return lines


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield a tree and all statements in it, with handlers and cases: few of its nodes."""
    yield tree
    for name in ("body", "handlers", "cases", "orelse", "finalbody"):
        for inner in getattr(tree, name, ()):
            yield from statements(inner)


def functions(tree: ast.Module) -> Iterator[set[int]]:
    """Yield the numbers of each function's lines."""
    for node in statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def data_types(trees: Mapping[Module, ast.Module]) -> set[ast.ClassDef]:
    """Return the classes that are types of data, and those that derive from one.

    A base is what its module defines or imports by that name, not any class of the same name.

    Args:
        trees: Modules by their dotted names, in parts.
    """
    imports = {module: dict(imported(tree, module)) for module, tree in trees.items()}
    classes = [
        (module, node)
        for module, tree in trees.items()
        for node in statements(tree)
        if isinstance(node, ast.ClassDef)
    ]
    defined = {(*module, node.name) for module, node in classes}

    def full_name(module: Module, parts: Module) -> Module:
        if (*module, *parts) in defined:
            return (*module, *parts)
        for cut in range(len(parts), 0, -1):
            if base := imports.get(module, {}).get(".".join(parts[:cut])):
                # A module may re-export a name, so its own imports are followed too.
                *home, name = (*base, *parts[cut:])
                return full_name(tuple(home), (name,))
        return (*module, *parts)

    named = [
        (
            (*module, node.name),
            node,
            {
                # The name ends before the first bracket, as in a.b.Base[T] and
                # a.b.dataclass(frozen=True).
                full_name(module, tuple(re.split(r"[\[(]", ast.unparse(above))[0].split(".")))
                for above in (*node.bases, *node.decorator_list)
            },
        )
        for module, node in classes
    ]
    known = set(TYPE_BASES)
    while new := {name for name, _, above in named if above & known} - known:
        known |= new
    return {node for _, node, above in named if above & known}


def reading(root: Path) -> Reading:
    """Measure how the product's code of a checkout reads."""
    trees = {
        path.relative_to(root): ast.parse(path.read_text(encoding="utf8"))
        for folder in PRODUCT
        for path in sorted((root / folder).rglob("*.py"))
    }
    texts = {path: (root / path).read_text(encoding="utf8") for path in trees}
    folders = Counter(path.parent.as_posix() for path in trees if path.name != "__init__.py")
    largest, most = folders.most_common(1)[0]
    comments = sum(num_comments(text) for text in texts.values())
    code = {path: code_lines(texts[path], tree) for path, tree in trees.items()}
    return Reading(
        functions_over_60_lines=sum(
            len(code[path] & lines) > 60
            for path, tree in trees.items()
            for lines in functions(tree)
        ),
        most_modules_in_a_folder=most,
        largest_folder=largest,
        rings=sum(len(rings(graph)) for graph in children(trees).values()),
        comment_share=round(comments / sum(text.count("\n") for text in texts.values()), 4),
    )


def lone_strings(tree: ast.Module) -> Iterator[ast.Expr]:
    """Yield the docstrings of a module, its classes and functions, and texts below constants."""
    for node in statements(tree):
        for statement in getattr(node, "body", ()):
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield statement


def num_comments(text: str) -> int:
    """Count lines that are or end with a comment for people."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(
        token.type == tokenize.COMMENT and not token.string.startswith(("# noqa", "# type:"))
        for token in tokens
    )


def children(trees: Mapping[Path, ast.Module]) -> dict[Module, dict[str, set[str]]]:
    """Return the imports between the children of each package, by package."""
    names = {module_of(path): path for path in trees}
    graphs: dict[Module, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path, tree in trees.items():
        importing = module_of(path)
        for _, name in imported(tree, importing):
            # An imported name may be a module, or something inside one.
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


def imported(tree: ast.Module, importing: Module) -> Iterator[tuple[str, Module]]:
    """Yield what a module imports, wherever in it: its name there, and its full name in parts."""
    for node in statements(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name, tuple(alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            above = importing[: -node.level] if node.level else ()
            module = tuple((node.module or "").split(".")) if node.module else ()
            for alias in node.names:
                yield alias.asname or alias.name, (*above, *module, alias.name)


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
