"""Errors and warnings name parameters as Python does; the command line shows its options instead."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fm2.cli.command import Argument

# overwrite=True, bad_rows="skip" or learning_rate=, but no part of a path or of a quoted value.
PARAMETER = re.compile(r"""(?<![\w/'"=.-])(?P<name>[a-z]\w*)=(?:True\b|"(?P<value>[^"]*)"|(?![\w'"/([{.-]))""")

# The subject of "prune: keep must be above 0", or what "train: lr does not use dim". A settings file has no options, so
# the name after "train: settings.toml: " stays.
SUBJECT = re.compile(r"(?:[a-z]+: (?=\w+ must\b)|train: \w+ does not use )(?P<name>[a-z]\w*)")


def name_options(message: str, arguments: Iterable[Argument]) -> str:
    """Replace parameters in a message by the options of the command line; of equal names, the first one counts.

    >>> options = [Argument("--bad-rows", ""), Argument("--overwrite", ""), Argument("--from", "", dest="start")]
    >>> name_options('use overwrite=True, bad_rows="skip" or another start=; day=1/start= stays', options)
    'use --overwrite, --bad-rows skip or another --from; day=1/start= stays'
    >>> name_options("prepare: bad_rows must be stop or skip", options)
    'prepare: --bad-rows must be stop or skip'
    """
    names: dict[str, str] = {}
    for argument in arguments:
        names.setdefault(argument.attribute, argument.name if argument.is_option else argument.placeholder)

    def replace(match: re.Match[str]) -> str:
        name = names.get(match["name"])
        return match[0] if name is None else f"{name} {match['value'] or ''}".rstrip()

    subject = SUBJECT.match(message)
    if subject:
        name = names.get(subject["name"], subject["name"])
        message = message[: subject.start("name")] + name + message[subject.end() :]
    return PARAMETER.sub(replace, message)
