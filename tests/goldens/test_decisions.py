"""Logs of decisions reach what they are about; `make goldens` compares them with what is stored."""

from __future__ import annotations

from tests.goldens.decisions import differences, parting, read, same, worlds
from tests.goldens.forms import Document


def test_worlds_reach_what_they_are_about() -> None:
    about = {
        "choices": "immigrated",
        "choices_by_model": "explored",
        "curriculum": "lesson_began",
        "deterministic": "immigrated",
        "exploiters_reset": "reset",
        "failing_learner": "fell_back",
        "halving": "retired",
        "roles": "reset",
        "thinned": "ghosts_thinned",
    }
    kinds = {
        name: {line["event"]["kind"] for line in read(name) if "event" in line} for name in worlds()
    }
    assert {name for name, kind in about.items() if kind not in kinds[name]} == set()
    # Each resume is in the middle of training, with assignments that are given out again.
    epochs: list[list[Document]] = [[]]
    for line in read("resumes"):
        epochs = [*epochs, []] if "resumed" in line else [*epochs[:-1], [*epochs[-1], line]]
    assert len(epochs) == 11
    trained = [[line for line in epoch if line.get("message") == "Train"] for epoch in epochs]
    assert all(trained)
    assert all(any(line["attempt"] > 1 for line in epoch) for epoch in trained[1:])
    # A single policy copies no other.
    unmoved = {name for name in kinds if "exploited" not in kinds[name]}
    assert unmoved == {"kuhn_poker", "leduc_poker"}


def test_a_parting_is_explained() -> None:
    stored: list[Document] = [
        {"event": {"kind": "a"}},
        {"to": "x", "seats": [1, 2]},
        {"to": "x", "rating": 1.0},
    ]
    found: list[Document] = [
        {"event": {"kind": "a"}},
        {"to": "y", "seats": [1, 3]},
        {"to": "x", "rating": 2.0},
    ]
    assert parting(stored, found) == [
        "parts at line 2 of 3 stored and 3 found; before it:",
        '  {"event": {"kind": "a"}}',
        '  .to: stored "x", found "y"',
        "  .seats[1]: stored 2, found 3",
    ]
    assert parting(stored, stored) == []
    assert parting(stored, stored[:2])[0] == "parts at line 3 of 3 stored and 2 found; before it:"
    assert list(differences({"a": 1}, {"b": 1})) == [".a: only stored: 1", ".b: only found: 1"]
    assert same(1.0, 1.0 + 1e-9)
    assert not same(1.0, 1.001)
    assert not same(1, True)
    assert not same(0.0, None)
