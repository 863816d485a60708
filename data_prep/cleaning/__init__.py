"""The rules of ``nmt-clean`` that drop pairs, and its tables that map spellings."""
