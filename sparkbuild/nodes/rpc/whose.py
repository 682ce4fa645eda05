"""Who else may write to the way to a store: what lies in it, images and lanes, runs with the rights of this user."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Any

from sparkbuild.core.errors import NodeError

# Whoever may write to the code, or to a folder on the way to it, decides what the agent does with our rights. `way`
# says which step of a path that is: each must be of root or of us, and no folder may be open to others, but for a
# sticky one (/tmp), in which nobody moves what is of somebody else. The group of a user's own (umask 002) is nobody
# else. `inside` says the same of all that is in a folder, where sticky is not enough. None: nobody but us.
LOOK = """
import os
me=os.geteuid()
mine=[0,me]
def closed(s,sticky):
 w=s.st_mode&18
 if w==16:
  import grp,pwd
  try:
   u=pwd.getpwuid(me)
   g=grp.getgrgid(s.st_gid)
   if g.gr_gid==u.pw_gid and g.gr_name==u.pw_name and set(g.gr_mem)<={u.pw_name}: w=0
  except KeyError: pass
 return s.st_uid in mine and (w==0 or sticky and s.st_mode&512)
def way(p):
 at,rest,hops="/",p.split("/")[::-1],0
 while True:
  s=os.lstat(at)
  if not closed(s,True): return at,s
  if len(rest)==0: return None
  e=rest.pop()
  if e in ("","."): continue
  if e=="..":
   at=os.path.dirname(at)
   continue
  e=os.path.join(at,e)
  try: s=os.lstat(e)
  except OSError: return None
  if s.st_mode>>12==10:
   hops+=1
   if s.st_uid not in mine or hops>40: return e,s
   t=os.readlink(e)
   rest+=t.split("/")[::-1]
   if t[0]=="/": at="/"
  else: at=e
def inside(f,seen):
 for e in os.scandir(f):
  s=e.stat(follow_symlinks=False)
  if s.st_mode>>12==10 or not closed(s,False): return e.path,s
  if e.is_dir():
   r=inside(e.path,seen)
   if r: return r
  elif e.name[-3:]==".py": seen.append(e.path)
def told(r):
 import pwd
 def name(n):
  try: return pwd.getpwuid(n).pw_name
  except KeyError: return "uid %d"%n
 link,mode=r[1].st_mode>>12==10,"%o"%(r[1].st_mode&4095)
 return {"where":r[0],"owner":name(r[1].st_uid),"mode":mode,"me":name(me),"link":link}
"""


def open_step(path: str, *trusted: int) -> Mapping[str, Any] | None:
    """The first step to a path of this machine that others than root, this user and `trusted` (uids) may change, as
    `told` says it; None when there is none. The same program that looks on other nodes.
    """
    names: dict[str, Any] = {}
    exec(LOOK, names)  # noqa: S102 - a constant of ours
    names["mine"] += trusted
    found = names["way"](os.path.abspath(path))
    told: dict[str, Any] | None = names["told"](found) if found else None
    return told


def refusal(what: str, node: str, path: str, found: Mapping[str, Any]) -> NodeError:
    """The error for a way that others may change. `what` of that node is not used then."""
    where, owner, me = str(found.get("where")), str(found.get("owner")), str(found.get("me"))
    kind = "a link, " if found.get("link") else ""
    mends = f"set `store` of {node} in config.toml to a folder of {me}'s own"
    if owner in {me, "root"} and not found.get("link"):
        mends = f"on that node: chmod go-w {shlex.quote(where)}; or {mends}"
    return NodeError(
        f"{what}: others than {me} may change it",
        where=f"{where} on the way to {path}",
        found=f"{kind}owner {owner}, mode {found.get('mode')}",
        wanted=f"folders of {me} or root which nobody else may write to, but for sticky ones like /tmp",
        next=mends,
    )
