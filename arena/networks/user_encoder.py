"""Encoders written by users, in place of Arena's.

Shapes: N rows, F numbers of a flattened observation.
"""

from __future__ import annotations

import torch
from torch import nn

from arena.envs.spaces.observations import ObservationLayout
from arena.errors import ConfigError
from arena.networks.planes import PIXEL_SCALE, is_image
from arena.processes.settings import SETTINGS
from arena.resolve import resolve
from arena.users_code import pass_interrupt, raised

NUM_PROBED = 2


class UserEncoder(nn.Module):
    """Wrapper of a user's module, which gets float32 rows with brightnesses scaled to [0, 1]."""

    _scale: torch.Tensor

    def __init__(self, module: nn.Module, observation: ObservationLayout) -> None:
        super().__init__()
        self.module = module
        scale = torch.ones(observation.size)
        for leaf in observation.leaves:
            if is_image(leaf):
                scale[leaf.place] = PIXEL_SCALE
        self._has_images = any(map(is_image, observation.leaves))
        self.register_buffer("_scale", scale, persistent=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Encode rows. [N, F] of any dtype to [N, features]."""
        numbers = rows.float()
        features: torch.Tensor = self.module(numbers * self._scale if self._has_images else numbers)
        return features


def make_user_encoder(
    reference: str, observation: ObservationLayout, *, generator: torch.Generator
) -> tuple[UserEncoder, int]:
    """Make the module that ``package.module:Class`` names, and check its output.

    Args:
        reference: Class that is called with the `ObservationLayout`; see the README.
        observation: Layout of the observation.
        generator: Source of the seed of torch's global generator while the class is called; the
            global generator is restored afterwards.

    Raises:
        ConfigError: If there is no such class, or its module breaks a rule.
    """
    module_class = resolve(reference, launch_directory=None)
    if not callable(module_class):
        raise ConfigError(f"network.encoder {reference} must name a class, got {module_class!r}")
    # Users' layers draw from the global generator: seeded here, their weights follow from ours.
    seed = int(torch.randint(2**63 - 1, (), generator=generator))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        try:
            module = SETTINGS.run_with_ours(module_class, observation)
        except BaseException as error:
            pass_interrupt(error)
            # A user's class may raise anything, and only the user can fix it.
            raise ConfigError(raised(f"network.encoder {reference}: making it", error)) from error
        num_features = _num_features(reference, module)
        encoder = UserEncoder(module, observation)
        _probe(reference, encoder, size=observation.size, num_features=num_features)
    return encoder, num_features


def _num_features(reference: str, module: object) -> int:
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"network.encoder {reference} must make a torch.nn.Module, got {type(module).__name__}"
        )
    number = getattr(module, "num_features", None)
    if not isinstance(number, int) or number < 1:
        raise ConfigError(
            f"network.encoder {reference} must have an attribute num_features, an integer of at "
            f"least 1, got {number!r}"
        )
    return number


@torch.no_grad()
def _probe(reference: str, encoder: UserEncoder, *, size: int, num_features: int) -> None:
    try:
        features: object = SETTINGS.run_with_ours(encoder, torch.zeros(NUM_PROBED, size))
    except BaseException as error:
        pass_interrupt(error)
        what = f"features of {NUM_PROBED} observations of {size} numbers"
        raise ConfigError(raised(f"network.encoder {reference}: {what}", error)) from error
    shape = list(features.shape) if isinstance(features, torch.Tensor) else features
    if shape != [NUM_PROBED, num_features]:
        raise ConfigError(
            f"network.encoder {reference} must give features of shape [N, num_features], for "
            f"{NUM_PROBED} rows {[NUM_PROBED, num_features]}, got {shape}"
        )
    # Checkpoints hold float32 alone.
    for name, tensor in encoder.module.state_dict().items():
        if tensor.dtype != torch.float32:
            raise ConfigError(
                f"network.encoder {reference} must hold float32 alone (batch normalization does "
                f"not), got {name} of {tensor.dtype}"
            )
