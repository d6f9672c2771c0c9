"""A document is said in one way, for programs and for people."""

from __future__ import annotations

import json

import pytest

from experiments.harness import say_document

DOCUMENT = {"schema": 1, "kinds": {"found": {"bit": 2}, "lost": []}, "seconds": 0.5}


def test_a_document_is_json_or_a_line_for_each_figure(capsys: pytest.CaptureFixture[str]) -> None:
    say_document(DOCUMENT, as_json=True)
    assert json.loads(capsys.readouterr().out) == DOCUMENT
    say_document(DOCUMENT, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["schema: 1", "kinds.found.bit: 2", "kinds.lost: []", "seconds: 0.5"]
