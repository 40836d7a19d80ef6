"""What runs next, where, in which batch."""
