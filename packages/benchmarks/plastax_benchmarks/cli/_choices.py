"""Lists of names to choose from."""

from collections.abc import Mapping

from .._errors import did_you_mean


def print_choices(usage: str, descriptions: Mapping[str, str], name: str, kind: str) -> None:
    """Prints all names with their descriptions; exits with an error if `name` is not a request for help.

    **Arguments:**

    - `usage`: the text above the list.
    - `descriptions`: a short description of each name.
    - `name`: the given argument.
    - `kind`: the kind of name, such as `"command"`.
    """
    width = 2 + max(map(len, descriptions))
    print("\n".join([usage, "", *(f"  {known:{width}}{words}" for known, words in descriptions.items())]))
    if name not in ("-h", "--help"):
        hint = did_you_mean(name, descriptions)
        raise SystemExit(f"\nunknown {kind} {name!r}: {hint}choose one of these")
