"""Programs on top of the toolkit, a package each: command, code, templates.

The core never imports them. ``nmt.hooks`` looks up here what they add to it.
"""

# name of a command -> its module, and what it does
COMMANDS = {
    "score": (
        "nmt.apps.evaluate.command",
        "compute BLEU, chrF and TER, with intervals and significance",
    ),
    "judge": ("nmt.apps.judge.command", "let people judge systems without knowing which is which"),
    "report": ("nmt.apps.report.command", "write an HTML report of one or several runs"),
    "sweep": ("nmt.apps.sweep.command", "train variants with several seeds, and compare them"),
    "serve": ("nmt.apps.serve.command", "serve models over HTTP, with a page to try them on"),
    "convert": (
        "nmt.apps.convert.command",
        "make a model from a public one: OPUS-MT, NLLB-200, M2M-100, mBART-50",
    ),
    "plot": ("nmt.apps.plot.command", "draw learning curves and the papers' figures"),
}
# a point of nmt.hooks -> the module, or the module and its function
HOOKS = {
    "train": "nmt.apps.suggest.command",
    "translate": "nmt.apps.synthesize.pairs",
    "documents": "nmt.apps.documents.command",
    "export": "nmt.apps.share.command",
    "advice": "nmt.apps.suggest.sizes:advice_for",
    "report": "nmt.apps.report.final:write_final_report",
    "variants": "nmt.apps.sweep.variants",
    "reference": "nmt.apps.sweep.reference",
}
