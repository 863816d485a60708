"""Archives of small files, as corpora are published."""

import io
import tarfile
import zipfile


def _bytes(data):
    return data.encode() if isinstance(data, str) else data


def zipped(files):
    """Return a zip archive of files by name; their content is text or bytes."""
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, _bytes(data))
    return body.getvalue()


def tarred(files):
    """Return the same as a compressed tar archive."""
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(_bytes(data))
            archive.addfile(info, io.BytesIO(_bytes(data)))
    return body.getvalue()
