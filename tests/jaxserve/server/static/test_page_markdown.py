"""Markdown on the page: what it becomes, however it is split, that it is never HTML, and what it costs."""

import json
import random

import pytest

from tests.support.serving.web_page import module

RENDER = """
import({stream}).then(({{ MarkdownStream }}) => {pieces}.map((pieces) => {{
  const into = document.createElement("div"), stream = new MarkdownStream(into);
  for (const piece of pieces) {{
    stream.write(piece);
    stream.render();
  }}
  stream.end();
  return into.innerHTML;
}}))
"""


def rendered(page, *texts):
    """The HTML of texts, each in one or more pieces."""
    pieces = [text if isinstance(text, list) else [text] for text in texts]
    stream = json.dumps(module(page, "markdown/stream.js"))
    return page.read(RENDER.format(stream=stream, pieces=json.dumps(pieces)))


BLOCKS = {
    "# One\n\n### Two": "<h3>One</h3><h4>Two</h4>",
    "### Two\n\n# One": "<h3>Two</h3><h3>One</h3>",
    "a **b** *c* ~~d~~ `e<f>`": "<p>a <strong>b</strong> <em>c</em> <del>d</del> <code>e&lt;f&gt;</code></p>",
    "- a\n- b\n  1. c": "<ul><li>a</li><li>b<ol><li>c</li></ol></li></ul>",
    "3. a\n4. b": '<ol start="3"><li>a</li><li>b</li></ol>',
    "- [x] a\n- [ ] b": "<ul><li>☑ a</li><li>☐ b</li></ul>",
    "> a\n> b": "<blockquote><p>a\nb</p></blockquote>",
    "a\n\n---\n\nb": "<p>a</p><hr><p>b</p>",
    "a  \nb<br>c": "<p>a<br>b<br>c</p>",
    "&lt;b&gt; &amp; &#65; &nope; \\*": "<p>&lt;b&gt; &amp; A &amp;nope; *</p>",
    "$5 to $10, and $ 3 $": "<p>$5 to $10, and $ 3 $</p>",
    "\\$x$": "<p>$x$</p>",
    "a [b": "<p>a [b</p>",
}


def test_blocks_become_elements(page):
    assert rendered(page, *BLOCKS) == list(BLOCKS.values())


def test_tables_and_code_in_lists(page):
    table, code = rendered(
        page, "| a | b |\n|---|--:|\n| 1 | `2` |", "1. a\n   ```Python x\n   if 1: pass\n   ```\n2. b"
    )
    assert '<th scope="col">a</th><th class="to-right" scope="col">b</th>' in table
    assert '<td class="to-right"><code>2</code></td>' in table
    assert code.startswith("<ol><li>a<div ")
    assert '<span class="hljs-keyword">if</span> <span class="hljs-number">1</span>: ' in code
    assert 'aria-label="Copy the python code"' in code
    assert code.endswith("</div></li><li>b</li></ol>")


def test_formulas_have_mathml_and_no_styles_in_attributes(page):
    texts = [
        "$x^2$",
        "\\(x^2\\)",
        "a $$x^2$$",
        "$$\nx^2\n$$",
        "\\[\nx^2\n\\]",
        r"$\vec{v} \pmb{x} \fcolorbox{red}{blue}{x}$",
    ]
    for html in rendered(page, *texts):
        assert '<math xmlns="http://www.w3.org/1998/Math/MathML"' in html
        assert 'class="katex-html" aria-hidden="true"' in html
    (vector,) = rendered(page, r"$\vec{v}$")
    assert 'viewBox="0 0 471 714"' in vector
    assert 'style="width: 0.471em;"' in vector  # set by script, or the arrow would have no width
    assert rendered(page, "$\\frac{$")[0] == "<p><span>$\\frac{$</span></p>"  # KaTeX cannot read it


HOSTILE = [
    '<img src=x onerror="document.title = `owned`"><script>document.title = "owned"</script>',
    "<svg/onload=alert(1)>\n\n<iframe src=//evil.example></iframe>",
    "[a](javascript:alert(1)) [b](data:text/html,x) [c](vbscript:x) [d](//evil.example) <javascript:alert(1)>",
    "[a](java\tscript:alert(1)) [b](&#106;avascript:alert(1)) [c](JAVASCRIPT:alert(1)) [d]( javascript:alert(1))",
    "![x](https://evil.example/x.png) ![y](javascript:alert(1))",
    '```"><img src=x onerror=alert(1)>\n</code></pre><img src=x>\n```',
    "```html\n<img src=x onerror=alert(1)><!-- </span><b> -->\n```",
    r"$\href{javascript:alert(1)}{x} \includegraphics{https://evil.example/x} \htmlStyle{color:red}{x}$",
    '| <img src=x> |\n|---|\n| <b onclick="x">a</b> |',
    '[a](https://x.example "onmouseover=alert(1)") [b](https://x.example/"onclick="alert(1))',
]
ALLOWED = set("p a h3 em strong del code pre div span br table thead tbody tr th td ul ol li button".split())


def test_output_never_becomes_html(page):
    """All elements are those of Markdown, no attribute is an event's, and links lead to web pages only."""
    stream = json.dumps(module(page, "markdown/stream.js"))
    found = page.read(
        f"""import({stream}).then(({{ MarkdownStream }}) => {json.dumps(HOSTILE)}.map((text) => {{
          const into = document.createElement("div"), stream = new MarkdownStream(into);
          stream.write(text);
          stream.end();
          const all = [...into.querySelectorAll("*")].filter((one) => !one.closest(".katex"));
          return {{
            names: all.map((one) => one.localName),
            attributes: all.flatMap((one) => one.getAttributeNames()),
            links: all.filter((one) => one.href).map((one) => one.protocol + one.rel),
            inMaths: into.querySelectorAll(".katex a, .katex img, .katex [style*=url]").length,
          }};
        }}))"""
    )
    attributes = {"class", "tabindex", "role", "aria-label", "type", "scope", "href", "target", "rel"}
    for text, one in zip(HOSTILE, found, strict=True):
        assert set(one["names"]) <= ALLOWED, text
        assert set(one["attributes"]) <= attributes, text
        assert set(one["links"]) <= {"https:noopener noreferrer nofollow"}, text
        assert one["inMaths"] == 0, text
    assert page.read("document.title") != "owned"


SAMPLE = (
    "# Title\r\n\r\nText *with* `code`,\r\nmore.\n\n- a\n\n- b\n  ```py\n  x = 1\n\n  y\n  ```\n\n1) x\n\n"
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n$$\nx\n$$\nafter\n\n\tindented\n\n"
    "```js\nlet a = `\n\n# no heading`;\n```\n~~~\nlast\n\nblock\n~~~\n\n"
    "Setext\n===\n\n> quote\nlazy\n\nend <b>\n\n``` open\ncode"
)


def test_markdown_is_the_same_however_it_is_split(page):
    rng = random.Random(0)
    cuts = [[SAMPLE], list(SAMPLE)]
    for _ in range(20):
        ends = sorted(rng.sample(range(1, len(SAMPLE)), rng.randrange(2, 60)))
        cuts.append([SAMPLE[i:j] for i, j in zip([0, *ends], [*ends, len(SAMPLE)], strict=True)])
    assert len(set(rendered(page, *cuts))) == 1


def test_a_text_that_was_complete_grows_again(page):
    """As an answer does that is continued."""
    stream = json.dumps(module(page, "markdown/stream.js"))
    shown = page.read(
        f"""import({stream}).then(async ({{ MarkdownStream }}) => {{
          const into = document.createElement("div"), stream = new MarkdownStream(into);
          stream.write("one");
          stream.end();
          stream.write(" two");
          while (!into.textContent.includes("two")) await new Promise(requestAnimationFrame);
          return into.innerHTML;
        }})"""
    )
    assert shown == "<p>one two</p>"


DEEP = {
    "quotes": "> " * 10_000,
    "some quotes": "> " * 500 + "a",
    "numbers": "1. " * 6_000,
    "lists": "\n".join(" " * 2 * i + "- a" for i in range(300)),
    "emphasis": "*a **b " * 400 + "** c*" * 400,
    "brackets": "[" * 20_000,
    "images": "![" * 10_000,
    "formulas": "\\[ a" * 5_000,
    "dollars": "$a " * 7_000,
}


def test_deep_nesting_is_shown_and_not_followed_to_the_end(page):
    """The parser's stack ends, or the layout's; the text is shown all the same."""
    for kind, html in zip(DEEP, rendered(page, *(text + "end" for text in DEEP.values())), strict=True):
        assert max(html.count(f"<{name}>") for name in ("blockquote", "ol", "em")) <= 100, kind
        assert "end" in html, kind


LONG = {
    "paragraphs": "Some *words* with `code` and $x^2$ in a paragraph of its own, again and again.\n\n" * 250,
    "one block of code": "```python\n" + "def f(x):\n    return [x, 'text', 12]  # a comment\n" * 400,
    "one list": "- an item with `code` and **bold** words\n" * 480,
}


@pytest.mark.thinned(1)
@pytest.mark.parametrize("kind", LONG)
def test_a_long_answer_streams_without_blocking_the_page(page, kind):
    """20,000 characters in 2,000 pieces: rendering takes a small part of the time, in short tasks."""
    stream = json.dumps(module(page, "markdown/stream.js"))
    spent = page.read(
        f"""import({stream}).then(async ({{ MarkdownStream }}) => {{
          const into = document.createElement("div"), stream = new MarkdownStream(into);
          const text = {json.dumps(LONG[kind])};
          document.body.append(into);
          let [spent, most] = [0, 0];
          const render = stream.render.bind(stream);
          stream.render = () => {{
            const start = performance.now();
            render();
            spent += performance.now() - start;
            most = Math.max(most, performance.now() - start);
          }};
          const start = performance.now();
          for (let i = 0; i < text.length; i += 500) {{
            for (let k = i; k < i + 500; k += 10) stream.write(text.slice(k, k + 10));
            await new Promise(requestAnimationFrame);
          }}
          stream.end();
          const isWhole = into.textContent.length > 0.5 * text.length;
          into.remove();
          return [spent / (performance.now() - start), most, isWhole];
        }})"""
    )
    share, most_ms, is_whole = spent
    assert is_whole
    assert share < 0.5, spent
    assert most_ms < 1000, spent
