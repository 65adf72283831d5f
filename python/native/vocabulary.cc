#include "plait/vocabulary.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "communicator.h"
#include "named.h"
#include "views.h"

namespace plait::python {
namespace {

template <class T>
using Array = nb::ndarray<T, nb::c_contig, nb::device::cpu>;

template <class T>
std::span<T> span_of(const Array<T>& array) {
  return {array.data(), array.size()};
}
template <class T>
std::span<T> span_of(const std::optional<Array<T>>& array) {
  return array ? span_of(*array) : std::span<T>();
}

using Ids = Array<const std::int64_t>;
using Numbers = Array<const float>;
using Results = Array<float>;

// The keyword arguments that all calls have.
struct How {
  std::int64_t vocab_size;
  std::int64_t first_id;
  Named<Dtype> logits;
  int threads;
  const std::string& backend;

  VocabularyOptions options() const {
    return {.vocab_size = vocab_size,
            .first_id = first_id,
            .logits = logits,
            .threads = threads,
            .backend = backend};
  }
};

constexpr const char* kHow =
    "vocab_size: int = -1, first_id: int = -1, logits: Dtype | str = 'f32', "
    "threads: int = 0, backend: str = '') -> None";

void bind_top(nb::module_& m) {
  constexpr const char* kName = "matmul_top";
  const std::string signature =
      std::string("def matmul_top(x: Array | TensorView, weight: PackedWeight | WeightView, ") +
      "k: int, values: Array, ids: Array, comm: Communicator, *, " + kHow;
  m.def(
      kName,
      [](nb::handle x, nb::handle weight, std::int64_t k, const Results& values,
         const Array<std::int64_t>& ids, PyCommunicator& comm, std::int64_t vocab_size,
         std::int64_t first_id, Named<Dtype> logits, int threads, const std::string& backend) {
        const ConstTensorView rows = const_view_of(x, {kName, "x"});
        const Weight by = weight_of(weight, {kName, "weight"});
        const VocabularyOptions options =
            How{vocab_size, first_id, logits, threads, backend}.options();
        const Top top = {.k = k, .values = span_of(values), .ids = span_of(ids)};
        comm.use([&](Communicator& c) { matmul_top(rows, by, top, c, options); });
      },
      nb::arg("x"), nb::arg("weight"), nb::arg("k"), nb::arg("values"), nb::arg("ids"),
      nb::arg("comm"), nb::kw_only(), nb::arg("vocab_size") = -1, nb::arg("first_id") = -1,
      nb::arg("logits") = Dtype::f32, nb::arg("threads") = 0, nb::arg("backend") = "",
      nb::sig(signature.c_str()),
      "Find the k largest logits of each row and their ids: the lowest of equal ones first.\n\n"
      "All ranks have the same x; `weight` is this rank's rows of the vocabulary. `values` takes\n"
      "[m, k] f32, and `ids` [m, k] int64. Ids from `vocab_size` on are padding. Beside it,\n"
      "`first_id`, the id of the first row, saves an exchange if all ranks give it. Logits are\n"
      "rounded to the dtype `logits` before they are compared.");
}

// A call that computes losses or their gradients.
struct Loss {
  const char* name;
  CrossEntropyOptions options;
};

// Binds one, with the keyword arguments that all have after its own.
template <class... Own, class... Arguments>
void bind_loss(nb::module_& m, const char* name, const char* parameters, const char* doc,
               void (*call)(const Loss&, Own...), const Arguments&... arguments) {
  const std::string signature =
      std::string("def ") + name + "(x: Array | TensorView, " + parameters +
      "label_smoothing: float = 0.0, z_loss: float = 0.0, ignored_target: int = -100, " + kHow;
  m.def(
      name,
      [name, call](Own... own, float label_smoothing, float z_loss, std::int64_t ignored_target,
                   std::int64_t vocab_size, std::int64_t first_id, Named<Dtype> logits, int threads,
                   const std::string& backend) {
        call({.name = name,
              .options = {.vocabulary =
                              How{vocab_size, first_id, logits, threads, backend}.options(),
                          .label_smoothing = label_smoothing,
                          .z_loss = z_loss,
                          .ignored_target = ignored_target}},
             own...);
      },
      arguments..., nb::arg("label_smoothing") = 0.0F, nb::arg("z_loss") = 0.0F,
      nb::arg("ignored_target") = -100, nb::arg("vocab_size") = -1, nb::arg("first_id") = -1,
      nb::arg("logits") = Dtype::f32, nb::arg("threads") = 0, nb::arg("backend") = "",
      nb::sig(signature.c_str()), doc);
}

using Forward = void(const CrossEntropyCall&, Communicator&, const CrossEntropyOptions&);

template <Forward* kCall>
void forward(const Loss& loss, nb::handle x, nb::handle weight, const Ids& targets,
             const Results& out, PyCommunicator& comm, const std::optional<Results>& log_sum_exp) {
  const CrossEntropyCall call = {.x = const_view_of(x, {loss.name, "x"}),
                                 .weight = weight_of(weight, {loss.name, "weight"}),
                                 .targets = span_of(targets),
                                 .out = span_of(out),
                                 .log_sum_exp = span_of(log_sum_exp)};
  comm.use([&](Communicator& c) { kCall(call, c, loss.options); });
}

template <Forward* kCall>
void bind_forward(nb::module_& m, const char* name, const char* doc) {
  bind_loss(m, name,
            "weight: PackedWeight | WeightView, targets: Array, out: Array, comm: Communicator, "
            "*, log_sum_exp: Array | None = None, ",
            doc, &forward<kCall>, nb::arg("x"), nb::arg("weight"), nb::arg("targets"),
            nb::arg("out"), nb::arg("comm"), nb::kw_only(), nb::arg("log_sum_exp") = nb::none());
}

void gradient(const Loss& loss, nb::handle x, const WeightView& weight, const Ids& targets,
              const Numbers& log_sum_exp, const Numbers& grad_loss, PyCommunicator& comm,
              const std::optional<Numbers>& grad_log_sum_exp, nb::handle dx, nb::handle dw,
              bool accumulate_dw) {
  const CrossEntropyGradient call = {.x = const_view_of(x, {loss.name, "x"}),
                                     .weight = weight,
                                     .targets = span_of(targets),
                                     .log_sum_exp = span_of(log_sum_exp),
                                     .grad_loss = span_of(grad_loss),
                                     .grad_log_sum_exp = span_of(grad_log_sum_exp),
                                     .dx = view_of(dx, {loss.name, "dx"}),
                                     .dw = view_of(dw, {loss.name, "dw"}),
                                     .accumulate_dw = accumulate_dw};
  comm.use([&](Communicator& c) { matmul_cross_entropy_gradient(call, c, loss.options); });
}

void with_gradient(const Loss& loss, nb::handle x, const WeightView& weight, const Ids& targets,
                   const Numbers& grad_loss, PyCommunicator& comm, const Results& losses,
                   const Results& log_sum_exp, nb::handle dx, nb::handle dw) {
  const CrossEntropyGradient call = {.x = const_view_of(x, {loss.name, "x"}),
                                     .weight = weight,
                                     .targets = span_of(targets),
                                     .log_sum_exp = {},
                                     .grad_loss = span_of(grad_loss),
                                     .dx = view_of(dx, {loss.name, "dx"}),
                                     .dw = view_of(dw, {loss.name, "dw"})};
  const CrossEntropyResults results = {.losses = span_of(losses),
                                       .log_sum_exp = span_of(log_sum_exp)};
  comm.use(
      [&](Communicator& c) { matmul_cross_entropy_with_gradient(call, results, c, loss.options); });
}

void bind_gradients(nb::module_& m) {
  bind_loss(
      m, "matmul_cross_entropy_gradient",
      "weight: WeightView, targets: Array, log_sum_exp: Array, grad_loss: Array, "
      "comm: Communicator, *, grad_log_sum_exp: Array | None = None, "
      "dx: Array | TensorView | None = None, dw: Array | TensorView | None = None, "
      "accumulate_dw: bool = False, ",
      "Compute the gradients of matmul_cross_entropy(): of x, summed over ranks, and of the\n"
      "weight.\n\n"
      "`log_sum_exp` is what the loss has returned, `grad_loss` [m] the gradient of the result.\n"
      "`dx` is [m, k] and `dw` as the weight [ids, k]; None: not wanted, for dx by all ranks.\n"
      "`accumulate_dw` adds to dw.",
      &gradient, nb::arg("x"), nb::arg("weight"), nb::arg("targets"), nb::arg("log_sum_exp"),
      nb::arg("grad_loss"), nb::arg("comm"), nb::kw_only(),
      nb::arg("grad_log_sum_exp") = nb::none(), nb::arg("dx") = nb::none(),
      nb::arg("dw") = nb::none(), nb::arg("accumulate_dw") = false);
  bind_loss(
      m, "matmul_cross_entropy_with_gradient",
      "weight: WeightView, targets: Array, grad_loss: Array, comm: Communicator, *, "
      "losses: Array, log_sum_exp: Array, dx: Array | TensorView | None = None, "
      "dw: Array | TensorView | None = None, ",
      "Compute losses and their gradients at once, by three products in place of four.\n\n"
      "`grad_loss` [m] is the gradient of the result. `losses` and `log_sum_exp` take what\n"
      "matmul_cross_entropy() computes, and `dx` and `dw` what matmul_cross_entropy_gradient()\n"
      "does. dw is rounded after each 512 rows.",
      &with_gradient, nb::arg("x"), nb::arg("weight"), nb::arg("targets"), nb::arg("grad_loss"),
      nb::arg("comm"), nb::kw_only(), nb::arg("losses"), nb::arg("log_sum_exp"),
      nb::arg("dx") = nb::none(), nb::arg("dw") = nb::none());
}

}  // namespace

void bind_vocabulary(nb::module_& m) {
  bind_top(m);
  bind_forward<&matmul_cross_entropy>(
      m, "matmul_cross_entropy",
      "Compute the losses of rows whose logits are x·weight, without keeping logits.\n\n"
      "All ranks have the same x and `targets` [m] int64; `weight` is this rank's rows of\n"
      "the vocabulary. `out` and `log_sum_exp` take [m] f32, the same on all ranks. A row\n"
      "with `ignored_target` has a loss of 0. Ids from `vocab_size` on are padding.\n"
      "Logits are rounded to the dtype `logits` before they are used.");
  bind_forward<&matmul_log_probs>(
      m, "matmul_log_probs",
      "Compute the logarithms of the targets' probabilities, as matmul_cross_entropy()\n"
      "computes losses. label_smoothing and z_loss must be 0.");
  bind_gradients(m);
}

}  // namespace plait::python
