"""The sqlite file behind the state of a workspace: how it is opened, made, and put aside when it is broken."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

_SCHEMA = """
create table if not exists doit (task text primary key, row text not null);
create table if not exists made (
    uri text primary key, key text not null, parts text not null,
    at real not null, seconds real not null, bytes integer not null, run text not null);
"""
_PATIENCE = 30.0  # seconds to wait for another process's write


def connect(path: Path) -> sqlite3.Connection:
    """A connection that threads may share. A file that is no database is put aside; sqlite3.OperationalError when it is
    locked, read-only, or its disk full: it may be sound then.
    """
    try:
        return _connect_patiently(path)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise
        # State is only a hint: keep the broken file for a look, start anew.
        os.replace(path, path.with_name(f"{path.name}.broken-{int(time.time())}"))
        for leftover in ("-wal", "-shm"):
            Path(f"{path}{leftover}").unlink(missing_ok=True)
        return _connect(path)


def _connect_patiently(path: Path) -> sqlite3.Connection:
    # sqlite's own timeout does not cover the switch to WAL mode: two runs that create the file at the same moment, or
    # one that opens it while the last other one closes it, get "database is locked" at once.
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return _connect(path)
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("pragma journal_mode=wal")
        connection.execute("pragma synchronous=normal")
        present = connection.execute("select count(*) from sqlite_master where name in ('doit', 'made')").fetchone()
        if present[0] != 2:
            connection.executescript(_SCHEMA)
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection
