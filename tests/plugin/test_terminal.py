"""What a person sees: bars with bytes on a terminal, plain lines in a pipe, and a terminal left as it was."""

import hashlib
import os
import pty
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sparkbuild.plugin.commands.list import fitted
from tests.workspace_tool import Tool, bare

SIZE = 600_000


class Slow(BaseHTTPRequestHandler):
    """Gives a file in six pieces over 1.5 s."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(SIZE))
        self.end_headers()
        for _ in range(6):
            self.wfile.write(b"x" * (SIZE // 6))
            time.sleep(0.25)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def slow_url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/data.bin"
    server.shutdown()
    server.server_close()


@pytest.fixture
def workspace(tmp_path: Path, slow_url: str) -> Tool:
    """A recipe that needs the slow artifact; only its artifact is ever made here."""
    doit = bare(tmp_path)
    (tmp_path / "images" / "none").mkdir(parents=True)
    (tmp_path / "images" / "none" / "image.toml").write_text('kind = "venv"\nlock = "data"\n')
    (tmp_path / "images" / "none" / "requirements.lock").write_text("")
    (tmp_path / "locks").mkdir()
    pins = {
        "input.images/none/requirements.lock.sha256": hashlib.sha256(b"").hexdigest(),
        "big.artifact.url": slow_url,
        "big.artifact.sha256": hashlib.sha256(b"x" * SIZE).hexdigest(),
    }
    lines = ["format=local-inference-source-lock/v1", *(f"{key}={value}" for key, value in pins.items())]
    (tmp_path / "locks" / "data.source.lock").write_text("\n".join(lines) + "\n")
    (tmp_path / "recipes" / "r").mkdir(parents=True)
    (tmp_path / "recipes" / "r" / "recipe.toml").write_text(
        'cluster = "local"\nimage = "none"\nmodel_id = "m"\n\n[serve]\ncommand = ["x"]\nport = 8000\n'
        '\n[[staging]]\nid = "d"\nkind = "files"\nsrc = "artifact:data/big"\n'
    )
    return doit


def on_a_terminal(doit: Tool, *args: str, columns: int = 100) -> tuple[int, str]:
    """Run doit with a terminal as its output."""
    master, slave = pty.openpty()
    env = {**doit.env, "COLUMNS": str(columns), "TERM": "xterm"}
    argv = [sys.executable, "-m", "doit", *args]
    process = subprocess.Popen(argv, cwd=doit.root, env=env, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    seen = bytearray()
    deadline = time.monotonic() + 60
    try:
        while time.monotonic() < deadline:
            if select.select([master], [], [], 0.2)[0]:
                try:
                    seen += os.read(master, 65536)
                except OSError:  # the last writer closed it
                    break
    finally:
        os.close(master)
    return process.wait(timeout=10), seen.decode(errors="replace")


def test_bars_on_a_terminal(workspace: Tool) -> None:
    code, raw = on_a_terminal(workspace, "artifact:data:big")
    assert code == 0, raw
    assert "Traceback" not in raw
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", raw)
    assert re.search(r"artifact:data:big  download .* kB of 600\.0 kB, .*/s, .* left", text), text
    assert re.search(r"done  artifact:data:big  \d+\.\d s, 600\.0 kB", text)
    assert raw.count("\x1b[?25l") == raw.count("\x1b[?25h") > 0  # the cursor was hidden, and is shown again


def test_lines_in_a_pipe(workspace: Tool) -> None:
    done = workspace.ok("artifact:data:big")
    assert "\x1b" not in done.out
    assert "      artifact:data:big: download" in done.out
    assert "because not fetched yet" in done.out
    assert re.search(r"^1 made; ", done.out, re.MULTILINE)
    again = workspace.ok("artifact:data:big")
    assert again.out.splitlines()[0] == "ok    artifact:data:big"
    assert "1 up to date" in again.out


def test_a_plan_that_nobody_reads_to_the_end(workspace: Tool) -> None:
    line = f"{sys.executable} -m doit plan | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", line], cwd=workspace.root, env=workspace.env, capture_output=True, text=True, check=True
    )
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
    assert done.stdout.strip() in {"0", "141"}


@pytest.mark.parametrize("words", [["list"], ["list", "--status"], ["list", "serve:r", "image:none"]])
def test_a_list_fits_a_narrow_terminal(workspace: Tool, words: list[str]) -> None:
    """Names are what is typed: they stay whole, and what is said of them is cut."""
    code, text = on_a_terminal(workspace, *words, columns=34)
    assert code == 0, text
    rows = text.replace("\r", "").splitlines()
    assert max(map(len, rows)) <= 34, text
    names = [next(word for word in row.split() if ":" in word or len(word) > 1) for row in rows]
    assert {"serve:r", "image:none"} <= set(names)
    assert any(row.endswith("…") for row in rows)
    assert "…" not in workspace.ok(*words).out, "a pipe gets all of it"


def test_a_name_that_is_longer_than_the_terminal_stays_whole() -> None:
    docs = {"stage:r:dgx1:engram": "the rows of a table", "serve:r": "served"}
    pad, cut = fitted(docs, 20)
    assert [f"{name:<{pad}}{cut[name]}" for name in docs] == ["stage:r:dgx1:engram", "serve:r   served"]
    pad, cut = fitted(docs, 30)
    assert [f"{name:<{pad}}{cut[name]}" for name in docs] == ["stage:r:dgx1:engram  the rows…", "serve:r        served"]
    assert fitted(docs, 0) == (22, docs)
