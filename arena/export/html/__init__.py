"""A champion as one file of HTML, which needs a browser and nothing else."""
