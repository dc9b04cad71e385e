"""Statistics and four-letter words."""
