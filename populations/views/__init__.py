"""Views of a league as data: which columns, lines and charts each has; media render them."""
