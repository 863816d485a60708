"""How good is nmt on public test sets, compared with what a user could have instead?

    python -m benchmarks.public TASK --data DIR [--recipe FILE] [key=value ...]

A task lays its corpora out in ``data/public``, trains its recipe (or continues it), translates the
test sets and prints a row for each, with the scores of public systems and two-sided p-values of
their differences from ours. ``--data`` is a folder with a folder for each source: ``chren-chr-en``
(github.com/ZhangShiyue/ChrEn), ``flores-systems`` (github.com/mozilla/firefox-translations-models,
evaluation), ``ted-gl-en``, ``ted-az-en``, ``ted-related``, ``tatoeba-es-en``, its Spanish side in
Galician as ``tatoeba-es-en-as-gl``, ``tatoeba-tr-en`` and ``americasnlp2025``, which has the
outputs of two systems and, in ``release``, a checkout of AmericasNLP/americasnlp2025.
Test sets are scored once: all choices are made on the development sets of the recipes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import machine
from nmt.data.bitext import read_lines

# languages of the recipe, and the further texts of the release that it uses
AMERICAS = {
    "aym": ["--synthetic"],
    "bzd": [],
    "cni": ["--synthetic"],
    "gn": [],
    "nah": ["--extra", "--synthetic"],
    "oto": ["--extra"],
    "shp": ["--extra", "--synthetic"],
    "tar": [],
}
ROOT = Path("data/public")
RUNS = Path("runs/public")
SPELLING = Path("recipes/public/spelling")  # tables for training text, by language


@dataclass(frozen=True)
class TestSet:
    """A test set, and what others reach on it.

    Attributes:
        options: of nmt-translate, for a model of several languages.
        systems: outputs of public systems by name.
        published: scores without outputs, by name.
    """

    name: str
    src: Path
    ref: Path
    options: Sequence[str] = ()
    systems: Mapping[str, Path] = field(default_factory=dict)
    published: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """Test sets, and the recipe that is trained for them.

    Attributes:
        recipe: its name in ``recipes``; its last part is the folder of the corpora, which it
            reads, in ``data/public``.
        lay_out: writes the corpora from the first folder to the second; returns the test sets.
        overrides: keys of the recipe that have other values.
    """

    metric: str
    recipe: str
    lay_out: Callable[[Path, Path], list[TestSet]]
    overrides: Sequence[str] = ()


# ---------------------------------------------------------------- the tasks


def chren(
    src: str, tgt: str, published: Mapping[str, float], options: Sequence[str] = ()
) -> Callable[[Path, Path], list[TestSet]]:
    """Return what lays out Cherokee and English.

    Args:
        published: the best scores of the paper's nine methods (Zhang et al. 2020, table 3), by set.
        options: of nmt-translate.
    """

    def lay_out(data: Path, folder: Path) -> list[TestSet]:
        for file in (data / "chren-chr-en").glob("*.gz"):
            shutil.copy(file, folder)
        return [
            TestSet(
                f"{src}-{tgt}, {name}",
                folder / f"{name}.{src}.gz",
                folder / f"{name}.{tgt}.gz",
                options,
                published={"Zhang et al. 2020": score},
            )
            for name, score in published.items()
        ]

    return lay_out


def americasnlp(data: Path, folder: Path) -> list[TestSet]:
    """Lay out Spanish and eight languages; the task's dev set is the test set."""
    source = data / "americasnlp2025"
    shutil.copytree(data / "tatoeba-es-en", folder / "tatoeba-es-en", dirs_exist_ok=True)
    sets = []
    for lang, further in AMERICAS.items():
        raw, pair = folder / "raw" / f"es-{lang}", folder / f"es-{lang}"
        options = ["--src-lang", "es", "--tgt-lang", lang, "--dev-size", "250", "-o", raw]
        options += ["--force", *further]
        command("nmt", "import", "americasnlp", "--from", source / "release", *options)
        shutil.copytree(raw, pair, dirs_exist_ok=True)
        table = SPELLING / f"{lang}.tsv"
        for name in ("train", "dev", "extra", "synthetic") if table.is_file() else ():
            if (file := raw / f"{name}.{lang}").is_file():
                mapping = ["--spelling", f"{lang}={table}", "--force"]
                command("nmt.cli.clean", file, "-o", pair / file.name, *mapping)
        systems = {
            name: source / f"es-{lang}.dev.{name.lower()}.{lang}.gz"
            for name in ("Helsinki", "Sheffield")
        }
        tag = ["--tgt-tag", f"<{lang}>"]
        sets.append(TestSet(f"es-{lang}", pair / "test.es", pair / f"test.{lang}", tag, systems))
    return sets


def flores(
    src: str, tgt: str, corpora: Mapping[str, Mapping[str, str]]
) -> Callable[[Path, Path], list[TestSet]]:
    """Return what lays out the corpora of a recipe, and FLORES.

    Args:
        corpora: the files of each laid-out folder, as paths below ``--data``, by name.
    """

    def lay_out(data: Path, folder: Path) -> list[TestSet]:
        for name, files in corpora.items():
            (folder / name).mkdir(exist_ok=True)
            for file, source in files.items():
                shutil.copy(data / f"{source}.gz", folder / name / f"{file}.gz")
        stem = f"{src}-{tgt}"
        systems = {
            name: data / "flores-systems" / f"{stem}.{name.lower().replace('-', '')}.{tgt}.gz"
            for name in ("OPUS-MT", "NLLB", "Google")
        }
        texts = (data / "flores-systems" / f"{stem}.{lang}.gz" for lang in (src, tgt))
        return [TestSet(f"{stem}, FLORES", *texts, systems=systems)]

    return lay_out


def whole(name: str, src: str, tgt: str) -> dict[str, str]:
    """Return the files of a corpus that has train, dev and test."""
    files = [f"{split}.{lang}" for split in ("train", "dev", "test") for lang in (src, tgt)]
    return {file: f"{name}/{file}" for file in files}


GL = {
    "ted-gl-en": whole("ted-gl-en", "gl", "en"),
    "es-as-gl": {"train.gl": "tatoeba-es-en-as-gl/train.gl", "train.en": "tatoeba-es-en/train.en"},
    "pt-as-gl": {
        "train.gl": "tatoeba-es-en-as-gl/ted-related.pt-en.gl",
        "train.en": "ted-related/train.pt-en.en",
    },
}
AZ = {
    "ted-az-en": whole("ted-az-en", "az", "en"),
    "ted-tr-en": {f"train.{lang}": f"ted-related/train.tr-en.{lang}" for lang in ("tr", "en")},
    "tatoeba-tr-en": {f"train.{lang}": f"tatoeba-tr-en/train.{lang}" for lang in ("tr", "en")},
    "ted-gl-en": {f"train.{lang}": f"ted-gl-en/train.{lang}" for lang in ("gl", "en")},
}

TASKS = {
    "americasnlp": Task("chrf++", "public/americasnlp", americasnlp),
    "chr-en": Task("bleu", "public/chr-en", chren("chr", "en", {"test": 15.8, "out_test": 6.5})),
    "en-chr": Task(
        "bleu",
        "public/en-chr",
        chren("en", "chr", {"test": 12.7, "out_test": 5.0}, ["--tgt-tag", "<chr>"]),
    ),
    "gl-en": Task("bleu", "public/gl-en", flores("gl", "en", GL)),
    "en-gl": Task("bleu", "public/gl-en", flores("en", "gl", GL), ["src=en", "tgt=gl"]),
    "az-en": Task("bleu", "public/az-en", flores("az", "en", AZ)),
    # the quickstart downloads its corpus
    "sk-en": Task("bleu", "quickstart", flores("sk", "en", {})),
}


# ---------------------------------------------------------------- train, translate, score


def command(module: str, *argv: str | Path) -> str:
    """Run a command of nmt; its messages are shown, its output is returned."""
    code = [sys.executable, "-m", module, *map(str, argv)]
    return subprocess.run(code, stdout=subprocess.PIPE, text=True, check=True).stdout


def scores(metric: str, tgt: str, ref: Path, hyps: Sequence[Path]) -> list[dict[str, Any]]:
    """Return what nmt-score finds, a mapping for each hypothesis; the first is the baseline."""
    options = ["--metrics", metric, "--tgt-lang", tgt, "--json"]
    found = json.loads(command("nmt.cli.score", "--hyp", *hyps, "--ref", ref, *options))
    return found["scores"]


def rows(task: Task, run: Path, sets: Sequence[TestSet], folder: Path) -> Iterator[str]:
    """Yield a row of the table for each test set, once it is translated."""
    for test in sets:
        tgt = test.ref.name.removesuffix(".gz").rpartition(".")[2]
        ours = folder / f"{test.name.replace(', ', '.')}.hyp.{tgt}"
        options = ["--input", test.src, "-o", ours, "--force", *test.options]
        command("nmt.cli.translate", run, *options)
        first, *others = scores(task.metric, tgt, test.ref, [ours, *test.systems.values()])
        cells = [f"{first['score']:.2f} [{first['low']:.2f}, {first['high']:.2f}]"]
        cells += [
            f"{name} {score['score']:.2f}, {-score['difference']:+.2f}, "
            f"p = {score['p_two_sided']:.3f}"
            for name, score in zip(test.systems, others, strict=True)
        ]
        cells += [f"{name} {score:.1f}" for name, score in test.published.items()]
        lines = sum(1 for _ in read_lines(test.src))
        yield f"| {test.name} | {lines:,} | {' | '.join(cells)} |"


def main(argv: Sequence[str] | None = None) -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("task", choices=TASKS)
    p.add_argument("overrides", nargs="*", metavar="key=value")
    p.add_argument("--data", type=Path, required=True, metavar="DIR", help="the sources' folders")
    p.add_argument("--recipe", metavar="FILE", help="instead of the one of the task")
    args = p.parse_intermixed_args(argv)
    task, run = TASKS[args.task], RUNS / args.task
    folder = ROOT / Path(task.recipe).name
    folder.mkdir(parents=True, exist_ok=True)
    sets = task.lay_out(args.data, folder)
    recipe = args.recipe or f"recipes/{task.recipe}.yaml"
    keys = [*task.overrides, *args.overrides]
    command("nmt.cli.train", recipe, f"out={run}", *keys, "--resume")
    print(f"{recipe} {' '.join(args.overrides)}; {machine()}; {task.metric}")
    print("| test set | lines | ours | others: score, ours minus theirs |\n|---|---:|---|---|")
    for row in rows(task, run, sets, folder):
        print(row, flush=True)


if __name__ == "__main__":
    main()
