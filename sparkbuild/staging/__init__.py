"""Staging: model data made local to each node, checked by content, and mended where it is not what it was."""
