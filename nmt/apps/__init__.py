"""Programs on top of the toolkit, a package each: code and templates, which a command calls."""
