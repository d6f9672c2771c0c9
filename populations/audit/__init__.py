"""Whether a run's rows and files fit together, and how what does not is mended."""
