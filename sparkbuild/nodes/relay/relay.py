"""The blob relay: bytes that are known by their sha256, from the node that has them to all that need them.

Each receiver fetches what it lacks from the one before it, as that receives it, and falls back to the holder. So the
holder's wire carries everything once; only where that is much faster than what the receivers take, all of them fetch
from the holder itself. Nodes talk to each other directly; no node logs in to another.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from sparkbuild.agent.wire.store import CLEAR, BlobSize, ClearAsk, Place, RelayAsk
from sparkbuild.core.errors import NodeError, SparkbuildError
from sparkbuild.core.run import OnEvent, call
from sparkbuild.nodes.relay.arrival import Arrival
from sparkbuild.nodes.relay.giver import Post
from sparkbuild.nodes.relay.reach import Ways

if TYPE_CHECKING:
    from sparkbuild.nodes.cluster import Nodes

INCOMING = "incoming"  # the folder in a node's store where blobs arrive

Note = Callable[[str], None]


class Blob(msgspec.Struct, frozen=True):
    """A file by its content: sha256 in hex, size in bytes."""

    sha256: str
    size: int


class Relay:
    """Carries blobs of `holder`, which lie in `folder` of its store, to nodes as they ask for them. Close it."""

    def __init__(self, nodes: Nodes, holder: str, folder: str, blobs: Sequence[Blob]) -> None:
        self.holder = holder
        self._nodes = nodes
        self._folder = folder
        self._blobs = tuple(blobs)
        self._token = secrets.token_hex(16)
        self._posts: dict[str, Post] = {}  # by node, in the order in which they came: the holder first
        self._whole: dict[str, tuple[Blob, ...]] = {}  # what was used on a node, and may go
        self._making = threading.Lock()
        self._ways = Ways(nodes)

    @contextmanager
    def carry(self, node: str, blobs: Sequence[Blob], on_event: OnEvent, note: Note) -> Iterator[Arrival]:
        """While the block runs, the blobs arrive in `incoming` of the node's store, in this order; what had arrived
        before is kept. They are removed there when the relay is closed, unless the block failed.

        Raises NodeError when there is no way; `Arrival.wait` raises what fails later.
        """
        wanted = tuple(blobs)
        if not wanted:
            with self._making:
                self._hold()
                arrival = Arrival(self._sources(self._posts[self.holder], node), self._token)
            arrival.complete.set()
            yield arrival
            return
        yield from self._carry(node, wanted, on_event, note)
        self._whole[node] = wanted

    def _carry(self, node: str, blobs: tuple[Blob, ...], on_event: OnEvent, note: Note) -> Iterator[Arrival]:
        with self._making:  # one after the other: each must know where the one before it gives out
            self._hold()
            givers = self._givers(node)
            sources, problem = self._all_sources(givers, node)
            arrival = Arrival(sources, self._token)
            if sources:
                note(f"{node} receives from {', then '.join(post.node for post in givers)}")
                post = self._post(node, INCOMING, blobs, sources)
                self._posts[node] = post
                post.watch(arrival, on_event)
                post.start()
        if not sources:
            self._put(node, blobs, arrival, on_event, problem)
        yield arrival

    def close(self) -> None:
        """End all of it, on all nodes, and remove there what was received and used."""
        for post in self._posts.values():
            post.leave()
        for post in self._posts.values():
            post.stop()
        self._ways.close()
        for node, blobs in self._whole.items():
            request = ClearAsk(folder=INCOMING, blobs=_listed(blobs), clear=True)
            try:
                call(self._nodes.agent(node), CLEAR, request, final=True)
            except SparkbuildError:
                continue  # they stay until the next run: an hour of work is not lost for that
        self._posts, self._whole = {}, {}

    # -- who gives -----------------------------------------------------------------------------------------------

    def _hold(self) -> None:
        if self.holder not in self._posts:
            post = self._post(self.holder, self._folder, self._blobs, [])
            post.start()
            self._posts[self.holder] = post

    def _post(self, node: str, folder: str, blobs: Sequence[Blob], sources: Sequence[Place]) -> Post:
        request = RelayAsk(
            folder=folder,
            blobs=_listed(blobs),
            token=self._token,
            listen=self._ways.listen(node),
            sources=list(sources),
        )
        return Post(self._nodes.agent(node), node, "relay", request)

    def _givers(self, node: str) -> list[Post]:
        """Those that are asked, one after the other: the last of the chain, then the holder."""
        holder = self._posts[self.holder]
        chain = [post for post in self._posts.values() if post is not holder and post.node != node and post.alive]
        chain = [post for post in chain if not self._ways.is_here(post.node)]
        if chain and self._ways.feeds_all(self.holder, node, len(chain) + 1):
            return [holder]
        return [*chain[-1:], holder]

    def _all_sources(self, givers: Sequence[Post], node: str) -> tuple[list[Place], NodeError | None]:
        found, problem = [], None
        for giver in givers:
            try:
                found += self._sources(giver, node)
            except NodeError as error:
                problem = error
        return found, problem

    def _sources(self, giver: Post, node: str) -> list[Place]:
        return self._ways.sources(giver.node, giver.ports, node)

    # -- without a way -------------------------------------------------------------------------------------------

    def _put(
        self, node: str, blobs: Sequence[Blob], arrival: Arrival, on_event: OnEvent, problem: NodeError | None
    ) -> None:
        """Where nothing may be forwarded, the blobs are written to the agent itself, in the background."""
        if not self._ways.is_here(self.holder):
            raise problem or NodeError(f"there is no way from {self.holder} to {node}")
        store = self._nodes.store(self.holder)

        def send() -> None:
            try:
                for blob in blobs:
                    source = f"{store}/{self._folder}/{blob.sha256}"
                    path = f"{INCOMING}/{blob.sha256}"
                    arrival.received += self._nodes.agent(node).put(path, source, blob.sha256, on_event)
                arrival.complete.set()
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                arrival.fail(error)

        threading.Thread(target=send, daemon=True).start()


def _listed(blobs: Iterable[Blob]) -> list[BlobSize]:
    return [BlobSize(sha256=blob.sha256, size=blob.size) for blob in blobs]
