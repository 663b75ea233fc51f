"""The viewer's ES modules as one script: no bundler, only their order and the lines that import and export."""

import re
from functools import cache
from importlib.resources import files

from identiscope.errors import IdentiscopeError

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([a-z_]+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(async )?(function|const|let) )", re.MULTILINE)
_NAME = re.compile(r"^(?:export )?(?:async )?(?:function|const|let) ([A-Za-z_$][\w$]*)", re.MULTILINE)
# Comments of their own lines, and the blank lines between: they are for readers of the source.
_COMMENT = re.compile(r"^[ \t]*/\*\*(?:(?!\*/).)*\*/\n|^[ \t]*//[^\n]*\n|^\n", re.MULTILINE | re.DOTALL)

# Types inside a line, and the space that lines begin with.
_TYPE = re.compile(r"/\*\* @type \{[^\n]*?\} \*/ |/\*\* @param \{[^\n]*?\*/\n?|^[ \t]+", re.MULTILINE)

# Ends of lines that only a reader needs: after what goes on or has ended in any case, and before what closes; and the
# comma before that. Lines are those of Prettier: each statement has its semicolon, and no text goes over several lines.
_LINE_END = re.compile(r",?\n(?=[)\]}])|(?<=[,;{(\[])\n")


def static(name: str) -> str:
    """A file of `views/static` as text."""
    return (files("identiscope.views") / "static" / name).read_text(encoding="utf-8")


@cache
def bundle(entry: str) -> str:
    """A module and all it imports, the imported first, as one script without imports and exports.

    >>> bundle("worker").count("import ")
    0
    """
    parts: list[str] = []
    names: dict[str, str] = {}
    for module in _in_order(entry, []):
        source = static(f"{module}.js")
        for name in _NAME.findall(source):
            # One scope for all: a name may stand for one thing only.
            if name in names:
                raise IdentiscopeError(f"{name} is defined in {names[name]}.js and in {module}.js; rename one.")
            names[name] = module
        parts.append(_EXPORT.sub("", _IMPORT.sub("", source)).replace("export {};\n", ""))
    return _LINE_END.sub("", _TYPE.sub("", _COMMENT.sub("", "".join(parts))))


def report_script() -> str:
    """What a report runs, its worker's source inside it."""
    return f'"use strict";{{\n{bundle("report")}openReport({_literal(worker_script())});\n}}'


def worker_script() -> str:
    """What the worker runs: a script of its own."""
    return f'"use strict";{{\n{bundle("worker")}listen();\n}}'


def widget_script() -> str:
    """What a notebook runs: a module whose default export draws."""
    return f"{bundle('widget')}export default {{ render: renderWidget }};\n"


def _in_order(module: str, seen: list[str]) -> list[str]:
    for _, imported in _IMPORT.findall(static(f"{module}.js")):
        if imported not in seen:
            _in_order(imported, seen)
    if module not in seen:
        seen.append(module)
    return seen


def _literal(text: str) -> str:
    """A JavaScript string that HTML leaves alone."""
    import json

    return json.dumps(text).replace("<", "\\u003c")
