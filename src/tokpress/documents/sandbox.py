"""Jinja2 without a way out: the environment of `transformers`' chat templates, with bounds.

In: a template, which may come from anyone. Out: text, and the spans of it that stand in `{% generation %}` (or `{% loss %}`)
blocks. A template reaches no attribute that begins with an underscore and changes nothing it is given. It may take so many
steps (turns of loops and calls) and write so many characters for a record, and no more: both are counted, not timed, so that
a record's fate does not depend on the machine. What escapes the counting is caught like a document that hangs or exhausts
the tokenizer: by `--doc-timeout` and `--memory`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import update_wrapper
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import make_attrgetter
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from tokpress.documents.base import BadRecord, Text
from tokpress.documents.growth import GROWTH, numbers, widths
from tokpress.documents.spending import Limit, Spending
from tokpress.errors import UsageError
from tokpress.records import TEMPLATE_LIMIT

_COUNTED, _BOUNDED, _WRITTEN = "(counted)", "(bounded)", "(written)"  # filters that no template can name
# Filters that make text of whatever they are given.
_TO_TEXT = (
    *("capitalize", "center", "e", "escape", "forceescape", "format", "indent", "lower", "pprint", "replace", "safe"),
    *("string", "striptags", "title", "tojson", "trim", "truncate", "upper", "urlencode", "urlize", "wordcount"),
    *("wordwrap", "xmlattr"),
)
# What gives something else each time.
_RANDOM_FILTERS, _RANDOM_NAMES = ("random",), ("lipsum",)


class _Blocks(Extension):
    """`{% generation %}...{% endgeneration %}`: remembers where its text stands, as `transformers` does."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja2 declares it

    def parse(self, parser: Any) -> nodes.Node:
        token = next(parser.stream)
        body = parser.parse_statements([f"name:end{token.value}"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(token.lineno)

    def _mark(self, caller: Callable[[], str]) -> str:
        text = caller()
        spending = self.environment.spending  # type: ignore[attr-defined]
        spending.spans.append((spending.written, spending.written + len(text)))
        return text


class _LossBlocks(_Blocks):
    """`{% loss %}...{% endloss %}`."""

    tags = {"loss"}  # noqa: RUF012


class _Guarded(NodeTransformer):
    """Every loop counts its turns; what is joined with `~` is bounded."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - as Jinja2 calls it
        self.generic_visit(node)
        node.iter = nodes.Filter(node.iter, _COUNTED, [], [], None, None, lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        line = node.lineno
        node.nodes = [nodes.Filter(part, _WRITTEN, [], [], None, None, lineno=line) for part in node.nodes]
        return nodes.Filter(node, _BOUNDED, [], [], None, None, lineno=line)


class _Unfolded(CodeGenerator):
    """Nothing of a template is worked out while it is compiled: there are no bounds then, and nobody watches."""

    def _output_child_to_const(self, node: nodes.Expr, frame: Any, finalize: Any) -> str:
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(["+", "*", "**", "%"])
    code_generator_class = _Unfolded

    def __init__(self, spending: Spending, block: type[_Blocks]) -> None:
        written = spending.check_text
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[block, loopcontrols], optimized=False, finalize=written
        )
        self.spending = spending
        for name in _RANDOM_FILTERS:
            del self.filters[name]
        for name in _RANDOM_NAMES:
            del self.globals[name]
        self.filters |= {_COUNTED: self._counted, _BOUNDED: self._bounded, _WRITTEN: written, "tojson": self._tojson}
        self.filters |= {name: self._limited(self.filters[name], growth) for name, growth in GROWTH.items()}
        self.filters |= {
            "join": self._limited_join(self.filters["join"]),
            "sum": self._limited_sum(self.filters["sum"]),
        }
        self.filters |= {name: self._of_text(self.filters[name]) for name in _TO_TEXT}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Guarded().visit(super()._parse(source, name, filename))
        return tree

    def call_filter(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """What `map` and the like are given a name for."""
        if name in (_COUNTED, _BOUNDED, _WRITTEN):
            raise jinja2.TemplateRuntimeError(f"No filter named {name!r}.")
        self.spending.step()
        return super().call_filter(name, *args, **kwargs)

    def _of_text(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter that makes text of its arguments, only of those that have one."""

        def checked(*args: Any, **kwargs: Any) -> Any:
            for value in (*args[own:], *kwargs.values()):
                self.spending.check_text(value)
            return function(*args, **kwargs)

        own = int(hasattr(function, "jinja_pass_arg"))
        return update_wrapper(checked, function)

    def _counted(self, items: Iterable[Any]) -> Iterable[Any]:
        if isinstance(items, jinja2.Undefined):
            return items  # complains, or is empty, as it would have been
        return _Turns(items, self.spending)

    def _bounded(self, text: Any) -> Any:
        self.spending.check_size(len(text))
        return text

    def _limited(self, function: Callable[..., Any], growth: Callable[..., int]) -> Callable[..., Any]:
        """A filter that can make much of little, only as much as can be."""
        own = int(hasattr(function, "jinja_pass_arg"))  # Jinja2 gives it its environment, or the like, first

        def limited(*args: Any, **kwargs: Any) -> Any:
            self.spending.check_size(growth(*args[own:], **kwargs))
            return function(*args, **kwargs)

        return update_wrapper(limited, function)  # Jinja2 marks functions that are given its environment

    def _limited_join(self, join: Callable[..., Any]) -> Callable[..., Any]:
        def limited(own: Any, value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> Any:
            return join(own, self._added_up(value, attribute, len(str(d)), as_text=True), d)

        return update_wrapper(limited, join)

    def _limited_sum(self, add: Callable[..., Any]) -> Callable[..., Any]:
        def limited(own: Any, iterable: Iterable[Any], attribute: str | int | None = None, start: Any = 0) -> Any:
            if isinstance(start, int | float):
                return add(own, self._counted(iterable), attribute, start)
            return add(own, self._added_up(iterable, attribute), None, start)

        return update_wrapper(limited, add)

    def _added_up(
        self, items: Iterable[Any], attribute: str | int | None, between: int = 0, *, as_text: bool = False
    ) -> Iterator[Any]:
        """The items (or that attribute of each), as long as all of them, and what is put between them, can be."""
        size = 0
        for item in items if attribute is None else map(make_attrgetter(self, attribute), items):
            self.spending.step()
            if as_text:
                self.spending.check_text(item)
            size += between + (len(item) if isinstance(item, str | list | tuple) else 0)
            self.spending.check_size(size)
            yield item

    def _tojson(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | str | None = None,
        separators: Any = None,
        sort_keys: bool = False,
    ) -> str:
        """As `transformers` has it: without HTML escapes. What stands between the values is the template's choice."""
        style: Any = {"ensure_ascii": ensure_ascii, "indent": indent, "separators": separators, "sort_keys": sort_keys}
        if indent is None and separators is None:
            return json.dumps(value, **style)
        self.spending.check_numbers([indent])
        return "".join(self._added_up(json.JSONEncoder(**style).iterencode(value), None))

    def call(self, context: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        self.spending.step()
        method = getattr(obj, "__wrapped__", obj)  # the sandbox wraps `format`
        text = getattr(method, "__self__", None)
        if isinstance(text, str):  # it may be asked to fill up to a width
            self.spending.check_numbers(
                (*args, *kwargs.values(), *numbers(text if "format" in method.__name__ else ""))
            )
            for value in (*args, *kwargs.values()) if "format" in method.__name__ else ():
                self.spending.check_text(value)
        result = super().call(context, obj, *args, **kwargs)
        if isinstance(result, str):
            self.spending.check_size(len(result))
        return result

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        for many, times in ((left, right), (right, left)):
            if operator == "*" and isinstance(times, int) and isinstance(many, str | list | tuple):
                self.spending.check_size(len(many) * times)
        if operator == "*":
            self.spending.check_product(left, right)
        if operator == "**":
            self.spending.check_numbers((left, right))
            self.spending.check_size(abs(right) * 10 if isinstance(right, int) else 0)
        if operator == "%" and isinstance(left, str):
            self.spending.check_numbers(widths(left, right))
            self.spending.check_text(right)
        result = super().call_binop(context, operator, left, right)
        if operator == "+" and isinstance(result, str | list | tuple):
            self.spending.check_size(len(result))
        return result


class _Turns:
    """An iterable that pays for each turn. Keeps a length where there is one: loops ask for it."""

    def __init__(self, items: Iterable[Any], spending: Spending) -> None:
        self._items = items
        self._spending = spending

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            self._spending.step()
            yield item


class _Dict:
    """`dict`, as templates may use it: callable, and nothing that leads anywhere."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(jinja2.utils.Namespace):
    """`namespace()`, without names that lead into Python."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"{name!r} cannot be set on a namespace")
        super().__setitem__(name, value)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


class SandboxedTemplate:
    """A template, compiled once. `reason` is what a record that it cannot be rendered for is rejected with."""

    def __init__(
        self, source: str, option: str, reason: str, *, date: str | None = None, loss_tag: bool = False
    ) -> None:
        self._spending = Spending()
        self._reason = reason
        environment = _Environment(self._spending, _LossBlocks if loss_tag else _Blocks)
        environment.globals |= {"raise_exception": _raise, "dict": _Dict(), "namespace": _Namespace}
        if date is not None:
            environment.globals["strftime_now"] = _moment(date).strftime
        try:
            tree = environment.parse(source)
            if random := [node.name for node in tree.find_all(nodes.Filter) if node.name in _RANDOM_FILTERS]:
                raise UsageError(
                    f"{option} uses {random[0]}, which gives something else each time. A store must not be."
                )
            self._template = environment.from_string(source)
        except UsageError:
            raise
        except (
            Exception
        ) as error:  # whatever the parser, or Python, does not like: RecursionError, ValueError, MemoryError
            line = getattr(error, "lineno", None)
            where = f" (line {line})" if line else ""
            raise UsageError(f"{option} is not a Jinja2 template that can be used here: {error}{where}.") from error
        self.has_blocks = _has_tag(tree)
        asked = {node.name for node in tree.find_all(nodes.Name)}
        if random := sorted(asked & set(_RANDOM_NAMES)):
            raise UsageError(f"{option} uses {random[0]}, which is another text each time. A store must not be.")
        if "strftime_now" in asked and date is None:
            raise UsageError(
                f"{option} asks for today's date, and a store must not depend on the day it is built. "
                "Say which it is: --date 2024-07-26"
            )

    def render(self, values: Mapping[str, Any], record_chars: int) -> Text:
        """Raises BadRecord."""
        spending, parts = self._spending, []
        spending.begin(record_chars)
        try:
            for part in self._template.generate(values):
                spending.written += len(part)
                spending.check_size(spending.written)
                parts.append(part)
        except Limit as limit:
            raise BadRecord(TEMPLATE_LIMIT, str(limit)) from None
        except (OverflowError, MemoryError) as error:
            raise BadRecord(TEMPLATE_LIMIT, f"the template asks for too much: {error}") from None
        except RecursionError:
            raise BadRecord(TEMPLATE_LIMIT, "the template calls itself too deeply") from None
        except Exception as error:  # noqa: BLE001 - a template does what it likes: any error in it is this record's
            raise BadRecord(self._reason, f"{type(error).__name__}: {error}") from None
        text = "".join(parts)
        if not _is_text(text):
            raise BadRecord(self._reason, "half a surrogate pair in the text stands for no character")
        return text, spending.spans


def _has_tag(tree: nodes.Template) -> bool:
    return any(isinstance(block.call.node, nodes.ExtensionAttribute) for block in tree.find_all(nodes.CallBlock))


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _moment(date: str) -> datetime:
    try:
        return datetime.fromisoformat(date)
    except ValueError:
        raise UsageError(f"--date {date!r} is not a date. Write it like 2024-07-26.") from None
