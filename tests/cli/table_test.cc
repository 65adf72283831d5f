#include "cli/table.h"

#include <gtest/gtest.h>

namespace plait::cli {
namespace {

TEST(Table, AlignsItsColumns) {
  Table table({"name", "time", "more"}, /*left=*/1);
  table.add({"a", "100 ms", "7"});
  table.add({"longer", "1 s"});
  EXPECT_EQ(table.text(),
            "name      time  more\n"
            "a       100 ms     7\n"
            "longer     1 s\n");
}

}  // namespace
}  // namespace plait::cli
