"""The model card of an exported model: YAML for the hub, and text for people.

The YAML head follows Hugging Face's specification of model cards
(https://huggingface.co/docs/hub/model-cards); the sections follow Mitchell et al. 2019, "Model
Cards for Model Reporting" (https://arxiv.org/abs/1810.03993).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from nmt.runtime.words import quantity
from nmt.scoring.metrics import METRICS
from nmt.store.model import Description, Origin
from nmt.text.languages import base_language
from nmt.version import __version__


@dataclass(frozen=True)
class Corpus:
    """A training corpus: its name, languages, and what is known about its origin."""

    name: str
    langs: tuple[str, str]
    licenses: list[str]
    urls: list[str]


@dataclass(frozen=True)
class Facts:
    """The facts of a model card about a model and its run."""

    name: str  # of the model
    about: Description
    options: dict[str, str]  # of the usage example: tag, tgt_tag, src
    summary: dict[str, Any]  # of the run; without scores if they are of another checkpoint
    seed: int | None  # None = not known
    parameters: int
    corpora: list[Corpus]  # of the training
    pairs: int | None  # of the training; None = not known
    warnings: list[str]  # of the corpus checks
    packages: list[str]  # that translate.py needs
    quantization: str | None  # CTranslate2's type of the stored weights; None = fp32
    license_id: str | None  # the hub's name of the model's license; None = not stated
    code: str  # the usage example
    output: str  # what it printed

    @property
    def origin(self) -> Origin | None:
        """The public model that the weights are from, or started from."""
        return self.about.origin

    @property
    def test_sets(self) -> dict[str, list[dict[str, Any]]]:
        """The scores of each test set by name, without those of unknown metrics."""
        sets = self.summary.get("test_sets") or {"test": self.summary.get("test") or []}
        return {
            name: [score for score in scores if score.get("name") in METRICS]
            for name, scores in sets.items()
            if scores
        }


def model_card(facts: Facts) -> str:
    """Write the model card, Markdown with a YAML head."""
    head = yaml.safe_dump(_head(facts), sort_keys=False, allow_unicode=True, width=1000)
    about = facts.about
    sections = {
        f"{facts.name}": _summary(facts),
        "Use": _usage(facts),
        "Training data": _data(facts),
        "Scores": _scores(facts),
        "Training": _training(facts),
        "Intended use": [
            f"Translation of single sentences from {about.src} to {about.tgt}, of the kind of "
            "text that the model was trained on.",
        ],
        "Limits": _limits(facts),
    }
    text = [f"---\n{head}---\n"]
    for number, (title, lines) in enumerate(sections.items()):
        text.append("\n".join([f"{'#' if number == 0 else '##'} {title}", "", *lines, ""]))
    return "\n".join(text)


def _head(facts: Facts) -> dict[str, Any]:
    about = facts.about
    languages = dict.fromkeys(base_language(lang) for lang in (about.src, about.tgt))
    head: dict[str, Any] = {"language": list(languages)}
    if facts.license_id:
        head["license"] = facts.license_id
    if facts.origin:
        head["base_model"] = facts.origin.source
    head |= {
        "library_name": "ctranslate2",
        "pipeline_tag": "translation",
        "tags": ["translation", "ctranslate2", "nmt"],
    }
    if facts.corpora:
        head["datasets"] = list(dict.fromkeys(corpus.name for corpus in facts.corpora))
    results = [
        {
            "task": {"type": "translation", "name": f"Translation {about.src}-{about.tgt}"},
            "dataset": {"name": name, "type": facts.corpora[0].name, "split": "test"},
            "metrics": [
                {
                    "type": score["name"].rstrip("+"),  # hubs know chrF++ as chrf
                    "value": round(score["value"], 2),
                    "name": METRICS[score["name"]].label,
                    "args": {"signature": score["signature"]},
                }
                for score in scores
                if not METRICS[score["name"]].on_words  # its name is not a metric of hubs
            ],
        }
        for name, scores in facts.test_sets.items()
    ]
    if results:
        head["model-index"] = [{"name": facts.name, "results": results}]
    return head


def _summary(facts: Facts) -> list[str]:
    about = facts.about
    weights = facts.quantization or "fp32"
    made = f"It was trained with the toolkit nmt {__version__}"
    if facts.origin and facts.corpora:
        made += f", from the weights of {facts.origin.describe()}"
    elif facts.origin:
        made = f"It was converted by the toolkit nmt {__version__} from {facts.origin.describe()}"
    return [
        f"A Transformer with {facts.parameters:,} parameters that translates from {about.src} to "
        f"{about.tgt}. {made}, and is stored for "
        f"CTranslate2 with weights in {weights}.",
    ]


def _usage(facts: Facts) -> list[str]:
    flags = {"tag": "--tag", "tgt_tag": "--tgt-tag", "src": "--src-lang"}
    options = "".join(f' {flags[name]} "{value}"' for name, value in facts.options.items())
    return [
        "Download the folder, and install the packages of the model:",
        "",
        "```sh",
        f"pip install {' '.join(facts.packages)}",
        "```",
        "",
        "In the folder, run this Python code:",
        "",
        "```python",
        facts.code.rstrip(),
        "```",
        "",
        "When this card was written, it printed:",
        "",
        "```",
        facts.output.rstrip(),
        "```",
        "",
        f"With the toolkit, `nmt-translate DIR{options} < input.txt` translates a file, and "
        "`nmt-serve DIR` opens a page to try the model on. DIR is this folder. "
        "[USAGE.md](USAGE.md) describes its files.",
    ]


def _data(facts: Facts) -> list[str]:
    lines = ["| corpus | languages | license | source |", "|---|---|---|---|"]
    if not facts.corpora and facts.origin:
        lines = [f"That of {facts.origin.source}, which its own page describes."]
    for corpus in facts.corpora:
        cells = ["; ".join(corpus.licenses) or "not known", ", ".join(corpus.urls) or "not known"]
        lines.append(f"| {corpus.name} | {'-'.join(corpus.langs)} | {' | '.join(cells)} |")
    if facts.pairs is not None:
        lines += ["", f"The model was trained on {quantity(facts.pairs, 'pair')} of sentences."]
    if not facts.license_id:
        lines += ["", "The license of the model is not stated."]
    return lines


def _scores(facts: Facts) -> list[str]:
    if not facts.test_sets:
        return ["The run has no test scores of these weights."]
    lines = [
        "| test set | metric | score | 95 % interval | signature |",
        "|---|---|---:|---|---|",
    ]
    for name, scores in facts.test_sets.items():
        for score in scores:
            low, high = score.get("low"), score.get("high")
            interval = "" if low is None or high is None else f"{low:.2f} to {high:.2f}"
            # a bar would end the cell
            signature = score["signature"].replace("|", "\\|")
            label = METRICS[score["name"]].label
            lines.append(f"| {name} | {label} | {score['value']:.2f} | {interval} | {signature} |")
    lines += [
        "",
        "The scores are those of the trained weights, translated by the toolkit. The intervals are "
        "by bootstrap. Scores with other signatures cannot be compared with these.",
    ]
    if facts.quantization:
        lines[-1] += f" The weights here are stored in {facts.quantization}, which can change them."
    return lines


def _training(facts: Facts) -> list[str]:
    summary, model = facts.summary, facts.about.model
    # an installed copy of nmt has no commit
    versions = [f"{k} {v}" for k, v in (summary.get("versions") or {}).items() if v]
    rows = {
        "layers": f"{model.enc_layers} of the encoder, {model.dec_layers} of the decoder",
        "dimensions": f"{model.dim}, feed-forward {model.ffn_dim}, {model.heads} heads",
        "norm": f"{model.norm}, {model.norm_place}-norm",
        "segmentation": facts.about.segment.kind,
        "seed": _number(facts.seed),
        "updates": _number(summary.get("updates")),
        "hours": _number(summary.get("hours"), 2),
        "processor": str(summary.get("processor", "not known")),
        "versions": ", ".join(versions) or "not known",
    }
    return ["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows.items())]


def _limits(facts: Facts) -> list[str]:
    lines = [
        "Text of another domain or dialect than the training data is translated worse.",
        "A translation can be fluent and wrong. A person who knows both languages must check it "
        "before it is used where an error does harm.",
        "The model reproduces what its training data contains, including prejudices.",
        "It translates each line independently, without context.",
    ]
    if facts.about.data.tokenized:
        lines.append("Its input must be Moses-tokenized text, as its training data was.")
    for warning in facts.warnings:
        # without the example, which may be a line of a private corpus
        lines.append(f"Check of the training data: {warning.partition(', for example ')[0]}")
    return [f"- {line}" for line in lines]


def _number(value: float | None, digits: int = 0) -> str:
    return "not known" if value is None else f"{value:,.{digits}f}"
