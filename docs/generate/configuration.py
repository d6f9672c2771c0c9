"""The page of the configuration: every key, from the models and `configs/default.yaml`."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from arena.learning.hyperparameters import PpoHyperparameters, PpoSettings
from docs.generate.markdown import code, from_docstring
from docs.generate.repository import ROOT, attribute_docs, modules, nodes
from populations.config.run_config import RunConfig
from populations.matchmaking.kinds import KINDS
from populations.pbt.kinds import EXPLOITS, EXPLORES
from populations.preset_files import preset_text
from populations.rule_kinds import Kinds
from populations.thinning.make import THINNINGS
from populations.yaml_documents import read_document

Path_ = tuple[str, ...]
"""Parts of a dotted key; ``*`` stands for a name that users choose."""

RULES: tuple[tuple[str, str, Kinds], ...] = (
    ("matchmaking", "kind", KINDS),
    ("pbt", "exploit", EXPLOITS),
    ("pbt", "explore", EXPLORES),
    ("ghosts", "thinning", THINNINGS),
)
"""Section, the key in it that chooses a rule, and the rules."""

# These models check the dictionaries whose keys depend on the algorithm; Arena itself has PPO.
ALGORITHM: Mapping[Path_, type[BaseModel]] = {
    ("populations", "*", "algorithm_settings"): PpoSettings,
    ("populations", "*", "hyperparameters"): PpoHyperparameters,
}

BOUNDS = {
    "ge": "≥",
    "gt": ">",
    "le": "≤",
    "lt": "<",
    "min_length": "length ≥",
    "max_length": "length ≤",
}
NAMES = {str: "text", int: "integer", float: "number", bool: "true or false", object: "any value"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key of the configuration.

    Attributes:
        path: Parts of its dotted name.
        values: Values that it takes, in words.
        default: Default, as YAML has it; empty: the key is required, or has keys of its own.
        sentence: Meaning.
        readers: Rules and packages that read it.
    """

    path: Path_
    values: str
    default: str
    sentence: str
    readers: tuple[str, ...]

    @property
    def name(self) -> str:
        """Dotted name, with NAME for a name that users choose."""
        return ".".join("NAME" if part == "*" else part for part in self.path)


def page() -> str:
    """Return every key: those without a section first, then section by section."""
    found = all_keys()
    sections = list(dict.fromkeys(section_of(key.path) for key in found if len(key.path) > 1))
    top = [key for key in found if len(key.path) == 1 and key.path not in sections]
    parts = ["\n".join(map(entry, top))]
    for section in sections:
        about = next(key.sentence for key in found if key.path == section)
        of_section = [key for key in found if section_of(key.path) == section != key.path]
        title = ".".join("NAME" if part == "*" else part for part in section)
        parts.append(f"## `{title}`\n\n{about}\n\n" + "\n".join(map(entry, of_section)))
    return "\n".join(parts)


def entry(key: Key) -> str:
    """Return one key as Sphinx's directive for values of a configuration."""
    default = f":default: `{key.default}`\n" if key.default else ""
    readers = f"\n\nRead by {', '.join(key.readers)}." if key.readers else ""
    return (
        f"```{{confval}} {key.name}\n:type: {key.values}\n{default}\n{key.sentence}{readers}\n```\n"
    )


def all_keys() -> list[Key]:
    """Return every key, in the order of the models."""
    document, comments = read_document(preset_text("default"), name="default"), _comments()
    found = []
    for path, field, owner, inner in walk(RunConfig):
        value = _look_up(document, path)
        found.append(
            Key(
                path=path,
                values=_values(field) + (", required" if field.is_required() else ""),
                default="" if inner or field.is_required() else _default(field, value),
                sentence=comments.get(path) or _documented(owner, path[-1]),
                readers=(*_rules_that_read(path), *_packages_that_read(path)),
            )
        )
    return found


def walk(
    model: type[BaseModel], prefix: Path_ = ()
) -> Iterator[tuple[Path_, FieldInfo, type[BaseModel], list[type[BaseModel]]]]:
    """Yield path, field, model and inner models of every key.

    Keys of a population's own ``pbt`` are those of the section.
    """
    for attribute, field in model.model_fields.items():
        path = (*prefix, field.alias or attribute)
        inner = list(_inner_models(field.annotation))
        if path in ALGORITHM:
            inner.append((ALGORITHM[path], ()))
        yield path, field, model, [one for one, _ in inner]
        if path[-1] == "pbt" and len(path) > 1:
            continue
        for one, between in inner:
            yield from walk(one, (*path, *between))


def _inner_models(annotation: object) -> Iterator[tuple[type[BaseModel], Path_]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, ()
        return
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is dict:
        yield from ((inner, ("*", *rest)) for inner, rest in _inner_models(arguments[1]))
    elif origin in (Union, UnionType):
        yield from (found for one in arguments for found in _inner_models(one))
    elif origin in (tuple, Annotated) and arguments:
        yield from _inner_models(arguments[0])


def section_of(path: Path_) -> Path_:
    """Return the section under which a key is listed."""
    if path[0] == "populations" and len(path) > 1:
        inner = ("network", "algorithm_settings", "hyperparameters")
        return path[:3] if len(path) > 3 and path[2] in inner else path[:1]
    return path[:1]


def _values(field: FieldInfo) -> str:
    words = list(dict.fromkeys(_words(field.annotation)))
    bounds = _bounds(field.metadata)
    return " or ".join(words) + (f", {bounds}" if bounds else "")


def _bounds(metadata: list[Any] | tuple[Any, ...]) -> str:
    found = []
    for item in metadata:
        # A `Field` inside an annotation holds its bounds in its own metadata.
        for one in getattr(item, "metadata", [item]):
            for name, sign in BOUNDS.items():
                bound = getattr(one, name, None)
                if bound is not None:
                    found.append(f"{sign} {_number(bound)}")
    return ", ".join(dict.fromkeys(found))


def _number(bound: float) -> str:
    if bound == 2**63:
        return "2^63"
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"


def _words(annotation: object) -> Iterator[str]:
    """Yield the forms that a value may have, in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is type(None):
        yield "null"
    elif origin is Literal:
        yield from (f"`{json.dumps(one).strip(chr(34))}`" for one in arguments)
    elif origin in (Union, UnionType):
        yield from (word for one in arguments for word in _words(one))
    elif origin is Annotated:
        inner = " or ".join(dict.fromkeys(_words(arguments[0])))
        bounds = _bounds(arguments[1:])
        yield f"{inner} {bounds}" if bounds else inner
    elif origin in (tuple, list):
        inner = " or ".join(dict.fromkeys(_words(arguments[0])))
        yield f"list of ({inner})" if " or " in inner else f"list of {inner}"
    elif origin is dict:
        yield f"mapping to {' or '.join(dict.fromkeys(_words(arguments[1])))}"
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield "keys below"
    else:
        yield NAMES.get(annotation, "any value") if isinstance(annotation, type) else "any value"


class _Missing:
    """Mark of a key that `configs/default.yaml` does not show."""


_MISSING = _Missing()


def _look_up(document: object, path: Path_) -> object:
    for part in path:
        if not isinstance(document, Mapping):
            return _MISSING
        # `default.yaml` shows one population, which documents the keys of all.
        part = next(iter(document), "") if part == "*" else part
        if part not in document:
            return _MISSING
        document = document[part]
    return document


def _default(field: FieldInfo, value: object) -> str:
    if isinstance(value, _Missing):
        value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        value = value.model_dump()
    return json.dumps(value, ensure_ascii=False)


@cache
def _comments() -> dict[Path_, str]:
    """Return the comments of `configs/default.yaml`, by key."""
    found: dict[Path_, str] = {}
    known = {path for path, *_ in walk(RunConfig)}
    stack: list[tuple[int, str]] = []
    path: Path_ = ()
    for line in preset_text("default").decode().splitlines():
        text, _, comment = line.partition("#")
        if match := re.match(r"( *)([a-z_0-9]+):", text):
            indent = len(match[1])
            stack = [(at, name) for at, name in stack if at < indent] + [(indent, match[2])]
            names = [name for _, name in stack]
            if len(names) > 1 and names[0] == "populations":
                names[1] = "*"
            # A comment on a line inside a value continues the comment of that value.
            path = tuple(names)
            while path and path not in known:
                path = path[:-1]
        elif text.strip():
            continue
        if path and comment.strip():
            found[path] = f"{found.get(path, '')} {comment.strip()}".strip()
    return {key: _sentence(text) for key, text in found.items()}


def _sentence(text: str) -> str:
    text = re.sub(r"([<*])", r"\\\1", text)
    # A text that begins with a value keeps the value's spelling.
    if not re.match(r"[a-z_]+( \||:| \()", text):
        text = text[0].upper() + text[1:]
    return text if text.endswith((".", ":")) else f"{text}."


def _documented(owner: type[BaseModel], name: str) -> str:
    for one in owner.__mro__:
        field = {f.alias or key: key for key, f in getattr(one, "model_fields", {}).items()}
        file = inspect.getsourcefile(one) if issubclass(one, BaseModel) else None
        if file is not None and file.startswith(str(ROOT)):
            found = attribute_docs(Path(file), one.__name__).get(field.get(name, name))
            if found:
                return from_docstring(found)
    return from_docstring(inspect.getdoc(owner) or "").split(". ")[0].rstrip(".") + "."


def _rules_that_read(path: Path_) -> list[str]:
    return [
        f"{key} `{kind.name}`"
        for section, key, kinds in RULES
        for kind in kinds.values()
        if path[:-1] == (kind.section or section,) and path[-1] in kind.settings.model_fields
    ]


@cache
def _accesses() -> dict[tuple[str, str], frozenset[str]]:
    """Return the packages that read an attribute of something, by the two names."""
    found: dict[tuple[str, str], set[str]] = {}
    for path, tree in modules("arena", "populations", "tools"):
        # The configuration package reads all of its keys, so it is not listed as a reader.
        if path.parts[:2] == ("populations", "config"):
            continue
        for node in nodes(tree):
            if isinstance(node, ast.Attribute):
                base = node.value.func if isinstance(node.value, ast.Call) else node.value
                name = getattr(base, "attr", getattr(base, "id", ""))
                found.setdefault((name, node.attr), set()).add(".".join(path.parent.parts))
    return {names: frozenset(places) for names, places in found.items()}


def _packages_that_read(path: Path_) -> list[str]:
    section = path[-2] if len(path) > 1 else "config"
    # ``population.pbt`` and ``populations[name].pbt`` belong to the same section.
    bases = {section, section.rstrip("s")} - {"*"}
    found = {one for base in bases for one in _accesses().get((base, path[-1]), ())}
    return [code(one) for one in sorted(found)]
