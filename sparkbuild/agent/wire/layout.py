"""What folders of a node are called, and which versions of formats there are, where more than their owner knows it."""

from __future__ import annotations

STAGED_INDEX = "staged-index"  # the index of what is staged on the node, see ledger.index
OURS = ".sparkbuild"  # the folder beside staged data, and the files in it that have names (docs/formats.md)
LOCK, OWNER_FILE, DRAFT_FILE, LEDGER_FILE = "lock", "owner.json", "draft.jsonl", "ledger.json"
STAMPS_FILE, SCRUB_FILE, MOUNTS_FILE, NAMES_FILE = "stamps.json", "scrub.json", "mounts.json", "names.json"
BESIDE = (LOCK, OWNER_FILE, DRAFT_FILE, LEDGER_FILE, STAMPS_FILE, SCRUB_FILE, MOUNTS_FILE, NAMES_FILE)

# Versions are parts of keys: a new one is written by staging again, which keeps the files and makes the record anew.
LEDGER = 2
EXPORT = 1  # the manifest of an export
