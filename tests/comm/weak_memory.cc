#include "comm/weak_memory.h"

#include <algorithm>
#include <map>
#include <memory>

#include "base/fiber.h"

namespace plait::weak {
namespace {

// A number for each thread, or for each place; 0 if it was never raised.
class Numbers {
 public:
  int operator[](std::size_t index) const { return index < of_.size() ? of_[index] : 0; }
  void raise(std::size_t index, int to) {
    if (index >= of_.size()) of_.resize(index + 1);
    of_[index] = std::max(of_[index], to);
  }
  void join(const Numbers& other) {
    for (std::size_t i = 0; i < other.of_.size(); ++i) raise(i, other.of_[i]);
  }

 private:
  std::vector<int> of_;
};

// How much of the others' work a thread knows.
struct Knowledge {
  Numbers oldest;  // of each place, the oldest store that it may still read
  Numbers clock;   // of each thread, its last step that comes before whatever this thread does next

  void join(const Knowledge& other) {
    oldest.join(other.oldest);
    clock.join(other.clock);
  }
};

struct Store {
  std::uint64_t value;
  Knowledge known;  // to those who read it with acquire
};

struct Place {
  std::size_t number;
  std::vector<Store> stores;  // oldest first
  int last_in_order = 0;      // the newest that is seq_cst
};

struct PlainPlace {
  std::size_t writer = 0;
  int written = 0;  // the writer's clock
  Numbers reads;    // clocks of the threads
};

struct Thread {
  std::unique_ptr<base::Fiber> fiber;
  std::function<void()> body;
  Knowledge known;
  bool ended = false;
  const void* sleeps_on = nullptr;
  bool awaits = false;        // a store of another thread
  int awaits_since = 0;       // the number of stores that there were then
  bool reads_newest = false;  // no other thread can go on: what has been stored arrives now
  std::map<std::size_t, std::pair<int, int>> older;  // by place: an older store, how often read
};

class Search {
 public:
  Search(const std::function<Threads()>& make, Without without) : make_(make), without_(without) {}

  Outcome run_all() {
    constexpr int kMostRuns = 2'000'000;
    do {
      run_once();
      ++outcome_.runs;
      if (outcome_.runs == kMostRuns) fail("the search takes too long");
    } while (outcome_.fault.empty() && next_choices());
    return outcome_;
  }

  void fail(const char* sentence) {
    if (outcome_.fault.empty()) outcome_.fault = sentence;
    over_ = true;
  }

  bool await(base::FunctionRef<bool()> ready) {
    while (!ready()) {
      if (over_) return false;
      nap();
    }
    current_->reads_newest = false;
    return true;
  }

  // Its next access comes when another thread has stored something, or none can go on.
  void nap() {
    current_->awaits = true;
    current_->awaits_since = stores_;
  }

  std::uint64_t load(const void* place, std::uint64_t first, std::memory_order order) {
    step();
    Place& at = place_of(place, first);
    return read_store(at, choose_store(at, order), order).value;
  }

  void store(const void* place, std::uint64_t first, std::uint64_t value, std::memory_order order) {
    step();
    add_store(place_of(place, first), value, order, Knowledge{});
    current_->fiber->leave();  // before what the thread does next, though it be no access
  }

  std::uint64_t exchange(const void* place, std::uint64_t first, std::memory_order order,
                         base::FunctionRef<bool(std::uint64_t&)> change) {
    step();
    Place& at = place_of(place, first);
    const Store found = read_store(at, at.stores.size() - 1, order);
    std::uint64_t value = found.value;
    // It continues the release sequence of the store that it has found.
    if (change(value)) add_store(at, value, order, found.known);
    return found.value;
  }

  void access(const void* place, bool writes) {
    step();
    PlainPlace& at = plain_[place];
    const Numbers& clock = current_->known.clock;
    if (at.written > clock[at.writer]) fail("an access does not come after a write");
    for (std::size_t thread = 0; writes && thread < threads_.size(); ++thread) {
      if (at.reads[thread] > clock[thread]) fail("a write does not come after a read");
    }
    const std::size_t me = number_of(*current_);
    at.reads.raise(me, clock[me]);
    if (!writes) return;
    at.writer = me;
    at.written = clock[me];
  }

  void heavy_fence() {
    step();
    if (without_ == Without::heavy_fence) return;
    Numbers all;
    for (const Thread& thread : threads_) all.join(thread.known.oldest);
    for (Thread& thread : threads_) thread.known.oldest = all;
  }

  void sleep_on(const void* word, std::uint64_t value) {
    step();
    const auto at = places_.find(word);
    if (over_ || at == places_.end() || at->second.stores.back().value != value) return;
    current_->sleeps_on = word;
    current_->fiber->leave();
  }

  void wake_all(const void* word) {
    step();
    for (Thread& thread : threads_) {
      if (thread.sleeps_on == word) thread.sleeps_on = nullptr;
    }
  }

 private:
  struct Choice {
    std::size_t chosen;
    std::size_t count;
  };

  void run_once() {
    next_choice_ = 0;
    interruptions_ = 0;
    over_ = false;
    stores_ = 0;
    places_.clear();
    plain_.clear();
    Threads bodies = make_();
    threads_.resize(bodies.size());
    for (std::size_t i = 0; i < bodies.size(); ++i) begin(threads_[i], std::move(bodies[i]));
    for (Thread& thread : threads_) go_on(thread);  // to its first access
    current_ = nullptr;
    while (Thread* thread = choose_thread()) go_on(*thread);
    for (Thread& thread : threads_) thread.body = nullptr;
  }

  // A thread's fiber serves all runs, since a stack takes longer to make than a run.
  static void begin(Thread& thread, std::function<void()> body) {
    std::unique_ptr<base::Fiber> fiber = std::move(thread.fiber);
    thread = Thread();
    thread.body = std::move(body);
    thread.fiber = std::move(fiber);
    if (thread.fiber) return;
    thread.fiber = std::make_unique<base::Fiber>([&thread] {
      for (;;) {
        thread.body();
        thread.ended = true;
        thread.fiber->leave();
      }
    });
  }

  void go_on(Thread& thread) {
    current_ = &thread;
    thread.fiber->go_on();
  }

  // The search chooses a thread before each access; what a thread does by itself needs no choice.
  void step() {
    current_->fiber->leave();
    const std::size_t me = number_of(*current_);
    current_->known.clock.raise(me, current_->known.clock[me] + 1);
  }

  std::size_t number_of(const Thread& thread) const { return &thread - threads_.data(); }

  bool can_go_on(const Thread& thread) const {
    if (thread.ended) return false;
    if (over_) return true;
    return thread.sleeps_on == nullptr && (!thread.awaits || thread.awaits_since < stores_);
  }

  // Null: all have ended. Two interruptions of threads that could go on show every fault that was
  // ever put in here, and keep the number of runs in the thousands.
  Thread* choose_thread() {
    constexpr int kMostInterruptions = 2;
    std::vector<Thread*> able;
    for (Thread& thread : threads_) {
      if (can_go_on(thread)) able.push_back(&thread);
    }
    if (able.empty()) return last_resort();
    const auto current = std::find(able.begin(), able.end(), current_);
    const bool may_stay = current != able.end();
    if (may_stay && interruptions_ == kMostInterruptions) {
      current_->awaits = false;
      return current_;
    }
    Thread* const chosen = able[choose(able.size())];
    if (may_stay && chosen != current_) ++interruptions_;
    chosen->awaits = false;
    return chosen;
  }

  // No store stays unseen for ever: a thread that awaits one looks once more, at the newest.
  Thread* last_resort() {
    bool any = false;
    for (Thread& thread : threads_) {
      if (thread.ended) continue;
      any = true;
      if (thread.sleeps_on != nullptr || !thread.awaits || thread.reads_newest) continue;
      thread.reads_newest = true;
      thread.awaits = false;
      return &thread;
    }
    if (any) fail("a thread waits for ever");
    return any ? choose_thread() : nullptr;
  }

  Place& place_of(const void* place, std::uint64_t first) {
    const auto [at, is_new] = places_.try_emplace(place);
    if (is_new) {
      at->second.number = places_.size() - 1;
      at->second.stores.push_back({.value = first, .known = {}});
    }
    return at->second;
  }

  // An older store is read twice at most by one thread, as a loop may poll.
  std::size_t choose_store(const Place& place, std::memory_order order) {
    constexpr int kMostReads = 2;
    const std::size_t newest = place.stores.size() - 1;
    if (over_ || current_->reads_newest) return newest;
    int oldest = current_->known.oldest[place.number];
    if (order == std::memory_order_seq_cst) oldest = std::max(oldest, place.last_in_order);
    auto& [store, reads] = current_->older[place.number];
    if (store == oldest && reads >= kMostReads && oldest < static_cast<int>(newest)) ++oldest;
    const std::size_t chosen = newest - choose(newest - oldest + 1);
    if (chosen == newest) return newest;
    reads = store == static_cast<int>(chosen) ? reads + 1 : 1;
    store = static_cast<int>(chosen);
    return chosen;
  }

  const Store& read_store(const Place& place, std::size_t index, std::memory_order order) {
    const Store& store = place.stores[index];
    current_->known.oldest.raise(place.number, static_cast<int>(index));
    const bool acquires = order != std::memory_order_relaxed && order != std::memory_order_release;
    if (acquires && without_ != Without::acquire) current_->known.join(store.known);
    return store;
  }

  void add_store(Place& place, std::uint64_t value, std::memory_order order, Knowledge known) {
    const auto index = static_cast<int>(place.stores.size());
    current_->known.oldest.raise(place.number, index);
    known.oldest.raise(place.number, index);
    const bool releases = order != std::memory_order_relaxed && order != std::memory_order_acquire;
    if (releases && without_ != Without::release) known.join(current_->known);
    place.stores.push_back({.value = value, .known = std::move(known)});
    if (order == std::memory_order_seq_cst) place.last_in_order = index;
    ++stores_;
    for (Thread& thread : threads_) thread.reads_newest = false;
  }

  std::size_t choose(std::size_t count) {
    if (count == 1 || over_) return 0;
    if (next_choice_ == choices_.size()) choices_.push_back({.chosen = 0, .count = count});
    return choices_[next_choice_++].chosen;
  }

  // False: all have been made.
  bool next_choices() {
    while (!choices_.empty() && choices_.back().chosen + 1 == choices_.back().count)
      choices_.pop_back();
    const bool any = !choices_.empty();
    if (any) ++choices_.back().chosen;
    return any;
  }

  const std::function<Threads()>& make_;
  const Without without_;
  Outcome outcome_;
  std::vector<Choice> choices_;
  std::size_t next_choice_ = 0;
  std::vector<Thread> threads_;
  Thread* current_ = nullptr;
  std::map<const void*, Place> places_;
  std::map<const void*, PlainPlace> plain_;
  int stores_ = 0;
  int interruptions_ = 0;
  bool over_ = false;  // a fault is found: the threads only have to come to their end
};

Search* current_search = nullptr;  // NOLINT(*-non-const-global-variables): the threads' functions

}  // namespace

Outcome search(const std::function<Threads()>& make, Without without) {
  Search all(make, without);
  current_search = &all;
  Outcome outcome = all.run_all();
  current_search = nullptr;
  return outcome;
}

void expect(bool holds, const char* sentence) {
  if (!holds) current_search->fail(sentence);
}

bool await(base::FunctionRef<bool()> ready) { return current_search->await(ready); }
void nap() { current_search->nap(); }
void write(const void* place) { current_search->access(place, /*writes=*/true); }
void read(const void* place) { current_search->access(place, /*writes=*/false); }
void heavy_fence() { current_search->heavy_fence(); }
void sleep_on(const void* word, std::uint64_t value) { current_search->sleep_on(word, value); }
void wake_all(const void* word) { current_search->wake_all(word); }

std::uint64_t load(const void* place, std::uint64_t first, std::memory_order order) {
  return current_search->load(place, first, order);
}

void store(const void* place, std::uint64_t first, std::uint64_t value, std::memory_order order) {
  current_search->store(place, first, value, order);
}

std::uint64_t exchange(const void* place, std::uint64_t first, std::memory_order order,
                       base::FunctionRef<bool(std::uint64_t& value)> change) {
  return current_search->exchange(place, first, order, change);
}

}  // namespace plait::weak
