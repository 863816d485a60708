"""Write a folder ready for a model hub: an exported model with a model card.

The folder is a model: nmt-translate, nmt-serve and ``nmt.Translator`` read it. In addition::

    DIR/README.md       the model card, from card.py
    DIR/USAGE.md        the README.md of an export: packages, files, differences
    DIR/.gitattributes  large files in Git LFS, as hubs require
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from nmt.apps.export.card import Corpus, Facts, model_card
from nmt.config.entries import Direction
from nmt.config.model import model_config
from nmt.data.corpus_manifest import licenses_of
from nmt.data.lines import find_side, read_lines
from nmt.decoding.ctranslate2.folder import packages, write_export
from nmt.decoding.ctranslate2.spec import check_supported, require_ctranslate2
from nmt.errors import RunError, UserError
from nmt.runtime.files import read_json
from nmt.store.folder import RunFolder
from nmt.store.model import Model, check_output, output_folder
from nmt.store.results import read_summary
from nmt.store.tensors import read_weights

EXAMPLES = 3
_EXAMPLE_CHARACTERS = range(5, 101)  # not words, which some scripts do not separate
_LFS = "filter=lfs diff=lfs merge=lfs -text"
_CODE = """\
from translate import Translator

translator = Translator(".", device="cpu")
for line in [
{lines}]:
    print(translator.translate(line{options}))
"""


def export_hub(
    model: Model,
    run: RunFolder | None,
    output: Path,
    quantization: str | None,
    force: bool,
    license_id: str | None,
    examples: list[str] | None,
) -> None:
    """Write a model as a folder for a model hub, which names the model.

    Args:
        run: the run that the model is from, for its corpora and scores; None = not at hand.
        license_id: the hub's name of the model's license, such as apache-2.0.
        examples: source sentences of the usage example; None = lines of the dev set of the run.

    Raises:
        UserError: CTranslate2 is not installed or does not support the model, ``check_output``
            rejects the output, or there are no examples.
        RunError: the usage example failed.
    """
    about, origin = model.about, model.about.origin
    require_ctranslate2()
    check_supported(model_config(about.model))
    check_output(output, force)
    lines = example_lines(run) if examples is None else examples
    if run is None:
        options = Direction("", "", *about.directions[0].tags).options
    else:
        recipe = run.recipe()
        options = recipe.options_for(recipe.data.dev[0])
    with output_folder(output, force) as folder:
        write_export(model, folder, quantization)
        (folder / "README.md").rename(folder / "USAGE.md")
        (folder / ".gitattributes").write_text(f"*.bin {_LFS}\n*.model {_LFS}\n", "utf-8")
        arguments = "".join(f', {name}="{value}"' for name, value in options.items())
        literals = "".join(f"    {json.dumps(line, ensure_ascii=False)},\n" for line in lines)
        code = _CODE.format(lines=literals, options=arguments)
        report = {} if run is None else read_json(run.data_report_file)
        if license_id is None and origin is not None:
            license_id = origin.license
        facts = Facts(
            name=output.absolute().name,
            about=about,
            options=options,
            summary={} if run is None else _summary_of_best(run),
            seed=None if run is None else run.recipe().seed,
            parameters=sum(tensor.numel() for tensor in read_weights(model).values()),
            corpora=[] if run is None else _corpora(run),
            pairs=_training_pairs(report),
            warnings=[str(warning) for warning in report.get("warnings", [])],
            packages=packages(model.segmenter),
            quantization=quantization,
            license_id=license_id,
            code=code,
            output=_run_example(folder, code),
        )
        (folder / "README.md").write_text(model_card(facts), "utf-8")


def example_lines(run: RunFolder | None) -> list[str]:
    """Return the first sentences of the dev set that are neither very short nor long."""
    fix = "pass --example TEXT"
    if run is None:
        raise UserError("the usage example needs a sentence, and a model has none", fix=fix)
    recipe = run.recipe()
    entry = recipe.data.dev[0]
    try:
        path = find_side(entry.path, entry.langs(recipe)[0])
        fitting = (line for line in read_lines(path) if len(line) in _EXAMPLE_CHARACTERS)
        lines = list(itertools.islice(fitting, EXAMPLES))
    except UserError as error:
        raise UserError(
            f"the usage example needs a sentence: {error.what}", at=error.at, fix=fix
        ) from error
    if not lines:
        raise UserError(
            "has no line of 5 to 100 characters for the usage example", at=str(path), fix=fix
        )
    return lines


def _run_example(folder: Path, code: str) -> str:
    # -B: without it, Python writes the compiled translate.py into the folder
    ran = subprocess.run(
        [sys.executable, "-B", "-X", "utf8", "-c", code],
        cwd=folder,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )
    if ran.returncode:
        reason = (ran.stderr.strip() or f"exit status {ran.returncode}").splitlines()[-1]
        raise RunError(
            f"the usage example of the model card failed: {reason}",
            at="translate.py",
            fix="install the packages that the model needs: pip install ctranslate2 sentencepiece "
            "sacremoses subword-nmt",
        )
    return ran.stdout


def _summary_of_best(run: RunFolder) -> dict[str, Any]:
    """Read summary.json; without scores if these are of another checkpoint than the best."""
    summary = read_summary(run)
    if summary.get("best") != run.best():
        return {k: v for k, v in summary.items() if k not in ("dev", "test", "test_sets")}
    return summary


def _training_pairs(report: dict[str, Any]) -> int | None:
    try:
        return int(report["splits"]["train"]["kept"])
    except (KeyError, TypeError, ValueError):
        return None


def _corpora(run: RunFolder) -> list[Corpus]:
    recipe = run.recipe()
    corpora = {}
    for entry in recipe.data.train:
        path = Path(entry.path)
        manifest = read_json(path.parent / "MANIFEST.json")
        sources = [s for s in manifest.get("sources", []) if isinstance(s, dict)]
        # a corpus of data_prep is a folder with train, dev and test
        name = path.parent.name if path.name == "train" and path.parent.name else path.name
        langs = entry.langs(recipe)
        # the package that a file is from, or the folder of its URL
        urls = {str(s.get("package") or str(s.get("url", "")).rpartition("/")[0]) for s in sources}
        corpora[entry.path, langs] = Corpus(
            name=str(manifest.get("corpus", name)),
            langs=langs,
            licenses=licenses_of(path.parent),
            urls=sorted(urls - {""}),
        )
    return list(corpora.values())
