"""What is shown of a run: views, cells, calibration, exploitability, studies."""
