"""BLEU, chrF, TER and significance."""
