"""The measurement for a GPU runs on any device, part by part, and keeps every line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.speed.on_gpu import main


def lines(path: Path) -> list[dict[str, object]]:
    """Read lines of JSON."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_parts_write_what_they_measure(tmp_path: Path) -> None:
    out = tmp_path / "lines.jsonl"
    main(["device", "idle", "--device", "cpu", "--scale", "0.001", "--out", str(out)])
    found = lines(out)
    ends = [line for line in found if "end" in line]
    assert [(line["part"], line["end"]) for line in ends] == [("device", 0), ("idle", 0)]
    rates = [line["agent_steps_per_s"] for line in found if "agent_steps_per_s" in line]
    assert len(rates) == 6
    assert all(float(str(rate)) > 0.0 for rate in rates)


@pytest.mark.slow
def test_a_part_that_fails_is_named_and_costs_no_other(tmp_path: Path) -> None:
    out = tmp_path / "lines.jsonl"
    # Tensors on the device "meta" have no values: products work, but nothing can be played.
    main(["idle", "device", "--device", "meta", "--scale", "0.001", "--out", str(out)])
    ends = [line for line in lines(out) if "end" in line]
    assert [(line["part"], line["end"]) for line in ends] == [("idle", 1), ("device", 0)]
