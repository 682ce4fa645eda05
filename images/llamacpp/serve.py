#!/usr/bin/env python3
"""Serves one GGUF file with the llama.cpp server that is inside the `xllamacpp` wheel, on the CPU.

Needs nothing but that wheel. Exit codes: 0 after SIGTERM or SIGINT, 2 for wrong arguments or a model file that cannot
be used, 3 when the address cannot be bound, 4 when the engine refuses to start. Each failure ends with one line
`serve.py: error: ...`; the engine's own lines stand above it.

One thread is the default on purpose: llama.cpp's threads spin while they wait for each other, so two of them on a
machine with two busy cores are a hundred times slower than one.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

CACHE_MIB = 256  # memory for the prompts of earlier requests; the engine's own default is 8 GiB


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="serve.py", description="Serve a GGUF model over HTTP (OpenAI protocol).")
    parser.add_argument("--model", type=Path, required=True, help="the GGUF file")
    parser.add_argument("--alias", required=True, help="the model id under /v1/models")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, required=True, help="port to listen on")
    parser.add_argument("--ctx", type=int, default=8192, help="tokens of context per request (default: %(default)s)")
    parser.add_argument("--parallel", type=int, default=1, help="requests served at once (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="compute threads (default: %(default)s)")
    parser.add_argument("--chat-template", type=Path, help="a jinja file instead of the model's own chat template")
    parser.add_argument("--metrics", action="store_true", help="serve Prometheus metrics under /metrics")
    return parser.parse_args()


def say(text: str) -> None:
    """One line of the log."""
    print(f"serve.py: {text}", flush=True)


def fail(text: str, code: int) -> NoReturn:
    """End with one clear line."""
    sys.stdout.flush()
    print(f"serve.py: error: {text}", file=sys.stderr, flush=True)
    raise SystemExit(code)


def check_model(path: Path) -> None:
    """Say what is wrong with a model file before the engine hides it among its own lines."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        fail(f"cannot read the model {path}: {error.strerror}", 2)
    if magic != b"GGUF":
        fail(f"{path} is not a GGUF file: it starts with {magic!r}", 2)


def check_address(host: str, port: int) -> None:
    """Try the address first: the engine loads the whole model before it says that its port is taken."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, proto) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        fail(f"cannot listen on {host} port {port}: {error.strerror or error}", 3)


def read_template(path: Path | None) -> str:
    """The text of the chat template, empty for the model's own."""
    if path is None:
        return ""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        fail(f"cannot read the chat template {path}: {error}", 2)


def start(args: argparse.Namespace) -> Any:
    """Load the model and open the port; returns the running server."""
    template = read_template(args.chat_template)
    import xllamacpp  # noqa: PLC0415 - it takes a while, and the checks must speak first

    params = xllamacpp.CommonParams()
    params.model.path = str(args.model)
    params.model_alias = {args.alias}
    params.hostnames = [args.host]
    params.port = args.port
    params.n_parallel = args.parallel
    params.n_ctx = args.ctx * args.parallel  # the engine divides its context among the slots
    params.cpuparams.n_threads = args.threads
    params.cpuparams_batch.n_threads = args.threads
    params.endpoint_metrics = args.metrics
    params.ui = False
    params.cache_ram_mib = CACHE_MIB
    if template:
        params.chat_template = template
    try:
        return xllamacpp.Server(params)
    except RuntimeError as error:
        # The engine says only "failed to init"; the cause is in its own lines above.
        fail(f"the engine did not start with {args.model} on {args.host} port {args.port}: {error}", 4)


def main() -> None:
    """Serve until told to stop."""
    args = arguments()
    check_model(args.model)
    check_address(args.host, args.port)
    say(f"loading {args.model} ({args.model.stat().st_size} bytes), threads {args.threads}, slots {args.parallel}")
    began = time.monotonic()
    server = start(args)  # until it returns, SIGTERM ends the process by its default action, at once
    stop = threading.Event()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        say(f"{signal.Signals(number).name}: stopping")
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    say(f"serving {args.alias} at {server.listening_address} after {time.monotonic() - began:.1f} s")
    while not stop.wait(1.0):
        pass
    say("stopped")
    # Without taking the server apart: that waits for the answers under way, however long they are, and holds the
    # interpreter meanwhile, so that no timer could cut it short. There is nothing to save; the system closes the port.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
