"""A campaign needs a rack: skipped, or failed, as the rack's own tests."""

from tests.rack.conftest import possible

__all__ = ["possible"]
