"""Rules of docs/architecture.md: direction of imports, generated docs, the list of keys."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nmt.cli.reference import FILES as GENERATED
from nmt.config.recipe import Recipe, groups
from nmt.config.schema import keys_of
from nmt.config.variants import Budget, Paper, VariantKeys, VariantsKeys

ROOT = Path(__file__).parents[1]
ROOTS = ("nmt", "data_prep")
FILES = sorted(path for name in ROOTS for path in (ROOT / name).rglob("*.py"))
# package -> floor; no two packages share one
FLOORS = {
    "nmt.version": 0,
    "nmt.errors": 1,
    "nmt.model": 2,
    "nmt.runtime": 3,
    "nmt.config": 4,
    "nmt.text": 5,
    "nmt.data": 6,
    "nmt.store": 7,
    "nmt.scoring": 8,
    "nmt.decoding": 9,
    "nmt.training": 10,
    "nmt.session": 11,
    "nmt.apps": 12,
    "data_prep": 13,
    "nmt.cli": 14,
    "nmt": 15,
    "nmt.__main__": 16,
}
NO_TORCH = [
    "nmt.cli.common", "nmt.cli.prepare", "nmt.config.load", "nmt.data.prepare",
    "nmt.data.segmenters", "nmt.data.vocab", "nmt.data.encoded", "nmt.store.lifecycle",
    "nmt.store.metrics_log", "nmt.store.results", "nmt.runtime.distributed", "nmt.runtime.files",
    "nmt.runtime.signals", "nmt.store.model",
]  # fmt: skip


@functools.cache
def module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module(path): path for path in FILES}


def floor(name: str) -> int:
    while name not in FLOORS:
        name = name.rpartition(".")[0]
    return FLOORS[name]


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements below a node, without those for type checkers."""
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        for child in getattr(node, field, ()):
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            yield child
            yield from statements(child)


@functools.cache
def imports(path: Path) -> set[str]:
    """Return the modules of the project that a file imports, also in its functions."""
    found = set()
    for node in statements(tree_of(path)):
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path}: a relative import"
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ROOTS:
            deeper = {f"{node.module}.{alias.name}" for alias in node.names} & MODULES.keys()
            found |= deeper or {node.module}
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names if a.name.split(".")[0] in ROOTS}
    return found


def test_packages_import_downwards_only():
    assert len({*FLOORS.values()}) == len(FLOORS)
    upward = [
        f"{module(p)} (floor {floor(module(p))}) imports {name} (floor {floor(name)})"
        for p in FILES
        for name in imports(p)
        if floor(name) > floor(module(p))
    ]
    assert upward == []


def test_no_import_cycle():
    graph = {module(p): imports(p) - {module(p)} for p in FILES}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " > ".join([*path, name])
        if name in done:
            return
        for other in graph.get(name, ()):
            visit(other, (*path, name))
        done.add(name)

    for name in graph:
        visit(name, ())


def test_the_model_imports_torch_and_itself_only():
    """So that nmt/model can be lifted out."""
    paths = [p for p in FILES if module(p).startswith("nmt.model")]
    others = {name for p in paths for name in imports(p) if not name.startswith("nmt.model")}
    assert others == set()


def test_no_package_is_imported_by_its_name():
    """So that the floors of all imports are checked; a module of a package may be looked up."""
    by_name = re.compile(r"""import_module\(f?["'](nmt|data_prep)""")
    found = {module(p) for p in FILES if by_name.search(p.read_text("utf-8"))}
    assert found == set()


@pytest.mark.parametrize("name", NO_TORCH)
def test_text_packages_load_without_torch(name: str):
    seen, waiting = set(), [name]
    while waiting:
        path = MODULES[waiting.pop()]
        if path in seen:
            continue
        seen.add(path)
        names = {
            n.module if isinstance(n, ast.ImportFrom) else n.names[0].name
            for n in tree_of(path).body
            if isinstance(n, (ast.Import, ast.ImportFrom))
        }
        assert not {n for n in names if n and n.split(".")[0] == "torch"}, path
        waiting += imports(path)


@pytest.mark.parametrize("name", GENERATED)
def test_reference_of_recipe_keys_is_up_to_date(name: str):
    stored = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert stored == GENERATED[name](), "run: python -m nmt.cli.reference --write"


def keys() -> list[str]:
    found = [name for name in keys_of(Recipe) if name not in groups()]
    for group, kinds in groups().items():
        for kind, model in kinds.items():
            title = f"{group}[{kind}]" if kind else group
            found += [f"{title}.{name}" for name in keys_of(model) if not kind or name != "kind"]
    found += keys_of(VariantsKeys)
    found += [f"budget.{name}" for name in keys_of(Budget)]
    found += [f"variant.{name}" for name in keys_of(VariantKeys)]
    return found + [f"variant.paper.{name}" for name in keys_of(Paper)]


def test_every_change_of_the_keys_is_deliberate():
    """To change a key, change this list in the same commit and give the reason in its message."""
    assert keys() == FROZEN.split()


FROZEN = """
task src tgt out seed device precision graphs time_limit
data.train data.dev data.test data.temperature data.download
data.tokenized data.max_len data.max_pieces data.batch_tokens data.block data.rebatch data.checks
data.max_overlap data.normalize data.augment segment[fastbpe].merges segment[fastbpe].codes
segment[fastbpe].learn_from segment[fastbpe].dropout segment[fastbpe].draws
segment[sentencepiece].vocab_size segment[sentencepiece].model_type
segment[sentencepiece].model segment[sentencepiece].learn_from
segment[sentencepiece].byte_fallback segment[sentencepiece].dropout
segment[sentencepiece].sampling_alpha segment[sentencepiece].draws
segment[whitespace].min_count model.dim model.ffn_dim model.heads
model.enc_layers model.dec_layers model.activation model.bias model.positions model.max_positions
model.embed_norm model.src_eos model.norm model.norm_place
model.norm_eps model.scalenorm_gain model.fixnorm model.tie model.out_bias model.logit_mask
model.init model.dropout model.attn_dropout model.ffn_dropout model.word_dropout model.normformer
model.head_scale model.head_scale_place model.post_attn_norm model.ffn_norm model.qkv_norm
model.res_scale model.extra_norm init.from init.vocab init.new_pieces
init.trim init.keep_pieces init.tag_rows init.freeze lora.rank lora.alpha lora.targets
optim.kind optim.betas optim.eps optim.weight_decay optim.clip_norm
optim.label_smoothing optim.accumulate schedule[inverse_sqrt].scale
schedule[inverse_sqrt].warmup_updates schedule[val_decay].scale schedule[val_decay].warmup_updates
schedule[val_decay].decay schedule[val_decay].patience schedule[val_decay].rule
schedule[no_warmup].lr schedule[no_warmup].decay schedule[no_warmup].patience
schedule[no_warmup].rule schedule[linear].lr schedule[linear].warmup_updates
schedule[linear].total_updates schedule[linear].end_lr schedule[constant].lr
schedule[lr_ramp].start_lr schedule[lr_ramp].lr_per_update schedule[lr_ramp].stop_loss_ratio
train.validate_every train.max_validations train.min_lr train.stop_patience train.keep train.average
train.max_bad_updates train.log_every train.recompute train.shard train.tensorboard train.wandb
decode.beam decode.length_alpha decode.length_penalty decode.max_len_offset decode.stop_rule
decode.allow_unk decode.no_repeat_ngram decode.batch_tokens decode.quantization score.metrics
score.select_by
analysis.every analysis.observe base common corpora variants seeds baseline budget
budget.hours budget.tokens variant.about variant.paper
variant.paper.dev variant.paper.test
variant.paper.ppl
"""


def test_the_page_has_a_row_for_each_package_and_program():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    packages = {path.parent for path in (ROOT / "nmt").glob("*/__init__.py")}
    packages.add(ROOT / "data_prep")
    names = [path.relative_to(ROOT) for path in packages]
    missing = [path for path in names if f"\n| `{path}/` |" not in page]
    programs = {path.parent for path in (ROOT / "nmt" / "apps").glob("*/__init__.py")}
    assert missing + [path for path in programs if f"`{path.name}`" not in page] == []
