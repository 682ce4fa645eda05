"""Exports of staged folders: links and mounts."""
