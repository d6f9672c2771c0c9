"""YAML documents: a strict reader and an atomic writer.

The reader accepts a safe subset: no anchors, aliases or tags, no duplicate keys, scalars as in YAML
1.2 (``1e-4`` is a number, ``no`` is a text and ``010`` is ten, unlike in YAML 1.1).
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable
from pathlib import Path

import yaml

from arena.errors import ConfigError
from arena.files import replacing

MAX_BYTES = 1_000_000
# This is far below Python's recursion limit.
MAX_DEPTH = 20

COUNTED = "steps"
"""Key of a mapping whose own keys may be whole numbers (agent steps); they are read as text."""

_SURROGATE = re.compile("[\ud800-\udfff]")
# Unlike YAML 1.2, this reads 5e6 as an integer, because counts are often written so.
_INT = re.compile(r"[-+]?[0-9][0-9_]*(?:[eE]\+?[0-9]{1,2})?\Z")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")
_SCALARS = {
    "tag:yaml.org,2002:null": (re.compile(r"(?:~|null|Null|NULL|)\Z"), ["~", "n", "N", ""]),
    "tag:yaml.org,2002:bool": (re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), "tTfF"),
    "tag:yaml.org,2002:int": (_INT, "-+0123456789"),
    "tag:yaml.org,2002:float": (_FLOAT, "-+.0123456789"),
}
_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "str")} | {
    "tag:yaml.org,2002:map",
    "tag:yaml.org,2002:seq",
}


class _Reader(yaml.SafeLoader):
    """Subclass of `yaml.SafeLoader` without the features that a configuration does not need."""

    # The library's rules are those of YAML 1.1; the rules of `_SCALARS` replace them below.
    yaml_implicit_resolvers = {}  # noqa: RUF012  (a class attribute of the library's)

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        # Refuse an alias at its event, before the library expands it.
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise yaml.MarkedYAMLError(
                None, None, "anchors and aliases are not allowed", event.start_mark
            )
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                None, None, f"nested deeper than {MAX_DEPTH} levels", event.start_mark
            )
        node = super().compose_node(parent, index)
        # No `finally` is needed, as the reader is not used again after an error.
        self._depth -= 1
        if isinstance(node, yaml.ScalarNode) and _SURROGATE.search(node.value):
            node.value = _with_whole_characters(node)
        if node is not None and node.tag not in _TAGS:
            raise yaml.MarkedYAMLError(
                None, None, f"the tag {node.tag} is not allowed", node.start_mark
            )
        return node

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Hashable, object]:
        seen: set[str] = set()
        # The library would silently use the last of equal keys.
        for key, value in node.value:
            if key.value == COUNTED and isinstance(value, yaml.MappingNode):
                _read_numbers_as_text(value)
            if key.tag != "tag:yaml.org,2002:str":
                raise yaml.MarkedYAMLError(None, None, "a key must be text", key.start_mark)
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    None, None, f"the key {key.value!r} is there twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        text = str(self.construct_scalar(node))
        # A float has only 53 bits, so large integers such as seeds are not read through it.
        if node.tag.endswith("int") and text.lower().count("e") == 0:
            return int(text)
        value = float(text)
        if not math.isfinite(value):
            raise ValueError(f"{text} is not finite")
        # Counts are often written as 5e6, so this becomes an integer; 5.0e6 stays a float.
        return int(value) if node.tag.endswith("int") else value


def _read_numbers_as_text(node: yaml.MappingNode) -> None:
    for key, _ in node.value:
        if key.tag == "tag:yaml.org,2002:int":
            key.tag = "tag:yaml.org,2002:str"


def _with_whole_characters(node: yaml.ScalarNode) -> str:
    r"""Join surrogate pairs, by which JSON escapes some characters (``\ud83d\udca5``)."""
    try:
        text: str = node.value.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise yaml.MarkedYAMLError(
            None, None, "half of a character is not allowed", node.start_mark
        ) from None
    return text


class _Writer(yaml.SafeDumper):
    """Writer that quotes a text if YAML 1.1 or 1.2 would read it as another type."""


for _tag, (_pattern, _first) in _SCALARS.items():
    _Reader.add_implicit_resolver(_tag, _pattern, list(_first))
    # The writer also has the library's rules of YAML 1.1, so it quotes a text that either version
    # would read as something else.
    _Writer.add_implicit_resolver(_tag, _pattern, list(_first))
for _kind in ("int", "float"):
    _Reader.add_constructor(f"tag:yaml.org,2002:{_kind}", _Reader.construct_number)


def read_document(data: bytes | str, *, name: str) -> object:
    """Read a stream that has a single YAML document.

    Args:
        data: Text of the document, UTF-8.
        name: Name of its source, for messages.

    Raises:
        ConfigError: If it is too large, is not YAML, or uses an excluded feature.
    """
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{name}: must have at most {MAX_BYTES} bytes, got {len(data)}")
    try:
        text = data.decode() if isinstance(data, bytes) else data
        reader = _Reader(text)
        try:
            # This raises if the stream has a second document.
            value: object = reader.get_single_data()
        finally:
            reader.dispose()
    except yaml.MarkedYAMLError as error:
        # The library counts lines from 0.
        where = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{name}{where}: {error.problem or error.context}") from error
    # A ValueError means that the bytes are not UTF-8 or that a number is not finite.
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: {' '.join(str(error).split())}") from error
    return value


def write_document(value: object, path: Path) -> None:
    """Write plain data as YAML, atomically: a reader finds the whole old or the whole new file.

    Raises:
        OSError: If the disk is full or read-only.
    """
    text = yaml.dump(value, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=100)
    with replacing(path, is_durable=True) as file:
        file.write(text.encode())
