"""The truth that planted leagues are compared with."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from arena.types import RANDOM_BOT, Digest, Entrant
from experiments.planted_league.coverage import CHANGES, true_strengths
from experiments.planted_league.week import main
from populations.config.run_config import load_config
from populations.ratings.fitting.bend import weights_of
from populations.simulation.environment import simulated_config, simulated_run
from populations.simulation.league import default_model
from populations.simulation.world import make_world, start


def test_true_strengths_are_the_nearest_to_the_log_odds_of_all_that_are_rated() -> None:
    config = simulated_config(
        load_config("connect_four", [*CHANGES, "stop.agent_steps_per_policy=500000", "seed=1"]),
        num_policies=2,
    )
    model = replace(default_model(config), lapse=0.03, recency=80.0)
    world = make_world(simulated_run(config), model, matches_per_s=1000.0)
    start(world)
    while world.advance():
        pass
    truth = {entrant: elo for (_, entrant), elo in true_strengths(world).items()}
    bot = Entrant(RANDOM_BOT)
    assert truth.keys() == set(world.state.tables.ratings["player"].entrants)
    assert truth[bot] == 0.0
    weights = {
        one: model.bot(one) if one == bot else world.learner.weights[Digest(one)] for one in truth
    }
    ordered = sorted(truth, key=lambda one: truth[one])
    places = np.array([truth[one] for one in ordered])
    share = dict(zip(ordered, weights_of(places).tolist(), strict=True))
    # At the minimum of sum w_i w_j (d_ij - (r_i - r_j))^2 each player's weighted residuals sum to
    # 0.
    for one in truth:
        left = {
            two: model.difference(weights[one], weights[two]) - (truth[one] - truth[two])
            for two in truth
            if two != one
        }
        weighed = sum(share[two] * elo for two, elo in left.items())
        assert weighed == pytest.approx(0.0, abs=0.1) or one == bot
        # Additive strengths cannot explain all distances.
        assert max(map(abs, left.values())) > 5.0


def test_policies_share_the_days_and_each_kind_has_both_clocks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # At 56,000 checkpoints a day of all policies there are 112.
    main(["--days", "0.002", "--policies", "4", "--events", "30"])
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert found["checkpoints"] == 112
    for kind in ("trained", "evaluated", "next train", "next evaluate"):
        assert found[kind]["number"] > 0
        assert found[kind]["median_ms"] <= found[kind]["p95_ms"]
        assert found[kind]["wall_median_ms"] > 0.0
    assert found["trained"]["number"] + found["evaluated"]["number"] <= 30
