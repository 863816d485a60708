"""Draw learning curves and the figures of the papers, also while a model trains."""
