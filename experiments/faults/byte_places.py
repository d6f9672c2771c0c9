"""Owner of a byte of a run's file: a table's column, a page's header, a field, a tensor.

The layout of a journal is read from the undamaged file (https://sqlite.org/fileformat2.html).
"""

from __future__ import annotations

import json
import re
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

_LEAF_TABLE, _INNER_TABLE, _LEAF_INDEX, _INNER_INDEX = 13, 5, 10, 2
_SIZES = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 7: 8, 8: 0, 9: 0}
_NAME = rb"([A-Za-z_][A-Za-z0-9_./]*)"
_KEY = re.compile(rb'"' + _NAME + rb'"\s*:|^[ -]*' + _NAME + rb":", re.MULTILINE)

Spans = list[tuple[int, int, str]]
"""Begin, end and name of parts of a file; later ones are within earlier ones."""


def file_kind(path: str) -> str:
    """Return the kind of a file of a run, by its relative path."""
    kind = re.sub(r"^populations/.*/(checkpoints|ghosts)/[^/]*/", r"\1/", path)
    kind = re.sub(r"^archive/.*", "archive/N.jsonl.zst", kind)
    kind = re.sub(r"^tensorboard/.*", "tensorboard", kind)
    return re.sub(r"^logs/.*", "logs", kind)


class Places:
    """Places of one undamaged file."""

    def __init__(self, path: Path) -> None:
        """Read the file's layout."""
        self._path = path
        self._data = path.read_bytes()
        self._spans: Spans | None = None
        if self._data.startswith(b"SQLite format 3"):
            self._spans = sorted(_journal(path, self._data), key=lambda span: (span[0], -span[1]))

    def at(self, offset: int) -> str:
        """Return what the byte at an offset belongs to."""
        name = self._path.name
        if self._spans is not None:
            within = [span for span in self._spans if span[0] <= offset < span[1]]
            return min(within, key=lambda span: span[1] - span[0])[2] if within else "free space"
        if name.endswith("-wal"):
            place = (offset - 32) % (24 + 4096)
            return "header" if offset < 32 else "frame's header" if place < 24 else "frame's page"
        if name.endswith(".safetensors"):
            return self._tensor(offset)
        if name.endswith((".json", ".yaml", ".jsonl")):
            return _field(self._data, offset)
        return "bytes"

    def _tensor(self, offset: int) -> str:
        (size,) = struct.unpack("<Q", self._data[:8])
        if offset < 8 + size:
            return "header"
        header = json.loads(self._data[8 : 8 + size])
        for name, entry in header.items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                if begin <= offset - 8 - size < end:
                    return "tensor"
        return "bytes"


def _field(data: bytes, offset: int) -> str:
    """Return the nearest key before a byte of JSON or YAML."""
    last = "beginning"
    for match in _KEY.finditer(data, 0, min(len(data), offset + 64)):
        if match.start() > offset:
            break
        last = (match[1] or match[2]).decode()
    # Names of policies, tensors and metrics are grouped, because there are many of each.
    return re.sub(r"^(player|adversary)/.*|.*/.*", "metric", last)


def _journal(path: Path, data: bytes) -> Iterator[tuple[int, int, str]]:
    yield 0, 100, "header"
    (page,) = struct.unpack(">H", data[16:18])
    usable = page - data[20]
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
        roots = connection.execute(
            "SELECT type, name, tbl_name, rootpage FROM sqlite_schema WHERE rootpage > 0"
        ).fetchall()
        columns = {
            name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
            for kind, name, _, _ in roots
            if kind == "table"
        }
    yield from _tree(data, 1, page, usable, "schema", ["type", "name", "table", "root", "sql"])
    for kind, name, table, root in roots:
        title = name if kind == "table" else f"index of {table}"
        yield from _tree(data, root, page, usable, title, columns.get(name, []))
    # The pointer map of auto_vacuum is at page 2 and then at every (usable / 5 + 1)th page.
    for number in range(2, len(data) // page + 1, usable // 5 + 1):
        yield (number - 1) * page, number * page, "pointer map"


def _tree(
    data: bytes, number: int, page: int, usable: int, title: str, columns: list[str]
) -> Iterator[tuple[int, int, str]]:
    begin = (number - 1) * page
    at = begin + (100 if number == 1 else 0)
    kind = data[at]
    if kind not in (_LEAF_TABLE, _INNER_TABLE, _LEAF_INDEX, _INNER_INDEX):
        return
    is_inner = kind in (_INNER_TABLE, _INNER_INDEX)
    head = at + (12 if is_inner else 8)
    (count,) = struct.unpack(">H", data[at + 3 : at + 5])
    yield begin, begin + page, f"{title}: free space"
    yield at, head, f"{title}: page header"
    yield head, head + 2 * count, f"{title}: cell pointers"
    children = []
    for index in range(count):
        (offset,) = struct.unpack(">H", data[head + 2 * index : head + 2 * index + 2])
        cell = begin + offset
        if is_inner:
            children.append(struct.unpack(">I", data[cell : cell + 4])[0])
        yield from _cell(data, cell, kind, page, usable, title, columns)
    if is_inner:
        children.append(struct.unpack(">I", data[at + 8 : at + 12])[0])
    for child in children:
        yield from _tree(data, child, page, usable, title, columns)


def _cell(
    data: bytes, cell: int, kind: int, page: int, usable: int, title: str, columns: list[str]
) -> Iterator[tuple[int, int, str]]:
    at = cell + (4 if kind in (_INNER_TABLE, _INNER_INDEX) else 0)
    if kind == _INNER_TABLE:
        _, at = _varint(data, at)
        yield cell, at, f"{title}: cell header"
        return
    size, at = _varint(data, at)
    if kind == _LEAF_TABLE:
        _, at = _varint(data, at)
    most = usable - 35 if kind == _LEAF_TABLE else (usable - 12) * 64 // 255 - 23
    least = (usable - 12) * 32 // 255 - 23
    local = size
    if size > most:
        local = least + (size - least) % (usable - 4)
        local = local if local <= most else least
        (following,) = struct.unpack(">I", data[at + local : at + local + 4])
        while following:
            begin = (following - 1) * page
            yield begin, begin + page, f"{title}: overflow page"
            (following,) = struct.unpack(">I", data[begin : begin + 4])
    yield cell, at + local + (4 if size > most else 0), f"{title}: cell header"
    header_size, place = _varint(data, at)
    value = at + header_size
    for name in columns:
        if place >= at + header_size:
            return
        serial, place = _varint(data, place)
        length = _SIZES[serial] if serial < 12 else (serial - 12) // 2
        end = min(value + length, at + local)
        if value < end:
            yield value, end, f"{title}.{name}"
        value += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(9):
        byte = data[at + index]
        if index == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + index + 1
    return value, at + 9
