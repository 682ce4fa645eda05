"""The symbolic links of a staged folder: made after the files, looked at by their text, removed when they were ours."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from sparkbuild.agent.disk import questions
from sparkbuild.agent.disk.held import Held
from sparkbuild.agent.ledger import folder
from sparkbuild.agent.ledger.ledger import Link
from sparkbuild.agent.ledger.part import stem
from sparkbuild.agent.wire.layout import OURS


def problem(dst: str, link: Link) -> str:
    """What is wrong with a link, "" when nothing is."""
    try:
        with questions.asking(f"{dst}/{link.name}"):
            text = os.readlink(f"{dst}/{link.name}")
    except (FileNotFoundError, NotADirectoryError):
        return f"the link {link.name} is missing"
    except OSError as error:
        if error.errno == errno.EINVAL:
            return f"{link.name} is a file or folder, wanted a symbolic link to {link.text}"
        return f"the link {link.name} cannot be read: {error.strerror}"
    return "" if text == link.text else f"{link.name} leads to {text!r}, wanted {link.text!r}"


def make(dst: str, links: Iterable[Link]) -> int:
    """Make those that are not right; on the disk when this returns. Returns how many. Raises AgentError when a folder
    stands there, or something else than a folder on the way.
    """
    count, above = 0, set()
    with Held(dst) as held:
        for link in links:
            folder.place(held, link.name)
            if not problem(dst, link):
                continue
            temporary = f"{OURS}/{stem(link.name)}.link"
            held.unlink(temporary)
            held.symlink(link.text, temporary)
            held.rename(temporary, link.name)
            above.add(os.path.dirname(link.name))
            count += 1
        for name in sorted(above):
            held.flush(name)
    return count


def gone(dst: str, known: Iterable[Link], wanted: set[str]) -> list[str]:
    """The names of links that we made, that are as we made them, and that nobody wants any more."""
    return [link.name for link in known if link.name not in wanted and _is_ours(dst, link)]


def _is_ours(dst: str, link: Link) -> bool:
    return folder.holds(dst, link.name) and not problem(dst, link)
