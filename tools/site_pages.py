"""Makes the navigation of the documents' pages from docs/index.md; mkdocs.yml names this file as a hook."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[([^\]]+)\]\(([^)#]+\.md)\)")


def title(text: str) -> str:
    words = " ".join(text.split())
    return words if words.startswith("vLLM") else words[0].upper() + words[1:]


def sections(index: str):
    """Each heading of the second level, with the pages that the text below it links to, in order."""
    for part in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        pages: dict[str, str] = {}
        for name, path in LINK.findall(text):
            pages.setdefault(f"docs/{path}", title(name))
        yield heading, [{name: path} for path, name in pages.items()]


def on_config(config):
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    config.nav = [
        {"Introduction": "README.md"},
        {"First ten minutes": "docs/start.md"},
        {"Documents": "docs/index.md"},
        *({heading: pages} for heading, pages in sections(index)),
        {"Glossary": "docs/glossary.md"},
        {
            "Project": [
                {"Contributing": "CONTRIBUTING.md"},
                {"Changes": "CHANGELOG.md"},
                {"Security": "SECURITY.md"},
                {"Code of conduct": "CODE_OF_CONDUCT.md"},
            ]
        },
    ]
    return config
