#include "comm/collective_case.h"

#include <gtest/gtest.h>

#include "plait/error.h"

namespace plait::bench {
namespace {

constexpr std::array<CollectiveKind, 6> kKinds = {{{Operation::all_reduce},
                                                   {Operation::all_reduce, Dtype::bf16},
                                                   {Operation::reduce_scatter},
                                                   {Operation::all_gather},
                                                   {Operation::broadcast},
                                                   {Operation::all_to_all}}};

TEST(CollectiveCase, RightResultsPass) {
  for (const int world : {1, 2, 3}) {
    run_in_threads(world, [](Communicator& comm) {
      for (const CollectiveKind& kind : kKinds) {
        for (const std::size_t bytes : {0, 64, 1000, 65536}) {
          CollectiveCase test(kind, bytes, comm);
          EXPECT_NO_THROW(test.check("plait", [&] { test.call(); })) << describe(kind) << bytes;
        }
      }
    });
  }
}

// A call that does nothing, after a correct one: the old output must not pass the check.
TEST(CollectiveCase, MissingResultIsNoticed) {
  run_in_threads(2, [](Communicator& comm) {
    for (const CollectiveKind& kind : kKinds) {
      CollectiveCase test(kind, 1000, comm);
      test.check("plait", [&] { test.call(); });
      if (kind.operation == Operation::broadcast && comm.rank() == 0) {
        EXPECT_NO_THROW(test.check("nobody", [] {}));  // the root has it already
      } else {
        EXPECT_THROW(test.check("nobody", [] {}), Error) << describe(kind);
      }
    }
  });
}

TEST(CollectiveCase, OneWrongByteIsNoticed) {
  run_in_threads(2, [](Communicator& comm) {
    for (const CollectiveKind& kind : kKinds) {
      CollectiveCase test(kind, 4096, comm);
      const auto spoilt = [&] {
        test.call();
        const Elements out = test.out();
        static_cast<std::byte*>(out.data)[out.count * size_of(out.dtype) - 1] ^= std::byte{1};
      };
      try {
        test.check("somebody", spoilt);
        ADD_FAILURE() << describe(kind) << " passed";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::mismatch);
        EXPECT_NE(std::string(error.what()).find("somebody's " + describe(kind)), std::string::npos)
            << error.what();
      }
    }
  });
}

}  // namespace
}  // namespace plait::bench
