"""Start a model from a trained one, its parent.

The parent's weights are loaded by parameter name. As in ``load_state_dict``, a tensor that the
parent lacks is missing, and keeps its initial values; one that the model lacks is unexpected. Rows
of the vocabulary (embeddings and output bias) are loaded by piece, so the two vocabularies may
differ (Nguyen and Chiang 2017, "Transfer Learning across Low-Resource, Related Languages for Neural
Machine Translation"). Rows of new pieces that replace pieces of the parent, and of new tags, start
as means of its rows. The optimizer and the schedule start from the beginning.

A language model has the parameter names of an encoder or a decoder, so a translation model loads
that part of it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.config.entries import TAG_KEYS, Directions
from nmt.config.recipe import Recipe
from nmt.data import adapt
from nmt.data.lines import SIDES
from nmt.data.prepare import GivenText
from nmt.data.vocab import SPECIALS, TAG_MARK, UNK, Vocab
from nmt.errors import UserError
from nmt.store.model import Model, read_models
from nmt.store.parent import open_parent
from nmt.store.tensors import read_weights
from nmt.training.freeze import top_level

EMBED, SRC_EMBED, OUT_BIAS = "embed.weight", "src_embed.weight", "out_bias"
TABLES = (EMBED, SRC_EMBED, "out_embed.weight", OUT_BIAS)  # a row for each type
MAX_TAGS = 10  # that an error names
VALUES_PER_MB = 250_000  # in fp32
FEW_PIECES = 0.5  # share of the text below which the lines suggest another vocabulary


@dataclass(frozen=True)
class Transfer:
    """What a model loads from its parent.

    Attributes:
        loaded: complete tensors by name.
        rows: [n, ...] rows of each tensor of the vocabulary, by name.
        ids: [n], the rows of the model that they replace.
        missing: names of the model's tensors that the parent lacks.
        unexpected: names of the parent's tensors that the model lacks.
    """

    loaded: dict[str, Tensor]
    rows: dict[str, Tensor]
    ids: Tensor
    missing: list[str]
    unexpected: list[str]

    @torch.no_grad()
    def load_into(self, model: nn.Module) -> None:
        """Replace weights of the model."""
        own = model.state_dict()
        for name, tensor in self.loaded.items():
            own[name].copy_(tensor)
        for name, rows in self.rows.items():
            own[name][self.ids] = rows.to(own[name])


def transfer(
    tensors: Mapping[str, Tensor],
    parent: Vocab,
    names: Sequence[str],
    vocab: Vocab,
    parts: Mapping[str, Sequence[str]],
) -> Transfer:
    """Return what a model loads from the tensors of its parent.

    A source or output embedding of its own starts from the parent's shared one. The reverse: an
    embedding that serves the source too starts from the parent's target embedding, and from its
    source embedding for pieces that only occur on the source side, where the other one is
    untrained.

    Args:
        tensors, parent: of the parent, by name, and its vocabulary.
        names, vocab: of the model's tensors, and its vocabulary.
        parts: new piece -> the pieces of the parent whose mean it starts as; none = all.
    """
    tables = {}
    for name in TABLES:
        theirs = name if name in tensors or name == OUT_BIAS else EMBED
        if name in names and theirs in tensors:
            tables[name] = tensors[theirs]
    merged = SRC_EMBED in tensors and SRC_EMBED not in names
    if merged:
        target = torch.from_numpy(parent.types_of("tgt"))
        target[: len(SPECIALS)] = True
        tables[EMBED] = torch.where(target[:, None], tensors[EMBED], tensors[SRC_EMBED])
    sources = [[special] for special in range(len(SPECIALS))]  # rows of the parent for each id
    ids = [*range(len(SPECIALS))]
    rows = zip(vocab.types, parent.ids(vocab.types), strict=True)
    for row, (piece, same) in enumerate(rows, len(SPECIALS)):
        if same != UNK or piece in parts:
            ids.append(row)
            replaced = parent.ids(parts[piece]) if same == UNK else [same]
            sources.append([i for i in replaced if i != UNK])
    loaded = {name: tensors[name] for name in names if name in tensors and name not in TABLES}
    return Transfer(
        loaded,
        {name: _means(table, sources) for name, table in tables.items()},
        torch.tensor(ids),
        missing=[name for name in names if name not in loaded and name not in tables],
        unexpected=[n for n in tensors if n not in names and not (merged and n == SRC_EMBED)],
    )


def _means(table: Tensor, sources: Sequence[Sequence[int]]) -> Tensor:
    """Return the mean of the rows of each source: [V, ...] -> [len(sources), ...]."""
    sizes = torch.tensor([len(rows) for rows in sources])
    rows = torch.tensor([*itertools.chain.from_iterable(sources)])
    flat = table.reshape(len(table), -1)
    means = F.embedding_bag(rows, flat, sizes.cumsum(0) - sizes, mode="mean")
    means[sizes == 0] = flat[len(SPECIALS) :].mean(0)
    return means.reshape(-1, *table.shape[1:])


def read_parent(recipe: Recipe) -> tuple[Model, dict[str, Tensor]]:
    """Read the model that ``init.from`` names, and its weights by parameter name.

    Raises:
        UserError: it is no model, or a file of it is missing or damaged.
    """

    def read(models: Sequence[Model]) -> tuple[Model, dict[str, Tensor]]:
        (model,) = models
        _ = model.vocab, model.segmenter  # read now, before a run replaces them
        return model, read_weights(model)

    open_parent(recipe)
    return read_models([str(recipe.init.parent)], read)


def start_from(
    recipe: Recipe,
    model: nn.Module,
    vocab: Vocab,
    parent: Model,
    tensors: Mapping[str, Tensor],
    text: GivenText | None,
) -> tuple[Transfer, dict[str, Any]]:
    """Return what the model of a recipe loads from its parent, and a record of it for init.json.

    Args:
        model: only names and shapes of its tensors are used, so it may be on torch's meta device;
            ``choose_trained`` was called.
        tensors: of the parent, from ``read_parent``.
        text: from ``text_of_parent``.

    Raises:
        UserError: the parent has no layer of the model, weights would neither be loaded nor train,
            or ``init.tag_rows`` is wrong.
    """
    init, about = recipe.init, parent.about
    own = {name: t for name, t in model.state_dict().items() if ".lora." not in name}
    parts = {**(text.parts if text else {}), **parts_of_tags(vocab, parent.vocab, init.tag_rows)}
    transferred = transfer(tensors, parent.vocab, [*own], vocab, parts)
    if not transferred.loaded:
        raise UserError(
            f"no layer of the parent fits this model: the parent has {top_level(tensors)}; this "
            f"model has {top_level(own)}",
            at=f"init.from ({init.parent})",
            fix="choose a parent with an encoder or a decoder as in this model",
        )
    frozen = {name: p.numel() for name, p in model.named_parameters() if not p.requires_grad}
    random = len(vocab) - len(transferred.ids)  # rows
    lost = [name for name in frozen if name in transferred.missing or (random and name in TABLES)]
    if lost:
        raise UserError(
            f"the parent lacks {_in_groups(lost)}"
            + f" ({random:,} of {len(vocab):,} rows)" * bool(random)
            + ", and what it lacks would neither be loaded nor train",
            at="lora.rank" if recipe.lora.rank else "init.freeze",
            fix=("set init.vocab=parent, or " * bool(random and init.vocab == "new"))
            + "train these weights, or choose another parent",
        )
    common = [row for row in transferred.ids.tolist() if vocab.pieces([row])[0] not in parts]
    sides = SIDES if recipe.translates else SIDES[:1]
    shares = {side: vocab.share_of_text(common, side) for side in sides}
    return transferred, {
        "parent": str(init.parent),
        "checkpoint": about.name,
        "weights_hash": parent.weights_hash,
        "task": about.task,
        "src": about.src,
        "tgt": about.tgt,
        "scores": about.scores,
        "origin": about.origin and asdict(about.origin),
        "vocab": init.vocab,
        "tags_missing": _lacks_tags(recipe, about.trained) if recipe.translates else [],
        "loaded": [*transferred.loaded, *transferred.rows],
        "missing": transferred.missing,
        "unexpected": transferred.unexpected,
        "rows": {"loaded": len(common) - len(SPECIALS), "means": len(parts), "missing": random},
        "share": {side: share for side, share in shares.items() if share == share},  # NaN: no text
        "frozen": [] if recipe.lora.rank else [*frozen],
        "frozen_values": sum(frozen.values()),
        "parameters": [sum(t.numel() for t in group.values()) for group in (tensors, own)],
        **(text.change if text else {}),
    }


def _lacks_tags(recipe: Recipe, parent: Directions) -> list[str]:
    """Return examples of the tags that all text of the parent has, and no text of the child."""
    tags = {getattr(trained, key) for trained in recipe.directions.trained for key in TAG_KEYS}
    theirs = dict.fromkeys(trained.tgt_tag or trained.tag for trained in parent.trained)
    needs = parent.always_tagged or parent.tgt_tag_required
    return [tag for tag in theirs if tag][:MAX_TAGS] if needs and tags <= {None} else []


def parts_of_tags(
    vocab: Vocab, parent: Vocab, relatives: Mapping[str, str]
) -> dict[str, list[str]]:
    """Return the tags of the parent that each new tag starts as: its relative, or all of them.

    Raises:
        UserError: ``relatives`` names a tag that does not exist, or one that needs no relative.
    """
    theirs = sorted({*parent.tags, *parent.tgt_tags})
    new = sorted({*vocab.tags, *vocab.tgt_tags}.difference(theirs))
    for new_tag, relative in relatives.items():
        for tag, choices, what in (
            (new_tag, new, "a tag of data.train that the parent lacks"),
            (relative, theirs, "a tag of the parent"),
        ):
            if tag not in choices:
                listed = ", ".join(choices[:MAX_TAGS]) + ", ..." * (len(choices) > MAX_TAGS)
                fix = f"choose one of these: {listed or 'none'}"
                raise UserError(f"{tag} is not {what}", at="init.tag_rows", fix=fix)
    return {
        TAG_MARK + tag: [TAG_MARK + t for t in ([relatives[tag]] if tag in relatives else theirs)]
        for tag in new
    }


# --- for people ---------------------------------------------------------------------------------


def describe_transfer(
    recipe: Recipe, record: Mapping[str, Any], text: GivenText | None
) -> list[str]:
    """Describe in lines what a run takes from its parent; see ``start_from`` for the arguments."""
    rows, share, frozen = record["rows"], record["share"], record["frozen"]
    names = record["loaded"] + record["missing"]
    what = f"{record['src']}-{record['tgt']}" if record["tgt"] else "{task} {src}".format(**record)
    scores = [f"{name} {value:.2f}" for name, value in record["scores"].items()]
    lines = [
        f"starting from {record['parent']} ({', '.join([what, record['checkpoint'], *scores])})",
        f"  weights: {len(record['loaded'])} of {len(names)} tensors loaded from the parent",
    ]
    if record["missing"]:
        lines.append(f"  missing (start at their initial values): {_in_groups(record['missing'])}")
    if record["unexpected"]:
        lines.append(f"  unexpected (not loaded): {_in_groups(record['unexpected'])}")
    sides = {"src": "source ", "tgt": "target "}
    shares = ", ".join(
        f"{share[side]:.1%} of the {sides[side] * recipe.translates}text" for side in share
    )
    lines.append(
        f"  vocabulary: {rows['loaded']:,} of {sum(rows.values()):,} subwords load the rows of "
        f"the parent ({shares})"
        + f"; {rows['means']:,} start as means of its rows" * bool(rows["means"])
        + f"; {rows['missing']:,} are missing and start at random" * bool(rows["missing"])
    )
    if record["vocab"] == "new" and min(share.values(), default=1) < FEW_PIECES:
        lines.append(
            f"  warning: under {FEW_PIECES:.0%} of a side are subwords of the parent; if both "
            "share a script, set segment.codes or segment.model to the file of the parent"
        )
    if tags := record["tags_missing"]:
        lines.append(
            f"  note: all text of the parent had a tag ({', '.join(tags)}), and the entries of "
            "data.train have none; set tag or tgt_tag of each entry to that of its language"
        )
    if text and text.change:
        before, now = record["parameters"]
        sizes = " -> ".join(f"{count / VALUES_PER_MB:,.1f}" for count in (before, now))
        lines += adapt.describe_change(text)
        lines.append(f"  parameters: {before:,} -> {now:,}, {sizes} MB in fp32")
    if frozen:
        lines.append(
            f"  frozen ({', '.join(recipe.init.freeze)}): {len(frozen)} of {len(names)} tensors, "
            f"{record['frozen_values']:,} values"
        )
    return lines


def _in_groups(names: Iterable[str]) -> str:
    """Return names in short, the tensors of a layer together: ``encoder.layers.1 (10 tensors)``."""
    groups = Counter(".".join(name.split(".")[:3]) for name in names)
    return ", ".join(f"{name} ({n} tensors)" if n > 1 else name for name, n in groups.items())
