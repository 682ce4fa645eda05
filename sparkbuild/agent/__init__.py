"""The program that runs on a node: stdlib only, Python 3.10 or newer, imports nothing else of this package."""
