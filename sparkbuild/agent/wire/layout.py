"""What folders of a node's store are called, where more than their owner has to know it."""

from __future__ import annotations

STAGED_INDEX = "staged-index"  # the index of what is staged on the node, see ledger.index
