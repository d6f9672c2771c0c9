"""Figures about the code, of a checkout that is written for it."""

from __future__ import annotations

from pathlib import Path

from experiments.house import measured

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


def test_figures_of_a_small_checkout(tmp_path: Path) -> None:
    sources = {
        "populations/ratings/one.py": ONE,
        "populations/league/two.py": TWO,
        "tests/populations/ratings/test_one.py": "",
    }
    for name, text in sources.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = measured(tmp_path)
    assert (found.files, found.lines) == (2, ONE.count("\n") + TWO.count("\n"))
    assert (found.most_modules_in_a_folder, found.rings) == (1, 1)
    assert (found.docstrings, found.unread_docstrings, found.unread_arguments) == (3, 1, 1)
    assert (found.rules, found.rules_with_a_test_file) == (2, 1)
    assert found.longest_function == 3  # without the docstring
    assert found.comment_share == round(1 / found.lines, 4)
