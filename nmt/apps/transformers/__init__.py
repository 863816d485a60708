"""nmt-convert and ``nmt-export --format transformers``: folders of Hugging Face transformers."""
