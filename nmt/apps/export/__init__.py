"""Write models as folders for a model hub and for Hugging Face's transformers."""
