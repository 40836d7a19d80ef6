"""Linear layers that are quick for the few rows of a decode step, on CPUs in float32.

F.linear reaches a third of what oneDNN does with weights in its own order, so the weights are kept in that order, and
only there. A weight that something else reads too (a tied embedding) keeps the usual order; oneDNN is quicker with it
all the same.
"""

from collections import Counter

import torch
from torch import nn

# The batch that oneDNN lays the weights out for; others work as well.
_EXPECTED_ROWS = 16


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
        return _multiply(rows, self._packed, self.bias, self.out_features)


class SharedLinear(nn.Module):
    """A linear layer whose weight is also an embedding."""

    def __init__(self, original: nn.Linear) -> None:
        super().__init__()
        self.in_features = original.in_features
        self.out_features = original.out_features
        self.weight = original.weight
        self.bias = original.bias

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Multiplies."""
        return _multiply(rows, self.weight, self.bias, self.out_features)


def use_fast_linears(model: nn.Module) -> None:
    """Replaces a model's linear layers; each weight is dropped as soon as it is packed."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return
    uses = Counter(id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False))
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is not nn.Linear or child.weight.dtype != torch.float32 or not child.weight.is_cpu:
                continue
            setattr(parent, name, PackedLinear(child) if uses[id(child.weight)] == 1 else SharedLinear(child))
    _leave_mapped_files(model)


def _multiply(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, out_features: int) -> torch.Tensor:
    if rows.numel() == 0:
        return rows.new_zeros(*rows.shape[:-1], out_features)
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
    return product


def _leave_mapped_files(model: nn.Module) -> None:
    """Copies what was not packed out of the mapped weight files, so that the mapping, and with it all pages, can go."""
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
