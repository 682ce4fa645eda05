"""The campaign: random faults while two operators work, and after each the invariants, seen from outside."""
