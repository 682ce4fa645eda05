"""Recipes of the workspace."""
