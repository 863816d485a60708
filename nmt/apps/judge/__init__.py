"""Let people judge translations without knowing the systems: nmt-sheet, nmt-judge."""
