"""Media of views: files of charts."""
