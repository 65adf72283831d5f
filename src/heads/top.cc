#include <cstring>

#include "base/check.h"
#include "base/default_floats.h"
#include "comm/session/state.h"
#include "heads/agreement.h"
#include "heads/checks.h"
#include "heads/logits.h"
#include "heads/top_rows.h"
#include "plait/trace.h"

namespace plait {
namespace heads {
namespace {

constexpr const char* kTop = "matmul_top";

// A logit on its way to the other ranks.
struct Candidate {
  float value;
  std::int32_t row;  // of the rank's weight; -1: none
};

// Its ids are rows of this rank's weight, of which only the first `columns` are no padding.
TopRows own_top(const ConstTensorView& x, const Weight& weight, std::int64_t columns,
                std::int64_t k, Communicator& comm, const VocabularyOptions& options) {
  const Span span(comm.trace(), Lane::compute, "product",
                  {.flops = 2 * x.rows * weight.n() * weight.k()});
  std::vector<TopRows> tops(
      static_cast<std::size_t>(Logits::workers(x.rows, columns, options.threads)),
      TopRows(x.rows, k));
  Logits::of(comm).run({x, weight, columns}, options, [&](const LogitRow& row) {
    tops[static_cast<std::size_t>(row.thread)].add(row.row, row.first_column, row.values,
                                                   row.count);
  });
  for (std::size_t i = 1; i < tops.size(); ++i) tops[0].add(tops[i]);
  return std::move(tops[0]);
}

std::vector<Candidate> candidates_of(const TopRows& top) {
  std::vector<Candidate> candidates;
  candidates.reserve(top.entries().size());
  for (const TopEntry& entry : top.entries()) {
    candidates.push_back(
        {.value = entry.value, .row = entry.key == 0 ? -1 : static_cast<std::int32_t>(entry.id())});
  }
  return candidates;
}

}  // namespace
}  // namespace heads

void matmul_top(const ConstTensorView& x, const Weight& weight, const Top& top, Communicator& comm,
                const VocabularyOptions& options) {
  using namespace heads;  // NOLINT(google-build-using-namespace): the call's own parts
  const Communicator::State::Use use(comm.state());
  const base::DefaultFloats floats;
  check_operands(kTop, x, weight, options);
  PLAIT_CHECK(top.k >= 1 && top.k <= kMostTop, kTop, ": k is ", top.k, "; it must be from 1 to ",
              kMostTop);
  check_size(kTop, "values", top.values.size(), x.rows * top.k);
  check_size(kTop, "ids", top.ids.size(), x.rows * top.k);
  const auto enough = [&](std::int64_t vocabulary) {
    PLAIT_CHECK(top.k <= vocabulary, kTop, ": k is ", top.k, ", but the vocabulary has ",
                vocabulary, " ids");
  };
  if (options.vocab_size >= 0) enough(options.vocab_size);
  Agreement agreement(kTop, comm,
                      {.rows = x.rows,
                       .k_of_x = x.cols,
                       .vocab_size = options.vocab_size,
                       .k = top.k,
                       .options = static_cast<std::int64_t>(options.logits)},
                      {.share = weight.n(), .first = options.first_id});
  if (options.vocab_size >= 0) agreement.find_place();
  const std::int64_t columns = own_columns(weight.n(), agreement.first(), options.vocab_size);
  std::vector<Candidate> own;
  fail_together(kTop, comm,
                [&] { own = candidates_of(own_top(x, weight, columns, top.k, comm, options)); });
  const std::vector<std::byte> all = agreement.gather(std::as_bytes(std::span(own)));
  enough(options.vocab_size >= 0 ? options.vocab_size : agreement.total());
  TopRows merged(x.rows, top.k);
  for (std::size_t i = 0; i * sizeof(Candidate) < all.size(); ++i) {
    Candidate one;
    std::memcpy(&one, all.data() + i * sizeof one, sizeof one);
    const auto row = static_cast<std::int64_t>(i % own.size()) / top.k;
    const std::int64_t first = agreement.first_of(i / own.size());
    if (one.row >= 0) merged.add(row, TopEntry::of(one.value, first + one.row));
  }
  for (std::size_t i = 0; i < own.size(); ++i) {
    top.values[i] = merged.entries()[i].value;
    top.ids[i] = merged.entries()[i].id();
  }
}

}  // namespace plait
