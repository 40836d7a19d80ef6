"""Linear layers that are quick for the few rows of a decode step, on CPUs in float32.

F.linear reaches a third of what oneDNN does with weights in its own order, and the weights are then kept in that order
only. A weight that something else reads too (a tied embedding) keeps its order and is multiplied from the left.
"""

from collections import Counter

import torch
from torch import nn
from torch.nn.functional import linear

# The batch that oneDNN lays the weights out for; others work as well.
_EXPECTED_ROWS = 16
# Beyond so many rows F.linear is as good as the product from the left.
_FEW_ROWS = 64


class PackedLinear(nn.Module):
    """A linear layer whose weight exists in oneDNN's order only."""

    def __init__(self, original: nn.Linear) -> None:
        super().__init__()
        self.in_features = original.in_features
        self.out_features = original.out_features
        self._packed = torch.ops.mkldnn._reorder_linear_weight(original.weight.data, _EXPECTED_ROWS)
        self.bias = original.bias

    @property
    def weight(self) -> torch.Tensor:
        """Returns the weight in the usual order, as a copy: for the rare model that reads it."""
        weight: torch.Tensor = self._packed.to_dense()
        return weight

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Multiplies."""
        if rows.numel() == 0:
            return rows.new_zeros(*rows.shape[:-1], self.out_features)
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._packed, self.bias, "none", [], "")
        return product


class SharedLinear(nn.Module):
    """A linear layer without bias whose weight is also an embedding."""

    def __init__(self, original: nn.Linear) -> None:
        super().__init__()
        self.in_features = original.in_features
        self.out_features = original.out_features
        self.weight = original.weight

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Multiplies from the left where that is quicker."""
        flat = rows.reshape(-1, self.in_features)
        if not 0 < len(flat) <= _FEW_ROWS:
            return linear(rows, self.weight)
        product = torch.mm(self.weight, flat.t()).t().contiguous()
        return product.view(*rows.shape[:-1], self.out_features)


def use_fast_linears(model: nn.Module) -> None:
    """Replaces a model's linear layers where a quicker form exists; each weight is dropped as soon as it is packed."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return
    uses = Counter(id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False))
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is not nn.Linear or child.weight.dtype != torch.float32 or not child.weight.is_cpu:
                continue
            if uses[id(child.weight)] == 1:
                setattr(parent, name, PackedLinear(child))
            elif child.bias is None:
                setattr(parent, name, SharedLinear(child))
    _leave_mapped_files(model)


def _leave_mapped_files(model: nn.Module) -> None:
    """Copies what was not packed out of the mapped weight files, so that the mapping, and with it all pages, can go."""
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
