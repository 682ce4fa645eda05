"""Files of the workspace, read and written whole."""
