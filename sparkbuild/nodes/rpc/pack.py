"""The agent as it is sent to a node: a zip that is the same for the same sources, named by its sha256, and the
commands that start it there.
"""

from __future__ import annotations

import hashlib
import io
import os
import shlex
import zipfile
from functools import cache

from sparkbuild.nodes.rpc.whose import LOOK

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NOT_THERE = 91  # exit code of a start that found no such agent, or a Python that is too old
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first time that a zip can say

MARK = "sparkbuild-agent:"  # begins the first line that is ours; what is before it is a login shell's
READ, EATEN = "request read", "no request"  # the rest of that line

# What the caller sends, piece by piece. A link that is cut before all has come closes nothing here, and sshd notices
# that in hours: who then waits, waits for nobody.
_HEAR = """
import os,select
def hear():
 if len(select.select([0],[],[],PATIENCE)[0])==0: os._exit(143)
 return os.read(0,65536)
"""
_PATIENCE = "30"  # seconds, as an agent that was begun waits for its caller

# Runs on whatever Python is there. It reads the request, whose line says where the store is; nothing of what the
# caller sends comes after that line before the agent has said "ready", so that blocks may be read. The digest of the
# code is compared, too: what a disk lost or somebody edited is sent again. A login shell may have printed something
# without an end of line, and may have read the request, or some of it.
_START = """
import json,sys
v=sys.version_info
def begin(how):
 print(chr(10)+"MARK"+how)
 sys.stdout.flush()
def no(fits,**more):
 begin("READ")
 print(json.dumps(dict(more,event="agent",python="%d.%d.%d"%v[:3],fits=fits)))
 sys.stdout.flush()
 os._exit(91)
if v<(3,10): no(False)
r=hear()
while r and r[-1]-10:
 b=hear()
 if len(b)==0: os._exit(143)
 r+=b
try: f=os.path.join(json.loads(r.decode())["store"],"agent",sys.argv[1])
except Exception:
 begin("EATEN")
 os._exit(93)
w,seen=None,[]
try:
 w=way(f)
 if w is None and os.path.isfile(f+"/sparkbuild/agent/main.py"): w=inside(f,seen)
except OSError: seen=[]
if w: no(True,unsafe=told(w))
if len(seen)==0: no(True)
from hashlib import sha256
d=sha256()
for p in sorted(seen):
 with open(p,"rb") as o: c=o.read()
 d.update(("%s %d"%(p[len(f)+1:],len(c))).encode()+bytes([10])+c)
if d.hexdigest()[:12]<sys.argv[1] or d.hexdigest()[:12]>sys.argv[1]: no(True)
begin("READ")
try: os.setpgid(0,0);os.utime(f)
except OSError: pass
sys.path.insert(0,f)
from sparkbuild.agent.main import main
c=main(sys.argv[2:],r)
sys.stdout.flush()
os._exit(c)
"""

# The request line, then the archive to the end of stdin; what unpacks it is in the archive.
_UNPACK = """
import hashlib,io,json,sys,zipfile
print(chr(10)+"MARKREAD")
sys.stdout.flush()
b,z=hear(),[]
while b:
 z.append(b)
 b=hear()
r,_,z=bytes().join(z).partition(bytes([10]))
q=json.loads(r.decode())
if hashlib.sha256(z).hexdigest()==q["sha256"]:
 z=zipfile.ZipFile(io.BytesIO(z))
 n={"__name__":"unpack"}
 exec(z.read("sparkbuild/agent/unpack.py"),n)
 os._exit(n["main"](z,q,lambda p:told(way(p)) if way(p) else None))
os._exit(92)
"""


@cache
def name() -> str:
    """What this installation's agent is called on a node: by its sources, since two zlibs need not compress alike."""
    digest = hashlib.sha256()
    for path, content in _sources():
        digest.update(f"{path} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]


@cache
def archive() -> bytes:
    """The agent's sources as a zip."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for path, content in _sources():
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.external_attr = 0o100644 << 16
            made.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return out.getvalue()


@cache
def _sources() -> list[tuple[str, bytes]]:
    found = []
    for path in _names():
        with open(os.path.join(PACKAGE, path), "rb") as file:
            found.append((f"sparkbuild/{path}", file.read()))
    return found


def _names() -> list[str]:
    found = ["__init__.py"]
    for folder, folders, names in os.walk(os.path.join(PACKAGE, "agent")):
        folders[:] = [one for one in folders if one != "__pycache__"]
        found += [os.path.relpath(os.path.join(folder, name), PACKAGE) for name in names if name.endswith(".py")]
    return sorted(found)


def start_command(python: str, verb: str) -> str:
    """The shell command that runs a verb of the agent. Constants only: the request goes over stdin."""
    return f"{shlex.quote(python)} -I -S -c {_one_line(_HEAR + LOOK + _START)} {name()} {shlex.quote(verb)}"


def unpack_command(python: str) -> str:
    """The shell command that takes an archive."""
    return f"{shlex.quote(python)} -I -S -c {_one_line(_HEAR + LOOK + _UNPACK)}"


def _one_line(source: str) -> str:
    """A program as one shell word that sh, bash, zsh, fish and csh read alike: in single quotes, without line breaks,
    backslashes, `!` and single quotes.
    """
    for word, text in (("MARK", MARK), ("READ", READ), ("EATEN", EATEN), ("PATIENCE", _PATIENCE)):
        source = source.replace(word, text)
    source = source.strip()
    text = f'exec("""{source}""".replace("|",chr(10)))'.replace("\n", "|")
    if set(text) & set("'\\!\n") or source.count("|"):
        raise ValueError("not to be quoted for every shell")
    return f"'{text}'"
