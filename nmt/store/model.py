"""The model folder: everything that translates reads one, everything that makes a model writes one.

It refers to no file outside, so it can be copied, renamed and mounted read-only. ::

    MODEL/model.json           a ``Description``, with size and SHA-256 of the files below
    MODEL/weights.safetensors  by parameter name, as trained; an export for others may lack it
    MODEL/vocab.txt, segmenter.json and the files that it names
    MODEL/ctranslate2/         the same function for CTranslate2 (``nmt.decoding.ctranslate2``)

``RUN/model`` is the best model of a run so far. A folder may come from an untrusted source, so
everything is checked. ``nmt.store.tensors`` reads the weights; this module does not import torch.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from nmt.config.entries import Direction, Directions
from nmt.config.recipe import DecodeConfig, ModelConfig, Recipe, SegmentConfig
from nmt.data.segmenters import Segmenter, load_segmenter, save_segmenter
from nmt.data.vocab import FILE as VOCAB
from nmt.data.vocab import Vocab
from nmt.errors import UserError
from nmt.runtime.files import (
    REPLACED,
    RESTORE,
    atomic_folder,
    file_digest,
    json_object,
    read_json,
    write_synced,
)
from nmt.runtime.words import quantity
from nmt.store.folder import CONFIG_YAML, MODEL_JSON, RunFolder, require_translation, wrong_folder
from nmt.store.manifest import (
    SEAL,
    FileEntry,
    foreign,
    read_small,
    require_known_format,
    require_verified,
    seal,
    unseal,
)
from nmt.text.sentences import UsualLine
from nmt.version import __version__

FORMAT = 1
WEIGHTS = "weights.safetensors"
T = TypeVar("T")
Name: TypeAlias = Annotated[str, Field(pattern=r"^[\w-][\w.-]*$")]  # of a file in the folder


@dataclass(frozen=True)
class Origin:
    """The public model that the weights come from or were fine-tuned from.

    Attributes:
        source: its name, such as facebook/nllb-200-distilled-600M.
        family: its architecture, such as NLLB-200.
        license: of the weights; None = not known.
        files: SHA-256 of the files that were read, by name.
        version: of this toolkit, which converted it.
    """

    source: str
    family: str
    license: str | None
    files: dict[str, str]
    version: str

    def describe(self) -> str:
        """Return the name and the license in one line."""
        return f"{self.source} ({self.family}; license: {self.license or 'not known'})"


@dataclass(frozen=True)
class TextForm:
    """The form of text that a model was trained on: the recipe's keys ``data``."""

    tokenized: bool
    normalize: str


@dataclass(frozen=True)
class Description:
    """The content of model.json: everything about a model except weights, vocabulary and segmenter.

    Attributes:
        format, nmt: of the file; version of this toolkit that wrote it.
        name: of the checkpoint, such as u001500, or u001500-avg5 of an average.
        task, data, model, segment, decode: as in the recipe; without paths.
        src, tgt: languages of the recipe.
        directions: those of the training data.
        scores: on dev, by name.
        origin: of converted weights, and of models fine-tuned from them.
        parent: SHA-256 of the initial weights; empty = random weights.
        files: of the folder.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid")

    format: int
    nmt: str
    name: str
    task: Literal["translation", "causal_lm", "masked_lm"]
    src: str
    tgt: str
    directions: list[Direction]
    data: TextForm
    model: ModelConfig
    segment: SegmentConfig
    decode: DecodeConfig
    usual_line: UsualLine
    scores: dict[str, float]
    origin: Origin | None
    parent: str
    files: dict[Name, FileEntry]

    @classmethod
    def of(
        cls,
        recipe: Recipe,
        name: str,
        usual_line: UsualLine | None,
        scores: Mapping[str, float] = {},
        origin: Origin | None = None,
        parent: str = "",
    ) -> Description:
        """Describe a model that a recipe trains; its files are not known yet."""
        segment = recipe.segment.model_dump(exclude={"learn_from"})
        for key in {"codes", "model"} & segment.keys():
            segment[key] = Path(segment[key]).name
        return cls(
            format=FORMAT,
            nmt=__version__,
            name=name,
            task=recipe.task,
            src=recipe.src,
            tgt=recipe.tgt,
            directions=list(recipe.directions.trained),
            data=TextForm(recipe.data.tokenized, recipe.data.normalize),
            model=recipe.model,
            segment=type(recipe.segment).model_validate(segment),
            decode=recipe.decode,
            usual_line=usual_line or UsualLine(),
            scores=dict(scores),
            origin=origin,
            parent=parent,
            files={},
        )

    @property
    def translates(self) -> bool:
        """Whether the model has a source and a target language."""
        return self.task == "translation"

    @property
    def trained(self) -> Directions:
        """The directions, with what follows from them."""
        return Directions(self.src, self.tgt, tuple(self.directions))

    def of_recipe(self) -> dict[str, Any]:
        """Return the recipe's values that describe the model, by key."""
        values = _DESCRIPTION.dump_python(self, mode="json")
        found = {key: values[key] for key in ("task", "src", "tgt", "directions")}
        for group in ("data", "model", "segment", "decode"):
            found |= {f"{group}.{key}": value for key, value in values[group].items()}
        return found

    def to_json(self) -> bytes:
        """Return the content of model.json."""
        values = _DESCRIPTION.dump_python(self, mode="json")
        text = json.dumps(seal(values), indent=1, ensure_ascii=False)
        return text.encode() + b"\n"


_DESCRIPTION = TypeAdapter(Description)


class Model:
    """A model in its folder.

    A file is compared with its hash before it is used.

    Attributes:
        path: the folder.
        about: model.json.
        hash: SHA-256 of model.json, which has the hashes of the other files.
    """

    def __init__(self, path: Path, about: Description, digest: str) -> None:
        self.path, self.about, self.hash = path, about, digest

    @classmethod
    def open(cls, path: str | Path) -> Model:
        """Read model.json of a model, or of the best model of a run.

        Raises:
            UserError: it is neither; the run has no model yet; or the file is damaged.
        """
        folder = model_folder(Path(path))
        content = read_small(folder / MODEL_JSON)
        return cls(
            folder, _parse(folder / MODEL_JSON, content), hashlib.sha256(content).hexdigest()
        )

    def require_translation(self) -> Model:
        """Return the model; UserError if it does not translate."""
        require_translation(self.about.task, self.path)
        return self

    @functools.cached_property
    def vocab(self) -> Vocab:
        """The vocabulary."""
        self._verify(VOCAB)
        return Vocab.load(self.path)

    @functools.cached_property
    def segmenter(self) -> Segmenter:
        """The segmenter."""
        for name in self.about.files:
            if name not in (WEIGHTS, VOCAB):
                self._verify(name)
        return load_segmenter(self.path)

    @property
    def has_weights(self) -> bool:
        """Whether torch can compute the model; an export for other programs lacks the weights."""
        return WEIGHTS in self.about.files

    @property
    def weights_hash(self) -> str:
        """The SHA-256 of the weights."""
        return self.entry(WEIGHTS).sha256

    @property
    def allowed(self) -> Any:
        """The types that the model can produce: [V] bool."""
        types = self.vocab.types_of("tgt" if self.about.translates else "src")
        return types if self.about.model.logit_mask else types | True

    def is_replaced(self) -> bool:
        """Return whether another model has taken the place of this one."""
        try:
            return hashlib.sha256(read_small(self.path / MODEL_JSON)).hexdigest() != self.hash
        except UserError:
            return False

    def entry(self, name: str) -> FileEntry:
        """Return size and hash of a file; UserError if the model does not have it."""
        if name not in self.about.files:
            what = "an export for other programs has no weights for torch"
            raise UserError(
                what if name == WEIGHTS else f"model.json does not list {name}",
                at=str(self.path),
                fix="pass the model or the run that it was made from",
            )
        return self.about.files[name]

    def _verify(self, name: str) -> None:
        require_verified(self.path / name, self.entry(name))


def read_models(paths: Sequence[str | Path], read: Callable[[Sequence[Model]], T]) -> T:
    """Open and read models; start over if a running training replaces one; see ``Model.open``."""
    while True:
        models = [Model.open(path) for path in paths]
        try:
            result = read(models)
        except (UserError, OSError):
            if not any(model.is_replaced() for model in models):
                raise
        else:
            if not any(model.is_replaced() for model in models):
                return result


def _parse(path: Path, content: bytes) -> Description:
    try:
        values = json_object(content)
        require_known_format(path, values.get("format"), FORMAT, values.get("nmt"))
        intact = unseal(values)
        about = _DESCRIPTION.validate_json(json.dumps(values))
    except ValidationError as error:
        raise foreign(path, quantity(error.error_count(), "wrong value")) from error
    except ValueError as error:
        raise foreign(path, "its content is not a JSON object") from error
    if not intact:
        raise UserError(
            f"damaged or edited: its values do not have the SHA-256 in its key {SEAL}",
            at=str(path),
            fix=f"{RESTORE}; to use a file that you edited, delete the key {SEAL}",
        )
    return about


def is_model(path: Path) -> bool:
    """Return whether a folder is that of a model."""
    return (path / MODEL_JSON).is_file()


def model_folder(path: Path) -> Path:
    """Return the folder of a model: the path, or the folder of the best model of a run.

    Raises:
        UserError: it is neither, or the run has no model yet.
    """
    # the last name is that of a kill while a training replaced its model
    for folder in (path, path / "model", path / f"{REPLACED}model"):
        if is_model(folder):
            return folder
    if (path / CONFIG_YAML).is_file():
        run = RunFolder(path)
        fix = "wait for it, or continue the run with nmt-train --resume"
        if checkpoints := run.checkpoints():
            name = checkpoints[-1].name
            fix += f", or make one: nmt-average {path} --checkpoints {name} -o MODEL"
        what = "the run has no model yet: it gets one with its first validation"
        raise UserError(what, at=str(path), fix=fix)
    raise wrong_folder(path, "model or run folder")


def read_provenance(run: RunFolder) -> tuple[str, Origin | None]:
    """Return the SHA-256 of a run's initial weights, and the public model that they come from.

    Without a parent, or if init.json is damaged, they are empty.
    """
    record = read_json(run.init_file)
    try:
        origin = record["origin"] and Origin(**record["origin"])
        return str(record["weights_hash"]), origin
    except (LookupError, TypeError):
        return "", None


# --- write --------------------------------------------------------------------------------------


def complete(draft: Path, about: Description, known: Mapping[str, FileEntry] = {}) -> None:
    """Write model.json for the files of a folder; entries of ``known`` are not read again."""
    entries = {
        file.name: known.get(file.name) or FileEntry(file.stat().st_size, file_digest(file))
        for file in sorted(draft.iterdir())
        if file.is_file()
    }
    write_synced(draft / MODEL_JSON, replace(about, files=entries).to_json())


def save_text(folder: Path, vocab: Vocab, segmenter: Segmenter) -> None:
    """Write the vocabulary and the segmenter of a model."""
    vocab.save(folder)
    save_segmenter(segmenter, folder)


def link(file: Path, path: Path) -> None:
    """Hard-link a file, or copy it where the disk does not support links."""
    try:
        os.link(file, path)
    except OSError:
        shutil.copyfile(file, path)
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def check_output(output: Path, force: bool, marker: str = MODEL_JSON) -> None:
    """Check that a folder can be written here without deleting other files.

    Args:
        marker: the file by which a folder of this format is known.

    Raises:
        UserError: the output exists and is no such folder, or it is one and ``force`` is false.
    """
    if not os.path.lexists(output):
        return
    is_same = (output / marker).is_file()
    replaceable = output.is_dir() and (is_same or not any(output.iterdir()))
    if not replaceable:
        what = "exists and is not a model"
        raise UserError(what, at=str(output), fix="choose another folder")
    if not force:
        fix = "choose another folder, or add --force to replace it"
        raise UserError("exists already", at=str(output), fix=fix)


@contextlib.contextmanager
def output_folder(output: Path, force: bool, marker: str = MODEL_JSON) -> Iterator[Path]:
    """Yield a new folder, which gets the name ``output`` when the block ends without an error.

    Parents of the output are created.

    Raises:
        UserError: as ``check_output``, if another process has written the output meanwhile.
    """
    output.absolute().parent.mkdir(parents=True, exist_ok=True)
    with atomic_folder(output.absolute(), replace=force) as folder:
        yield folder
        check_output(output, force, marker)
