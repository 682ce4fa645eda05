"""From the workspace to goals."""
