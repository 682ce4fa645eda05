"""Uncached reads and writes where the file system refuses them, by several threads at once."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from sparkbuild.agent.disk.pages import Pages

MEMORY = Path("/dev/shm")


@pytest.mark.skipif(not os.access(MEMORY, os.W_OK), reason="no tmpfs at /dev/shm that can be written")
def test_threads_that_find_out_at_the_same_moment() -> None:
    """Tmpfs refuses RWF_DONTCACHE: whichever thread hears it second must fall back as well, and not give up."""
    path = MEMORY / f"sparkbuild-test-{os.getpid()}"
    block = 65536
    path.write_bytes(os.urandom(block * 8))
    wanted = path.read_bytes()
    wrong: list[str] = []
    try:
        for _ in range(200):
            fd = os.open(path, os.O_RDWR)
            pages, gate = Pages(fd), threading.Barrier(8)

            def work(index: int, pages: Pages = pages, gate: threading.Barrier = gate) -> None:
                part = bytearray(wanted[index * block : (index + 1) * block])
                view = memoryview(bytearray(block))
                gate.wait()
                try:
                    pages.write(memoryview(part), index * block)
                    if pages.read(view, index * block) != block or view != part:
                        wrong.append("other bytes")
                except OSError as error:
                    wrong.append(str(error))

            threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            os.close(fd)
        assert wrong == []
    finally:
        path.unlink()
