"""Templates render as in transformers, and cannot run away."""

from __future__ import annotations

import re
import time

import pytest
from jinja2.exceptions import SecurityError, TemplateError
from transformers.utils.chat_template_utils import render_jinja_template

from server.errors import OverLimit
from server.template_sandbox import RenderLimits, TemplateSandbox

MESSAGES = [
    {"role": "user", "content": "Hi <b>\u00e9"},
    {"role": "assistant", "content": "  Hello \n"},
    {"role": "user", "content": "Bye"},
]


def render(template: str, seconds: float = 5.0, characters: int = 100_000) -> str:
    sandbox = TemplateSandbox()
    with sandbox.within(RenderLimits(characters, time.monotonic() + seconds)):
        return sandbox.from_string(template).render(messages=MESSAGES, bos_token="<s>")


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}\n  {{ m['role'] ~ ': ' + m.content | trim }}\n{% endfor %}\n",
        "{{ bos_token }}{% for m in messages if m.role == 'user' %}{{ loop.index0 }}{% endfor %}",
        "{{ messages | tojson }} {{ messages[0] | tojson(indent=2) }}",
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}"
        "{{ ns.n }}",
        "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.content }}"
        "{% break %}{% endfor %}",
        "{% macro turn(m, end='!') %}[{{ m.content }}{{ end }}]{% endmacro %}"
        "{{ turn(messages[0]) }}{{ turn(messages[1], end='?') }}",
        "{% set x %}{{ messages[0].content }}!{% endset %}{{ x * 3 }}{{ x | upper }}",
        "{% generation %}{{ messages[1].content }}{% endgeneration %}\n  x",
        "{{ messages[0].content.split(' ')[0] }} {{ '%s-%s' % (1, 2) }} {{ 2 ** 10 * 999 }}",
        "{% filter upper %}{{ messages[0].content }}{% endfilter %}{{ missing }}{{ missing ~ 1 }}",
        "{{ dict(a=1) | tojson }}{{ range(3) | list }}{{ messages[::-1][0].content }}",
        "{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}x{% endcall %}{# gone #}",
    ],
)
def test_renders_as_transformers(template: str) -> None:
    rendered, _ = render_jinja_template([MESSAGES], chat_template=template, bos_token="<s>")
    assert render(template) == rendered[0]


def repeated(statement: str) -> str:
    """A template that would double something forty times."""
    return (
        "{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}{% set ns = namespace(x='ab', n=3) %}"
        f"{{% for i in range(40) %}}{statement}{{% endfor %}}"
    )


ENDLESS = [
    "{{ 'a' * 1000000 }}",
    "{{ 1000000 * 'a' }}",
    "{{ [0] * 1000000 }}",
    "{{ 'a' | center(1000000) }}",
    "{{ 'a'.ljust(1000000) }}",
    "{{ 10 ** 1000000 }}",
    "{{ ('a' * 900).replace('a', 'b' * 900) }}",
    repeated("{% set ns.x = ns.x ~ ns.x %}"),
    repeated("{% set ns.x = ns.x + ns.x %}"),
    repeated("{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}"),
    repeated("{% set ns.x = twice(ns.x) %}"),
    repeated("{% set ns.n = ns.n * ns.n %}"),
]


@pytest.mark.parametrize("template", ENDLESS)
def test_values_are_bounded(template: str) -> None:
    with pytest.raises(OverLimit, match="100000 characters"):
        render(template)


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) ~ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    ],
)
def test_time_is_bounded(template: str) -> None:
    began = time.monotonic()
    with pytest.raises(OverLimit, match="too long"):
        render(template, seconds=0.2)
    assert time.monotonic() - began < 5


def test_constants_are_bounded_when_they_are_folded() -> None:
    began = time.monotonic()
    TemplateSandbox().from_string("{{ 'a' | center(1000000000) }}{{ 'a' * 1000000000 }}")
    assert time.monotonic() - began < 1


@pytest.mark.parametrize(
    "template",
    ["{{ messages.__class__.__mro__ }}", "{{ messages.append(1) }}", "{{ lipsum() }}"],
)
def test_the_sandbox_holds(template: str) -> None:
    with pytest.raises((SecurityError, TemplateError)):
        render(template)


def test_a_template_can_refuse() -> None:
    with pytest.raises(TemplateError, match="must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


def test_a_template_knows_the_date() -> None:
    assert re.fullmatch(r"\d{4}-\d{2}", render("{{ strftime_now('%Y-%m') }}"))
