"""Archives of small files, as corpora are published."""

import io
import tarfile
import zipfile


def _bytes(data):
    return data.encode() if isinstance(data, str) else data


def zipped(files, compression=zipfile.ZIP_DEFLATED, links=()):
    """Return a zip archive of files by name, with links; their content is text or bytes."""
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        for name, target in dict(links).items():
            info = zipfile.ZipInfo(name)
            info.external_attr = 0o120777 << 16
            archive.writestr(info, target)
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
