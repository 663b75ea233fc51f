"""What can go wrong, in a few kinds, each with a message that says what to do next."""


class IdentiscopeError(Exception):
    """Anything identiscope refuses to do; the message says what was given and what to do."""


class ModelError(IdentiscopeError):
    """The model cannot be found, read, or used."""


class InputError(IdentiscopeError):
    """The text, ids, pixels or indices given do not fit the model."""


class CaptureError(IdentiscopeError):
    """The attention of the model could not be found, or what was found could not be verified."""


class MathError(IdentiscopeError):
    """A quantity was asked for that these numbers do not determine."""
