"""Text itself: Unicode, letters, languages, sentences, numbers, Moses, protected parts."""
