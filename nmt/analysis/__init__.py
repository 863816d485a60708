"""Looking at a training: observers while it runs, the papers' figures from its run folder."""
