"""The live view of the engine: it shows the engine's state, and reconnects to the server."""

import asyncio
import json

import numpy as np
import pytest

from jaxserve.engine.serving.snapshot import PAGE_STATES, snapshot
from jaxserve.server.monitoring.live_frame import page_map, runs
from jaxserve.server.routes.live import Frames
from tests.support.serving.http_server import NAME
from tests.support.serving.web_page import IS_DONE, ask, module

# Twenty seconds take half a second.
HASTE = "{ const real = setTimeout; window.setTimeout = (call, ms) => real(call, ms >= 20_000 ? 500 : ms) }"


def test_after_a_long_silence_the_page_reconnects_and_requests_the_model(open_page, server, monkeypatch):
    page = open_page()
    page.run_first(HASTE)
    page.open(f"{server.url}/")
    page.wait("document.querySelector('#state').textContent === 'idle'")
    ask(page, "a")
    page.wait(IS_DONE)
    with monkeypatch.context() as patch:
        patch.setattr(Frames, "next", lambda self: asyncio.sleep(3600))
        page.wait("document.querySelector('#state').textContent === 'no data: reconnecting'")
    with monkeypatch.context() as patch:
        patch.setattr(server.state, "model_names", ("other",))
        page.wait("document.querySelector('#state').textContent === 'idle'")
        page.wait("document.querySelector('#model').textContent === 'other'")
    assert page.text(".assistant h2") == NAME


def test_the_map_and_its_legend_match_the_pool(open_page, server):
    pool = server.llm.parts.engine.scheduler.state.pool

    def take():
        ids = pool.allocate(30)
        pool.keep(ids[:10])
        pool.release(ids[:10])  # cached
        pool.retain(ids[20:])  # shared
        return ids

    async def call(function):
        return await server.state.engine.call(function)

    ids = asyncio.run(call(take))
    try:
        page = open_page()
        page.wait("document.querySelector('#cached').textContent === '10'")
        taken = snapshot(server.llm.parts.engine)
        counts = taken.count_pages()
        for state in PAGE_STATES[:4]:
            assert page.text(f"#{state}") == str(counts[state]) == page.text(f"#{state}")
        page.read("new Promise(requestAnimationFrame)")
        colors = [page.read(f"getComputedStyle(map).getPropertyValue('--{state}')") for state in PAGE_STATES[:4]]
        assert drawn_squares(page, len(taken.pages) - 1) == [colors[state] for state in taken.pages[1:].tolist()]
    finally:

        def give_back():
            pool.drop(ids[:10])
            pool.release(ids[10:])
            pool.release(ids[20:])

        asyncio.run(call(give_back))


def drawn_squares(page, count):
    """The color in the middle of each square of the map; squares are found by the background between them."""
    return page.read(
        f"""(() => {{
          const {{ width, height }} = map, pixels = map.getContext("2d").getImageData(0, 0, width, height).data;
          const isDrawn = (x, y) => pixels[4 * (y * width + x) + 3] > 0;
          const middles = (length, is) => {{
            const found = [];
            for (let i = 0, start = -1; i <= length; i++) {{
              if (i < length && is(i)) start = start < 0 ? i : start;
              else if (start >= 0) [found[found.length], start] = [(start + i - 1) >> 1, -1];
            }}
            return found;
          }};
          const xs = middles(width, (x) => isDrawn(x, 1)), ys = middles(height, (y) => isDrawn(1, y));
          const at = (x, y) => [...pixels.slice(4 * (y * width + x), 4 * (y * width + x) + 3)];
          const hex = (parts) => "#" + parts.map((part) => part.toString(16).padStart(2, "0")).join("");
          return ys.flatMap((y) => xs.map((x) => hex(at(x, y)))).slice(0, {count});
        }})()"""
    )


def test_numbers_follow_the_engine(page):
    assert page.wait("document.querySelector('#running').textContent === '0'")
    ask(page, "a")
    page.wait("document.querySelector('#running').textContent === '1'")
    page.wait("Number(document.querySelector('#tokens_per_s').textContent) > 0")
    page.wait("document.querySelector('#ttft_ms').textContent.endsWith('ms')")
    page.wait("document.querySelector('#state').textContent === 'idle'")
    assert page.text("#decode_tokens") == "1"
    inked = "(c) => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((v) => v > 0)"
    assert page.read(f"[...document.querySelectorAll('canvas')].every({inked})")


@pytest.mark.thinned(1)
@pytest.mark.parametrize("num_pages", [4096, 65_536, 1_000_003])
def test_a_large_pool_is_shown_in_cells_of_a_visible_size(page, num_pages):
    """A cell stands for several pages, and is filled with their shares of states."""
    page.wait("document.querySelector('#state').textContent === 'idle'")
    pages = np.tile(np.repeat(np.arange(4, dtype=np.uint8), 64), -(-num_pages // 256))[:num_pages]
    squares, each = page_map(pages)
    found = page.read(
        f"""import({json.dumps(module(page, "engine/page_map.js"))}).then(({{ PageMap }}) => {{
          const canvas = document.createElement("canvas"), runs = {runs(squares)};
          canvas.style.display = "block";
          document.querySelector("#engine section").append(canvas);
          const drawn = new PageMap(canvas), size = drawn.show(runs), {{ pitch, columns }} = drawn.fit();
          drawn.drawing.redraw();
          const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
          const colors = new Set();
          for (let i = 0; i < data.length; i += 4) if (data[i + 3] === 255) colors.add(data.slice(i, i + 3).join());
          const found = {{ size, pitch, columns, height: canvas.clientHeight, colors: colors.size }};
          canvas.remove();
          return found;
        }})"""
    )
    assert found["pitch"] >= 7
    assert found["height"] <= 190
    assert found["size"] * found["columns"] * (found["height"] / found["pitch"] + 1) >= len(squares)
    assert found["colors"] >= 3
    assert each * found["size"] <= max(8, -(-num_pages // 900))


def test_the_charts_history_survives_a_reload(page, server):
    ask(page, "a")
    page.wait("document.querySelector('#running').textContent === '1'")
    page.wait("document.querySelector('#state').textContent === 'idle'")
    page.open(f"{server.url}/")
    kept = "JSON.parse(sessionStorage.getItem('jaxserve.charts')).running"
    times = page.read(f"{kept}.filter(([, value]) => value === 1).map(([time]) => time)")
    assert times
    page.wait("document.querySelector('#state').textContent === 'idle'")
    page.open(f"{server.url}/")  # stores what was restored, and what came since
    assert page.read(f"{kept}.filter(([, value]) => value === 1).map(([time]) => time)") == times
    assert page.read(f"{kept}.at(-1)[0]") > times[-1]
