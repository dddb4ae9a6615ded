"""How large a tensor some code makes: what a claim of linear memory is held to."""

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LargestResult(TorchDispatchMode):
    """Remembers the largest tensor that any operation returns, and the storage behind it."""

    num_elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                stored = leaf.untyped_storage().nbytes() // max(leaf.element_size(), 1)
                self.num_elements = max(self.num_elements, leaf.numel(), stored)
        return result
