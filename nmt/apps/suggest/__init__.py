"""Suggest a recipe for a corpus: facts of the corpus, choices with reasons, what to expect."""
