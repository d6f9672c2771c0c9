"""Messages about the rules of a model, for the person who wrote a value. Torch-free.

Tests: `tests/arena/learning/test_algorithms.py`,
`tests/populations/config/test_run_config.py`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from arena.errors import BrokenRules

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

MAX_SHOWN_CHARS = 200

WHOLE, NUMBER = "must be a whole number", "must be a number"

_RULES = (
    ("int_", WHOLE),
    ("float_", NUMBER),
    ("bool_", "must be true or false"),
    ("string_type", "must be text"),
    ("string_unicode", "must be text"),
    ("string_too_short", "must have at least {min_length} characters"),
    ("string_too_long", "must have at most {max_length} characters"),
    ("string_pattern_mismatch", "must match {pattern}"),
    ("finite_number", "must be a finite number"),
    # The order matters: greater_than is a prefix of greater_than_equal, as with less_than_equal.
    ("greater_than_equal", "must be at least {ge}"),
    ("greater_than", "must be greater than {gt}"),
    ("less_than_equal", "must be at most {le}"),
    ("less_than", "must be less than {lt}"),
    ("multiple_of", "must be a multiple of {multiple_of}"),
    ("too_short", "must have at least {min_length} entries"),
    ("too_long", "must have at most {max_length} entries"),
    ("literal_error", "must be {expected}"),
    ("enum", "must be {expected}"),
    ("none_required", "must be null"),
    ("missing", "is required"),
    ("extra_forbidden", "is no key that is known here"),
    ("json_invalid", "must be a JSON document"),
    ("list_", "must be a list"),
    ("tuple_", "must be a list"),
    ("dict_", "must be a mapping of keys to values"),
    ("mapping_", "must be a mapping of keys to values"),
    ("model_", "must be a mapping of keys to values"),
    ("dataclass_", "must be a mapping of keys to values"),
    ("value_error", "{error}"),
    ("assertion_error", "{error}"),
)
"""Messages by the beginning of a fault's kind; the first match counts."""


def broken_rule(fault: ErrorDetails) -> str:
    """Return the rule that a value breaks.

    Args:
        fault: One of pydantic's errors.

    Returns:
        A predicate without its subject: ``must be at least 1``; never a sentence of pydantic's.
    """
    context = {name: _bound(value) for name, value in (fault.get("ctx") or {}).items()}
    # The general message would read "at least 1 entries".
    if context.get("min_length") == 1:
        return "must not be empty"
    for begin, rule in _RULES:
        if fault["type"].startswith(begin):
            # The placeholders are filled from pydantic's context.
            return rule.format_map(context) + _suggestion(begin, fault["input"])
    # This covers unlisted kinds of faults, and those of later pydantic versions.
    return "must be of another form"


def broken_rules(error: ValidationError, *, of: str = "") -> tuple[str, ...]:
    """Describe every fault: its place, the broken rule, and the value.

    Args:
        error: Error of pydantic.
        of: Key of the whole, put in front of each place.
    """
    return tuple(
        told(".".join(map(str, (*([of] if of else []), *fault["loc"]))), fault)
        for fault in error.errors()
    )


def told(where: str, fault: ErrorDetails) -> str:
    """Describe a fault in one sentence: its place, the rule and the value."""
    rule = broken_rule(fault)
    # The text of broken rules names keys and values itself.
    if isinstance((fault.get("ctx") or {}).get("error"), BrokenRules):
        return rule
    # For a missing key, pydantic's input is the whole mapping, not a value.
    if fault["type"] == "missing":
        return f"{where} {rule}"
    return f"{where or 'the document'}: {with_value(rule, fault['input'])}"


def with_value(rule: str, value: object) -> str:
    """Add the value that broke a rule, unless the rule names it, as that of a bot's id does."""
    is_named = ", got " in rule or (isinstance(value, str) and shown(value) in rule)
    return rule if is_named else f"{rule}, got {shown(value)}"


def shown(value: object) -> str:
    """Return a value for a message, cut off if it is long."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}..."


def _bound(value: object) -> object:
    """Return a bound in its shortest form: 1, not 1.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _suggestion(begin: str, value: object) -> str:
    """Return a suggestion of the intended value."""
    # YAML invites two mistakes: a single value for a list, and a quoted number.
    is_single = isinstance(value, int | float | str) and not isinstance(value, bool)
    if begin in ("list_", "tuple_") and is_single:
        return f", for example [{value}]"
    if begin in ("int_", "float_") and isinstance(value, str) and re.fullmatch(r"-?\d+", value):
        return f" without quotes, for example {value}"
    return ""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the known name most similar to ``name``, or nothing."""
    # There is no cutoff, because the nearest of few names helps even if it is not similar.
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)
    return f"; did you mean {matches[0]!r}?" if matches else ""
