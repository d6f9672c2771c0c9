"""Checking plain data against a model, with messages for the person who wrote it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from arena.errors import ConfigError
from populations.documents import nearest

Hints = Mapping[str, str]
"""What a key takes that has several forms, by its dotted path."""

ModelT = TypeVar("ModelT", bound=BaseModel)


def validate_document(model: type[ModelT], document: object, *, hints: Hints) -> ModelT:
    """Check plain data (of YAML or JSON) strictly: text is no number, 2.5 is no count.

    Raises:
        ConfigError: Names, for every fault, the dotted key, the rule, the value, and for an unknown
            key the nearest known one.
    """
    if not isinstance(document, dict):
        raise ConfigError(f"a configuration must be a mapping of keys to values, got {document!r}")
    try:
        return model.model_validate_json(json.dumps(document), strict=True)
    except ValidationError as error:
        messages = [_message(model, document, fault, hints=hints) for fault in error.errors()]
        raise ConfigError("; ".join(dict.fromkeys(messages))) from error


def known_paths(model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    """Every dotted key of a model; ``*`` stands for names that users choose."""
    for attribute, field in model.model_fields.items():
        name = field.alias or attribute
        yield (name,)
        for inner, prefix in _inner_models(field.annotation):
            for path in known_paths(inner):
                yield (name, *prefix, *path)


def _inner_models(annotation: object) -> Iterator[tuple[type[BaseModel], tuple[str, ...]]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, ()
        return
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is dict:
        for inner, prefix in _inner_models(arguments[1]):
            yield inner, ("*", *prefix)
    elif origin in (Union, UnionType):
        for argument in arguments:
            yield from _inner_models(argument)
    elif origin is Annotated:
        yield from _inner_models(arguments[0])


def _message(model: type[BaseModel], document: object, fault: ErrorDetails, *, hints: Hints) -> str:
    path = _written_path(document, fault)
    dotted = ".".join(path)
    for key, forms in hints.items():
        if dotted == key or dotted.startswith(f"{key}."):
            return f"{key} must be {forms}, got {_show(_value(document, key.split('.')))}"
    if fault["type"] == "extra_forbidden":
        return f"unknown key {dotted} (= {_show(fault['input'])}){_suggestion(model, path)}"
    if fault["type"] == "missing":
        return f"{dotted} is required"
    rule = fault["msg"].removeprefix("Value error, ")
    return f"{dotted}: {rule}, got {_show(fault['input'])}"


def _written_path(document: object, fault: ErrorDetails) -> tuple[str, ...]:
    """The fault's place as the user wrote it: without the names of a union's branches."""
    level: Any = document
    path = []
    for part in fault["loc"]:
        is_key = isinstance(level, dict) and part in level
        is_item = isinstance(level, list) and isinstance(part, int) and part < len(level)
        if is_key or is_item:
            level = level[part]
            path.append(str(part))
    if fault["type"] == "missing":
        path.append(str(fault["loc"][-1]))
    return tuple(path)


def _value(document: Any, path: Sequence[str]) -> object:  # noqa: ANN401  (plain data of any shape)
    for part in path:
        document = document[part]
    return document


def _suggestion(model: type[BaseModel], path: tuple[str, ...]) -> str:
    """Name the nearest known key: a sibling, or the same word elsewhere in the configuration."""
    parent, key = path[:-1], path[-1]
    paths = list(known_paths(model))
    elsewhere = [known for known in paths if known[-1] == key]
    siblings = [known for known in paths if _is_child(known, parent)]
    candidates = elsewhere if elsewhere else siblings
    if elsewhere:
        return nearest(".".join(path), [".".join(_filled(known, path)) for known in candidates])
    names = {known[-1]: ".".join((*parent, known[-1])) for known in candidates}
    hint = nearest(key, names)
    for name, dotted in names.items():
        hint = hint.replace(repr(name), repr(dotted))
    return hint


def _is_child(known: tuple[str, ...], parent: tuple[str, ...]) -> bool:
    return len(known) == len(parent) + 1 and all(
        pattern in ("*", part) for pattern, part in zip(known, parent, strict=False)
    )


def _filled(known: tuple[str, ...], path: tuple[str, ...]) -> tuple[str, ...]:
    """Put the names a user wrote in the places of ``*``."""
    return tuple(
        path[index] if part == "*" and index < len(path) - 1 else part.replace("*", "<name>")
        for index, part in enumerate(known)
    )


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
