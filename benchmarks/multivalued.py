"""Measure multi-valued fields in one run: the speed of training and of predictions, and the quality of models.

    python benchmarks/multivalued.py [training] [scoring] [quality]

Runs all three parts by default, with their default sizes; each is also a command with options of its own.
"""

from __future__ import annotations

import argparse

import multivalued_quality
import multivalued_scoring
import multivalued_training

PARTS = {
    "training": multivalued_training.main,
    "scoring": multivalued_scoring.main,
    "quality": multivalued_quality.main,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (default: all)")
    for part in parser.parse_args().parts or PARTS:
        if part not in PARTS:
            parser.error(f"unknown part '{part}'; choose from {', '.join(PARTS)}")
        print(f"== {part}", flush=True)
        PARTS[part]([])


if __name__ == "__main__":
    main()
