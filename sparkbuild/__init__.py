"""sparkbuild: a reproducible, incremental build system for serving language models on small GPU clusters."""

__version__ = "0.1.0"
