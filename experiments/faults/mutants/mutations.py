"""Seeded mutants of the product: small edits of single statements, drawn evenly over the packages.

The same seed, number and code give the same mutants. A statement is drawn first, then one of the
ways in which it can be mutated. Docstrings, annotations, messages of errors, decorators and
``__all__`` are left as they are.
"""

from __future__ import annotations

import ast
import hashlib
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

PRODUCT = ("arena", "populations", "tools")

PAIRS: tuple[tuple[type[ast.cmpop], type[ast.cmpop]], ...] = (
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
)
COMPARISONS = dict(PAIRS) | {second: first for first, second in PAIRS}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
}
DEFAULTS = {"int": "0", "float": "0.0", "bool": "False", "str": "''", "list": "[]", "tuple": "()"}
DEFAULTS |= {"dict": "{}", "set": "set()"}
"""Results of mutated functions by their annotation; None where it is another."""

SYMMETRIC = {"min", "max", "math.isclose", "torch.equal", "np.array_equal", "torch.minimum"}

Change = tuple[str, ast.expr | ast.stmt, str]
"""Kind of the mutation, the node that is replaced, and the text in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """An edit of one file: a mutant, or what plants a described fault.

    Attributes:
        group: Package of a mutant, area of a fault.
        kind: Kind of the mutation, or name of the fault.
        start: Offset of the replaced bytes in the file.
        tests: Test files that are to find it. None: those that reach the file.
    """

    group: str
    kind: str
    file: str
    line: int
    start: int
    before: str
    after: str
    tests: tuple[str, ...] | None = None

    @property
    def id(self) -> str:
        """Return a name that changes with place and edit; that of a fault is its own."""
        if self.tests is not None:
            return self.kind
        edit = f"{self.file}:{self.line}:{self.start}:{self.before}:{self.after}"
        return hashlib.sha256(edit.encode()).hexdigest()[:10]

    def planted(self, source: bytes) -> bytes:
        """Return the file's content with the edit."""
        end = self.start + len(self.before.encode())
        return source[: self.start] + self.after.encode() + source[end:]

    def differs(self, root: Path) -> bool:
        """Return whether the edit leaves Python that means something else."""
        source = (root / self.file).read_bytes()
        try:
            return ast.dump(ast.parse(self.planted(source))) != ast.dump(ast.parse(source))
        except SyntaxError:
            return False


def mutants(root: Path, *, number: int, seed: int) -> list[Edit]:
    """Return mutants of a checkout, each of another statement.

    Packages get as many as their share of the statements; of equal shares the first in the
    alphabet gets more.
    """
    statements: dict[str, list[list[Edit]]] = defaultdict(list)
    for file in sorted(path for folder in PRODUCT for path in (root / folder).rglob("*.py")):
        name = file.relative_to(root).as_posix()
        # Modules directly in `arena` or `populations` count as one package.
        package = "/".join(name.split("/")[:2]) if name.count("/") > 1 else name.split("/")[0]
        statements[package] += of_file(file.read_bytes(), file=name, package=package)
    found: list[Edit] = []
    sizes = {package: len(of_package) for package, of_package in statements.items()}
    for package, share in shares(sizes, number).items():
        rng = random.Random(f"{seed}/{package}")
        drawn = (_draw(choices, rng) for choices in rng.sample(statements[package], sizes[package]))
        found += islice((mutant for mutant in drawn if mutant.differs(root)), share)
    # The order is shuffled, so that an unfinished run covers all packages.
    random.Random(seed).shuffle(found)
    return found


def _draw(choices: Sequence[Edit], rng: random.Random) -> Edit:
    kind = rng.choice(sorted({mutant.kind for mutant in choices}))
    return rng.choice([mutant for mutant in choices if mutant.kind == kind])


def shares(sizes: Mapping[str, int], number: int) -> dict[str, int]:
    """Divide a number in proportion to sizes, the largest remainders rounded up."""
    total = sum(sizes.values())
    exact = {name: number * size / total for name, size in sorted(sizes.items())}
    found = {name: int(share) for name, share in exact.items()}
    left = number - sum(found.values())
    for name in sorted(exact, key=lambda name: found[name] - exact[name])[:left]:
        found[name] += 1
    return {name: min(share, sizes[name]) for name, share in found.items()}


def of_file(source: bytes, *, file: str, package: str) -> list[list[Edit]]:
    """Return the mutants of each statement of a file that has some, in the order of its lines."""
    offsets = [0]
    for line in source.split(b"\n"):
        offsets.append(offsets[-1] + len(line) + 1)
    tree = ast.parse(source)
    found = []
    for statement, result in _statements(tree, None):
        of_statement = []
        for kind, node, after in _edits(statement, result):
            start = offsets[node.lineno - 1] + node.col_offset
            end = offsets[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            of_statement.append(
                Edit(
                    group=package,
                    kind=kind,
                    file=file,
                    line=node.lineno,
                    start=start,
                    before=source[start:end].decode(),
                    after=after,
                )
            )
        if of_statement:
            found.append(of_statement)
    return found


def _statements(
    block: ast.AST, result: ast.expr | None
) -> Iterator[tuple[ast.stmt, ast.expr | None]]:
    """Yield what runs, with the annotation of the result of the function that it is in."""
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        for node in getattr(block, field, ()):
            if isinstance(node, ast.If) and re.search(
                "TYPE_CHECKING|__name__", ast.unparse(node.test)
            ):
                continue
            within = node.returns if isinstance(node, ast.FunctionDef) else result
            if isinstance(node, ast.stmt):
                yield node, within
            yield from _statements(node, within)


def _edits(statement: ast.stmt, result: ast.expr | None) -> Iterator[Change]:
    match statement:
        case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom() | ast.ClassDef():
            return
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return
        case (
            ast.Expr(value=ast.Call())
            | ast.AugAssign()
            | ast.Delete()
            | ast.Assign(targets=[ast.Attribute() | ast.Subscript()])
        ):
            yield "removed statement", statement, "pass"
        case ast.Continue() | ast.Break() | ast.Raise():
            # The arguments of an error are its message, so only the whole statement is removed.
            yield "removed statement", statement, "pass"
            return
        case ast.Return(value=ast.expr() as value):
            name = ast.unparse(result).split("[")[0] if result else ""
            yield "returned default", value, DEFAULTS.get(name, "None")
        case ast.If(test=test) | ast.While(test=test) | ast.Assert(test=test):
            yield "negated condition", test, f"not ({ast.unparse(test)})"
    for node in _expressions(statement):
        yield from _edits_of(node)


def _expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """Yield all expressions of a statement itself, without those that nothing computes with."""
    ahead: list[ast.AST] = []
    for name, value in ast.iter_fields(statement):
        if name not in {"body", "orelse", "handlers", "finalbody", "cases", "annotation"}:
            ahead += value if isinstance(value, list) else [value]
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        ahead = [*statement.args.defaults, *statement.args.kw_defaults]  # type: ignore[list-item]
    while ahead:
        node = ahead.pop(0)
        if isinstance(node, ast.JoinedStr) or not isinstance(node, ast.AST):
            continue
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal":
            continue
        if isinstance(node, ast.expr):
            yield node
        ahead += ast.iter_child_nodes(node)


def _edits_of(node: ast.expr) -> Iterator[Change]:
    match node:
        case ast.Compare(ops=[op, *more]):
            changed = [COMPARISONS[type(op)](), *more]
            yield "comparison", node, _text(ast.Compare(node.left, changed, node.comparators))
        case ast.BoolOp(op=op, values=values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield "comparison", node, _text(ast.BoolOp(other, values))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC and not any(
            map(_is_text, (left, right))
        ):
            yield "arithmetic", node, _text(ast.BinOp(left, ARITHMETIC[type(op)](), right))
        case ast.Constant(value=bool() as flag):
            yield "constant", node, str(not flag)
        case ast.Constant(value=int() | float() as number):
            yield "constant", node, str(number + 1)
            yield "constant", node, f"({number - 1})"
        case ast.IfExp(test=test):
            yield "negated condition", test, _text(ast.UnaryOp(ast.Not(), test))
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            for test in (test for loop in node.generators for test in loop.ifs):
                yield "negated condition", test, _text(ast.UnaryOp(ast.Not(), test))
        case ast.Call(func=function, args=[first, second, *_]) if not (
            ast.unparse(function) in SYMMETRIC
            or any(isinstance(argument, ast.Starred) for argument in (first, second))
        ):
            changed_call = ast.Call(function, [second, first, *node.args[2:]], node.keywords)
            yield "swapped arguments", node, ast.unparse(changed_call)


def _text(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )
