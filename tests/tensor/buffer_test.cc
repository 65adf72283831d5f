#include "plait/buffer.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/round_up.h"
#include "base/sanitized.h"
#include "tensor/huge_pages.h"
#include "tensor/print.h"
#include "tensor/sentence_of.h"
#include "tensor/shared_pages.h"

// Makes an allocation that is too large fail with sanitizers as it does without.
extern "C" PLAIT_EXPORT const char* __asan_default_options() {  // NOLINT: not our name
  return "allocator_may_return_null=1";
}
extern "C" PLAIT_EXPORT const char* __tsan_default_options() {  // NOLINT: not our name
  return "allocator_may_return_null=1";
}

namespace plait {
namespace {

static_assert(!std::is_copy_constructible_v<Buffer> &&
              std::is_nothrow_move_constructible_v<Buffer>);

const std::size_t kHugePage = tensor::huge_page();

// The smallest that shares huge pages.
constexpr std::size_t kSmall = std::size_t{64} << 10;

std::size_t misalignment(const Buffer& buffer, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(buffer.data()) % alignment;
}

TEST(Buffer, IsAlignedAndWritableToItsLastByte) {
  for (const std::size_t bytes : {1U, 63U, 64U, 65U, 4097U, 3U << 20}) {
    const Buffer buffer(bytes);
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_EQ(misalignment(buffer, Buffer::kAlignment), 0);
    std::memset(buffer.data(), 0x5a, bytes);
    EXPECT_EQ(buffer.data()[bytes - 1], std::byte{0x5a});
  }
}

TEST(Buffer, OfNoBytesIsLegal) {
  for (const Buffer& buffer : {Buffer(), Buffer(0), Buffer(0, {.huge_pages = true})}) {
    EXPECT_EQ(buffer.bytes(), 0);
    EXPECT_EQ(buffer.data(), nullptr);
    EXPECT_EQ(buffer.view(Dtype::f32, 0, 7).bytes(), 0);
    EXPECT_EQ(buffer.huge_page_bytes(), 0);
  }
}

TEST(Buffer, MovedFromIsEmptyAndMayBeUsedAgain) {
  Buffer first(100);
  const std::byte* data = first.data();
  Buffer second = std::move(first);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(second.bytes(), 100);
  EXPECT_EQ(first.data(), nullptr);  // NOLINT(bugprone-use-after-move): that is what is tested
  EXPECT_EQ(first.bytes(), 0);
  EXPECT_EQ(first.view(Dtype::f32, 0, 0).data, nullptr);
  first = Buffer(3 * kHugePage, {.huge_pages = true});
  second = std::move(first);
  EXPECT_EQ(second.bytes(), 3 * kHugePage);
  EXPECT_EQ(first.huge_page_bytes(), 0);  // NOLINT(bugprone-use-after-move)
}

TEST(Buffer, GivesViews) {
  const Buffer buffer = Buffer::for_tensor(Dtype::bf16, 5, 7);
  EXPECT_EQ(buffer.bytes(), 70);
  const TensorView view = buffer.view(Dtype::bf16, 5, 7);
  EXPECT_EQ(view.data, buffer.data());
  EXPECT_EQ(view.row_stride, 7);
  EXPECT_EQ(view.device, kCpu);
  EXPECT_TRUE(view.is_contiguous());
  EXPECT_EQ(buffer.view(Dtype::f32, 1, 17).bytes(), 68);
}

TEST(Buffer, RefusesViewsThatDoNotFit) {
  const Buffer buffer(47);
  EXPECT_EQ(sentence_of([&] { buffer.view(Dtype::f32, 3, 4); }),
            "Buffer: a view of 3 x 4 f32 takes 48 bytes but the buffer has 47");
  EXPECT_EQ(sentence_of([&] { buffer.view(Dtype::f32, -1, 4); }),
            "Buffer: a view that is -1 x 4: sizes must be 0 or more");
  EXPECT_EQ(sentence_of([&] { buffer.view(Dtype::f32, INT64_MAX / 2, 2); }),
            "Buffer: a view that is 4611686018427387903 x 2 f32: more than memory can hold");
}

TEST(Buffer, RefusesSizesThatOverflow) {
  EXPECT_EQ(sentence_of([] { Buffer::for_tensor(Dtype::bf16, INT64_MAX, 3); }),
            "Buffer: a tensor that is 9223372036854775807 x 3 bf16: more than memory can hold");
  EXPECT_EQ(sentence_of([] { Buffer::for_tensor(Dtype::s8, 1, -3); }),
            "Buffer: a tensor that is 1 x -3: sizes must be 0 or more");
  for (const bool huge : {false, true}) {
    EXPECT_EQ(sentence_of([&] {
                const Buffer buffer(std::numeric_limits<std::size_t>::max(), {.huge_pages = huge});
              }),
              "Buffer: 18446744073709551615 bytes are more than memory can hold");
  }
}

TEST(Buffer, SaysHowManyBytesItCouldNotGet) {
  constexpr std::size_t kTooMany = std::size_t{1} << 62;
  for (const bool huge : {false, true}) {
    EXPECT_EQ(
        sentence_of([&] { const Buffer buffer(kTooMany, {.huge_pages = huge}); }, Code::system),
        "Buffer: cannot get 4611686018427387904 bytes: Cannot allocate memory");
  }
}

TEST(Buffer, InHugePagesStartsWithOneAndSaysHowManyItGot) {
  const Buffer buffer(2 * kHugePage + 5, {.huge_pages = true});
  EXPECT_EQ(buffer.bytes(), 2 * kHugePage + 5);
  EXPECT_EQ(misalignment(buffer, Buffer::kAlignment), 0);
  EXPECT_EQ(buffer.huge_page_bytes(), 0) << "nothing was touched yet";
  std::memset(buffer.data(), 1, buffer.bytes());
  // The system decides how much it gives, but it gives whole pages.
  const std::size_t got = buffer.huge_page_bytes();
  EXPECT_EQ(got % kHugePage, 0);
  EXPECT_LE(got, 3 * kHugePage);
  RecordProperty("huge_page_bytes", std::to_string(got));
}

TEST(Buffer, OfFewBytesIsAnOrdinaryBuffer) {
  const Buffer buffer(kSmall - 1, {.huge_pages = true});
  std::memset(buffer.data(), 1, buffer.bytes());
  EXPECT_EQ(buffer.huge_page_bytes(), 0);
}

constexpr const char* kNotShared = kIsAddressSanitized
                                       ? "with the address sanitizer buffers share no pages"
                                       : "this system has no huge pages of 2 MiB";

// True if buffers below one huge page share them here.
bool are_shared() {
  std::byte* const data = tensor::take_shared_pages(kSmall);
  if (data != nullptr) tensor::give_shared_pages(data, kSmall);
  return data != nullptr;
}

TEST(Buffer, BelowOneHugePageLiesBesideOthers) {
  if (!are_shared()) GTEST_SKIP() << kNotShared;
  std::vector<Buffer> buffers;
  for (const std::size_t bytes : {kSmall, kSmall + 1, kHugePage / 2, kHugePage - 1, kSmall + 64}) {
    buffers.emplace_back(bytes, BufferOptions{.huge_pages = true});
    std::memset(buffers.back().data(), static_cast<int>(buffers.size()), bytes);
  }
  const std::byte* next = buffers.front().data();
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_EQ(misalignment(buffers[i], Buffer::kAlignment), 0);
    EXPECT_EQ(buffers[i].data(), next);
    next += base::round_up(buffers[i].bytes(), Buffer::kAlignment);
    const auto value = static_cast<std::byte>(i + 1);
    EXPECT_EQ(buffers[i].data()[0], value);
    EXPECT_EQ(buffers[i].data()[buffers[i].bytes() - 1], value);
  }
  // Two that lay side by side leave room for a larger one, whose neighbours keep their bytes.
  const std::byte* const place = buffers[1].data();
  const std::size_t both = buffers[1].bytes() + buffers[2].bytes();
  for (const std::size_t i : {2, 1}) buffers[i] = Buffer();
  buffers[1] = Buffer(both, {.huge_pages = true});
  EXPECT_EQ(buffers[1].data(), place);
  std::memset(buffers[1].data(), 0x77, both);
  EXPECT_EQ(buffers[0].data()[buffers[0].bytes() - 1], std::byte{1});
  EXPECT_EQ(buffers[3].data()[0], std::byte{4});
}

TEST(Buffer, BelowOneHugePageIsForItsThreadAlone) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  threads.reserve(4);
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([thread, &wrong] {
      std::vector<Buffer> own(5);
      for (std::size_t turn = 0; turn < 100; ++turn) {
        Buffer& buffer = own[turn % own.size()];
        const auto value = static_cast<std::byte>(thread);
        if (buffer.bytes() > 0 &&
            (buffer.data()[0] != value || buffer.data()[buffer.bytes() - 1] != value))
          ++wrong;
        buffer = Buffer(kSmall + 1000 * (turn % 7), {.huge_pages = true});
        buffer.data()[0] = buffer.data()[buffer.bytes() - 1] = value;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

// A child that waited for a lock of its parent's other thread would be killed. An emulator has
// locks of its own.
#ifndef PLAIT_EMULATED
TEST(Buffer, BelowOneHugePageIsThereInAForkedChild) {
  if (!are_shared()) GTEST_SKIP() << kNotShared;
  std::atomic<bool> ends{false};
  std::thread other([&ends] {
    while (!ends) const Buffer buffer(kSmall, {.huge_pages = true});
  });
  for (int child = 0; child < 300; ++child) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(10);
      {
        const Buffer buffer(kSmall, {.huge_pages = true});
      }
      ::_exit(0);
    }
    int status = -1;
    ::waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0) << "child " << child;
    if (status != 0) break;
  }
  ends = true;
  other.join();
}
#endif

TEST(Buffer, BelowOneHugePageGivesPagesBack) {
  if (!are_shared()) GTEST_SKIP() << kNotShared;
  std::vector<Buffer> buffers;
  buffers.reserve(80);
  for (int i = 0; i < 80; ++i)
    buffers.emplace_back(kHugePage - 1, BufferOptions{.huge_pages = true});
  const std::byte* const last = buffers.back().data();  // in a second region
  buffers.back().data()[0] = std::byte{1};
  const std::size_t got = buffers.back().huge_page_bytes();
  EXPECT_TRUE(got == 0 || got == kHugePage - 1) << got;
  buffers.clear();
  unsigned char is_there = 0;
  const std::byte* const page = last - reinterpret_cast<std::uintptr_t>(last) % 4096;
  EXPECT_EQ(::mincore(const_cast<std::byte*>(page), 4096, &is_there), -1) << "still mapped";
}

}  // namespace
}  // namespace plait
