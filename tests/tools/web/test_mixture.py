from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.tools.web.conftest import Client, asked_for
from tools.web.pages.league import mixture


def test_the_page_has_the_members_and_the_cyclicity(cyclic_run: Path) -> None:
    client = Client([cyclic_run])
    text = client.get("/cyclic/mixture.html").text
    assert "cyclicity of " in text
    assert re.search(r"against the strongest of them: (<[^>]*>)*0\.500", text)
    document = json.loads(client.get("/cyclic/mixture.json").text)
    drawn, table = mixture(asked_for("mixture", mixture=document))
    spec: Any = drawn.chart
    values = [row["value"] for row in spec["layer"][0]["data"]["values"]]
    assert values == pytest.approx([0.3333] * 3)
    assert len(table.rows) == 3


def test_a_game_without_opponents_says_why_there_is_none(team_run: Path) -> None:
    text = Client([team_run]).get("/team/mixture.html").text
    assert "in cooperation there is one side" in text
    assert 'class="chart' not in text
