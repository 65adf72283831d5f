// Sentences about variables that nothing reads, and about values that are refused.
#include "environment/variables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "plait/settings.h"
#include "tensor/sentence_of.h"

namespace plait::environment {
namespace {

class Variables : public testing::Test {
 protected:
  ~Variables() override {
    for (const std::string& name : set_) ::unsetenv(name.c_str());
  }

  void set(const std::string& name, const char* value) {
    ::setenv(name.c_str(), value, /*overwrite=*/1);
    set_.push_back(name);
  }

  static bool says(const std::string& sentence) {
    const std::vector<std::string> remarks = check_environment();
    return std::find(remarks.begin(), remarks.end(), sentence) != remarks.end();
  }

 private:
  std::vector<std::string> set_;
};

TEST_F(Variables, MisspeltOnesAreNamed) {
  set("PLAIT_TIMEOT", "5s");
  set("COC_PARALEL_NUM", "4");
  set("USE_COC_FUSED_KERNE", "1");
  set("PLAIT_WIRE", "bf16");
  EXPECT_TRUE(says("PLAIT_TIMEOT: plait does not read it; did you mean PLAIT_TIMEOUT?"));
  EXPECT_TRUE(says("COC_PARALEL_NUM: plait does not read it; did you mean COC_PARALLEL_NUM?"));
  EXPECT_TRUE(
      says("USE_COC_FUSED_KERNE: plait does not read it; did you mean USE_COC_FUSED_KERNEL?"));
  for (const std::string& remark : check_environment()) EXPECT_FALSE(remark.starts_with("PLAIT_W"));
}

TEST_F(Variables, BadValuesOfEveryReaderAreRefused) {
  for (const auto& [name, value] : {std::pair{"PLAIT_PLAN", "fuzed"},
                                    {"COC_PARALLEL_NUM", "many"},
                                    {"PLAIT_TRANSPORT", "foo"},
                                    {"PLAIT_LINK", "rope"},
                                    {"PLAIT_TIMEOUT", "abc"},
                                    {"PLAIT_WAIT", "abc"},
                                    {"PLAIT_SECRET", "short"},
                                    {"PLAIT_PORTS", "low"},
                                    {"PLAIT_RENDEZVOUS", "node1"}}) {
    set(name, value);
    const std::string sentence = sentence_of([] { check_environment(); });
    EXPECT_NE(sentence, "nothing was refused") << name;
    ::unsetenv(name);
  }
  check_environment();
}

}  // namespace
}  // namespace plait::environment
