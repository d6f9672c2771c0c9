"""The toy problem of the paper on population-based training (Jaderberg et al., 2017, section 4.5).

A policy's weights are theta; its true quality is 1.2 - theta_0^2 - theta_1^2. What it can follow
is the gradient of 1.2 - h_0 theta_0^2 - h_1 theta_1^2, whose hyperparameters h hide one coordinate
from each of two policies. Alone neither can get past 0.4; copying and exploring gets to the top.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from arena.types import PolicyId
from populations.choices import number_of
from populations.core import Member, SearchSpace
from populations.decisions import ExploitDonor, ExploreOwn
from populations.pbt.exploit import BinaryTournament, Truncation
from populations.pbt.explore import Perturb, PerturbSettings
from populations.pbt.selection import Rule, Selection

SPACE: SearchSpace = {name: {"low": 0.0, "high": 1.0} for name in ("h0", "h1")}
ELO = 1000.0
"""Rating points for one unit of quality."""


@dataclass
class Worker:
    theta: npt.NDArray[np.float64]
    hyperparameters: dict[str, float]

    def train(self) -> None:
        h = np.array([self.hyperparameters["h0"], self.hyperparameters["h1"]])
        self.theta = self.theta - 0.02 * h * self.theta

    @property
    def quality(self) -> float:
        return 1.2 - float(np.sum(self.theta**2))


def make_workers() -> dict[PolicyId, Worker]:
    return {
        PolicyId(f"toy/p{index:03d}"): Worker(
            theta=np.array([0.9, 0.9]),
            hyperparameters={"h0": 1.0 - index, "h1": float(index)},
        )
        for index in range(2)
    }


GATE = {"min_rating_gap": 0.0, "confidence": 0.5}


@pytest.mark.parametrize("rule", [Truncation(fraction=0.5, **GATE), BinaryTournament(**GATE)])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_population_based_training_gets_to_the_top_of_the_surrogate(rule: Rule, seed: int) -> None:
    workers = make_workers()
    exploit = Selection(rule=rule, min_matches=1)
    explore = Perturb(PerturbSettings(perturb_factors=(0.8, 1.2), resample_probability=0.25))
    rng = np.random.default_rng(seed)
    num_exploits = 0

    def difference(first: PolicyId, second: PolicyId) -> tuple[float, float]:
        return ELO * (workers[first].quality - workers[second].quality), 1e-6

    for step in range(1, 401):
        for worker in workers.values():
            worker.train()
        if step % 4:
            continue
        for policy, worker in workers.items():
            members = [
                Member(policy=name, index=index, rating=ELO * other.quality, num_matches=10)
                for index, (name, other) in enumerate(workers.items())
            ]
            decision = exploit.decide(policy, members=members, difference=difference, rng=rng)
            if isinstance(decision, ExploitDonor):
                donor = workers[decision.donor]
                worker.theta = donor.theta.copy()
                worker.hyperparameters = donor.hyperparameters
                num_exploits += 1
            if isinstance(decision, (ExploitDonor, ExploreOwn)):
                exploration = explore.explore(worker.hyperparameters, SPACE, rng=rng)
                worker.hyperparameters = {
                    name: number_of(value) for name, value in exploration.new.items()
                }
    assert max(worker.quality for worker in workers.values()) > 1.19
    assert num_exploits > 10


def test_without_it_half_of_the_surrogate_stays_hidden() -> None:
    workers = make_workers()
    for worker in workers.values():
        for _ in range(400):
            worker.train()
        # 1.2 - 0.81 = 0.39
        assert worker.quality < 0.391
