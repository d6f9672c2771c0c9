"""Views of a league as data: their columns, lines and charts, which `tools.show` renders."""
