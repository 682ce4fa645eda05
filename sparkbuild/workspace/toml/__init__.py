"""TOML files: read, explained, changed."""
