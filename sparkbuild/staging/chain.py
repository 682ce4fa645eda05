"""One chain for each key in a run: the first node reads the NAS, each other one takes from the one before it."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from sparkbuild.agent.wire.staging.peers import GIVE, GiveAsk, Peers
from sparkbuild.agent.wire.store import Place
from sparkbuild.core.errors import NodeError, SparkbuildError
from sparkbuild.core.run import Run
from sparkbuild.nodes.relay.giver import Post
from sparkbuild.nodes.relay.reach import Ways

if TYPE_CHECKING:
    from sparkbuild.nodes.cluster import Nodes

ASKED = 3  # givers that a node knows of, at most: the way to each takes a look
HOLDERS = 2  # nodes that were done before the chain began and are asked to give, at most

Note = Callable[[str], None]


class Seat(NamedTuple):
    """A node's place in a chain. `peers` is for the request of `stage`, None for a node that reads the NAS; `givers`:
    the nodes that are asked, the first one first.
    """

    peers: Peers | None
    givers: tuple[str, ...] = ()


class Chains:
    """The chains that are open, by key. A node that became whole gives to those who join later in the run, too."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._open: dict[str, _Chain] = {}
        self._whole: dict[str, dict[_Member, None]] = {}
        self._guard = threading.Lock()

    @contextmanager
    def join(self, key: str, node: str, dst: str, run: Run, holders: Sequence[tuple[str, str]] = ()) -> Iterator[Seat]:
        """A seat in the chain of a key, which must name the bytes, while the block stages them on the node with this
        very key. `dst` as the request says it. `holders`: other (node, dst) that are known to be whole; with any, the
        NAS is not read at all. They may be other folders of the same node.

        From now on the node gives, until the last one leaves the chain; one whose block
        failed gives no more, and the others read the NAS for what it lacks. Nothing about the chain fails the block.
        """
        member = _Member(node, dst)
        with self._guard:
            chain = self._open.setdefault(key, _Chain(self._nodes, key))
            chain.users += 1
            whole = dict.fromkeys([*self._whole.get(key, {}), *(_Member(*holder) for holder in holders)])
        whole.pop(member, None)
        try:
            with chain.seat(member, tuple(whole), run.note) as seat:
                yield seat
            with self._guard:
                self._whole.setdefault(key, {})[member] = None
        finally:
            with self._guard:
                chain.users -= 1
                last = chain.users == 0
                if last:
                    del self._open[key]
            if last:
                chain.close()


class _Member(NamedTuple):
    node: str
    dst: str


class _Chain:
    """The posts of one key, by member, in the order in which they came."""

    def __init__(self, nodes: Nodes, key: str) -> None:
        self.users = 0
        self._nodes, self._key = nodes, key
        self._token = secrets.token_hex(16)
        self._posts: dict[_Member, Post] = {}
        self._making = threading.Lock()
        self._ways = Ways(nodes)

    @contextmanager
    def seat(self, member: _Member, holders: Sequence[_Member], note: Note) -> Iterator[Seat]:
        with self._making:  # one after the other: each must know where the one before it gives
            if not self._posts:
                for holder in holders[:HOLDERS]:
                    self._give(holder, note, expected=False)
            seat = self._seat(member, note)
            self._give(member, note, expected=True)
        try:
            yield seat
        except BaseException:
            with self._making:
                post = self._posts.pop(member, None)
            if post is not None:
                post.stop()
            raise

    def close(self) -> None:
        """End all of it."""
        for post in self._posts.values():
            post.leave()
        for post in self._posts.values():
            post.stop()
        self._ways.close()

    def _give(self, member: _Member, note: Note, *, expected: bool) -> None:
        """Have the member give, unless it cannot."""
        try:
            request = GiveAsk(
                dst=member.dst,
                key=self._key,
                token=self._token,
                listen=self._ways.listen(member.node),
                expected=expected,
            )
            post = Post(self._nodes.agent(member.node), member.node, GIVE, request)
            post.start()
        except SparkbuildError as error:
            note(f"{member.node} gives nothing to others: {error}")
            return
        before = self._posts.pop(member, None)
        if before is not None:
            before.leave()
        self._posts[member] = post

    def _seat(self, member: _Member, note: Note) -> Seat:
        givers, known = self._givers(member), []
        sources: list[Place] = []
        for giver in givers[:ASKED]:
            try:
                sources += self._ways.sources(giver.node, giver.ports, member.node)
                known.append(giver.node)
            except NodeError as error:
                note(f"{member.node} cannot take from {giver.node}: {error}")
        if not sources:
            if givers:
                note(f"{member.node} reads the source itself: no way leads to those who have it")
            return Seat(None)
        names = ["another folder of its own" if node == member.node else node for node in known]
        note(f"{member.node} takes from {', then '.join(names)}; what they lack, from the source")
        return Seat(Peers(token=self._token, sources=sources), tuple(known))

    def _givers(self, member: _Member) -> list[Post]:
        """Those that can be asked, the best first: another folder of the same node; then the last of the chain, then
        those before it; the first of all where its wire is fast enough for everyone. This machine last: the way from
        it is over ssh.
        """
        posts = [post for other, post in self._posts.items() if other != member and post.alive]
        chain = posts[::-1]
        try:
            if len(posts) > 1 and self._ways.feeds_all(posts[0].node, member.node, len(posts)):
                chain = [posts[0], *(post for post in chain if post is not posts[0])]
        except NodeError:
            pass  # its network is not known: whether there is a way is seen next
        return sorted(chain, key=lambda post: (post.node != member.node, self._ways.is_here(post.node)))
