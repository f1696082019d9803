"""Templates that hang, take all memory or are another text each time: stopped, with the template named."""

from __future__ import annotations

import json
from collections.abc import Callable

from attack.scene import Scene
from attack.table import Case, Outcome, both, refused, sound

NESTED = "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}"
SQUARED = "{% set ns = namespace(n=3) %}{% for i in range(60) %}{% set ns.n = ns.n * ns.n %}{% endfor %}"
TOO_MUCH = {
    "a number of gigabytes": "{{ '%1500000000d' | format(1) }}",
    "json with a wide indent": "{{ [1] | tojson(indent=1500000000) }}",
    "a text times a number": "{{ 'x' * 10**10 }}",
    "a power": "{{ 9 ** 9 ** 9 }}",
    "lists in lists": NESTED + "{{ ns.l }}",
    "lists in lists, joined": NESTED + "{{ [ns.l] | join }}",
    "lists in lists as json": NESTED + "{{ ns.l | tojson }}",
    "numbers that square": SQUARED,
    "loops in loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "sums in a loop": "{% for i in range(99999) %}{{ range(99999) | sum }}{% endfor %}",
    "a text that doubles": "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    "a macro that calls itself": "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "replaced letters": "{{ ('x' * 900000) | replace('x', 'y' * 900000) }}",
    "a wide centre": "{{ 'x' | center(10**10) }}",
}
NOT_THE_SAME = {
    "random": "{{ [1, 2] | random }}",
    "lipsum": "{{ lipsum() }}",
    "lipsum as a value": "{% set a = lipsum %}",
}
ADDRESSES = {
    "a class": "{{ cycler }}",
    "a method": "{{ 'x'.upper }}",
    "a generator": "{{ [1] | map('string') }}",
    "a cycler": "{{ cycler(1) }}",
    "a function in a list": "{{ ['x'.upper] | string }}",
}
NO_TEMPLATES = {
    "a very long number": "{{ " + "9" * 5000 + " }}",
    "brackets without end": "{{" + "(" * 5000,
    "half a tag": "{% for",
    "a filter that there is not": "{{ 1 | nothing }}",
    "a guard's own name": "{{ [1] | _counted }}",
    "a file of this machine": "{% include '/etc/passwd' %}{{ 1 }",
}


def _template(source: str, *options: str, **record: object) -> Callable[[Scene], Outcome]:
    def run(scene: Scene) -> Outcome:
        corpus = scene.path / "records.jsonl"
        corpus.write_text("".join(json.dumps({"n": n, **record}) + "\n" for n in range(20)))
        template = scene.path / "template.jinja"
        template.write_text(source + "{% loss %}{{ n }}{% endloss %}")
        return scene.build(corpus, "--template", template, "--memory", "800MB", *options, process=True)

    return run


def _names_the_template(scene: Scene, outcome: Outcome) -> None:
    [reject] = scene.store.rejects()
    assert (reject.reason, "the template did not survive" in reject.detail) == ("hung-template", True)


CASES = [
    *(Case(name, _template(source), refused("template-limit", code=3)) for name, source in TOO_MUCH.items()),
    *(Case(name, _template(source), refused("each time", code=2)) for name, source in NOT_THE_SAME.items()),
    *(
        Case(f"the address of {name}", _template(source), both(refused("same in every run", code=3)))
        for name, source in ADDRESSES.items()
    ),
    *(Case(name, _template(source), refused("--template is not", code=2)) for name, source in NO_TEMPLATES.items()),
    Case(
        "one that hangs where no step is taken",
        _template(
            "{% for i in range(90000 if n == 9 else 0) %}{{ range(99999) | list | max }}{% endfor %}",
            *("--doc-timeout", "1", "--max-rejects", "100%"),
        ),
        both(sound(19), _names_the_template),
    ),
]
