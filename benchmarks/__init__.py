"""Measurements of the whole stack; every figure that the documents quote comes from here."""
