"""Start a model from a trained one, its parent, and freeze parameters.

The parent's weights are loaded by parameter name. As in ``load_state_dict``, a tensor that the
parent lacks is missing, and keeps its initial values; one that the model lacks is unexpected. Rows
of the vocabulary (embeddings and output bias) are loaded by piece, so the two vocabularies may
differ (Nguyen and Chiang 2017, "Transfer Learning across Low-Resource, Related Languages for Neural
Machine Translation"). Rows of new pieces that replace pieces of the parent, and of new tags, start
as means of its rows. The optimizer and the schedule start from the beginning.

Nothing here depends on the class of the parent's model. A language model has the parameter names of
an encoder or a decoder, so a translation model loads that part of it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from nmt.config.errors import did_you_mean
from nmt.config.recipe import ModelConfig, Recipe
from nmt.data.text import quantity
from nmt.data.vocab import SPECIALS, TAG_MARK, UNK, Vocab
from nmt.errors import UserError
from nmt.model.linear import Linear
from nmt.model.lora import add_lora, merge_lora
from nmt.runtime.files import read_text, write_atomic
from nmt.store.folder import RunFolder
from nmt.store.model import Description, Model, read_model
from nmt.store.parent import TextOfParent, open_parent, shown_differences
from nmt.store.tensors import read_weights

EMBED, SRC_EMBED, OUT_EMBED = "embed.weight", "src_embed.weight", "out_embed.weight"
Shapes: TypeAlias = Mapping[str, torch.Size]
VOCAB_TENSORS = (EMBED, SRC_EMBED, OUT_EMBED, "out_bias")  # a row for each type
# keys that decide what the same weights compute; a parent must have the same
SAME_FUNCTION = (
    "dim", "heads", "ffn_dim", "activation", "norm", "norm_place", "fixnorm", "positions",
    "max_positions", "embed_norm",
)  # fmt: skip
# parts that a model may have in addition to its parent, but not lack
ADDITIONS = ("bias", "head_scale", "post_attn_norm", "ffn_norm", "qkv_norm")
MAX_TAGS = 10  # that an error names
FEW_PIECES = 0.5  # share of the text below which the lines suggest another vocabulary
# words of init.freeze -> patterns
PARTS = {
    "embeddings": ("embed.*", "src_embed.*", "out_embed.*", "src_input.*", "tgt_input.*"),
    "encoder": ("encoder.*",),
    "decoder": ("decoder.*",),
}
LAYER = re.compile(r"(.*\.layers)\.(\d+)\.(.*)")


@dataclass(frozen=True)
class Parent:
    """A trained model to start from.

    Attributes:
        path: the folder that the recipe names.
        weights_hash: SHA-256 of the weights.
        tensors: weights by parameter name, on the CPU.
    """

    path: Path
    about: Description
    text: TextOfParent
    weights_hash: str
    tensors: dict[str, Tensor]

    @classmethod
    def of(cls, recipe: Recipe) -> Parent | None:
        """Read the parent of a recipe; None if it has none.

        Raises:
            UserError: it is no model, or a file of it is missing or damaged.
        """
        if recipe.init.parent is None:
            return None
        path = Path(recipe.init.parent)

        def read(model: Model) -> Parent:
            text = TextOfParent.of(model)
            return cls(path, model.about, text, model.weights_hash, read_weights(model))

        open_parent(recipe)
        return read_model(path, read)

    def describe(self) -> str:
        """Describe languages, checkpoint and scores."""
        about = self.about
        what = f"{about.src}-{about.tgt}" if about.translates else f"{about.task} {about.src}"
        scores = [f"{name} {value:.2f}" for name, value in about.scores.items()]
        return ", ".join([what, about.name, *scores])


@dataclass
class Transfer:
    """What a model loads from its parent.

    Attributes:
        loaded: complete tensors by name.
        rows: [n, ...] rows of each tensor of the vocabulary, by name; those of new pieces and tags
            are means.
        ids: [n], the rows of the model that they replace.
        missing: names of the model's tensors that the parent lacks; they keep their initial values.
        unexpected: names of the parent's tensors that the model lacks.
        text: the parent's segmenter and vocabulary, if the run uses them, as the run adapted them.
        lines: all of this for a reader.
        record: all of this for init.json.
    """

    loaded: dict[str, Tensor]
    rows: dict[str, Tensor]
    ids: Tensor
    missing: list[str]
    unexpected: list[str]
    text: TextOfParent | None
    lines: list[str] = field(default_factory=list)
    record: dict[str, Any] = field(default_factory=dict)

    @torch.no_grad()
    def load_into(self, model: nn.Module) -> None:
        """Replace weights of the model."""
        own = model.state_dict()
        for name, tensor in self.loaded.items():
            own[name].copy_(tensor)
        for name, rows in self.rows.items():
            own[name][self.ids] = rows.to(own[name])

    def save(self, run: RunFolder) -> None:
        """Write init.json, and what a resumed run needs of the parent."""
        if self.text is not None:
            self.text.save(run)
        write_atomic(run.init_file, json.dumps(self.record, indent=1, ensure_ascii=False) + "\n")


def make_transfer(
    recipe: Recipe,
    model: nn.Module,
    vocab: Vocab,
    parent: Parent,
    text: TextOfParent | None = None,
) -> Transfer:
    """Choose what a model loads from its parent.

    Args:
        recipe, vocab: of the model.
        model: only names and shapes of its tensors are used, so it may be on torch's meta device;
            ``choose_trained`` was called.
        text: what the model uses of the parent's text processing (``TextOfParent.for_recipe``).

    Raises:
        UserError: the parent's weights compute something else with this recipe, or do not fit the
            model; or ``init.tag_rows`` is wrong.
    """
    require_same_function(recipe.model, parent)
    shapes = {name: tensor.shape for name, tensor in merge_lora(model.state_dict()).items()}
    loaded = _layers(shapes, parent)
    ids, parent_ids = map(torch.from_numpy, vocab.rows_in(parent.text.vocab))
    tables, used = _tables(shapes, parent)
    sources = _sources_of_new(recipe, vocab, parent, text)
    rows = {
        name: torch.cat([table[parent_ids], *_means(table, sources)])
        for name, table in tables.items()
    }
    transfer = Transfer(
        loaded,
        rows,
        ids=torch.cat([ids, torch.tensor([*sources], dtype=torch.int64)]),
        missing=[name for name in shapes if name not in loaded and name not in rows],
        unexpected=[name for name in parent.tensors if name not in {*loaded, *used}],
        text=text,
    )
    numbers = _numbers(vocab, ids) | {"means": len(sources)}
    frozen = []
    if recipe.lora.rank:
        _require_complete(transfer, numbers)
    else:
        frozen = [name for name, p in model.named_parameters() if not p.requires_grad]
    transfer.lines = [
        *_weight_lines(recipe, shapes, parent, transfer),
        *_vocabulary_lines(recipe, parent, numbers),
        *(_adaptation_lines(shapes, parent, text) if text else ()),
        *(_frozen_lines(recipe, frozen, shapes, transfer, numbers) if frozen else ()),
    ]
    transfer.record = {
        **_record(recipe, parent, transfer, numbers),
        "frozen": frozen,
        **(text.adaptation.record if text else {}),
    }
    return transfer


def _require_complete(transfer: Transfer, numbers: Mapping[str, Any]) -> None:
    """Raise UserError if LoRA, which trains no other weight, would leave weights random."""
    random = numbers["new"] - numbers["means"]
    if not (transfer.missing or random):
        return
    what = f"{random:,} subwords" if random else ", ".join(sorted(_top_level(transfer.missing)))
    raise UserError(
        f"the parent lacks {what}, which would keep random weights, because LoRA does not train "
        "them",
        at="lora.rank",
        fix="set init.vocab=parent" if random else "remove lora.rank, or choose another parent",
    )


def choose_trained(model: nn.Module, recipe: Recipe) -> None:
    """Exclude parameters from training, and add those of LoRA, as a recipe says.

    Raises:
        UserError: a pattern of ``init.freeze`` or ``lora.targets`` matches nothing.
    """
    lora = recipe.lora
    if not lora.rank:
        freeze(model, recipe.init.freeze)
        return
    alpha = 2.0 * lora.rank if lora.alpha is None else lora.alpha
    if not add_lora(model, lora.rank, alpha, lora.targets, recipe.seed):
        layers = dict.fromkeys(
            name.rpartition(".")[2] for name, m in model.named_modules() if isinstance(m, Linear)
        )
        raise UserError(
            f"no linear layer matches {', '.join(lora.targets)}",
            at="lora.targets",
            fix=f"use patterns such as *.{', *.'.join(layers)}",
        )


def freeze(model: nn.Module, patterns: Sequence[str]) -> None:
    """Exclude parameters from training, by patterns of their names or the words of PARTS.

    Raises:
        UserError: a pattern matches no parameter, or no parameter is left to train.
    """
    parameters = dict(model.named_parameters())
    frozen: set[str] = set()
    for pattern in patterns:
        names = PARTS.get(pattern, (pattern,))
        matching = [p for p in parameters if any(fnmatchcase(p, name) for name in names)]
        if not matching:
            raise UserError(
                f'no parameter of the model matches "{pattern}"{_near(pattern, parameters)}',
                at="init.freeze",
                fix=f"use a pattern of these: {', '.join(sorted(_top_level(parameters)))}; or the "
                f"words {', '.join(PARTS)}",
            )
        frozen.update(matching)
    if len(frozen) == len(parameters):
        raise UserError(
            "these patterns match all parameters, so nothing is left to train",
            at="init.freeze",
            fix="remove a pattern from init.freeze",
        )
    for name in frozen:
        parameters[name].requires_grad_(False)


def require_same_function(config: ModelConfig, parent: Parent) -> None:
    """Raise UserError if the parent's weights compute something else with these ``model`` keys."""
    theirs = parent.about.model
    keys = [key for key in SAME_FUNCTION if getattr(config, key) != getattr(theirs, key)]
    keys += [key for key in ADDITIONS if getattr(theirs, key) and not getattr(config, key)]
    if theirs.res_scale not in ("none", config.res_scale):
        keys.append("res_scale")
    if theirs.head_scale and theirs.head_scale_place != config.head_scale_place:
        keys.append("head_scale_place")
    extra = theirs.post_attn_norm or theirs.ffn_norm or theirs.qkv_norm
    if extra and theirs.extra_norm != config.extra_norm:
        keys.append("extra_norm")
    if theirs.scalenorm_gain == "learned" and config.scalenorm_gain == "fixed":
        keys.append("scalenorm_gain")
    if not keys:
        return
    lines, as_parent = shown_differences(
        {f"model.{key}": (getattr(theirs, key), getattr(config, key)) for key in keys}
    )
    raise UserError(
        f"the weights of {parent.path} do not fit this model (parent -> this recipe):{lines}",
        at="init.from",
        fix=f"set these keys as in the parent: {as_parent}; or leave them out",
    )


def require_same_parent(recipe: Recipe, run: RunFolder) -> None:
    """Raise UserError if ``init.from`` now leads to another model than when the run began.

    A resumed run does not need its parent, which may be gone if ``init.from`` did not change.
    """
    assert recipe.init.parent is not None
    try:
        before = json.loads(read_text(run.init_file))
        expected = str(before["weights_hash"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return  # init.json is missing or damaged
    if Model.open(recipe.init.parent).weights_hash != expected:
        raise UserError(
            f"{recipe.init.parent} is not the parent that this run started from, "
            f"{before.get('parent')}",
            at="init.from",
            fix="undo this change, or train in another folder with out=PATH",
        )


def _layers(shapes: Shapes, parent: Parent) -> dict[str, Tensor]:
    loaded = {}
    for name in shapes:
        tensor = parent.tensors.get(name)
        if tensor is not None and name not in VOCAB_TENSORS:
            loaded[name] = tensor
    if not loaded:
        theirs, ours = (", ".join(sorted(_top_level(n))) for n in (parent.tensors, shapes))
        raise UserError(
            f"no layer of the parent fits this model: the parent has {theirs}; this model has "
            f"{ours}",
            at=f"init.from ({parent.path})",
            fix="choose a parent with an encoder or a decoder as in this model",
        )
    return loaded


def _tables(shapes: Shapes, parent: Parent) -> tuple[dict[str, Tensor], set[str]]:
    """Return tensors [V of the parent, ...] to load rows from, and their names in the parent.

    The tensors are named as in the model. A source or output embedding of its own starts from the
    parent's shared one. The reverse: an embedding that serves the source too starts from the
    parent's target embedding, and from its source embedding for pieces that only occur on the
    source side, where the other one is untrained.
    """
    tensors = parent.tensors
    tables: dict[str, Tensor] = {}
    used: set[str] = set()
    for name in VOCAB_TENSORS:
        known = name if name in tensors or name not in (SRC_EMBED, OUT_EMBED) else EMBED
        if name not in shapes or known not in tensors:
            continue
        table = tensors[known]
        used.add(known)
        if name == EMBED and SRC_EMBED not in shapes and SRC_EMBED in tensors:
            used.add(SRC_EMBED)
            target = torch.from_numpy(parent.text.vocab.types_of("tgt"))
            target[: len(SPECIALS)] = True
            table = torch.where(target[:, None], table, tensors[SRC_EMBED])
        tables[name] = table
    return tables, used


def _sources_of_new(
    recipe: Recipe, vocab: Vocab, parent: Parent, text: TextOfParent | None
) -> dict[int, list[int]]:
    """Return the rows of the parent whose mean each row of a new piece or tag is; none = all rows.

    A new piece replaces some pieces of the parent; a tag begins as its relative, or as the mean of
    all tags.

    Raises:
        UserError: ``init.tag_rows`` names a tag that does not exist, or one that needs no relative.
    """
    theirs, relatives = parent.text.vocab, recipe.init.tag_rows
    their_tags = sorted({*theirs.tags, *theirs.tgt_tags})
    new_tags = sorted({*vocab.tags, *vocab.tgt_tags}.difference(their_tags))
    for tag, relative in relatives.items():
        if relative not in their_tags:
            listed = did_you_mean(relative, their_tags) or f"; it has {_some(their_tags)}"
            raise UserError(
                f"the parent has no tag {relative}{listed}",
                at="init.tag_rows",
                fix="name a tag of the parent, or leave this tag out",
            )
        if tag not in new_tags:
            what = "a tag of the parent, whose row it takes" if tag in their_tags else "no tag here"
            raise UserError(
                f"{tag} is {what}; data.train has {_some(new_tags)} that the parent lacks",
                at="init.tag_rows",
                fix="name tags of data.train that the parent lacks",
            )
    pieces = dict(text.adaptation.parts) if text else {}
    for tag in new_tags:
        chosen = [relatives[tag]] if tag in relatives else their_tags
        pieces[TAG_MARK + tag] = [TAG_MARK + tag for tag in chosen]
    return {
        row: [i for i in theirs.ids(pieces[piece]) if i != UNK]
        for piece, row in zip(pieces, vocab.ids(pieces), strict=True)
    }


def _some(tags: Sequence[str]) -> str:
    if not tags:
        return "no tags"
    shown = ", ".join(tags[:MAX_TAGS]) + (", ..." if len(tags) > MAX_TAGS else "")
    return f"{quantity(len(tags), 'tag')} ({shown})"


def _means(table: Tensor, sources: Mapping[int, list[int]]) -> list[Tensor]:
    overall = table[len(SPECIALS) :].mean(0, keepdim=True)
    return [table[rows].mean(0, keepdim=True) if rows else overall for rows in sources.values()]


def _numbers(vocab: Vocab, ids: Tensor) -> dict[str, Any]:
    """Count the pieces that the parent has, and their share of the training text."""
    pieces, known = len(vocab) - len(SPECIALS), len(ids) - len(SPECIALS)
    shares = {side: vocab.share_of_text(ids.numpy(), side) for side in ("src", "tgt")}
    return {"pieces": pieces, "from_parent": known, "new": pieces - known, "share": shares}


def _record(
    recipe: Recipe, parent: Parent, transfer: Transfer, numbers: dict[str, Any]
) -> dict[str, Any]:
    about = parent.about
    return {
        "parent": str(parent.path),
        "checkpoint": about.name,
        "weights_hash": parent.weights_hash,
        "task": about.task,
        "src": about.src,
        "tgt": about.tgt,
        "scores": about.scores,
        "origin": about.origin and asdict(about.origin),
        "vocab": recipe.init.vocab,
        "rows": numbers,
        "taken": [*transfer.loaded],
        "taken_by_row": [*transfer.rows],
        "fresh": transfer.missing,
        "not_taken": transfer.unexpected,
    }


def _weight_lines(recipe: Recipe, shapes: Shapes, parent: Parent, transfer: Transfer) -> list[str]:
    lines = [f"starting from {parent.path} ({parent.describe()})"]
    loaded = len(transfer.loaded) + len(transfer.rows)
    lines.append(f"  weights: {loaded} of {len(shapes)} tensors loaded from the parent")
    if transfer.missing:
        missing = _in_groups(transfer.missing, shapes)
        lines.append(f"  missing (start at their initial values): {missing}")
    if transfer.unexpected:
        unexpected = _in_groups(transfer.unexpected, parent.tensors)
        lines.append(f"  unexpected (not loaded): {unexpected}")
    eps, theirs = recipe.model.norm_eps, parent.about.model.norm_eps
    if eps != theirs:
        lines.append(
            f"  note: model.norm_eps is {eps:g}, but {theirs:g} in the parent; to compute what the "
            f"parent did, set model.norm_eps={theirs:g}"
        )
    return lines


def _vocabulary_lines(recipe: Recipe, parent: Parent, numbers: dict[str, Any]) -> list[str]:
    means, random = numbers["means"], numbers["new"] - numbers["means"]
    new = f"; {means:,} start as means of its rows" if means else ""
    new += f"; {random:,} are missing and start at random" if random else ""
    if recipe.init.vocab != "new":
        which = "" if recipe.init.trim else "the "
        return [f"  vocabulary: {which}{numbers['from_parent']:,} subwords of the parent{new}"]
    names = {"src": "source ", "tgt": "target "} if recipe.translates else {"src": "", "tgt": ""}
    shares = {side: s for side, s in numbers["share"].items() if s == s}  # NaN: no text
    text = ", ".join(f"{share:.1%} of the {names[side]}text" for side, share in shares.items())
    lines = [
        f"  vocabulary: {numbers['from_parent']:,} of {numbers['pieces']:,} subwords load the rows "
        f"of the parent ({text}){new}"
    ]
    if min(shares.values(), default=1) < FEW_PIECES:
        lines.append(
            f"  warning: under {FEW_PIECES:.0%} of a side are subwords of the parent; if both "
            f"share a script, segment as the parent did: {_segmentation_of(parent)}"
        )
    return lines


def _adaptation_lines(shapes: Shapes, parent: Parent, text: TextOfParent) -> list[str]:
    if not text.adaptation.lines:
        return []
    before = sum(tensor.numel() for tensor in parent.tensors.values())
    now = sum(shape.numel() for shape in shapes.values())
    values_per_mb = 250_000  # in fp32
    sizes = f"{before / values_per_mb:,.1f} -> {now / values_per_mb:,.1f} MB in fp32"
    return [*text.adaptation.lines, f"  parameters: {before:,} -> {now:,}, {sizes}"]


def _frozen_lines(
    recipe: Recipe,
    frozen: Sequence[str],
    shapes: Shapes,
    transfer: Transfer,
    numbers: dict[str, Any],
) -> list[str]:
    """Name the frozen tensors, and warn of those that the parent lacks: they never train."""
    values = sum(shapes[name].numel() for name in frozen)
    lines = [
        f"  frozen ({', '.join(recipe.init.freeze)}): {len(frozen)} of {len(shapes)} tensors, "
        f"{values:,} values"
    ]
    rows = [name for name in frozen if name in transfer.rows and numbers["new"]]
    untrained = [f"{numbers['new']:,} of {shapes[name][0]:,} rows of {name}" for name in rows]
    if missing := [name for name in frozen if name in transfer.missing]:
        untrained.append(_in_groups(missing, shapes))
    if untrained:
        fix = "set init.vocab=parent, or " if rows and recipe.init.vocab == "new" else ""
        lines.append(
            "  warning: init.freeze keeps values untrained, because the parent lacks them: "
            f"{', '.join(untrained)}\n  -> {fix}choose patterns of init.freeze that do not match "
            "them"
        )
    return lines


def _segmentation_of(parent: Parent) -> str:
    kind = parent.text.segmenter.kind
    files = {"fastbpe": ("codes", "codes.txt"), "sentencepiece": ("model", "spm.model")}
    key, file = files.get(kind, ("", ""))
    of_run = parent.path / "model"
    folder = of_run if of_run.is_dir() else parent.path
    return f"segment.kind={kind}" + (f" segment.{key}={folder / file}" if key else "")


def _in_groups(names: Iterable[str], all_names: Iterable[str]) -> str:
    """Return names in short: complete layers as one, the same tensor of several layers as one."""
    chosen = list(names)
    sizes = Counter(_layer(name) for name in all_names)
    count = Counter(_layer(name) for name in chosen)
    groups: Counter[str] = Counter()
    for name in chosen:
        layer = _layer(name)
        if layer and count[layer] == sizes[layer]:
            groups[layer] += 1
        else:
            groups[LAYER.sub(r"\1.*.\3", name)] += 1
    return ", ".join(f"{name} ({n} tensors)" if n > 1 else name for name, n in groups.items())


def _layer(name: str) -> str:
    match = LAYER.fullmatch(name)
    return f"{match[1]}.{match[2]}" if match else ""


def _top_level(names: Iterable[str]) -> set[str]:
    """Return the first part of each name: ``encoder.*``, ``embed.*``, ``out_bias``."""
    return {f"{name.partition('.')[0]}.*" if "." in name else name for name in names}


def _near(pattern: str, names: Iterable[str]) -> str:
    parents = {name[:i] for name in names for i, c in enumerate(name) if c == "."}
    return did_you_mean(pattern, [*names, *(f"{above}.*" for above in parents)])
