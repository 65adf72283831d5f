#include "torch_tensors.h"

#include <cstddef>
#include <utility>

#include "tensor.h"

namespace plait::python {
namespace {

// DLPack's version. Another major version may have another ABI.
constexpr std::uint32_t kMajor = 1;
constexpr const char* kCapsule = "dlpack_exchange_api";

}  // namespace

// DLPack's DLTensor.
struct TorchTensors::Memory {
  void* data = nullptr;
  std::int32_t device_type = 0;
  std::int32_t device_id = 0;
  std::int32_t dimensions = 0;
  nb::dlpack::dtype dtype{};
  std::int64_t* shape = nullptr;
  std::int64_t* strides = nullptr;
  std::uint64_t byte_offset = 0;

  // Dimensions before the last one are rows, one behind another; nullopt where they lie otherwise.
  std::optional<TensorView> rows(Dtype of) const {
    const std::int64_t cols = shape[dimensions - 1];
    std::int64_t rows = 1;
    std::int64_t stride = cols;
    for (int one = dimensions - 2; one >= 0; --one) {
      if (shape[one] == 1) continue;
      if (rows == 1) stride = strides[one];
      if (strides[one] != rows * stride) return std::nullopt;
      rows *= shape[one];
    }
    if ((cols > 1 && strides[dimensions - 1] != 1) || stride < cols) return std::nullopt;
    return TensorView{.data = static_cast<std::byte*>(data) + byte_offset,
                      .dtype = of,
                      .rows = rows,
                      .cols = cols,
                      .row_stride = stride};
  }
};

// DLPack's DLPackExchangeAPI, of which `view` alone is used here.
struct TorchTensors::Table {
  std::uint32_t major;
  std::uint32_t minor;
  const Table* previous;  // of an older version, whose first three members are the same
  void* allocate;
  void* share;
  void* take;
  int (*view)(void* object, Memory* out);  // returns 0, or -1 with an exception of Python's
  void* stream;
};

static_assert(sizeof(nb::dlpack::dtype) == 4);

const TorchTensors::Table* TorchTensors::table_of(nb::handle type) {
  const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  if (!PyCapsule_IsValid(capsule.ptr(), kCapsule)) return nullptr;
  const auto* table = static_cast<const Table*>(PyCapsule_GetPointer(capsule.ptr(), kCapsule));
  while (table != nullptr && table->major != kMajor) table = table->previous;
  return table != nullptr && table->view != nullptr ? table : nullptr;
}

TorchTensors::TorchTensors(nb::object tensor, nb::object parameter, nb::object is_grad_enabled,
                           nb::object empty_strided)
    : tensor_(std::move(tensor)),
      parameter_(std::move(parameter)),
      is_grad_enabled_(std::move(is_grad_enabled)),
      is_neg_(tensor_.attr("is_neg")),
      new_empty_(tensor_.attr("new_empty")),
      empty_strided_(std::move(empty_strided)),
      table_(table_of(tensor_)) {}

bool TorchTensors::look(nb::handle tensor, Memory& memory) const {
  const nb::handle type = tensor.type();
  if (table_ == nullptr || (!type.is(tensor_) && !type.is(parameter_))) return false;
  return find(tensor, memory) && !is_neg_(tensor).is(nb::handle(Py_True));
}

bool TorchTensors::find(nb::handle tensor, Memory& memory) const {
  if (table_->view(tensor.ptr(), &memory) != 0) {
    PyErr_Clear();  // Python says in plait's words why such a tensor is refused
    return false;
  }
  return memory.device_type == nb::device::cpu::value && memory.data != nullptr;
}

std::optional<Dtype> TorchTensors::read(nb::handle tensor, Memory& memory) const {
  if (!look(tensor, memory)) return std::nullopt;
  const std::optional<Dtype> dtype = known(memory.dtype);
  return dtype == Dtype::s8 ? std::nullopt : dtype;
}

std::optional<TensorView> TorchTensors::rows(nb::handle tensor, int dimensions) const {
  Memory memory;
  const std::optional<Dtype> dtype = read(tensor, memory);
  if (!dtype || memory.dimensions != dimensions) return std::nullopt;
  return memory.rows(*dtype);
}

std::optional<TorchTensors::Rows> TorchTensors::all_rows(nb::handle tensor) const {
  Memory memory;
  const std::optional<Dtype> dtype = read(tensor, memory);
  if (!dtype || memory.dimensions < 1) return std::nullopt;
  const std::optional<TensorView> view = memory.rows(*dtype);
  if (!view) return std::nullopt;
  return Rows{*view, {memory.shape, memory.shape + memory.dimensions - 1}};
}

std::optional<std::span<const std::int64_t>> TorchTensors::numbers(nb::handle tensor) const {
  Memory memory;
  if (!look(tensor, memory) || memory.dtype != nb::dtype<std::int64_t>() || memory.dimensions < 1)
    return std::nullopt;
  const std::optional<TensorView> rows = memory.rows(Dtype::s8);  // which counts elements alone
  if (!rows || (rows->rows > 1 && rows->row_stride != rows->cols)) return std::nullopt;
  return std::span(static_cast<const std::int64_t*>(rows->data),
                   static_cast<std::size_t>(rows->rows * rows->cols));
}

bool TorchTensors::is_grad_enabled() const { return is_grad_enabled_().is(nb::handle(Py_True)); }

bool TorchTensors::requires_grad(nb::handle tensor) const {
  return !tensor.is_none() && tensor.attr("requires_grad").is(nb::handle(Py_True));
}

std::optional<TorchTensors::Made> TorchTensors::make(nb::handle x,
                                                     std::span<const std::int64_t> sizes) const {
  const auto count = static_cast<Py_ssize_t>(sizes.size());
  const nb::object shape = nb::steal(PyTuple_New(count));
  const nb::object strides = nb::steal(PyTuple_New(count));
  std::int64_t stride = 1;
  for (Py_ssize_t one = count - 1; one >= 0; --one) {
    const std::int64_t size = sizes[static_cast<std::size_t>(one)];
    PyTuple_SetItem(shape.ptr(), one, PyLong_FromLongLong(size));
    PyTuple_SetItem(strides.ptr(), one, PyLong_FromLongLong(stride));
    stride *= size;
  }
  nb::object made = empty_strided_.is_none() ? new_empty_(x, shape)
                                             : empty_strided_(shape, strides, x.attr("dtype"));
  Memory memory;
  if (!find(made, memory)) return std::nullopt;
  const std::optional<Dtype> dtype = known(memory.dtype);
  const std::optional<TensorView> rows = dtype ? memory.rows(*dtype) : std::nullopt;
  if (!rows) return std::nullopt;
  return Made{.tensor = std::move(made), .rows = *rows};
}

}  // namespace plait::python
