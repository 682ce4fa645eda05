"""Staging: looking, copying, mending, checking again."""
