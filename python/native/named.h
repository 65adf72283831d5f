// Arguments that can be given as objects or as their names: Dtype.bf16 or "bf16".
//
// A text that names nothing is refused in a sentence. A caster can't do that: it can only fail,
// which prints a list of signatures. So it takes any text, which is read where the argument is
// used.
#pragma once

#include <nanobind/stl/string_view.h>

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "native.h"
#include "plait/dtype.h"
#include "plait/operator.h"
#include "plait/ops.h"
#include "plait/plan.h"
#include "plait/quant_scheme.h"
#include "plait/weight.h"

namespace plait::python {

// The value that a text names; refuses a text that names none.
template <class T>
T called(std::string_view text);
template <>
Dtype called(std::string_view text);
template <>
Operator called(std::string_view text);
template <>
Plan called(std::string_view text);
template <>
QuantScheme called(std::string_view text);
template <>
WeightLayout called(std::string_view text);

// An argument of a bound function, for use while the function holds the GIL.
template <class T>
class Named {
 public:
  Named() = default;
  explicit Named(nb::handle object) : object_(object) {}

  bool is(std::string_view word) const {
    return nb::isinstance<nb::str>(object_) && nb::cast<std::string_view>(object_) == word;
  }

  operator T() const {  // NOLINT(google-explicit-constructor): it stands for a T
    if constexpr (std::is_same_v<T, Dtype>) {
      if (object_.is_none()) return kAutomaticWire;  // of arguments that may be None
    }
    if (nb::isinstance<nb::str>(object_)) return called<T>(nb::cast<std::string_view>(object_));
    return nb::cast<T>(object_);
  }

 private:
  nb::handle object_;
};

// A wire may also be automatic: "auto" or None.
inline Dtype wire_of(Named<Dtype> wire) { return wire.is("auto") ? kAutomaticWire : Dtype{wire}; }

}  // namespace plait::python

template <class T>
struct nanobind::detail::type_caster<plait::python::Named<T>> {
  NB_TYPE_CASTER(plait::python::Named<T>, const_name<T>() + const_name(" | str"))

  bool from_python(handle object, std::uint32_t flags, cleanup_list* list) noexcept {
    value = plait::python::Named<T>(object);
    if (isinstance<str>(object)) return true;
    if (std::is_same_v<T, plait::Dtype> && object.is_none()) return true;
    return !object.is_none() && make_caster<T>().from_python(object, flags, list);
  }
};
