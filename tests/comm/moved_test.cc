// A communicator that was moved to another is refused whatever it is asked.
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait {
namespace {

TEST(MovedFrom, ACommunicatorSaysSo) {
  conformance::run_as_threads(
      1,
      [](Communicator& comm) {
        Communicator first = comm.with_link(std::nullopt);
        Communicator second = std::move(first);
        const std::vector<std::function<void()>> uses = {
            // NOLINTBEGIN: used on purpose
            [&] { static_cast<void>(first.rank()); },
            [&] { static_cast<void>(first.world()); },
            [&] { static_cast<void>(first.transport()); },
            [&] { static_cast<void>(first.link()); },
            [&] { static_cast<void>(first.trace()); },
            [&] { static_cast<void>(first.mailbox_bytes()); },
            [&] { first.split(0, 0); },
            [&] { first.with_link(std::nullopt); },
            [&] { first.make_mailbox({.slots = 1, .slot_bytes = 8}); },
            [&] { first.cached_mailbox({.slots = 1, .slot_bytes = 8}); },
            [&] { first.abort("a reason"); },
            [&] { barrier(first); }};  // NOLINTEND
        for (const auto& use : uses) {
          const Error error = conformance::expect_error(Code::invalid_argument, use);
          EXPECT_STREQ(error.what(), "this communicator was moved to another, which has its ranks");
        }
        barrier(second);
      },
      {});
}

}  // namespace
}  // namespace plait
