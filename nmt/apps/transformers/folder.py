"""Read a folder of transformers: settings, tokenizer files and weights. Nothing is unpickled.

A folder may be incomplete and is not trusted, so each file is checked before its content is used.
"""

from __future__ import annotations

import os
import pickle
import re
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from nmt.errors import UserError
from nmt.runtime.files import LARGE, file_digest, json_object, read_file, read_text
from nmt.runtime.memory import require_room

if TYPE_CHECKING:
    from torch import Tensor

CONFIG_JSON, GENERATION, README = "config.json", "generation_config.json", "README.md"
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")  # the first that exists is read
DOWNLOAD = "download the folder again; docs/howto/public-models.md has the command"
LARGEST_HEADER = 100_000_000  # bytes, as safetensors allows
LARGEST_HEAD = 1 << 16  # characters of README.md that are read as YAML
_LFS_POINTER = b"version https://git-lfs"


def damaged(what: str, path: Path) -> UserError:
    """Return the error of a file or folder that must be downloaded again."""
    return UserError(what, at=str(path), fix=DOWNLOAD)


class HubFolder:
    """A folder as ``save_pretrained`` and the hub have it.

    Attributes:
        used: the files that were read.

    Raises:
        UserError: it is not such a folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.used: list[str] = []
        if not path.is_dir():
            fix = "download the model first: hf download NAME --local-dir FOLDER"
            raise UserError("no such folder", at=str(path), fix=fix)
        if not (path / CONFIG_JSON).is_file():
            raise damaged(f"not a model of transformers: it has no {CONFIG_JSON}", path)
        self.config = self.read_json(CONFIG_JSON)

    def has(self, name: str) -> bool:
        """Return whether the folder has a file."""
        return (self.path / name).is_file()

    def require(self, names: Sequence[str]) -> None:
        """Raise UserError if a file of the folder is missing."""
        missing = [name for name in names if not self.has(name)]
        if missing:
            raise damaged(f"lacks {', '.join(missing)}", self.path)

    def read(self, name: str) -> bytes:
        """Return the content of a file of the tokenizer."""
        data = read_file(self.path / name, LARGE)
        if data.startswith(_LFS_POINTER):
            raise self._pointer(name)
        self.used.append(name)
        return data

    def read_json(self, name: str) -> dict[str, Any]:
        """Return the values of a JSON file; empty if the folder lacks it."""
        if not self.has(name):
            return {}
        try:
            return json_object(self.read(name))
        except ValueError as error:
            raise damaged(f"not a JSON object: {error}", self.path / name) from error

    def readme(self) -> str:
        """Return README.md with Unix line ends; empty without one."""
        if not self.has(README):
            return ""
        text = read_text(self.path / README, errors="replace")
        return "\n".join(text.removeprefix("\ufeff").splitlines())

    def front_matter(self, key: str) -> list[str]:
        """Return the value or values of a key in the YAML head of README.md."""
        head = re.match(r"---[ \t]*\n(.*?)\n---", self.readme(), re.S)
        try:
            # as text: ``no`` is a language
            values = yaml.load(head[1][:LARGEST_HEAD], yaml.BaseLoader) if head else {}
        except (yaml.YAMLError, RecursionError):
            return []
        value = values.get(key) if isinstance(values, dict) else None
        names = value if isinstance(value, list) else [value]
        return [name.strip() for name in names if isinstance(name, str) and name.strip()]

    def stated_languages(self, side: str) -> list[str]:
        """Return the languages of the side ``source`` or ``target`` that README.md lists."""
        code = "[a-z]{2,3}(?:_[A-Za-z0-9]{2,8})*"
        gap = r"[ \t*]*"
        words = rf"(?i:{side} languages?(?:\(s\))?)"
        pattern = rf"(?m)^[^\w\n]*{words}{gap}:{gap}({code}(?:[ ,]+{code})*)[^\w\n]*$"
        lines = re.findall(pattern, self.readme())
        return [one for line in lines for one in re.split("[ ,]+", line)]

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of the files that were read."""
        return {name: file_digest(self.path / name) for name in dict.fromkeys(self.used)}

    def weight_files(self) -> list[str]:
        """Return the files of the weights: safetensors if there are any, one or several.

        Raises:
            UserError: the folder has none, or one of several is missing or incomplete.
        """
        for name in WEIGHT_FILES:
            index = f"{name}.index.json"
            if self.has(name):
                names = [name]
            elif self.has(index):
                parts = self.read_json(index).get("weight_map")
                if not isinstance(parts, dict) or not all(
                    isinstance(part, str) and Path(part).name == part for part in parts.values()
                ):
                    raise damaged("does not name the files of the weights", self.path / index)
                names = sorted(set(parts.values()))
            else:
                continue
            self.require(names)
            for one in names:
                self._require_complete(one)
            return names
        raise damaged(f"has no weights: {' or '.join(WEIGHT_FILES)}", self.path)

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors by name, in memory only when they are read.

        They have the type of the file. See ``weight_files`` for errors.
        """
        found: dict[str, Tensor] = {}
        for name in self.weight_files():
            self.used.append(name)
            read = _read_safetensors if name.endswith(".safetensors") else _read_pickled
            found |= read(self.path / name)
        return found

    def _require_complete(self, name: str) -> None:
        """Raise UserError if a file of weights is a pointer of git-lfs, or only its beginning."""
        path = self.path / name
        with open(path, "rb") as file:
            start = file.read(len(_LFS_POINTER))
            if start == _LFS_POINTER:
                raise self._pointer(name)
            if not name.endswith(".safetensors"):
                return
            file.seek(0)
            size = os.stat(path).st_size
            expected = 8
            if size >= 8:  # the length of the header, the header, the tensors
                (header,) = struct.unpack("<Q", file.read(8))
                expected += header
                if size >= expected:
                    expected += _data_size(path, file.read(min(header, LARGEST_HEADER)))
        what = f"it has {size:,} bytes, and its header says"
        if size < expected:
            raise damaged(f"incomplete: {what} at least {expected:,}", path)
        if size > expected:
            raise damaged(f"damaged: {what} {expected:,}", path)

    def _pointer(self, name: str) -> UserError:
        return UserError(
            "a pointer of git-lfs, not the file itself",
            at=str(self.path / name),
            fix="in that folder, run: git lfs pull; or " + DOWNLOAD,
        )


def _data_size(path: Path, header: bytes) -> int:
    try:
        entries = {k: v for k, v in json_object(header).items() if k != "__metadata__"}
        return max((int(entry["data_offsets"][1]) for entry in entries.values()), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise damaged("not a safetensors file", path) from error


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, ValueError, KeyError) as error:
        raise damaged(f"not a safetensors file: {error}", path) from error


def _read_pickled(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file of torch.save; no other object of it is made."""
    import torch

    mapped = zipfile.is_zipfile(path)  # torch cannot map the files of its versions before 1.6
    if not mapped:
        require_room(path, path.stat().st_size)
    try:
        values = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        raise UserError(
            "has more than tensors, or is damaged; it is not read, because such a file can run any "
            "program",
            at=str(path),
            fix="use model.safetensors of this model if it exists; else " + DOWNLOAD,
        ) from error
    except MemoryError:
        raise
    except Exception as error:  # torch raises whatever the damage causes
        size = path.stat().st_size
        what = f"incomplete or damaged: it has {size:,} bytes, and torch cannot read it"
        raise damaged(what, path) from error
    if not isinstance(values, dict) or not all(
        isinstance(value, torch.Tensor) for value in values.values()
    ):
        raise damaged("not a dictionary of tensors", path)
    return dict(values)
