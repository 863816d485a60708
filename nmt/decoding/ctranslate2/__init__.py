"""Export trained models to other inference engines, and translate with them."""
