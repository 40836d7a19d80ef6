"""What can go wrong with a local instance, in words for the person at the terminal."""


class LocalFailure(Exception):
    """Something that the user can act on: the message gives the cause and the way out."""
