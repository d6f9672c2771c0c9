from __future__ import annotations

import pytest
import torch

from arena.config import NetworkConfig
from arena.learning.acting import product_dtype
from arena.spaces import ObservationLayout

CPU = torch.device("cpu")
WIDE = NetworkConfig(hidden_sizes=(32, 128))
NARROW = NetworkConfig(hidden_sizes=(32, 32))
LINEAR = NetworkConfig(hidden_sizes=())


def of_shape(*shape: int, high: int = 255, dtype: str = "uint8") -> ObservationLayout:
    box = {"kind": "Box", "shape": list(shape), "dtype": dtype, "low": 0, "high": high}
    return ObservationLayout.from_json(box)


def with_capabilities(monkeypatch: pytest.MonkeyPatch, **capabilities: bool) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)


@pytest.mark.parametrize("name", ["avx512_bf16", "amx_bf16"])
def test_auto_is_bfloat16_where_the_hardware_multiplies_it(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with_capabilities(monkeypatch, **{name: True})
    assert product_dtype("auto", network=WIDE, device=CPU) == torch.bfloat16
    # Rounding the inputs of small products costs more than it saves.
    assert product_dtype("auto", network=NARROW, device=CPU) == torch.float32
    assert product_dtype("auto", network=LINEAR, device=CPU) == torch.float32


def test_auto_is_bfloat16_with_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    with_capabilities(monkeypatch, avx512_bf16=True)
    pictures = of_shape(28, 48, 1)
    assert product_dtype("auto", network=NARROW, device=CPU, observation=pictures) == torch.bfloat16
    board = of_shape(6, 7, 2, high=1, dtype="int8")
    assert product_dtype("auto", network=NARROW, device=CPU, observation=board) == torch.float32
    convolved = NetworkConfig(hidden_sizes=(32,), encoder="cnn")
    assert product_dtype("auto", network=convolved, device=CPU, observation=board) == torch.bfloat16


@pytest.mark.parametrize(
    "network",
    [
        NetworkConfig(hidden_sizes=(128,), core="gru"),
        NetworkConfig(hidden_sizes=(128,), encoder="package.module:Class"),
    ],
)
def test_auto_is_float32_with_a_memory_or_a_module_of_the_users(
    network: NetworkConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_capabilities(monkeypatch, avx512_bf16=True)
    pictures = of_shape(28, 48, 1)
    assert product_dtype("auto", network=network, device=CPU, observation=pictures) == torch.float32


def test_auto_is_float32_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    with_capabilities(monkeypatch, avx512_bf16=False)
    assert product_dtype("auto", network=WIDE, device=CPU) == torch.float32
    with_capabilities(monkeypatch)
    assert product_dtype("auto", network=WIDE, device=CPU) == torch.float32


def test_a_choice_holds_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    with_capabilities(monkeypatch, avx512_bf16=True)
    assert product_dtype("float32", network=WIDE, device=CPU) == torch.float32
    assert product_dtype("bfloat16", network=NARROW, device=CPU) == torch.bfloat16
