"""Draw learning curves and the papers' figures, even while a model trains."""
