"""Benches: real harnesses against a served model, and the run package that one bench leaves."""
