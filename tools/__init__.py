"""Programs for those who work on attnjax; nothing here ships with it."""
