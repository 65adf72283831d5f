#include "tensor.h"

#include <nanobind/stl/string.h>

#include <sstream>
#include <string>

#include "plait/error.h"

namespace plait::python {
namespace {

template <class... Parts>
[[noreturn]] void refuse(Argument argument, const Parts&... parts) {
  std::ostringstream sentence;
  sentence << argument.function << ": " << argument.name << ' ';
  (sentence << ... << parts);
  throw Error(Code::invalid_argument, sentence.str());
}

std::string name(nb::dlpack::dtype type) {
  const auto code = static_cast<nb::dlpack::dtype_code>(type.code);
  const std::string bits = std::to_string(type.bits);
  switch (code) {
    case nb::dlpack::dtype_code::Int:
      return "int" + bits;
    case nb::dlpack::dtype_code::UInt:
      return "uint" + bits;
    case nb::dlpack::dtype_code::Float:
      return "float" + bits;
    case nb::dlpack::dtype_code::Complex:
      return "complex" + bits;
    case nb::dlpack::dtype_code::Bool:
      return "bool";
    default:
      return "of a type of " + bits + " bits";
  }
}

[[noreturn]] void refuse_what_is_no_array(nb::handle object, Argument argument,
                                          std::string_view accepted) {
  const nb::object dtype = nb::getattr(object, "dtype", nb::none());
  if (!nb::cast<bool>(nb::getattr(dtype, "isnative", nb::bool_(true)))) {
    refuse(argument, "is ", nb::cast<std::string>(nb::str(dtype)),
           ", whose bytes are in another order than this machine's; "
           "astype(dtype.newbyteorder('=')) copies them");
  }
  if (nb::hasattr(object, "__dlpack__")) {
    try {
      object.attr("__dlpack__")();
    } catch (const nb::python_error& error) {
      refuse(argument, "cannot be read: ", nb::cast<std::string>(nb::str(error.value())));
    }
  }
  refuse(argument, "is of type ", nb::cast<std::string>(nb::type_name(object.type())),
         "; it can be ", accepted);
}

using Array = nb::ndarray<>;
using ConstArray = nb::ndarray<nb::ro>;

ConstArray readable(nb::handle object, Argument argument, std::string_view accepted) {
  if (ConstArray array; nb::try_cast(object, array)) return array;
  refuse_what_is_no_array(object, argument, accepted);
}

Array writable(nb::handle object, Argument argument, std::string_view accepted) {
  if (Array array; nb::try_cast(object, array)) return array;
  if (ConstArray array; nb::try_cast(object, array))
    refuse(argument, "is read-only, and the call writes it");
  refuse_what_is_no_array(object, argument, accepted);
}

template <class AnyArray>
Dtype dtype_of(const AnyArray& array, Argument argument) {
  if (const auto dtype = known(array.dtype())) return *dtype;
  refuse(argument, "is ", name(array.dtype()),
         "; plait computes with float32, bfloat16, float16 and int8");
}

template <class AnyArray>
void check_on_cpu(const AnyArray& array, Argument argument) {
  if (array.device_type() == nb::device::cpu::value) return;
  if (array.device_type() == nb::device::cuda::value)
    refuse(argument, "is on cuda:", array.device_id(), "; this call takes memory of the CPU");
  refuse(argument, "is on another device than the CPU, whose memory this call takes");
}

template <class AnyArray>
Device device_of(const AnyArray& array, Argument argument) {
  const int type = array.device_type();
  if (type == nb::device::cuda::value || type == nb::device::cuda_managed::value)
    return Device::cuda(array.device_id());
  if (type == nb::device::cpu::value) return kCpu;
  refuse(argument, "is on a device that is neither the CPU nor a GPU of CUDA's");
}

template <class AnyArray>
bool is_contiguous(const AnyArray& array) {
  std::int64_t expected = 1;
  for (std::size_t i = array.ndim(); i-- > 0; expected *= static_cast<std::int64_t>(array.shape(i)))
    if (array.shape(i) != 1 && array.stride(i) != expected && array.size() != 0) return false;
  return true;
}

template <class View, class AnyArray>
View all_of(const AnyArray& array, Argument argument) {
  check_on_cpu(array, argument);
  const Dtype dtype = dtype_of(array, argument);
  if (!is_contiguous(array)) refuse(argument, "is not contiguous");
  return View(array.data(), array.size(), dtype);
}

template <class View, class AnyArray>
View rows_of(const AnyArray& array, Argument argument) {
  const Device device = device_of(array, argument);
  const Dtype dtype = dtype_of(array, argument);
  if (array.ndim() != 2) refuse(argument, "has ", array.ndim(), " dimensions, not 2");
  const auto rows = static_cast<std::int64_t>(array.shape(0));
  const auto cols = static_cast<std::int64_t>(array.shape(1));
  // NumPy exports strides of 0 where there are no elements.
  if (rows > 0 && cols > 1 && array.stride(1) != 1)
    refuse(argument, "has rows whose elements are ", array.stride(1), " apart, not side by side");
  return {.data = array.data(),
          .dtype = dtype,
          .rows = rows,
          .cols = cols,
          .row_stride = rows > 1 ? array.stride(0) : cols,
          .device = device};
}

nb::dlpack::dtype dlpack_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return nb::dtype<float>();
    case Dtype::bf16:
      return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bfloat), 16, 1};
    case Dtype::f16:
      return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
    case Dtype::s8:
      break;
  }
  return nb::dtype<std::int8_t>();
}

}  // namespace

std::optional<Dtype> known(nb::dlpack::dtype type) {
  const auto code = static_cast<nb::dlpack::dtype_code>(type.code);
  if (type.lanes != 1) return std::nullopt;
  if (code == nb::dlpack::dtype_code::Float && type.bits == 32) return Dtype::f32;
  if (code == nb::dlpack::dtype_code::Float && type.bits == 16) return Dtype::f16;
  if (code == nb::dlpack::dtype_code::Bfloat && type.bits == 16) return Dtype::bf16;
  if (code == nb::dlpack::dtype_code::Int && type.bits == 8) return Dtype::s8;
  return std::nullopt;
}

Elements elements(GivenArray array, Argument argument) {
  return all_of<Elements>(writable(array.object, argument, "an array"), argument);
}

ConstElements const_elements(GivenArray array, Argument argument) {
  return all_of<ConstElements>(readable(array.object, argument, "an array"), argument);
}

TensorView matrix(GivenArray array, Argument argument, std::string_view accepted) {
  return rows_of<TensorView>(writable(array.object, argument, accepted), argument);
}

ConstTensorView const_matrix(GivenArray array, Argument argument, std::string_view accepted) {
  return rows_of<ConstTensorView>(readable(array.object, argument, accepted), argument);
}

ViewArray array_of(const ConstTensorView& view, nb::handle owner) {
  const std::size_t shape[] = {static_cast<std::size_t>(view.rows),
                               static_cast<std::size_t>(view.cols)};
  const std::int64_t strides[] = {view.row_stride, 1};
  return {view.data, 2, shape, owner, strides, dlpack_of(view.dtype)};
}

}  // namespace plait::python
