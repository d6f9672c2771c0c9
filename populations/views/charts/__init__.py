"""Charts of views, a specification each for pages and files."""
