"""Counts and times as people read them.

Tests: `tests/tools/launch/test_headline.py`.
"""

from __future__ import annotations


def count(number: int) -> str:
    """Write a count in at most seven characters: 12,345 or 1.35M."""
    if number < 100_000:
        return f"{number:,}"
    # Three digits: from 999.5 on rounding would write 1e+03.
    for unit, size in (("k", 10**3), ("M", 10**6), ("G", 10**9)):
        if number < 1000 * size:
            return f"{number / size:.3g}{unit}" if number / size < 999.5 else f"1{_above(unit)}"
    return f"{number:.3g}"


def _above(unit: str) -> str:
    return {"k": "M", "M": "G", "G": "T"}[unit]


def duration(seconds: float) -> str:
    """Write a time as people say it: 95 s, 12 min 30 s, 3 h 05 min."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
