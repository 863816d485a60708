"""Downloads are verified, cached and explained; without a network the error says what to do."""

import gzip
import hashlib
import re
import subprocess

import pytest
import requests

from data_prep import remote
from data_prep.remote import RemoteFile, check_file, fetched
from nmt.errors import MachineError, UserError

BYTES = b"some archive"
# printf 'moja\\n' > dev.sw; printf 'one\\n' > dev.en; git add .; git write-tree
TREE = "cbd9f1d528505f6a617c3040953bf4d5242132b3"


def wheel(**changes):
    fields = {
        "what": "a toy",
        "license": "none",
        "filename": "toy-1.0-py3-none-any.whl",
        "package": "toy==1.0",
        "sha256": hashlib.sha256(BYTES).hexdigest(),
    }
    return RemoteFile(**{**fields, **changes})


def file_at(url, **changes):
    return wheel(package="", url=url, filename="toy.tar.gz", **changes)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sha256": "0" * 64}, "sha256"),
        ({"md5": "0" * 32}, "md5"),
        ({"size": 13}, "12 bytes instead of 13"),
    ],
)
def test_each_pin_is_checked(tmp_path, wrong, message):
    path = tmp_path / "toy"
    path.write_bytes(BYTES)
    check_file(path, wheel(size=12, md5=hashlib.md5(BYTES).hexdigest()))
    with pytest.raises(UserError, match=message):
        check_file(path, wheel(**wrong))


@pytest.mark.parametrize("by", ["file", "folder"])
def test_local_file_or_folder(tmp_path, by):
    path = tmp_path / wheel().filename
    path.write_bytes(BYTES)
    with fetched([wheel()], path if by == "file" else tmp_path) as [found]:
        assert found.read_bytes() == BYTES


def test_missing_local_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"toy-1.0-py3-none-any.whl"), fetched([wheel()], tmp_path):
        pass


def fake_pip(monkeypatch, tmp_path, code, stderr="", leave=b""):
    calls = []

    def run(command, **_):
        calls.append(command)
        folder = command[command.index("--dest") + 1]
        if leave:
            (tmp_path / folder / wheel().filename).write_bytes(leave)
        return subprocess.CompletedProcess(command, code, "", stderr)

    monkeypatch.setattr(remote.subprocess, "run", run)
    return calls


def test_pip_downloads_only_the_pinned_wheel(monkeypatch, tmp_path):
    calls = fake_pip(monkeypatch, tmp_path, 0, leave=BYTES)
    with fetched([wheel(python="3.14")]) as [path]:
        assert path.read_bytes() == BYTES
    assert not path.exists()  # the folder was temporary
    [command] = calls
    assert command[-1] == "toy==1.0"
    assert {"--no-deps", "--only-binary=:all:"} <= set(command)
    assert command[command.index("--python-version") + 1] == "3.14"


def test_wrong_bytes_from_the_package_index(monkeypatch, tmp_path):
    fake_pip(monkeypatch, tmp_path, 0, leave=b"else")
    with pytest.raises(UserError, match="sha256"), fetched([wheel()]):
        pass


@pytest.mark.parametrize(
    ("stderr", "error", "parts"),
    [
        *(
            (stderr, UserError, ["copy toy-1.0-py3-none-any.whl from another", "--from FILE"])
            for stderr in ("ERROR: No matching distribution found", "No module named pip")
        ),
        ("OSError: [Errno 28] No space left on device", MachineError, ["TMPDIR"]),
    ],
)
def test_pip_without_a_network_or_space(monkeypatch, tmp_path, stderr, error, parts):
    fake_pip(monkeypatch, tmp_path, 1, f"ERROR: Exception:\nTraceback\n{stderr}\n")
    with pytest.raises(error) as caught, fetched([wheel()]):
        pass
    assert all(part in str(caught.value) for part in [stderr.partition("] ")[2] or stderr, *parts])
    assert "recipe" not in str(caught.value).lower()


def files_in(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_file_is_downloaded_once(server, download_cache, capsys):
    file = file_at(server.add("/deep/toy.tar.gz", BYTES))
    with fetched([file]) as [path]:
        assert path.read_bytes() == BYTES
    assert server.asked == ["/deep/toy.tar.gz"]
    assert files_in(download_cache) == [path]
    assert f"downloading a toy: {file.url}" in capsys.readouterr().err
    server.http.shutdown()  # no network any more
    with fetched([file]) as [again]:
        assert again == path
    assert server.asked == ["/deep/toy.tar.gz"]
    assert capsys.readouterr().err == f"using the downloaded {path}\n"


@pytest.mark.parametrize("damage", [b"", BYTES[:-1], b"another file"])
def test_a_damaged_file_in_the_cache_is_downloaded_again(server, damage):
    file = file_at(server.add("/toy.tar.gz", BYTES))
    with fetched([file]) as [path]:
        path.write_bytes(damage)
    with fetched([file]) as [path]:
        assert path.read_bytes() == BYTES
    assert len(server.asked) == 2


def test_a_size_is_enough_for_the_cache_and_a_file_without_pins_is_not_kept(server, download_cache):
    file = file_at(server.add("/toy.tar.gz", b"monday", b"tuesday"), sha256="")
    for expected in (b"monday", b"tuesday"):
        with fetched([file]) as [path]:
            assert path.read_bytes() == expected
        assert not path.exists()
    assert files_in(download_cache) == []
    file = file_at(server.add("/sized.tar.gz", BYTES), sha256="", size=len(BYTES))
    for _ in range(2):
        with fetched([file]) as [path]:
            assert path.read_bytes() == BYTES
    assert server.asked.count("/sized.tar.gz") == 1


def repository(server):
    urls = [
        server.add("/toy/dev.sw", b"moja\n"),
        server.add("/toy/dev.en", b"another one\n", b"one\n"),
    ]
    return [file_at(url, sha256="") for url in urls]


def test_files_of_a_tree_are_cached_once_the_tree_matches(server, download_cache):
    files = repository(server)
    with (
        pytest.raises(UserError, match="not the expected files of a toy"),
        fetched(files, tree=TREE),
    ):
        pass
    assert files_in(download_cache) == []
    for _ in range(2):
        with fetched(files, tree=TREE) as paths:
            assert [path.read_text() for path in paths] == ["moja\n", "one\n"]
    assert len(server.asked) == 4


def test_a_local_tree_that_does_not_match_stays(tmp_path):
    (tmp_path / "dev.sw").write_text("moja\n")
    files = [RemoteFile("toy", "none", "dev.sw")]
    with pytest.raises(UserError, match="not the expected"), fetched(files, tmp_path, TREE):
        pass
    assert (tmp_path / "dev.sw").exists()


@pytest.mark.parametrize(
    ("answer", "attempts", "message"),
    [
        (
            b"<html>log in first</html>",
            1,
            r"/toy.gz: this is not the expected toy.tar.gz: sha256 (.|\n)* an error page",
        ),
        ((404, b"", 0), 1, r"could not download http.*: 404 Client(.|\n)*--from FILE to the"),
        ((200, BYTES, 99), 3, r"12 bytes read, 87 more expected"),
    ],
)
def test_what_is_not_the_file_is_not_kept(server, download_cache, answer, attempts, message):
    file = file_at(server.add("/toy.gz", answer))
    with pytest.raises(UserError, match=message), fetched([file]):
        pass
    assert len(server.asked) == attempts
    assert files_in(download_cache) == []


PAGE = b"<!-- 1 -->\n<!DOCTYPE html><title>log in</title>"
ZIPPED = gzip.compress(b"a line\n" * 1000, mtime=0)  # in the names of tests


@pytest.mark.parametrize(
    ("name", "answer", "attempts"),
    [
        ("part.txt", (206, b"one\n", 4), 1),
        ("none.txt", (204, b"", 0), 1),
        ("empty.txt", (200, b"", 0), 1),
        ("empty.gz", (200, b"", None), 1),
        ("page.txt", (200, PAGE, len(PAGE)), 1),
        ("page.gz", (200, PAGE, len(PAGE)), 1),
        ("typed.txt", (200, b"log in first", 12, ("Content-Type", "text/html; charset=x")), 1),
        ("short.txt", (200, b"one\n", 400), 3),
        ("short.gz", (200, ZIPPED[:-1], None), 3),
        ("short.tgz", (200, ZIPPED[:20], None), 3),
        ("short.zip", (200, b"PK\x03\x04 and more", None), 3),
    ],
)
@pytest.mark.parametrize("keep", [True, False])
def test_without_a_hash_the_answer_must_be_complete_and_no_page(
    server, download_cache, name, answer, attempts, keep
):
    file = RemoteFile("a toy", "none", name, url=server.add(f"/{name}", answer))
    with pytest.raises(UserError), fetched([file], keep=keep):
        pass
    assert len(server.asked) == attempts
    assert files_in(download_cache) == []


@pytest.mark.parametrize(
    ("name", "body"),
    [("a.txt", b"<p> is a tag\n"), ("a.tmx", b"<?xml version='1'?><tmx/>"), ("a.gz", ZIPPED)],
)
@pytest.mark.parametrize("said", [True, False])
def test_a_complete_file_is_kept_also_if_its_length_is_not_said(server, name, body, said):
    url = server.add(f"/{name}", (200, body, len(body) if said else None))
    for _ in range(2):
        with fetched([RemoteFile("a toy", "none", name, url=url)], keep=True) as [path]:
            assert path.read_bytes() == body
    assert len(server.asked) == 1


@pytest.mark.parametrize("wrong", [b"", PAGE])
def test_what_earlier_versions_kept_is_downloaded_again(server, wrong):
    file = RemoteFile("a toy", "none", "a.txt", url=server.add("/a.txt", b"one\n"))
    with fetched([file], keep=True) as [path]:
        path.write_bytes(wrong)
    with fetched([file], keep=True) as [path]:
        assert path.read_bytes() == b"one\n"


def test_the_error_names_all_files_to_copy(server):
    missing = [server.add(path, (404, b"gone", 4)) for path in ("/a.gz", "/b.gz")]
    files = [RemoteFile("a toy", "none", url[-4:], url=url) for url in missing]
    message = r"copy a.gz, b.gz from another machine into a folder and add --from FOLDER"
    with pytest.raises(UserError, match=message), fetched(files):
        pass


def test_a_failing_server_is_tried_again(server, capsys):
    file = file_at(server.add("/toy.tar.gz", (503, b"busy", 4), BYTES))
    with fetched([file]) as [path]:
        assert path.read_bytes() == BYTES
    assert len(server.asked) == 2
    first, again = capsys.readouterr().err.splitlines()
    assert first == f"downloading a toy: {file.url}"
    assert re.fullmatch("attempt 1 of 3 failed: 503 Server Error.*; trying again", again)
    file = file_at("http://127.0.0.1:9/closed.tar.gz")  # the discard port: closed
    message = r"could not download http://127.0.0.1:9/closed.tar.gz: .*refused\n"
    with pytest.raises(UserError, match=message), fetched([file]):
        pass
    _, *again = capsys.readouterr().err.splitlines()  # the error has the reason of the third
    assert [line[:22] for line in again] == ["attempt 1 of 3 failed:", "attempt 2 of 3 failed:"]


def test_full_disk_during_a_download(server, download_cache, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    file = file_at(server.add("/toy.tar.gz", BYTES))
    monkeypatch.setattr(requests.Response, "iter_content", full)
    message = r"No space left on device\n.*NMT_CACHE"
    with pytest.raises(MachineError, match=message), fetched([file]):
        pass
    assert files_in(download_cache) == []


def test_a_cache_that_cannot_be_written(server, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "file"))
    file = file_at(server.add("/toy.tar.gz", BYTES))
    with pytest.raises(MachineError, match=r"cannot write(.|\n)*NMT_CACHE"), fetched([file]):
        pass
