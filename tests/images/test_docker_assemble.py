"""Docker images put together from packages, wheels and files: the same bytes every time, and nothing that traps."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.image import archives, debs
from sparkbuild.agent.image.assemble import run
from sparkbuild.agent.image.layer import Layer
from sparkbuild.agent.image.wheels import platforms
from sparkbuild.agent.store import layerstore
from sparkbuild.agent.store.tar import FILE, LINK, Entry
from sparkbuild.agent.wire.protocol import AgentError, Reporter
from sparkbuild.workspace.init import template
from tests.agent.driver import Answer, finish, start
from tests.agent.test_pythons import pythons
from tests.images.packages import Member, ar, deb, keep, request, tar

BUSYBOX: list[Member] = [
    ("./", {"type": tarfile.DIRTYPE, "mode": 0o755}),
    ("./bin/", {"type": tarfile.DIRTYPE, "mode": 0o755}),
    ("./bin/busybox", {"mode": 0o755, "size": 0}),
    ("./usr/share/doc/x/copyright", b"free\n"),
]


def assemble(store: Path, members: list[Member], **more: Any) -> dict[str, tarfile.TarInfo]:
    """Assemble an image of one package; returns what is in its first layer."""
    run(request(store, [keep(store, "x_1_amd64.deb", deb(members))], **more), Reporter())
    return layers(store)[0]


def folder(store: Path) -> Path:
    return Path(archives.folder_of(str(store), "tiny", "ab" * 6))


def layers(store: Path) -> list[dict[str, tarfile.TarInfo]]:
    found = []
    for digest in config(store)["rootfs"]["diff_ids"]:
        data = Path(layerstore.path_of(str(store), digest)).read_bytes()
        assert f"sha256:{hashlib.sha256(data).hexdigest()}" == digest
        with tarfile.open(fileobj=io.BytesIO(data)) as layer:
            found.append({member.name: member for member in layer})
            assert layer.getnames() == sorted(layer.getnames())
    return found


def config(store: Path) -> dict[str, Any]:
    text = (folder(store) / "config.json").read_bytes()
    receipt = json.loads((folder(store) / "receipt.json").read_bytes())
    assert receipt["config"] == f"sha256:{hashlib.sha256(text).hexdigest()}"
    found: dict[str, Any] = json.loads(text)
    assert found["rootfs"]["diff_ids"] == receipt["layers"]
    return found


def left(store: Path) -> list[str]:
    """What is there of images, but for the lock."""
    return sorted(path.name for path in (store / "archives/tiny").iterdir() if path.name != ".lock")


# --- what comes out --------------------------------------------------------------------------------------------------


def test_a_layer_of_a_package(tmp_path: Path) -> None:
    names = assemble(tmp_path, BUSYBOX)
    assert (names["usr/bin/busybox"].mode, names["usr/share/doc/x/copyright"].mode) == (0o755, 0o644)
    gate = '#command = ["/usr/bin/busybox", "true"]'
    assert gate in template("dockerfile-image.toml"), "the gate of init's example is where such a package lands"
    links = {name: info.linkname for name, info in names.items() if info.issym()}
    assert links == {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "usr/bin/sh": "busybox"}
    assert names["tmp"].mode == 0o1777
    for info in names.values():
        assert (info.uid, info.gid, info.uname, info.gname, info.mtime) == (0, 0, "", "", 0)


def test_the_config(tmp_path: Path) -> None:
    more = {"env": {"B": "2", "A": "$1 'x'\n"}, "entrypoint": ["/bin/sh"], "command": ["-c", "true"]}
    assemble(tmp_path, BUSYBOX, **more)
    made = config(tmp_path)
    receipt = json.loads((folder(tmp_path) / "receipt.json").read_text())
    assert made["rootfs"]["diff_ids"] == receipt["layers"]
    assert (made["architecture"], made["os"], made["created"]) == ("amd64", "linux", "1970-01-01T00:00:00Z")
    inner = made["config"]
    assert inner["Env"][:2] == ["A=$1 'x'\n", "B=2"]
    assert inner["Env"][2].startswith("PATH=/usr/local/sbin:")
    assert (inner["Entrypoint"], inner["Cmd"]) == (["/bin/sh"], ["-c", "true"])
    labels = inner["Labels"]
    assert labels["sparkbuild.key"] == "ab" * 32
    assert labels["sparkbuild.lock"] == f"pins@{'c' * 64}"
    assert json.loads(labels["sparkbuild.parts"]) == {"kind": "docker"}
    assert json.loads(labels["sparkbuild.layers"]) == receipt["layers"]


def test_files_are_a_layer_of_their_own(tmp_path: Path) -> None:
    files = {
        "run.py": base64.b64encode(b"#!/usr/bin/python3\n").decode(),
        "data.bin": base64.b64encode(b"\xff").decode(),
    }
    assemble(tmp_path, BUSYBOX, files=files)
    base, own = layers(tmp_path)
    assert {name: info.mode for name, info in own.items() if info.isreg()} == {
        "opt/files/run.py": 0o755,
        "opt/files/data.bin": 0o644,
    }
    assemble(tmp_path, BUSYBOX, files={"run.py": files["data.bin"]})
    again, other = layers(tmp_path)
    assert list(again) == list(base)
    assert list(other) != list(own)


@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".bz2", ".zst"])
def test_every_compression_gives_the_same_layer(tmp_path: Path, ending: str) -> None:
    if ending == ".zst" and not shutil.which("zstd"):
        pytest.skip("apt-get install zstd: it makes the test's input")
    for place, how in ((tmp_path / "a", ".xz"), (tmp_path / "b", ending)):
        run(request(place, [keep(place, "x_1_amd64.deb", deb(BUSYBOX, ending=how))]), Reporter())
    one, other = ((folder(tmp_path / name) / "config.json").read_bytes() for name in "ab")
    assert one == other, "it names the layers by their content"


def wheel(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny_pack/__init__.py", "X = 1\n")
        archive.writestr("tiny_pack-1.0.data/scripts/tiny", "#!python\nprint(1)\n")
        archive.writestr("tiny_pack-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-pack\nVersion: 1.0\n")
        archive.writestr(
            "tiny_pack-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_pack-1.0.dist-info/RECORD", "")


def test_the_same_inputs_give_the_same_bytes_anywhere(tmp_path: Path) -> None:
    """In another folder, under another umask, time zone and hash seed, by a process of its own."""
    (tmp_path / "wheels").mkdir()
    path = tmp_path / "wheels/tiny_pack-1.0-py3-none-any.whl"
    wheel(path)
    pin = f"tiny-pack==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"
    found = set()
    for name, zone, umask, seed in (("a", "UTC", 0o022, "1"), ("another/place", "Asia/Tokyo", 0o077, "2")):
        store = tmp_path / name
        kept = [keep(store, f"{one}_1_amd64.deb", deb([(f"./usr/{one}", one.encode())])) for one in "xyz"]
        asked = request(store, kept, requirements=pin, files={"a": base64.b64encode(b"a").decode()})
        shim = f"import os, time; os.umask({umask})"
        before = dict(os.environ)
        os.environ |= {"TZ": zone, "PYTHONHASHSEED": seed, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(path.parent)}
        try:
            answer: Answer = finish(start("assemble", asked, shim=shim))
        finally:
            os.environ.clear()
            os.environ.update(before)
        assert answer.code == 0, answer.last
        found.add(hashlib.sha256((folder(store) / "config.json").read_bytes()).hexdigest())
        (_, wheels, _) = layers(store)
        site = "usr/local/lib/python3.11/dist-packages"
        assert f"{site}/tiny_pack/__init__.py" in wheels
        assert wheels["usr/local/bin/tiny"].mode == 0o755
        assert not [entry for entry in wheels if entry.endswith(".pyc")]
    assert len(found) == 1


def test_every_python_gives_the_same_bytes(tmp_path: Path) -> None:
    found = {}
    for number, python in enumerate(pythons()):
        store = tmp_path / str(number)
        kept = [keep(store, f"{one}_1_amd64.deb", deb([(f"./usr/{one}/{one * 150}", one.encode())])) for one in "xyz"]
        answer = finish(start("assemble", request(store, kept, env={"A": "\u00e4"}), python=python))
        assert answer.code == 0, answer.last
        found[python] = hashlib.sha256((folder(store) / "config.json").read_bytes()).hexdigest()
    assert len(set(found.values())) == 1, found


def test_conditions_in_requirements_are_refused(tmp_path: Path) -> None:
    pin = f"x==1 ; python_version < '3.12' --hash=sha256:{'a' * 64}\n"
    with pytest.raises(AgentError) as caught:
        assemble(tmp_path, BUSYBOX, requirements=f"# a; b\n{pin}")
    assert caught.value.fields["kind"] == "config"
    assert caught.value.fields["found"].startswith("line 2: x==1")
    assert left(tmp_path) == []


def test_platforms_of_wheels() -> None:
    found = platforms("amd64")
    assert found[0] == "manylinux_2_36_x86_64"
    assert found.index("manylinux_2_17_x86_64") + 1 == found.index("manylinux2014_x86_64")
    assert all(tag.endswith("_aarch64") for tag in platforms("arm64"))


# --- hostile and broken packages -------------------------------------------------------------------------------------

DEVICE: dict[str, Any] = {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3}


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ([("../../etc/passwd", b"x")], "leads out of its folder"),
        ([("./usr/../../x", b"x")], "leads out of its folder"),
        ([("/etc/passwd", b"x")], "leads out of its folder"),
        ([("./dev/null", DEVICE)], "neither file, folder nor link"),
        ([("./fifo", {"type": tarfile.FIFOTYPE})], "neither file, folder nor link"),
        ([("./a", {"type": tarfile.LNKTYPE, "linkname": "./b"})], "hard link to what it does not bring"),
        ([("./a", {"type": tarfile.LNKTYPE, "linkname": "/etc/passwd"})], "leads out of its folder"),
        ([("./a", {"type": tarfile.SYMTYPE, "linkname": "/etc"}), ("./a/passwd", b"x")], "no folder"),
        ([("./a", b"x"), ("./a/b", b"x")], "no folder"),
        ([("./a", b"x"), ("./a", b"y")], "two things are called /a"),
        ([("./bin/a", b"x"), ("./usr/bin/a", b"y")], "two things are called /usr/bin/a"),
        ([("./usr/.wh.bin", b"")], "would remove files"),
        ([("./a\nb", b"x")], "a name cannot be one"),
        ([("./" + "x" * 5000, b"x")], "a name cannot be one"),
        ([("./a", {"type": tarfile.SYMTYPE, "linkname": ""})], "a link to nowhere"),
    ],
)
def test_traps_are_refused_and_nothing_is_left(tmp_path: Path, members: list[Member], text: str) -> None:
    with pytest.raises(AgentError, match=re.escape(text)) as caught:
        assemble(tmp_path, members)
    assert caught.value.fields["kind"] == "integrity"
    assert left(tmp_path) == []
    assert not (tmp_path.parent / "x").exists()


def test_links_inside_a_container_may_be_absolute(tmp_path: Path) -> None:
    members: list[Member] = [
        ("./usr/a", b"text"),
        ("./etc/a", {"type": tarfile.SYMTYPE, "linkname": "/usr/a"}),
        ("./usr/b", {"type": tarfile.LNKTYPE, "linkname": "./usr/a"}),
    ]
    names = assemble(tmp_path, members)
    assert names["etc/a"].linkname == "/usr/a"
    assert (names["usr/b"].isreg(), names["usr/b"].size) == (True, 4)


def test_two_packages_may_not_bring_the_same_file(tmp_path: Path) -> None:
    both = [keep(tmp_path, f"{name}_1_amd64.deb", deb([("./usr/a", name.encode())])) for name in ("one", "two")]
    with pytest.raises(AgentError, match="two things are called /usr/a") as caught:
        run(request(tmp_path, both), Reporter())
    assert caught.value.fields["found"] == "one_1_amd64.deb and two_1_amd64.deb"


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debs, "LIMIT", 4 << 20)
    with pytest.raises(AgentError, match="too big when it is unpacked"):
        assemble(tmp_path, [("./zeros", bytes(8 << 20))])
    monkeypatch.setattr(debs, "MOST", 3)
    with pytest.raises(AgentError, match="too many names"):
        assemble(tmp_path, [(f"./{number}", b"") for number in range(5)])
    assert left(tmp_path) == []


GOOD = deb(BUSYBOX)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>not found</html>",
        GOOD[:100],
        GOOD[:-40],
        GOOD[:-200] + b"\0" * 200,
        ar([("debian-binary", b"2.0\n")]),
        ar([("control.tar", tar([("./control", b"Architecture: all\n")]))]),
        ar([("control.tar", b"x" * 2000), ("data.tar", tar([]))]),
        ar([("control.tar", tar([("./other", b"")])), ("data.tar", tar([]))]),
        ar([("control.tar.gz", b"no gzip"), ("data.tar", tar([]))]),
    ],
)
def test_what_is_no_whole_package(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(AgentError, match="Debian package") as caught:
        run(request(tmp_path, [keep(tmp_path, "x_1_amd64.deb", content)]), Reporter())
    assert caught.value.fields["kind"] == "integrity"
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (deb(BUSYBOX, architecture="arm64"), "for another architecture"),
        (ar([("control.tar.lz4", b""), ("data.tar.lz4", b"")]), "compressed in a way"),
    ],
)
def test_packages_that_do_not_fit(tmp_path: Path, content: bytes, text: str) -> None:
    with pytest.raises(AgentError, match=text) as caught:
        run(request(tmp_path, [keep(tmp_path, "x_1_amd64.deb", content)]), Reporter())
    assert caught.value.fields["kind"] == "config"


def test_a_package_that_is_not_the_locked_one(tmp_path: Path) -> None:
    kept = keep(tmp_path, "x_1_amd64.deb", GOOD)
    next(tmp_path.rglob("x_1_amd64.deb")).write_bytes(deb([("./usr/evil", b"x")]))
    with pytest.raises(AgentError, match="not what the lock pins") as caught:
        run(request(tmp_path, [kept]), Reporter())
    assert caught.value.fields["kind"] == "integrity"
    assert left(tmp_path) == []


def test_content_that_is_shorter_than_it_says_is_no_layer(tmp_path: Path) -> None:
    layer = Layer()
    layer.add("usr/a", Entry(FILE, 0o644, "x", 10, open=lambda: io.BytesIO(b"short")))
    with pytest.raises(OSError, match="unexpected end of data"):
        layer.write(str(tmp_path / "layer.tar"))
    with pytest.raises(AgentError):
        Layer().add("a/../b", Entry(LINK, 0o777, "x", target="b"))


# --- the archive in the store ----------------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path: Path) -> Callable[[], dict[str, Any]]:
    """An assembled image; what the look says of it."""
    assemble(tmp_path, BUSYBOX)
    return lambda: archives.observe({"store": str(tmp_path), "name": "tiny", "key": "ab" * 32})


def test_it_is_there(made: Callable[[], dict[str, Any]], tmp_path: Path) -> None:
    fact = made()
    assert (fact["present"], len(fact["layers"])) == (True, 1)
    assert fact == made()
    assert archives.observe({"store": str(tmp_path), "name": "tiny", "key": "cd" * 32}) == {
        "present": False,
        "other": {"parts": {"kind": "docker"}},
    }
    assert archives.observe({"store": str(tmp_path), "name": "none", "key": "ab" * 32})["present"] is False


@pytest.mark.parametrize("damage", ["truncate", "edit", "remove"])
@pytest.mark.parametrize("what", ["layer", "config"])
def test_an_image_that_was_changed(made: Callable[[], dict[str, Any]], tmp_path: Path, what: str, damage: str) -> None:
    (layer,) = made()["layers"]
    path = Path(layerstore.path_of(str(tmp_path), layer)) if what == "layer" else folder(tmp_path) / "config.json"
    content = path.read_bytes()
    path.unlink()
    if damage != "remove":
        path.write_bytes(content[:-1] if damage == "truncate" else content[:-1] + b"x")
    fact = made()
    assert fact["present"] is False
    assert (
        fact["problem"]
        == {
            ("layer", False): f"its layer {layer[:19]} is not what was written",
            ("layer", True): f"its layer {layer[:19]} was removed",
            ("config", False): "its config is not what was written",
            ("config", True): "its layers were removed",
        }[what, damage == "remove"]
    )
    assemble(tmp_path, BUSYBOX)
    assert made()["present"]


def test_a_store_holds_each_byte_once(tmp_path: Path) -> None:
    assemble(tmp_path, BUSYBOX)
    assert sorted(path.name for path in folder(tmp_path).iterdir()) == ["config.json", "receipt.json"]


def test_a_store_of_an_earlier_version_is_complete_and_loses_its_archives(
    made: Callable[[], dict[str, Any]], tmp_path: Path
) -> None:
    """It wrote every image a second time, as image.tar, which nothing reads any more."""
    assert made()["present"]
    receipt = json.loads((folder(tmp_path) / "receipt.json").read_bytes())
    (folder(tmp_path) / "receipt.json").write_text(json.dumps({**receipt, "tar": "ab" * 32}))
    for name in ("image.tar", "image.tar.stamp"):
        (folder(tmp_path) / name).write_bytes(b"x" * 100)
    assert made()["present"], "its layers are there"
    asked = request(tmp_path, [keep(tmp_path, "x_1_amd64.deb", deb(BUSYBOX))], key="cd" * 32)
    run(asked, Reporter())
    assert not list(tmp_path.rglob("image.tar*"))
    assert made()["present"]


def test_old_archives_go_and_their_receipts_stay(tmp_path: Path) -> None:
    kept_deb = keep(tmp_path, "x_1_amd64.deb", GOOD)
    for number in range(4):
        run(request(tmp_path, [kept_deb], key=f"{number}" * 64), Reporter())
    kept = {path.parent.name for path in tmp_path.rglob("config.json")}
    assert kept == {"2" * 12, "3" * 12}
    assert len(list(tmp_path.rglob("receipt.json"))) == 4


def test_a_killed_assembly_leaves_nothing_that_looks_whole(tmp_path: Path) -> None:
    asked = request(tmp_path, [keep(tmp_path, "x_1_amd64.deb", GOOD)])
    shim = "import os, sparkbuild.agent.image.assemble as a; a._config = lambda *_: os.kill(os.getpid(), 9)"
    assert finish(start("assemble", asked, shim=shim)).code == -9
    assert archives.observe({"store": str(tmp_path), "name": "tiny", "key": "ab" * 32})["present"] is False
    assert left(tmp_path) == [f"{'ab' * 6}.part"]
    run(asked, Reporter())
    assert left(tmp_path) == ["ab" * 6]


def test_two_at_once_do_not_mix(tmp_path: Path) -> None:
    asked = request(tmp_path, [keep(tmp_path, "x_1_amd64.deb", GOOD)])
    slow = (
        "import time, sparkbuild.agent.image.assemble as a; b = a._layers; "
        "a._layers = lambda *x: [time.sleep(2), b(*x)][1]"
    )
    first: subprocess.Popen[bytes] = start("assemble", asked, shim=slow)
    while not (tmp_path / "archives/tiny" / f"{'ab' * 6}.part").exists():
        assert first.poll() is None
    second = finish(start("assemble", asked))
    assert second.code == 1
    assert "worked on by another process" in second.last["what"]
    assert finish(first).code == 0


# --- layers by content -----------------------------------------------------------------------------------------------


def blobs(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (store / "blobs/sha256").iterdir()}


def test_layers_lie_by_content_beside_a_receipt(tmp_path: Path) -> None:
    files = {"run.py": base64.b64encode(b"1").decode()}
    assemble(tmp_path, BUSYBOX, files=files)
    receipt = json.loads((folder(tmp_path) / "receipt.json").read_text())
    found = blobs(tmp_path)
    assert [f"sha256:{name}" for name in sorted(found)] == sorted(receipt["layers"])
    assert [len(found[digest[7:]]) for digest in receipt["layers"]] == receipt["sizes"]
    assert all(hashlib.sha256(content).hexdigest() == name for name, content in found.items())
    text = (folder(tmp_path) / "config.json").read_bytes()
    assert receipt["config"] == f"sha256:{hashlib.sha256(text).hexdigest()}"
    assert json.loads(text) == config(tmp_path)
    assert (receipt["architecture"], receipt["bytes"]) == ("amd64", sum(receipt["sizes"]))


def test_layers_that_no_image_has_are_removed_and_shared_ones_stay(tmp_path: Path) -> None:
    kept_deb = keep(tmp_path, "x_1_amd64.deb", GOOD)
    for number in range(4):
        files = {"n": base64.b64encode(str(number).encode()).decode()}
        run(request(tmp_path, [kept_deb], key=f"{number}" * 64, files=files), Reporter())
    assert len(blobs(tmp_path)) == 3, "the packages, and the files of the two images that are kept"
    (tmp_path / "blobs/sha256/left.part").write_bytes(b"x")
    run(request(tmp_path, [kept_deb], key="3" * 64), Reporter())
    assert "left.part" not in blobs(tmp_path)


@pytest.mark.parametrize("damage", ["edit", "remove", "config"])
def test_a_layer_that_was_changed(made: Callable[[], dict[str, Any]], tmp_path: Path, damage: str) -> None:
    assert made()["present"]
    (layer,) = (tmp_path / "blobs/sha256").iterdir()
    path = folder(tmp_path) / "config.json" if damage == "config" else layer
    content = path.read_bytes()
    path.unlink()
    if damage != "remove":
        path.write_bytes(content[:-1] + b"x")
    fact = made()
    wanted = {
        "edit": f"its layer sha256:{layer.name[:12]} is not what was written",
        "remove": f"its layer sha256:{layer.name[:12]} was removed",
        "config": "its config is not what was written",
    }
    assert (fact["present"], fact["problem"]) == (False, wanted[damage])
    assemble(tmp_path, BUSYBOX)
    assert made()["present"]
