"""`icone fetch` against a local HTTP server: whole, resumed, wrong, offline."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from icone.cli import main
from icone.config import DataConfig
from icone.data import fetch, open_source
from icone.data.download import download
from icone.data.sources import medmnist
from icone.errors import InputError

CONTENT = np.random.default_rng(0).bytes(3_000_000)
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves `files`, honours ranges unless told otherwise, and breaks off after `most` bytes."""

    daemon_threads = True
    files: dict[str, bytes]
    has_ranges = True
    most = 10**9
    asked: list[str | None]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        content, wanted = self.server.files.get(self.path), self.headers.get("Range")
        self.server.asked.append(wanted)
        if content is None:
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.server.has_ranges else 0
        if start and start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start : start + self.server.most])

    def log_message(self, *_: object) -> None:
        """Nothing on the terminal."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as made:
        made.files, made.asked = {"/a.npz": CONTENT}, []
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


def test_a_broken_download_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    path, seen = tmp_path / "new" / "a.npz", []
    server.most = 1_000_000
    with pytest.raises(InputError, match=r"1\.0 MB are there, and the same command goes on"):
        download(f"{server.url}/a.npz", path, MD5)
    assert not path.exists()
    server.most = 10**9
    download(f"{server.url}/a.npz", path, MD5, lambda done, total: seen.append((done, total)))
    assert server.asked == [None, "bytes=1000000-"]
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (3_000_000, 3_000_000)
    assert [one.name for one in path.parent.iterdir()] == ["a.npz"]
    download(f"{server.url}/a.npz", path, MD5)
    assert len(server.asked) == 2


def test_a_server_without_ranges_sends_all_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.npz.part").write_bytes(b"x" * 1000)
    server.has_ranges = False
    download(f"{server.url}/a.npz", tmp_path / "a.npz", MD5)
    assert (tmp_path / "a.npz").read_bytes() == CONTENT


def test_a_part_that_is_the_whole_is_only_verified(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.npz.part").write_bytes(CONTENT)
    download(f"{server.url}/a.npz", tmp_path / "a.npz", MD5)
    assert (tmp_path / "a.npz").exists()


def test_wrong_content_is_deleted(server: Server, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="checksum differs"):
        download(f"{server.url}/a.npz", tmp_path / "a.npz", "0" * 32)
    assert not [one for one in tmp_path.iterdir() if one.name.startswith("a.npz")]


def test_the_verb(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = io.BytesIO()
    np.savez(file, train_images=np.arange(48, dtype=np.uint8).reshape(3, 4, 4), train_labels=np.array([[0], [1], [0]]))
    server.files["/tiny"] = file.getvalue()
    md5 = hashlib.md5(file.getvalue()).hexdigest()
    entry = {"url": f"{server.url}/tiny", "MD5": md5, "label": {"0": "well", "1": "ill"}}
    gone = {"url": "http://127.0.0.1:9/none", "MD5": md5, "label": {}}
    known = {"tinymnist": entry, "gonemnist": gone}
    monkeypatch.setattr(medmnist, "_registry", lambda: (known, tmp_path / "default"))
    words = ["--data-root", str(tmp_path / "files")]
    assert main(["fetch", "medmnist:tinymnist@28", *words]) == 0
    assert "next: icone inspect medmnist:tinymnist@28 --data-root" in capsys.readouterr().out
    assert len(open_source("medmnist:tinymnist@28", DataConfig(data_root=tmp_path / "files"))) == 3
    assert main(["fetch", "medmnist:gonemnist", *words]) == 2
    said = capsys.readouterr().err
    assert "is this machine offline?" in said
    assert "http://127.0.0.1:9/none" in said
    assert main(["fetch", "cifar"]) == 2
    assert "known are medmnist:NAME@SIZE, paper" in capsys.readouterr().err


def test_natural_images(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for split, count in (("train", 2), ("val", 1)):
            for wnid in ("n01440764", "n03028079"):
                for i in range(count):
                    image = io.BytesIO()
                    Image.effect_noise((8, 8), 50).save(image, "PNG")
                    member = tarfile.TarInfo(f"imagenette2-160/{split}/{wnid}/{i}.png")
                    member.size = len(image.getvalue())
                    tar.addfile(member, io.BytesIO(image.getvalue()))
    server.files["/imagenette2-160.tgz"] = archive.getvalue()
    md5 = hashlib.md5(archive.getvalue()).hexdigest()
    monkeypatch.setattr(fetch, "IMAGENETTE_URL", server.url + "/{}.tgz")
    monkeypatch.setitem(fetch.IMAGENETTE, "160", ("imagenette2-160", md5))
    path, spec = fetch.fetch("imagenette", tmp_path)
    source = open_source(spec, DataConfig())
    assert source.labels == ("church", "church", "tench", "tench", "church", "tench")
    assert source.assigned == ("train",) * 4 + ("val",) * 2
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
