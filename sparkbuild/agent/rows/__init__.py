"""Rows of lookup tables as sources."""
