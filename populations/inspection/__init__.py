"""Views of a run: documents, payoff cells, calibration, exploitability, studies."""
