"""Helper of views.py --beside-load: draws views in a fresh process; prints the seconds of its passes.

Arguments: implementation, images, images per batch, passes.
"""

import json
import sys

import torch
from beside_load import timed_calls
from view_peers import CATALOGUE, Work
from views import make_images


def main() -> None:
    """Time the passes."""
    name, num_images, batch_size, num_calls = sys.argv[1:]
    work = Work(make_images(int(num_images)), int(batch_size), torch.get_num_threads())
    seconds, _ = timed_calls(CATALOGUE[name][0](work), int(num_calls))
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
