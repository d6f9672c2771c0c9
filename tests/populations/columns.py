"""Candidates as columns, for tests of rules that draw from them."""

from __future__ import annotations

from collections.abc import Iterable

from populations.candidates import Candidate, CandidateColumns, Candidates


def make_candidates(rows: Iterable[Candidate]) -> Candidates:
    """Make columns of some candidates, in their order."""
    columns = CandidateColumns()
    for row in rows:
        columns.append(row)
    return columns.candidates
