// Tensors of torch as views, without linking torch.
//
// Their type has a table of C functions, DLPack's exchange API, one of which says where a tensor's
// memory is and how it lies, in some tens of nanoseconds. Asking by methods of Python takes as long
// as all else in a small call.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "native.h"
#include "plait/tensor_view.h"

namespace plait::python {

class TorchTensors {
 public:
  // torch.Tensor, torch.nn.Parameter, torch.is_grad_enabled, and what makes a tensor on the CPU of
  // sizes, strides and a dtype, or none. Without a table of a version that is known here, it views
  // nothing.
  TorchTensors(nb::object tensor, nb::object parameter, nb::object is_grad_enabled,
               nb::object empty_strided);

  bool has_table() const { return table_ != nullptr; }

  // A tensor on the CPU with elements that products take, side by side in each row; dimensions
  // before the last one are rows. It is viewed until the GIL is released, or longer if the caller
  // keeps the tensor. nullopt for all others, such as subclasses, views that negate, and tensors
  // without memory: they get their copies, or their errors, in Python.
  std::optional<TensorView> rows(nb::handle tensor, int dimensions) const;

  // All dimensions but the last as rows, and the sizes of these dimensions.
  struct Rows {
    TensorView view;
    std::vector<std::int64_t> sizes;
  };
  std::optional<Rows> all_rows(nb::handle tensor) const;

  // Whole numbers of 64 bits, one behind another; nullopt as above.
  std::optional<std::span<const std::int64_t>> numbers(nb::handle tensor) const;

  // True if autograd has to see what is made of this tensor.
  bool is_grad_enabled() const;
  bool requires_grad(nb::handle tensor) const;

  // A new tensor of x's dtype, and its rows; nullopt where it has no elements.
  struct Made {
    nb::object tensor;
    TensorView rows;
  };
  std::optional<Made> make(nb::handle x, std::span<const std::int64_t> sizes) const;

 private:
  struct Table;
  struct Memory;

  // False for tensors that are never viewed.
  bool look(nb::handle tensor, Memory& memory) const;
  // Asks the table alone, and takes memory of the CPU.
  bool find(nb::handle tensor, Memory& memory) const;
  // Its elements' dtype, if products take it.
  std::optional<Dtype> read(nb::handle tensor, Memory& memory) const;
  static const Table* table_of(nb::handle type);

  nb::object tensor_;
  nb::object parameter_;
  nb::object is_grad_enabled_;
  nb::object is_neg_;
  nb::object new_empty_;
  nb::object empty_strided_;
  const Table* table_;
};

}  // namespace plait::python
