#include "heads/agreement.h"

#include <cstring>
#include <string>

#include "base/check.h"
#include "plait/collectives.h"
#include "plait/vocabulary.h"

namespace plait::heads {
namespace {

struct Term {
  const char* name;
  std::int64_t Terms::* value;
};

constexpr std::array<Term, 8> kTerms = {{{"rows of x", &Terms::rows},
                                         {"columns of x", &Terms::k_of_x},
                                         {"vocab_size", &Terms::vocab_size},
                                         {"k", &Terms::k},
                                         {"gradients of x", &Terms::wants_dx},
                                         {"targets with the fingerprint", &Terms::targets},
                                         {"options with the fingerprint", &Terms::options},
                                         {"grad_loss with the fingerprint", &Terms::grad_loss}}};

constexpr const char* kDiffer =
    ": the ranks' calls differ, perhaps in their rows of x, k, vocab_size or first_id: ";

[[noreturn]] void fail(const std::string& sentence, int culprit) {
  throw Error(Code::mismatch, sentence, culprit);
}

}  // namespace

std::vector<std::byte> Agreement::gather(std::span<const std::byte> mine) {
  const Header header = {.terms = terms_, .place = place_};
  const std::size_t each = sizeof header + mine.size();
  const auto world = static_cast<std::size_t>(comm_.world());
  std::vector<std::byte> own;
  std::vector<std::byte> all;
  std::vector<std::byte> rest;
  fail_together(name_, comm_, [&] {
    own.resize(each);
    all.resize(world * each);
    rest.resize(world * mine.size());
  });
  std::memcpy(own.data(), &header, sizeof header);
  if (!mine.empty()) std::memcpy(own.data() + sizeof header, mine.data(), mine.size());
  try {
    all_gather({own.data(), each, Dtype::s8}, {all.data(), all.size(), Dtype::s8}, comm_);
  } catch (const Error& error) {
    if (error.code() != Code::mismatch) throw;
    throw Error(Code::mismatch, base::sentence(name_, kDiffer, error.what()), error.culprit());
  }
  std::vector<Header> headers(world);
  for (std::size_t rank = 0; rank < world; ++rank) {
    const std::byte* from = all.data() + rank * each;
    std::memcpy(&headers[rank], from, sizeof header);
    if (!mine.empty())
      std::memcpy(rest.data() + rank * mine.size(), from + sizeof header, mine.size());
  }
  check(headers);
  return rest;
}

void Agreement::check(std::span<const Header> all) {
  total_ = 0;
  firsts_.clear();
  for (int rank = 0; rank < static_cast<int>(all.size()); ++rank) {
    const Header& one = all[static_cast<std::size_t>(rank)];
    for (const Term& term : kTerms) {
      const std::int64_t first = all[0].terms.*term.value;
      const std::int64_t other = one.terms.*term.value;
      if (other == first) continue;
      fail(base::sentence(name_, ": rank ", rank, " has ", term.name, ' ', other,
                          ", and rank 0 has ", first),
           rank);
    }
    if (one.place.first >= 0 && one.place.first != total_) {
      fail(base::sentence(name_, ": rank ", rank, " gives first_id ", one.place.first,
                          ", but the ranks before it have ", total_, " rows of the weight"),
           rank);
    }
    if (rank == comm_.rank()) place_.first = total_;
    firsts_.push_back(total_);
    if (one.place.share < 0)
      fail(base::sentence(name_, ": rank ", rank, " has ", one.place.share, " rows"), rank);
    PLAIT_CHECK(one.place.share <= kMostVocabulary - total_, name_,
                ": the weights of the ranks up to ", rank, " have more than the ", kMostVocabulary,
                " rows that are allowed");
    total_ += one.place.share;
  }
  PLAIT_CHECK(terms_.vocab_size <= total_, name_, ": vocab_size is ", terms_.vocab_size,
              ", but the ranks' weights have ", total_, " rows");
}

void Agreement::find_place() {
  if (place_.first < 0) gather({});
}

}  // namespace plait::heads
