// A rank that multiplies until it is killed or told to end, and goes on after a loss of others.
#pragma once

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <new>
#include <string>

#include "base/check.h"
#include "base/clock.h"

namespace plait::chaos {

inline constexpr int kWorld = 4;

// One answer of survivors(), with ranks as bits of the first group.
struct Answer {
  unsigned members;
  unsigned lost;
  std::uint64_t completed_calls;
  std::uint64_t own_calls;
  base::Nanoseconds called, answered, went_on;  // went_on: after the first product; 0: it failed
};

struct RankState {
  std::atomic<bool> works;
  std::atomic<bool> has_called;  // survivors()
  std::atomic<unsigned> members;
  int answers;
  std::array<Answer, kWorld> answer;
  std::array<char, 400> fault;

  // The store through which ranks over tcp find each other.
  std::atomic<bool> has_card;
  std::array<char, 2048> card;
};

struct Page {
  std::array<RankState, kWorld> ranks;
  std::atomic<bool> is_over;
};

// In memory that the ranks share with their parent.
class SharedPage {
 public:
  SharedPage() {
    void* memory =
        ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) base::fail_errno("cannot map a page");
    page_ = new (memory) Page();
  }
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;
  ~SharedPage() { ::munmap(page_, sizeof(Page)); }
  Page* operator->() const { return page_; }
  Page& operator*() const { return *page_; }

 private:
  Page* page_;
};

// Ends the process. What has failed is then in the page.
[[noreturn]] void be_rank(Page& page, int rank, const std::string& transport,
                          const std::string& job);

}  // namespace plait::chaos
