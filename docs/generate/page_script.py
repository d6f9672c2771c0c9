"""The page's script for charts: Vega, Vega-Lite and what draws them without eval, in one file.

``python -m docs.generate.page_script > tools/web/static/vega.min.js``
"""

from __future__ import annotations

import sys

import vl_convert

from tools.show.chart_files import VEGA_LITE


def script() -> str:
    """Return the script, whose licenses are in `vega.licenses.txt` beside it."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)


if __name__ == "__main__":
    sys.stdout.write(script())
