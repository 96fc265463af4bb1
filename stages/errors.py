"""The one exception that users see as plain words instead of a traceback."""


class UserError(Exception):
    """Something the user can mend: a spec, an input file, a full disk, a missing artifact.

    The text names the object (source, file, row or key), gives the numbers, and ends with what to do. The command
    line prints it without a traceback and exits with 1. Nothing else in the project subclasses it for control flow.
    """
