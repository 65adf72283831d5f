// plait.Error itself is written in Python (errors.py), so that Python raises the same class.
#include "plait/error.h"

#include <algorithm>
#include <string>

#include "native.h"
#include "plait/operator.h"
#include "plait/tag.h"

namespace plait::python {
namespace {

// The operator that a sentence is about, which it begins with: "all_reduce: ...".
std::string_view operator_of(std::string_view sentence) {
  const std::string_view word = sentence.substr(0, sentence.find(':'));
  if (const auto op = parse_operator(word)) return name(*op);
  for (int i = 1; i <= static_cast<int>(Operation::expert_parallel_mlp); ++i)
    if (word == name(static_cast<Operation>(i))) return word;
  return {};
}

void translate(const std::exception_ptr& thrown, void* /*payload*/) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    const nb::object type = nb::module_::import_("plait.errors").attr("Error");
    const std::string_view op = operator_of(error.what());
    nb::object culprit = nb::none();
    if (error.culprit() != Error::kNoRank) culprit = nb::int_(error.culprit());
    nb::object about = nb::none();
    if (!op.empty()) about = nb::str(op.data(), op.size());
    const nb::object raised =
        type(error.code(), error.what(), nb::arg("culprit") = culprit, nb::arg("operator") = about);
    PyErr_SetObject(type.ptr(), raised.ptr());
  }
}

}  // namespace

void bind_error(nb::module_& m) {
  nb::enum_<Code>(m, "Code", "The kind of thing that went wrong.")
      .value("invalid_argument", Code::invalid_argument,
             "The caller's mistake; nothing was written.")
      .value("mismatch", Code::mismatch, "Ranks disagree about the call they are in.")
      .value("peer_lost", Code::peer_lost, "A rank died, left, or was told to abort.")
      .value("timeout", Code::timeout,
             "A rank is there but did not do its part before the deadline.")
      .value("system", Code::system, "The operating system refused something.");
  nb::register_exception_translator(translate);
}

}  // namespace plait::python
