"""The picture of the README, docs/overview.svg: ``python scripts/overview_picture.py`` writes it again."""

from __future__ import annotations

from pathlib import Path

PICTURE = Path(__file__).parents[1] / "docs" / "overview.svg"
WIDTH, HEIGHT = 760, 300
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328; }
  .code { font: 12px ui-monospace, monospace; }
  .small { font-size: 11px; fill: #59636e; }
  rect { fill: #ffffff; stroke: #59636e; }
  .host { fill: #f6f8fa; stroke-dasharray: 4 3; }
  .server { fill: #ddf4ff; stroke: #0969da; }
  line { stroke: #0969da; stroke-width: 1.5; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; }
    .small { fill: #9198a1; }
    rect { fill: #161b22; stroke: #9198a1; }
    .host { fill: #0d1117; }
    .server { fill: #121d2f; stroke: #4493f8; }
    line { stroke: #4493f8; }
  }
"""


def box(x: int, y: int, width: int, height: int, kind: str = "") -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" class="{kind}"/>'


def text(x: int, y: int, words: str, kind: str = "") -> str:
    return f'<text x="{x}" y="{y}" class="{kind}">{words}</text>'


def process(x: int, y: int, name: str, code: str, state: str = "") -> list[str]:
    """A process, its code, and what comes of it."""
    return [
        box(x, y, 210, 62),
        text(x + 10, y + 20, name),
        text(x + 10, y + 38, code, "code"),
        text(x + 10, y + 54, state, "small"),
    ]


def arrow(x: int, y: int, to_x: int, to_y: int) -> str:
    return f'<line x1="{x}" y1="{y}" x2="{to_x}" y2="{to_y}"/>'


def picture() -> str:
    """Return the picture as SVG, for light and dark backgrounds."""
    parts = [
        "<title>Processes on two hosts use one Lock and one Queue, which are kept by a server</title>",
        f"<style>{STYLE}</style>",
        *(box(10, 10, 230, 280, "host"), text(22, 32, "host A")),
        *process(20, 46, "process 1", "with lock:", "holds the lock"),
        *process(20, 124, "process 2", "with lock:", "waits"),
        *process(20, 202, "process 4", "queue.put(job)"),
        *(box(520, 10, 230, 280, "host"), text(532, 32, "host B")),
        *process(530, 46, "process 3", "with lock:", "waits"),
        *process(530, 202, "process 5", "job = queue.get()"),
        box(300, 66, 160, 168, "server"),
        text(318, 92, "ZooKeeper ensemble"),
        text(318, 110, "or embedded server", "small"),
        text(318, 146, 'Lock(name="orders")', "code"),
        text(318, 172, 'Queue(name="jobs")', "code"),
        text(318, 214, "survives its clients", "small"),
        *(arrow(230, 77, 300, 130), arrow(230, 155, 300, 142), arrow(230, 233, 300, 168)),
        *(arrow(530, 77, 460, 136), arrow(530, 233, 460, 168)),
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
    return "\n".join([head, *parts, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(picture())
