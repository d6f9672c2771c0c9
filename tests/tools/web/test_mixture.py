from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tools.web.conftest import Client, asked_for
from tools.web.pages.mixture import mixture


def test_the_page_has_the_members_and_the_cyclicity(cyclic_run: Path) -> None:
    client = Client([cyclic_run])
    text = client.get("/cyclic/mixture.html").text
    assert "Cyclicity 0.90" in text
    assert "is 0.500 against the strongest" in text
    document = json.loads(client.get("/cyclic/mixture.json").text)
    content: Any = mixture(asked_for("mixture", mixture=document))
    (block,) = content.blocks
    rows = block.chart.data["layer"][0]["data"]["values"]
    assert [row["value"] for row in rows] == pytest.approx([0.3333] * 3)
    assert len(block.table.rows) == 3


def test_a_game_without_opponents_says_why_there_is_none(team_run: Path) -> None:
    text = Client([team_run]).get("/team/mixture.html").text
    assert "in cooperation there is one side" in text
    assert 'class="chart' not in text
