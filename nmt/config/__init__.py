"""Recipes: every key once, YAML with positions, variants, errors."""
