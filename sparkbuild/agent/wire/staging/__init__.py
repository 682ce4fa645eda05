"""Staged data on the wire: what it is staged from, folders, exports, the index of a node, giving to other nodes."""
