"""The project's own implementations keep the contracts that users' must keep."""

from __future__ import annotations

import pytest

from arena.testing import check_exploit, check_explore, check_matchmaker, check_thinning
from populations.matchmaking.kinds import KINDS
from populations.pbt.kinds import EXPLOITS, EXPLORES
from populations.thinning.kinds import THINNINGS

VARIANTS: dict[str, dict[str, object]] = {
    **{f"pfsp-{weighting}": {"weighting": weighting} for weighting in ("linear", "variance")},
    "pfsp-thompson": {"posterior": "thompson"},
    "pfsp-living": {"living_ratio": 0.25},
    "psro-rectified": {"meta_solver": "rectified", "psro_players": 4},
    "alphastar-paper": {"constants": "paper"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_matchmaking(kind: str) -> None:
    check_matchmaker(kind)


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_of_matchmaking(variant: str) -> None:
    check_matchmaker(variant.partition("-")[0], options=VARIANTS[variant])


@pytest.mark.parametrize("kind", EXPLOITS)
def test_every_kind_of_selection(kind: str) -> None:
    # 0: however unsure, so that donors are drawn.
    for confidence in (0.9, 0.0):
        check_exploit(kind, section={"confidence": confidence})


@pytest.mark.parametrize(
    "kind",
    # Optuna's Gaussian process is fitted twice, by torch.
    [pytest.param(kind, marks=[pytest.mark.slow] if kind == "gp" else []) for kind in EXPLORES],
)
def test_every_kind_of_exploring(kind: str) -> None:
    check_explore(kind, section={"reset_probability": 0.1})


@pytest.mark.parametrize("kind", THINNINGS)
def test_every_kind_of_thinning(kind: str) -> None:
    check_thinning(kind)
