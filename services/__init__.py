"""The four processes of Headrace; import path = folder path."""
