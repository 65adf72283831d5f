// A memory as weak as C++ lets it be, and a search of all that a few threads can do on it.
//
// The threads are fibers. Before each access to an Atomic the search chooses which thread goes on;
// and for each load it chooses which value is read: an older one too, unless the thread knows of a
// newer. It runs the threads again and again until every choice has been made. An emulator of a
// weakly ordered processor shows none of this, as it runs on one that is not.
//
// Not tried are runs in which threads are interrupted more than twice; a thread that reads the
// same older value more than twice; a failed exchange that reads an older one; a load that reads a
// store which depends on what its own thread stores later; and stores to one place that take effect
// in another order than that in which they were made.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/function_ref.h"

namespace plait::weak {

// An order that the memory leaves out although the code asks for it: a search that finds no fault
// then would show nothing.
enum class Without : std::uint8_t { nothing, release, acquire, heavy_fence };

struct Outcome {
  std::string fault;  // the first that was found; empty: there is none
  int runs = 0;
};

// `make` makes what the threads share, anew for each run, and then the threads.
using Threads = std::vector<std::function<void()>>;
Outcome search(const std::function<Threads()>& make, Without without = Without::nothing);

// The rest is for the threads.

// A fault, with this sentence, unless it holds.
void expect(bool holds, const char* sentence);

// Goes on when `ready` says so. A fault if no thread will make it so. False: a fault has been
// found, and the thread has to end.
bool await(base::FunctionRef<bool()> ready);

// Lets the others go on, until one has stored something or none can.
void nap();

// An access to memory that is not atomic: a fault unless those of other threads, of which one is a
// write, come before it.
void write(const void* place);
void read(const void* place);

// A full fence in every thread.
void heavy_fence();

// Sleeps until woken, if the word has this value. A fault if no thread wakes the sleeper.
void sleep_on(const void* word, std::uint64_t value);
void wake_all(const void* word);

std::uint64_t load(const void* place, std::uint64_t first, std::memory_order order);
void store(const void* place, std::uint64_t first, std::uint64_t value, std::memory_order order);

// Changes the newest value by `change`, which returns false to leave it; returns what it found.
std::uint64_t exchange(const void* place, std::uint64_t first, std::memory_order order,
                       base::FunctionRef<bool(std::uint64_t& value)> change);

// Has the functions of std::atomic that plait uses, and its size: the values that it has had are
// kept elsewhere, by its address.
template <class T>
class Atomic {
 public:
  Atomic() = default;
  Atomic(T value) : first_(value) {}  // NOLINT(*-explicit-*): as std::atomic
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

  T load(std::memory_order order) const { return value_of(weak::load(this, first(), order)); }
  void store(T value, std::memory_order order) {
    weak::store(this, first(), word_of(value), order);
  }
  T exchange(T value, std::memory_order order) {
    return change(order, [&](T /*found*/) { return value; });
  }
  T fetch_add(T value, std::memory_order order) {
    return change(order, [&](T found) { return static_cast<T>(found + value); });
  }
  T fetch_sub(T value, std::memory_order order) {
    return change(order, [&](T found) { return static_cast<T>(found - value); });
  }
  T fetch_and(T value, std::memory_order order) {
    return change(order, [&](T found) { return static_cast<T>(found & value); });
  }
  bool compare_exchange_strong(T& expected, T value, std::memory_order order,
                               std::memory_order /*otherwise*/) {
    const T found = value_of(weak::exchange(this, first(), order, [&](std::uint64_t& word) {
      if (value_of(word) != expected) return false;
      word = word_of(value);
      return true;
    }));
    const bool same = found == expected;
    expected = found;
    return same;
  }
  bool compare_exchange_weak(T& expected, T value, std::memory_order order,
                             std::memory_order otherwise) {
    return compare_exchange_strong(expected, value, order, otherwise);
  }

 private:
  static std::uint64_t word_of(T value) {
    std::uint64_t word = 0;
    std::memcpy(&word, &value, sizeof(value));
    return word;
  }
  static T value_of(std::uint64_t word) {
    T value;
    std::memcpy(&value, &word, sizeof(value));
    return value;
  }
  std::uint64_t first() const { return word_of(first_); }

  template <class Change>
  T change(std::memory_order order, const Change& to) {
    return value_of(weak::exchange(this, first(), order, [&](std::uint64_t& word) {
      word = word_of(to(value_of(word)));
      return true;
    }));
  }

  T first_{};
};

}  // namespace plait::weak
