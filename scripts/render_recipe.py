"""Render the conda recipe, as rattler-build would build it: ``make packaging-check``.

    python scripts/render_recipe.py

Needs py-rattler-build. Prints what the package is made of; a recipe that isn't one ends it with an error.
"""

from __future__ import annotations

from pathlib import Path

from rattler_build import Stage0Recipe

RECIPE = Path(__file__).resolve().parent.parent / "packaging/conda/recipe.yaml"


def main() -> None:
    (variant,) = Stage0Recipe.from_file(RECIPE).render()
    package = variant.recipe.to_dict()
    print(f"{package['package']['name']} {package['package']['version']}: {package['requirements']['run']}")


if __name__ == "__main__":
    main()
