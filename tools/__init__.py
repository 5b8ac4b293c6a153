"""Scripts for those who maintain the project."""
