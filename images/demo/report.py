"""What is in the image: its title, and the first of its installed distributions."""

from __future__ import annotations

import argparse
import unittest
from importlib import metadata


def report(title: str, names: list[str], lines: int) -> str:
    """The title, then at most so many names in the order of the alphabet."""
    return "\n".join([title, *sorted(names)[:lines]])


class Tests(unittest.TestCase):
    """Run as a gate of the image."""

    def test_order_and_number(self) -> None:
        """Sorted, and cut off."""
        self.assertEqual(report("t", ["b", "c", "a"], 2), "t\na\nb")  # noqa: PT009 - there is no pytest in the image


def main() -> None:
    """Print the report, or run the tests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--title", default="")
    parser.add_argument("--lines", type=int, default=3)
    parser.add_argument("--test", action="store_true")
    given = parser.parse_args()
    if given.test:
        unittest.main(argv=["report"])
    names = [f"{found.name} {found.version}" for found in metadata.distributions()]
    print(report(given.title, names, given.lines))


if __name__ == "__main__":
    main()
