// How libxsmm's generator behaves inside the caller's process.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <filesystem>

#include "gemm/xsmm/factory.h"

namespace plait::gemm::xsmm {
namespace {

constexpr int kCantForbid = 77;

// From now on mprotect() makes nothing executable, as under SELinux or systemd's
// MemoryDenyWriteExecute.
bool forbid_executable_memory() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {.len = std::size(rules), .filter = rules};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(Xsmm, SaysThatThisProcessMayNotCreateExecutableMemory) {
  if (refusal(Dtype::f32) != nullptr) GTEST_SKIP() << refusal(Dtype::f32);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (!forbid_executable_memory()) _exit(kCantForbid);
    const char* reason = refusal(Dtype::f32);
    const char* want = "this process may not create executable memory";
    _exit(reason != nullptr && std::strcmp(reason, want) == 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kCantForbid) GTEST_SKIP() << "this system has no seccomp filters";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Xsmm, RefusesWhatItDoesNotMultiply) {
  EXPECT_NE(refusal(Dtype::f16), nullptr);
  EXPECT_NE(refusal(Dtype::s8), nullptr);
}

// The whole libxsmm would take its settings from there and talk about them.
TEST(Xsmm, PrintsNothingAndLeavesNothing) {
  if (refusal(Dtype::f32) != nullptr) GTEST_SKIP() << refusal(Dtype::f32);
  const auto file = std::filesystem::path("/tmp") / (".libxsmm." + std::to_string(getuid()));
  const bool was_there = std::filesystem::exists(file);
  setenv("LIBXSMM_VERBOSE", "-1", 1);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  create(Dtype::f32);
  if (refusal(Dtype::bf16) == nullptr) create(Dtype::bf16);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(std::filesystem::exists(file), was_there);
  unsetenv("LIBXSMM_VERBOSE");
}

}  // namespace
}  // namespace plait::gemm::xsmm
