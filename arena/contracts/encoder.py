"""The contract of a user's encoder (`arena.networks.encoders`).

Shapes: N rows, F features of a flattened observation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn

from arena.config import NetworkConfig
from arena.contracts.contract import Subject, name_of, reference_of
from arena.contracts.sample import SampleGame, are_equal, sample_game
from arena.export.onnx import check_onnx, export_onnx
from arena.networks.actor_critic import make_actor_critic
from arena.networks.encoders import UserEncoder, make_user_encoder
from arena.resolve import put_first_on_path
from arena.spaces import ObservationLayout

NUM_ROWS = 64
TOLERANCE = 1e-4


def check_encoder(
    encoder: Callable[[ObservationLayout], nn.Module] | str,
    *,
    environment: str,
    kwargs: Mapping[str, object] | None = None,
    agent: str | None = None,
    launch_directory: str = "",
) -> None:
    """Check that an encoder gives features of each row alone, learns, and can be stored and
    exported.

    Args:
        encoder: Class, or ``network.encoder``: ``package.module:Class``.
        environment: Id of the environment whose observations it encodes.
        kwargs: Arguments of the environment's factory.
        agent: Agent whose observations they are; None: the first.
        launch_directory: Directory where ``package`` is looked for first; empty: where the process
            is.

    Raises:
        ContractBroken: With the first rule that it breaks.
    """
    subject = Subject(name_of(encoder))
    put_first_on_path(launch_directory)
    reference = reference_of(encoder)
    game = sample_game(subject, environment, kwargs=kwargs, launch_directory=launch_directory)
    population = game.population_of(agent)
    layout = game.observation(population)
    rows = game.rows(population, number=NUM_ROWS).observation.float()

    def make(seed: int) -> UserEncoder:
        with subject.obeying("it must be made with an ObservationLayout, and encode two rows"):
            generator = torch.Generator().manual_seed(seed)
            return make_user_encoder(reference, layout, generator=generator)[0]

    made, again, other = make(1), make(1), make(2)
    rule = "weights must be a function of the seed (torch's generator is seeded for the class)"
    subject.must(rule, are_equal(made.state_dict(), again.state_dict()))
    _check_features(subject, made, rows)
    _check_gradients(subject, made, rows)
    other.load_state_dict(made.state_dict())
    rule = "state_dict must hold all that features depend on"
    found = "unequal features of two encoders with one state_dict"
    with torch.no_grad():
        subject.must(rule, torch.equal(made(rows), other(rows)), found=found)
    _check_export(subject, reference, game=game, population=population)


def _check_export(subject: Subject, reference: str, *, game: SampleGame, population: str) -> None:
    """Export a small policy with the encoder, and compare the graph with it."""
    layout = game.observation(population)
    network = make_actor_critic(
        NetworkConfig(encoder=reference, hidden_sizes=(8,)),
        observation=layout,
        action=game.actions[population],
        seed=1,
    )
    has_mask = game.facts(population).mask is not None
    rule = "a policy with it must be exported to ONNX, for any number of rows"
    with subject.obeying(rule):
        model = export_onnx(network, layout=layout, has_mask=has_mask)
        check_onnx(model, network=network, layout=layout, has_mask=has_mask)


def _check_features(subject: Subject, encoder: UserEncoder, rows: torch.Tensor) -> None:
    given = rows.clone()
    with torch.no_grad(), subject.obeying(f"forward must take {len(rows)} rows"):
        features: torch.Tensor = encoder(given)
    subject.must("forward must not change its rows", torch.equal(given, rows))
    is_finite = bool(torch.isfinite(features).all())
    subject.must("features must be finite", is_finite, found="a NaN or an infinity")
    subject.must("features must be float32", features.dtype == torch.float32, got=features.dtype)
    with torch.no_grad():
        again = encoder(rows)
        rule = "equal rows must give equal features, while it learns, too (no dropout)"
        subject.must(rule, torch.equal(features, again))
        with subject.obeying("forward must take a single row"):
            alone = torch.cat([encoder(row[None]) for row in rows])
    rule = "the features of a row must not depend on the other rows"
    is_close = alone.shape == features.shape and torch.allclose(
        alone, features, rtol=TOLERANCE, atol=TOLERANCE
    )
    subject.must(rule, is_close, found="other features of a single row")
    is_read = bool((features != features[:1]).any())
    subject.must("features must depend on the observation", is_read, found="equal rows of features")


def _check_gradients(subject: Subject, encoder: UserEncoder, rows: torch.Tensor) -> None:
    parameters = dict(encoder.module.named_parameters())
    # Noise weighs the features, because a plain sum has no gradient behind a softmax or
    # normalization.
    features = encoder(rows)
    noise = torch.randn(features.shape, generator=torch.Generator().manual_seed(0))
    if features.requires_grad:
        (features * noise).sum().backward()
    unreached = [
        name
        for name, parameter in parameters.items()
        if parameter.grad is None or not bool(parameter.grad.any())
    ]
    subject.must("the gradient must reach every parameter", not unreached, got=unreached)
    encoder.zero_grad()
