"""Trained models for other engines: weights folded into what the engine has, and text beside."""
