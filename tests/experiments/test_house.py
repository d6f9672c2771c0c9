"""Figures about the code, of a checkout that is written for it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from experiments import house
from experiments.house import PRODUCT_ROOM, Size, beyond, lowered, reading, rooms

ONE = '''"""What one does."""

from populations.league import two


def first(x: int) -> int:
    """Return x.

    Args:
        x: Of the caller.
    """
    # A reason.
    return two.second(x)  # noqa: F821
'''
TWO = '''"""Ground."""

import populations.ratings.one


def second(x):
    return x
'''


THREE = """import dataclasses
from typing import NamedTuple
from .base import Base


@dataclasses.dataclass(frozen=True)
class First:
    x: int = 1  # a comment of its own line is not code


class Second(NamedTuple):
    x: int


class Third(Base):
    'A docstring.'

    text = '''one

    two'''


class Plain(Exception):
    pass
"""
BASE = "import pydantic\n\n\nclass Base(pydantic.BaseModel):\n    pass\n"
# One base has the name of a data type of another module; another is imported through a third
# module.
FOUR = """from populations import three


class Base:
    pass


class Named(Base):
    pass


class Fourth(three.Base[int]):
    pass
"""

BUDGETS = """[product]
code = 100

[rooms."one, two"]
paths = ["populations/ratings/", "populations/league/"]
code = 50

[rooms."the rest"]
paths = ["populations/"]
code = 20
"""


def write(root: Path, sources: dict[str, str]) -> None:
    """Write a checkout."""
    for name, text in sources.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_reading_of_a_small_checkout(tmp_path: Path) -> None:
    sources = {
        "populations/ratings/one.py": ONE,
        "populations/league/two.py": TWO,
    }
    write(tmp_path, sources)
    found = reading(tmp_path)
    assert (found.most_modules_in_a_folder, found.rings) == (1, 1)
    assert found.functions_over_60_lines == 0
    assert found.comment_share == round(1 / (ONE + TWO).count("\n"), 4)


def test_rooms_of_a_small_checkout(tmp_path: Path) -> None:
    sources = {
        "populations/ratings/one.py": ONE,
        "populations/league/two.py": TWO,
        "populations/three.py": THREE,
        "populations/base.py": BASE,
        "populations/four.py": FOUR,
    }
    write(tmp_path, sources)
    places = tomllib.loads(BUDGETS)["rooms"]
    found = rooms(tmp_path, places)
    # ONE has an import, a def and its return, and so has TWO.
    assert found["one, two"] == Size(code=6, modules=2, types=0, module=3, function=2)
    # THREE has 3 imports, 3 lines of First, 2 of Second, 4 of Third, whose text has three lines,
    # and 2 of Plain. FOUR has an import and 2 lines of each class.
    assert found["the rest"] == Size(code=24, modules=3, types=5, module=14, function=0)
    assert found[PRODUCT_ROOM].code == 30
    write(tmp_path, {"tools/four.py": ""})
    with pytest.raises(ValueError, match=r"tools/four\.py is in no room of budgets\.toml"):
        rooms(tmp_path, places)


def test_budgets_hold_rooms_and_their_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, {"populations/three.py": THREE + "x = 1\n" * 7, "budgets.toml": BUDGETS})
    monkeypatch.setattr(house, "BUDGETS", tmp_path / "budgets.toml")
    with pytest.raises(SystemExit) as caught:
        house.main(["--check", str(tmp_path)])
    assert caught.value.code == 1
    assert capsys.readouterr().out == "the rest has 21 lines of code, its budget is 20\n"
    building = BUDGETS + '[[building]]\nsubject = "A room"\nrooms = ["the rest"]\nlines = 1\n'
    write(tmp_path, {"budgets.toml": building})
    house.main(["--check", str(tmp_path)])
    assert capsys.readouterr().out == ""
    budgets = tomllib.loads(building)
    sizes = {PRODUCT_ROOM: Size(code=102, modules=1, types=0, module=0, function=0)}
    assert beyond(sizes, budgets) == [
        f"{PRODUCT_ROOM} has 102 lines of code, its budget is 101",
    ]


def test_budgets_only_go_down() -> None:
    def sizes(one: int, rest: int, product: int) -> dict[str, Size]:
        names = ("one, two", "the rest", PRODUCT_ROOM)
        return {
            name: Size(code=code, modules=1, types=0, module=0, function=0)
            for name, code in zip(names, (one, rest, product), strict=True)
        }

    # A budget is the size plus 1%, at least 30: 5 + 30 and 8,000 + 80.
    lower = lowered(BUDGETS.replace("100", "9000"), sizes(5, 5, 8000))
    found = tomllib.loads(lower)
    assert found["product"]["code"] == 8080
    assert found["rooms"]["one, two"]["code"] == 35
    assert found["rooms"]["the rest"]["code"] == 20
    assert found["rooms"]["one, two"]["paths"] == ["populations/ratings/", "populations/league/"]
