"""Gates of an image: commands that must pass inside it before it gets its labels. No network, no GPU, no pull."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from sparkbuild.agent.docker.program import Client
from sparkbuild.agent.wire.protocol import AgentError, Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.wire.images import Gate
    from sparkbuild.agent.wire.receipts import GateResult

LABEL = "sparkbuild.gate"
_LINES = 8  # of its output, kept with a result
_READ = 4 << 20  # bytes of its output, from the end, in which the expected text is looked for


def sweep(client: Client, name: str) -> None:
    """Remove containers of gates that an interrupted build left."""
    containers = client.run(["ps", "--all", "--quiet", "--filter", f"label={LABEL}={name}"]).stdout.split()
    if containers:
        client.run(["rm", "--force", *containers])


def run_gates(client: Client, name: str, image: str, gates: Sequence[Gate], reporter: Reporter) -> list[GateResult]:
    """The results of all gates; each is also in the log."""
    results = []
    for number, gate in enumerate(gates, start=1):
        reporter.emit("progress", phase=f"gate {gate['id']}", bytes=number, total=len(gates), unit="gates")
        result = _run(client, name, image, gate)
        reporter.log(f"gate {result['id']}: {'ok' if result['ok'] else 'failed'}, {result['seconds']} s")
        reporter.log("\n".join(f"  {line}" for line in result["text"].splitlines()))
        results.append(result)
    return results


def failure(name: str, results: Iterable[GateResult], masked: Callable[[str], str]) -> AgentError | None:
    """One error for all gates that did not pass."""
    failed = [result for result in results if not result["ok"]]
    if not failed:
        return None
    names = ", ".join(result["id"] for result in failed)
    return AgentError(
        f"image {name} did not pass its gate{'s' if len(failed) > 1 else ''} {names}",
        kind="build",
        found=masked("\n".join(f"{result['id']}: {result['text']}" for result in failed)),
        next="no labelled image was left; mend the image or its gate, then run again",
    )


def _run(client: Client, name: str, image: str, gate: Gate) -> GateResult:
    box = f"sparkbuild-gate-{name}-{os.getpid()}"
    command, *args = gate["command"]
    argv = [client.path, "run", "--rm", "--init", "--name", box, "--label", f"{LABEL}={name}"]
    argv += ["--network", "none", "--pull", "never"]
    for variable, value in gate["env"].items():
        argv += ["--env", f"{variable}={value}"]
    argv += ["--entrypoint", command, image, *args]
    start = time.monotonic()
    # by a pipe: the disk may be full, and what a gate prints has no end in memory either
    process = subprocess.Popen(  # noqa: S603 - argv is a list, no shell
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=client.env
    )
    end = bytearray()
    reader = threading.Thread(target=_read, args=(process.stdout, end), daemon=True)
    reader.start()
    late = False
    try:
        code = process.wait(timeout=gate["timeout"])
    except subprocess.TimeoutExpired:
        late, code = True, -1
    finally:
        if process.poll() is None:
            client.run(["rm", "--force", box])
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
            process.kill()
            process.wait()
    reader.join(timeout=5)
    said = bytes(end).decode(errors="replace")
    why = _why(gate, code, said, late=late)
    lines = said.rstrip().splitlines()[-_LINES:]
    seconds = round(time.monotonic() - start, 2)
    return {"id": gate["id"], "ok": not why, "seconds": seconds, "text": "\n".join([*([why] if why else []), *lines])}


def _why(gate: Gate, code: int, said: str, *, late: bool) -> str:
    """Why a gate did not pass, "" when it did."""
    if late:
        return f"did not end within {gate['timeout']:g} s"
    if code:
        return f"exit code {code}"
    return f"{gate['expect']!r} is not in what it printed" if gate["expect"] not in said else ""


def _read(pipe: IO[bytes] | None, end: bytearray) -> None:
    """The last bytes that come out of a pipe."""
    if pipe is not None:
        with pipe:
            while block := os.read(pipe.fileno(), 1 << 16):
                end += block
                del end[:-_READ]
