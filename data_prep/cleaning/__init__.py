"""What ``nmt-clean`` does: rules that drop pairs, and tables that map a spelling."""
