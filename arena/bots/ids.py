"""Ids of bots, and the options of any player.

An id is ``bot:random``, or a class with keyword literals for its constructor:
``bot:package.module:Class(depth=3, name="x")``, or with each argument as an option,
``bot:package.module:Class:depth=3:name=x``. An id is parsed, never evaluated, and anything but
literals is refused. Equal arguments have one spelling, so that a bot has one name in tallies,
ratings and files.

Options are ``NAME:KEY=VALUE``, and so ``NAME:KEY=VALUE:KEY=VALUE``: ``runs/four:temperature=0.5``,
``runs/four/champion:level=3``. Torch-free.

Tests: `tests/arena/test_bot_ids.py`.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from arena.errors import ConfigError
from arena.types import BOT_PREFIX, RANDOM_BOT, PlayerId, is_bot

MAX_LENGTH = 400
"""Most characters of an id in its canonical spelling: the limit of messages."""

MAX_INTEGER_DIGITS = 100

FORM = "bot:random, bot:package.module:Class or bot:package.module:Class(depth=3)"

REFERENCE = re.compile(
    r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", flags=re.ASCII
)

# A name that ends with a parenthesis is a bot's, whose arguments may contain ":" and "=".
_OPTION = re.compile(r"(?P<name>.+):(?P<key>[A-Za-z_]\w*)=(?P<value>[^:]*)(?<!\))", flags=re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class BotId:
    """Bot of a user.

    Attributes:
        reference: ``package.module:Class``.
        arguments: Arguments of its constructor, sorted by name: text, numbers, true, false, none,
            and lists, tuples and dictionaries of these.
    """

    reference: str
    arguments: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the canonical spelling."""
        given = ", ".join(f"{name}={_spelled(value)}" for name, value in self.arguments.items())
        return f"{BOT_PREFIX}{self.reference}{f'({given})' if given else ''}"


def parse_bot(player: str) -> BotId | None:
    """Parse the id of a bot; None for ``bot:random``.

    Raises:
        ConfigError: If it is no such id. The message has the rule and the value.
    """
    if player == RANDOM_BOT:
        return None
    # The length is checked before parsing, because deeply nested brackets would cost memory.
    if len(player) > MAX_LENGTH:
        raise _too_long(player)
    name, options = split_options(player)
    if name == RANDOM_BOT:
        check_options(name, options, ())
        return None
    # An id without parentheses has no arguments, like one with empty parentheses.
    reference, opened, given = name.removeprefix(BOT_PREFIX).partition("(")
    if not player.startswith(BOT_PREFIX) or not REFERENCE.fullmatch(reference):
        raise ConfigError(f"a bot is {FORM}, got {player!r}")
    arguments = _arguments(f"({given}", player=player) if opened else {}
    for key, text in options.items():
        if key in arguments:
            raise ConfigError(f"a bot takes each keyword once, {key} occurs twice in {player!r}")
        arguments[key] = _option(text)
    bot = BotId(reference=reference, arguments=dict(sorted(arguments.items())))
    # The canonical spelling may be longer, because of escapes and quotes.
    spelled = str(bot)
    if len(spelled) > MAX_LENGTH:
        raise _too_long(spelled)
    return bot


def _too_long(player: str) -> ConfigError:
    return ConfigError(
        f"the id of a bot must have at most {MAX_LENGTH} characters, {player[:60]!r}... has "
        f"{len(player)}"
    )


def canonical_bot(player: str) -> PlayerId:
    """Return the canonical spelling of a bot's id.

    Raises:
        ConfigError: As for `parse_bot`.
    """
    bot = parse_bot(player)
    return RANDOM_BOT if bot is None else PlayerId(str(bot))


def _arguments(given: str, *, player: str) -> dict[str, object]:
    """Return the arguments of a bot's call; the text must end with a parenthesis.

    Raises:
        ConfigError: If the arguments are anything but keywords with literals.
    """
    if not given.endswith(")"):
        raise ConfigError(
            f"a bot is {FORM}, got {player!r}: it must end with a parenthesis (a YAML list splits "
            "at commas: put the id in quotes)"
        )
    try:
        # The text becomes a call of some name, so that Python's grammar parses keywords; it is
        # never evaluated.
        call = ast.parse(f"bot{given}", mode="eval").body
    # A null byte raises ValueError, deep nesting MemoryError or RecursionError.
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ConfigError(f"a bot is {FORM}, got {player!r}: it cannot be read") from None
    # (a)(b) is a call of a call, and positional arguments have several spellings.
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
        raise ConfigError(
            f"a bot takes keywords with literals, as in Class(depth=3), got {player!r}"
        )
    arguments: dict[str, object] = {}
    for keyword in call.keywords:
        if keyword.arg is None:
            raise ConfigError(f"a bot takes keywords with literals, no **, got {player!r}")
        if keyword.arg in arguments:
            raise ConfigError(
                f"a bot takes each keyword once, {keyword.arg} occurs twice in {player!r}"
            )
        try:
            arguments[keyword.arg] = _literal(keyword.value)
        except ValueError as error:
            raise ConfigError(f"{keyword.arg} of {player!r} must be a literal: {error}") from None
    return arguments


def _option(text: str) -> object:
    """Return the literal in an option, or else its text, which needs no quotes."""
    try:
        return _literal(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return text


def _literal(node: ast.expr) -> object:
    """Return the value of a literal expression.

    Raises:
        ValueError: If it is no literal.
    """
    match node:
        # bool is tested before int, its base class; bytes, complex numbers and ... match no case.
        case ast.Constant(value=str() | bool() | None as value):
            return value
        case ast.Constant(value=int() | float() as number):
            return _checked(number)
        # Python has no negative literals: -3 is an operation on 3.
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            # Without this test, -True would become -1.
            if not isinstance(number, bool):
                return -_checked(number)
        case ast.List(elts=elements):
            return [_literal(element) for element in elements]
        case ast.Tuple(elts=elements):
            return tuple(_literal(element) for element in elements)
        case ast.Dict(keys=keys, values=values):
            return {_key(key): _literal(value) for key, value in zip(keys, values, strict=True)}
    raise ValueError(
        "text, a finite number, True, False, None, or a list, tuple or dictionary of these, got "
        f"an expression of the kind {type(node).__name__}"
    )


def _key(node: ast.expr | None) -> object:
    key = None if node is None else _literal(node)
    # None stands for a missing node here (**), so it cannot be a key.
    if not isinstance(key, str | int | float | bool):
        raise ValueError("a dictionary has texts or numbers as keys")
    return key


def _checked(number: float) -> float:
    if isinstance(number, float):
        if not math.isfinite(number):
            raise ValueError("a number must be finite")
    elif abs(number) >= 10**MAX_INTEGER_DIGITS:
        raise ValueError(f"an integer has at most {MAX_INTEGER_DIGITS} digits")
    return number


def _spelled(value: object) -> str:
    """Spell a literal in printable ASCII."""
    match value:
        case str():
            # unicode_escape leaves quotes unchanged, so double quotes are escaped afterwards.
            escaped = value.encode("unicode_escape").decode("ascii").replace('"', '\\"')
            return f'"{escaped}"'
        case list():
            return f"[{', '.join(map(_spelled, value))}]"
        case tuple():
            # A tuple of one element needs its comma.
            return f"({', '.join(map(_spelled, value))}{',' if len(value) == 1 else ''})"
        case dict():
            pairs = (f"{_spelled(key)}: {_spelled(entry)}" for key, entry in value.items())
            return f"{{{', '.join(pairs)}}}"
    return repr(value)


def split_options(player: str) -> tuple[str, dict[str, str]]:
    """Split a PLAYER into its name and its options, in the order in which they are written.

    A file or a directory that is called so is a name without options.

    Raises:
        ConfigError: If an option is given twice, or has no value.
    """
    options: dict[str, str] = {}
    name = player
    while (found := _OPTION.fullmatch(name)) and (is_bot(name) or not Path(name).exists()):
        name, key, value = found["name"], found["key"], found["value"]
        if key in options or not value:
            raise ConfigError(
                f"an option of a PLAYER is NAME:KEY=VALUE, each key once, got {player!r}"
            )
        options = {key: value, **options}
    return name, options


def check_options(player: str, given: Collection[str], known: Collection[str]) -> None:
    """Refuse options that a player does not have.

    Raises:
        ConfigError: If there is one; says which it has.
    """
    for key in given:
        if key not in known:
            has = ", ".join(known) or "no options"
            raise ConfigError(f"{player} has no option {key}; it has {has}")
