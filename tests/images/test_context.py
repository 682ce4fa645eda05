"""The context of a build: the same bytes for the same inputs, patches applied, and nothing that was tampered with."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.image.context import run
from sparkbuild.agent.store.artifacts import path_of
from sparkbuild.agent.wire.protocol import AgentError, Reporter

SOURCE = {"pkg/a.py": b"one\ntwo\nthree\n", "pkg/run.sh": b"#!/bin/sh\n", "README": b"read\n"}
PATCH = """\
--- a/pkg/a.py
+++ b/pkg/a.py
@@ -1,3 +1,3 @@
 one
-two
+2
 three
"""


def keep_source(store: Path, files: dict[str, bytes], more: tuple[tarfile.TarInfo, ...] = ()) -> str:
    """An exported source; its archive relative to the store."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), 1_700_000_000
            info.mode = 0o755 if name.endswith(".sh") else 0o644
            tar.addfile(info, io.BytesIO(content))
        for info in more:
            tar.addfile(info)
    folder = store / "sources/ab/abc"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "source.tar").write_bytes(out.getvalue())
    receipt = {"sha256": hashlib.sha256(out.getvalue()).hexdigest()}
    (folder / "receipt.json").write_text(json.dumps(receipt))
    return "sources/ab/abc/source.tar"


def keep_artifact(store: Path, name: str, content: bytes) -> dict[str, str]:
    sha256 = hashlib.sha256(content).hexdigest()
    path = Path(path_of(str(store), sha256, name))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return {"sha256": sha256, "filename": name}


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def request(store: Path, **more: Any) -> dict[str, Any]:
    source = {"component": "eng", "archive": keep_source(store, SOURCE), "patches": []}
    return {
        "store": str(store),
        "name": "tiny",
        "key": "ab" * 32,
        "dockerfile": "FROM scratch\n",
        "sources": [source],
        "artifacts": [keep_artifact(store, "a-1.whl", b"wheel")],
        "files": {"go.sh": encoded("#!/bin/sh\n"), "data": encoded("data")},
        "epoch": 1_700_000_000,
        **more,
    }


def patched(store: Path, *patches: str) -> dict[str, Any]:
    asked = request(store)
    asked["sources"][0]["patches"] = [
        {"name": f"{number}.patch", "text": encoded(text)} for number, text in enumerate(patches)
    ]
    return asked


def made(asked: dict[str, Any]) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    result = run(asked, Reporter())
    data = Path(asked["store"], result["path"]).read_bytes()
    assert (hashlib.sha256(data).hexdigest(), len(data)) == (result["sha256"], result["bytes"])
    found = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert tar.getnames() == sorted(tar.getnames())
        for info in tar:
            content = tar.extractfile(info) if info.isreg() else None
            found[info.name] = (info, content.read() if content else b"")
    return found


def test_what_is_in_it(tmp_path: Path) -> None:
    link = tarfile.TarInfo("pkg/link")
    link.type, link.linkname = tarfile.SYMTYPE, "a.py"
    asked = request(tmp_path)
    keep_source(tmp_path, SOURCE, (link,))
    found = made(asked)
    assert found["Dockerfile"][1] == b"FROM scratch\n"
    assert found["sources/eng/pkg/a.py"][1] == SOURCE["pkg/a.py"]
    assert found["sources/eng/pkg/link"][0].linkname == "a.py"
    assert found["artifacts/a-1.whl"][1] == b"wheel"
    assert found["files/data"][1] == b"data"
    modes = {name: info.mode for name, (info, _) in found.items()}
    assert (modes["sources/eng/pkg/run.sh"], modes["sources/eng/README"], modes["files/go.sh"]) == (0o755, 0o644, 0o755)
    assert found["sources/eng/pkg"][0].isdir()
    for info, _ in found.values():
        assert (info.uid, info.gid, info.uname, info.gname, info.mtime) == (0, 0, "", "", 1_700_000_000)


def test_the_same_inputs_give_the_same_bytes(tmp_path: Path) -> None:
    digests = set()
    for number, umask in enumerate((0o022, 0o077)):
        store = tmp_path / str(number)
        before = os.umask(umask)
        try:
            asked = patched(store, PATCH)
            asked["files"] = dict(reversed(asked["files"].items())) if number else asked["files"]
            digests.add(run(asked, Reporter())["sha256"])
        finally:
            os.umask(before)
    assert len(digests) == 1
    assert run(patched(tmp_path / "0", PATCH) | {"epoch": 0}, Reporter())["sha256"] not in digests


def test_patches_are_applied_in_order(tmp_path: Path) -> None:
    second = PATCH.replace("-two", "-2").replace("+2", "+zwei")
    found = made(patched(tmp_path, PATCH, second))
    assert found["sources/eng/pkg/a.py"][1] == b"one\nzwei\nthree\n"
    assert found["sources/eng/pkg/run.sh"][0].mode == 0o755
    assert not [name for name in found if "work" in name or ".patch" in name]


def test_a_patch_is_applied_below_a_repository_too(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    assert made(patched(tmp_path / "store", PATCH))["sources/eng/pkg/a.py"][1] == b"one\n2\nthree\n"


@pytest.mark.parametrize(
    "patch",
    [
        PATCH.replace("-two", "-three"),
        PATCH.replace("pkg/a.py", "../../../evil"),
        PATCH.replace("--- a/pkg/a.py\n+++ b/pkg/a.py", "--- a/pkg/none.py\n+++ b/pkg/none.py"),
        "no patch\n",
    ],
)
def test_a_patch_that_does_not_fit(tmp_path: Path, patch: str) -> None:
    with pytest.raises(AgentError, match=r"0\.patch does not fit source eng") as caught:
        run(patched(tmp_path, patch), Reporter())
    assert caught.value.fields["kind"] == "config"
    assert left(tmp_path) == []


def left(store: Path) -> list[str]:
    return [path.name for path in (store / "contexts/tiny").iterdir()]


def test_a_tampered_source(tmp_path: Path) -> None:
    asked = request(tmp_path)
    path = tmp_path / asked["sources"][0]["archive"]
    path.write_bytes(path.read_bytes().replace(b"two", b"2wo"))
    with pytest.raises(AgentError, match="source eng is not what the lock pins") as caught:
        run(asked, Reporter())
    assert caught.value.fields["kind"] == "integrity"
    assert left(tmp_path) == []


def test_a_tampered_artifact(tmp_path: Path) -> None:
    asked = request(tmp_path)
    (artifact,) = asked["artifacts"]
    Path(path_of(str(tmp_path), artifact["sha256"], artifact["filename"])).write_bytes(b"other")
    with pytest.raises(AgentError, match=r"a-1\.whl is not what the lock pins"):
        run(asked, Reporter())


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil"])
def test_a_source_with_a_trap(tmp_path: Path, name: str) -> None:
    asked = request(tmp_path)
    keep_source(tmp_path, {name: b"x"})
    with pytest.raises(AgentError):
        run(asked, Reporter())
    asked["sources"][0]["patches"] = [{"name": "p", "text": encoded(PATCH)}]
    with pytest.raises(AgentError):
        run(asked, Reporter())
    assert not list(tmp_path.parent.rglob("evil"))


def test_a_device_in_a_source(tmp_path: Path) -> None:
    device = tarfile.TarInfo("dev")
    device.type = tarfile.CHRTYPE
    asked = request(tmp_path)
    keep_source(tmp_path, {}, (device,))
    with pytest.raises(AgentError, match="neither file, folder nor link"):
        run(asked, Reporter())


def test_two_at_one_image_leave_each_other_alone(tmp_path: Path) -> None:
    """Two operators who build on one node: the second is refused later on, and clears only what is its own."""
    one, two, other = (
        run(request(tmp_path), Reporter()),
        run(request(tmp_path), Reporter()),
        run(request(tmp_path, key="cd" * 32), Reporter()),
    )
    assert one["sha256"] == two["sha256"] == other["sha256"]
    for made in (two, other):
        run({"store": str(tmp_path), "name": "tiny", "discard": made["path"]}, Reporter())
        assert not (tmp_path / made["path"]).exists()
    assert (tmp_path / one["path"]).exists()
    for path in ("/etc/hosts", "sources/ab/abc/source.tar", "contexts/tiny"):
        run({"store": str(tmp_path), "name": "tiny", "discard": path}, Reporter())
    assert (tmp_path / "sources/ab/abc/source.tar").exists(), "only contexts are removed"
    assert (tmp_path / one["path"]).exists()


def test_what_a_killed_run_left_goes_after_a_day(tmp_path: Path) -> None:
    old = run(request(tmp_path), Reporter())["path"]
    (tmp_path / "contexts/tiny/left.part").mkdir()
    for path in ((tmp_path / old).parent, tmp_path / "contexts/tiny/left.part"):
        os.utime(path, (1_700_000_000,) * 2)
    made = run(request(tmp_path), Reporter())["path"]
    assert left(tmp_path) == [Path(made).parent.name]


@pytest.mark.parametrize("target", ["/etc/passwd", "../../x", ".."])
def test_a_patch_that_adds_a_link_that_leads_out(tmp_path: Path, target: str) -> None:
    added = "diff --git a/out b/out\nnew file mode 120000\n--- /dev/null\n+++ b/out\n@@ -0,0 +1 @@\n"
    with pytest.raises(AgentError, match="adds a link that leads out of it") as caught:
        run(patched(tmp_path, f"{added}+{target}\n\\ No newline at end of file\n"), Reporter())
    assert caught.value.fields["found"] == f"out -> {target}"
    inside = patched(tmp_path / "b", f"{added}+README\n\\ No newline at end of file\n")
    assert made(inside)["sources/eng/out"][0].linkname == "README"
