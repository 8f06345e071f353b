"""`python -m multislice_nb.magics`: the reference of the magics, in Markdown."""

from __future__ import annotations

from multislice_nb.magics.reference import markdown

if __name__ == "__main__":
    print(markdown(), end="")
