"""Renderers of views for people: functions of a document and a `Look`, a module each."""
