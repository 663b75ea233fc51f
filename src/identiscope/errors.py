"""What can go wrong, in a few kinds, each with a message that says what to do next."""


class IdentiscopeError(Exception):
    """Anything identiscope refuses to do; the message says what was given and what to do.

    It can be printed whatever was given: halves of surrogate pairs, which no UTF-8 has, are shown as their escapes.
    """

    def __str__(self) -> str:
        return super().__str__().encode("utf-8", "backslashreplace").decode("utf-8")


class ModelError(IdentiscopeError):
    """The model cannot be found, read, or used."""


class InputError(IdentiscopeError):
    """The text, ids, pixels or indices given do not fit the model."""


class ArgumentError(InputError, TypeError):
    """An argument that is of another type than expected, is not known, or is not there."""


class CaptureError(IdentiscopeError):
    """The attention of the model could not be found, or what was found could not be verified."""


class MathError(IdentiscopeError):
    """A quantity was asked for that these numbers do not determine."""
