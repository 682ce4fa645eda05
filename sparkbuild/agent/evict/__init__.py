"""Staged data that goes, to make room."""
