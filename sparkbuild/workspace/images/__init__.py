"""Images of the workspace."""
