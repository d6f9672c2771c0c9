"""Documents of views that take more than a few lines, a module each."""
