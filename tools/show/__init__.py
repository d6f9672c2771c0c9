"""Media of views: text, CSV, pages, files of charts."""
