"""Views of a league as data: charts are Vega-Lite specifications, the family tree is an SVG."""
